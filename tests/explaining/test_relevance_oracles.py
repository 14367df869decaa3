"""AttnLRP on an encoder–decoder, as gradient × input of a forward pass written by hand in float64."""

import torch
from headed import examples, headed

from lorgnette.attending import Site
from lorgnette.explaining import explain


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


class HalvedProducts:
    """A forward pass of Marian in which gradient × input is AttnLRP (Achtibat et al. 2024, ε = 0).

    Both factors of a product of matrices take half (Prop. 3.3), a norm's deviation is constant (3.4), an activation
    passes everything on (the identity rule), and the softmax keeps its own gradient (3.1).
    """

    def __init__(self, model):
        self.model, self.heads = model, model.config.encoder_attention_heads
        self.contexts = {}

    @staticmethod
    def product(a, b):
        return (a @ b.detach() + a.detach() @ b) / 2

    @staticmethod
    def norm(x, layer):
        centred = x - x.mean(-1, keepdim=True)
        deviation = (x.var(-1, unbiased=False, keepdim=True) + layer.eps).sqrt()
        return centred / deviation.detach() * layer.weight + layer.bias

    def attention(self, name, layer, x, source, hidden):
        q, k, v = split(layer.q_proj(x), self.heads), split(layer.k_proj(source), self.heads), layer.v_proj(source)
        v = split(v, self.heads)
        scores = self.product(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)).masked_fill(hidden, -torch.inf)
        self.contexts[name] = context = self.product(scores.softmax(-1), v)
        context.retain_grad()
        return layer.out_proj(context.transpose(0, 1).flatten(1))

    def feed_forward(self, layer, x):
        wide = layer.fc1(x)
        rate = (layer.activation_fn(wide) / wide).detach()
        return layer.fc2(wide * rate)

    def logits(self, source, target):
        """From word vectors (already scaled) with positions added."""
        free = torch.zeros(len(source), len(source), dtype=torch.bool)
        for number, layer in enumerate(self.model.model.encoder.layers):
            name = Site("encoder", "self", number)
            source = self.norm(
                source + self.attention(name, layer.self_attn, source, source, free), layer.self_attn_layer_norm
            )
            source = self.norm(source + self.feed_forward(layer, source), layer.final_layer_norm)
        later = torch.ones(len(target), len(target), dtype=torch.bool).triu(1)
        crossed = torch.zeros(len(target), len(source), dtype=torch.bool)
        for number, layer in enumerate(self.model.model.decoder.layers):
            name = Site("decoder", "self", number)
            target = self.norm(
                target + self.attention(name, layer.self_attn, target, target, later), layer.self_attn_layer_norm
            )
            read = self.attention(Site("decoder", "cross", number), layer.encoder_attn, target, source, crossed)
            target = self.norm(target + read, layer.encoder_attn_layer_norm)
            target = self.norm(target + self.feed_forward(layer, target), layer.final_layer_norm)
        return self.model.lm_head(target) + self.model.final_logits_bias


def test_attnlrp_of_a_translation_is_the_papers_rules_on_both_sides():
    watched = headed("marian")
    batch = watched.encode(examples((4, 2)))
    found = explain(watched, batch, "attnlrp")
    model, texts = watched.model.model, zip(batch.source.mask, batch.target.mask, strict=True)
    for text, (read, written) in enumerate(texts):
        sides = []
        for stack, ids, mask in (
            (model.encoder, batch.source.ids, read),
            (model.decoder, batch.inputs["decoder_input_ids"], written),
        ):
            words = (stack.embed_tokens(ids[text][mask]) * model.encoder.embed_scale).detach().requires_grad_()
            places = stack.embed_positions.weight[: int(mask.sum())].detach().to(words).requires_grad_()
            sides.append((words, places))
        by_hand = HalvedProducts(watched.model)
        logits = by_hand.logits(*(words + places for words, places in sides))
        with torch.no_grad():
            plain = watched.run(batch).logits[text][written]
        torch.testing.assert_close(logits, plain, rtol=1e-9, atol=1e-9)
        logits.max(-1).values.sum().backward()
        (words, places), (target, target_places) = sides
        slow = [(each * each.grad).sum(-1).detach() for each in (words, places, target, target_places)]
        fast = (
            found.tokens[text][read],
            found.positions[text][read],
            found.target_tokens[text][written],
            found.target_positions[text][written],
        )
        for one, other in zip(fast, slow, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
        for site, context in by_hand.contexts.items():
            torch.testing.assert_close(
                found.heads[site][text], (context * context.grad).sum((-1, -2)).detach(), rtol=1e-7, atol=1e-9
            )
