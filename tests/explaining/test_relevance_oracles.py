"""Voita et al. 2021 on an encoder and AttnLRP on an encoder–decoder, gone through by hand in float64."""

import torch
import torch.nn.functional as F
from headed import examples, headed
from test_explanations import one_layer

from lorgnette.attending import Site
from lorgnette.explaining import explain

EPS = 1e-5


def shares(parts, bias, r):
    """The αβ-rule of the released code, α = β = ½ and both positive: parts [in, out], R [out] → R [in].

    Half of R_j goes to the positive parts of output j and half to the negative ones; what the bias takes is split
    evenly over the inputs; then Σ|R| is made what it was.
    """
    out = torch.zeros(len(parts), dtype=parts.dtype)
    for sign in (1, -1):
        signed = (sign * parts).clamp(min=0)
        own = (sign * bias).clamp(min=0)
        whole = signed.sum(0) + own + EPS
        out += (signed / whole * r / 2).sum(1) + (own / whole * r / 2).sum() / len(parts)
    return out * r.abs().sum() / out.abs().sum()


def by_token(x, r, parts, bias):
    """The rule for every token apart; tokens without relevance get none."""
    rows = [
        shares(parts(one), bias, own) if own.any() else torch.zeros_like(one) for one, own in zip(x, r, strict=True)
    ]
    return torch.stack(rows)


def through_linear(x, layer, r):
    return by_token(x, r, lambda one: one[:, None] * layer.weight.T, layer.bias)


def through_norm(x, layer, r):
    """The norm's first-order expansion at its input: parts J_ji x_i, the shift as its bias."""

    def parts(one):
        def scaled(v):
            return F.layer_norm(v, v.shape, layer.weight, None, layer.eps)

        return (torch.autograd.functional.jacobian(scaled, one) * one).T

    return by_token(x, r, parts, layer.bias)


def through_sum(a, b, r):
    both = torch.cat([a, b], -1)
    width = a.shape[-1]

    def parts(one):
        return torch.cat([torch.diag(one[:width]), torch.diag(one[width:])])

    return by_token(both, r, parts, torch.zeros(width, dtype=a.dtype)).split(width, -1)


def through_mixing(alpha, v, r):
    """Σ_j α_ij v_j of all heads of a text, α constant: parts from (head, key, dim) to (head, query, dim)."""
    heads, queries, keys = alpha.shape
    dim = v.shape[-1]
    parts = torch.zeros(heads, keys, dim, heads, queries, dim, dtype=v.dtype)
    for h in range(heads):
        for i in range(queries):
            for j in range(keys):
                for d in range(dim):
                    parts[h, j, d, h, i, d] = alpha[h, i, j] * v[h, j, d]
    size = heads * keys * dim
    flat = parts.reshape(size, heads * queries * dim)
    return shares(flat, torch.zeros(flat.shape[1], dtype=v.dtype), r.reshape(-1)).reshape(heads, keys, dim)


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


@torch.no_grad()
def voita2021(model, ids, label):
    """R of the word vectors [token] and of every head of a one-layer BERT."""
    bert, layer, heads = model.bert, model.bert.encoder.layer[0], model.config.num_attention_heads
    table, own, after = bert.embeddings, layer.attention.self, layer.attention.output
    word, kind = table.word_embeddings(ids), table.token_type_embeddings.weight[0].expand(len(ids), -1)
    place = table.position_embeddings.weight[: len(ids)]
    first = table.LayerNorm(word + kind + place)
    q, k, v = (split(project(first), heads) for project in (own.query, own.key, own.value))
    alpha = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
    attended = (alpha @ v).transpose(0, 1).flatten(1)
    projected = after.dense(attended)
    second = after.LayerNorm(first + projected)
    active = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(second))
    narrow = layer.output.dense(active)
    third = layer.output.LayerNorm(second + narrow)
    r = torch.zeros(1, model.config.num_labels, dtype=third.dtype)
    r[0, label] = 1.0
    r = through_linear(bert.pooler(third[None]), model.classifier, r)
    top = torch.zeros_like(third)
    top[:1] = through_linear(third[:1], bert.pooler.dense, r)
    r_second, r = through_sum(second, narrow, through_norm(second + narrow, layer.output.LayerNorm, top))
    r_second = r_second + through_linear(
        second, layer.intermediate.dense, through_linear(active, layer.output.dense, r)
    )
    r_first, r = through_sum(first, projected, through_norm(first + projected, after.LayerNorm, r_second))
    r_heads = split(through_linear(attended, after.dense, r), heads)
    r_values = through_mixing(alpha, v, r_heads).transpose(0, 1).flatten(1)
    r_first = r_first + through_linear(first, own.value, r_values)
    r, _ = through_sum(word + kind, place, through_norm(word + kind + place, table.LayerNorm, r_first))
    return through_sum(word, kind, r)[0].sum(-1), r_heads.sum((-1, -2))


def test_voita_2021_is_the_released_rule_gone_through_by_hand():
    watched = one_layer()
    batch = watched.encode(examples((4, 2)))
    found = explain(watched, batch, "voita2021", target=1)
    (heads,) = found.heads.values()
    for text, length in enumerate(batch.lengths.tolist()):
        words, by_head = voita2021(watched.model, batch.source.ids[text, :length], 1)
        torch.testing.assert_close(heads[text], by_head, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(found.tokens[text, :length], words, rtol=1e-6, atol=1e-9)


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
