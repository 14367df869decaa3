"""Relevance handed back through post-norm encoders and encoder–decoders by hand: shares in float64, no gradient.

Three sets of rules, each written from its source: `Ali2022` (Ali et al. 2022, biases take their own share), `Voita2019`
(Voita et al. 2019, App. A: ratios without biases, a product's factors by size) and `Voita2021` (the released code:
half of the relevance to positive parts, half to negative ones, then Σ|R| as it was).
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


def apart_from_zero(x, least=1e-3):
    """The ratios of 2019 have denominators that may vanish: 10⁻³ is added with their sign."""
    return x + torch.copysign(torch.full_like(x, least), x)


def share(part, whole):
    """part / whole; of nothing at all (a vector of padding at position 0), every share is zero."""
    return torch.where(whole == 0, 0.0, part / whole)


def centred_parts(x, layer):
    """What input i adds to output j of a LayerNorm with constant deviation, shift apart: [token, in, out]."""
    width = x.shape[-1]
    rate = (x.var(-1, unbiased=False, keepdim=True) + layer.eps).rsqrt()
    centring = torch.eye(width, dtype=x.dtype) - 1 / width
    return x[..., :, None] * centring * (rate * layer.weight)[..., None, :]


class Ali2022:
    starts_with_one = False

    def linear(self, x, layer, r):
        z = x @ layer.weight.T + (0 if layer.bias is None else layer.bias)
        return x * (share(r, z) @ layer.weight)

    def norm(self, x, layer, r):
        parts = centred_parts(x, layer)
        return ((parts / (parts.sum(-2) + layer.bias)[..., None, :]) * r[..., None, :]).sum(-1)

    def added(self, a, b, r):
        return share(a, a + b) * r, share(b, a + b) * r

    def mixed(self, alpha, v, r):
        parts = alpha[..., None] * v[:, None]  # [head query key dim]
        return (share(parts, parts.sum(2, keepdim=True)) * r[:, :, None]).sum(1)


class Voita2019(Ali2022):
    def linear(self, x, layer, r):
        return x * (share(r, self._whole(x @ layer.weight.T, layer)) @ layer.weight)

    @staticmethod
    def _whole(sum_of_parts, layer):
        """Without a bias there is nothing to leave out, and the ratio is the exact one."""
        return sum_of_parts if getattr(layer, "bias", None) is None else apart_from_zero(sum_of_parts)

    def norm(self, x, layer, r):
        parts = centred_parts(x, layer)
        return ((parts / self._whole(parts.sum(-2), layer)[..., None, :]) * r[..., None, :]).sum(-1)

    def mixed(self, alpha, v, r):
        a, v = alpha[..., None], v[:, None]
        parts = share(a * v, (a * v).sum(2, keepdim=True)) * r[:, :, None]
        return (parts * v / apart_from_zero(a + v)).sum(1)


class Voita2021:
    starts_with_one = True
    EPS = 1e-5

    def shared(self, parts, bias, r):
        """Parts [in, out] and R [out] → R [in]; what a bias takes is split evenly over the inputs."""
        out = torch.zeros(len(parts), dtype=parts.dtype)
        for sign in (1, -1):
            signed, own = (sign * parts).clamp(min=0), (sign * bias).clamp(min=0)
            whole = signed.sum(0) + own + self.EPS
            out += (signed / whole * r / 2).sum(1) + (own / whole * r / 2).sum() / len(parts)
        return out * share(r.abs().sum(), out.abs().sum())

    def by_token(self, x, r, parts, bias):
        each = zip(x, r, strict=True)
        return torch.stack([self.shared(parts(one), bias, own) if own.any() else 0 * one for one, own in each])

    def linear(self, x, layer, r):
        bias = torch.zeros(len(layer.weight), dtype=x.dtype) if layer.bias is None else layer.bias
        return self.by_token(x, r, lambda one: one[:, None] * layer.weight.T, bias)

    def norm(self, x, layer, r):
        def scaled(v):
            return F.layer_norm(v, v.shape, layer.weight, None, layer.eps)

        def parts(one):
            return (torch.autograd.functional.jacobian(scaled, one) * one).T

        return self.by_token(x, r, parts, layer.bias)

    def added(self, a, b, r):
        width = a.shape[-1]

        def parts(one):
            return torch.cat([torch.diag(one[:width]), torch.diag(one[width:])])

        return self.by_token(torch.cat([a, b], -1), r, parts, torch.zeros(width, dtype=a.dtype)).split(width, -1)

    def mixed(self, alpha, v, r):
        """All heads of a text at once, since Σ|R| is kept for the text."""
        out = torch.zeros_like(v)
        for sign in (1, -1):
            parts = (sign * alpha[..., None] * v[:, None]).clamp(min=0)
            out += (parts / (parts.sum(2, keepdim=True) + self.EPS) * r[:, :, None] / 2).sum(1)
        return out * share(r.abs().sum(), out.abs().sum())


RULES = {"ah": Ali2022(), "voita2019": Voita2019(), "voita2021": Voita2021()}


@dataclass
class Attention:
    """One attention sublayer and the norm behind its residual."""

    query: Any
    key: Any
    value: Any
    out: Any
    norm: Any
    heads: int

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def forward(self, x, read, causal=False):
        q, k, self.v = (self.split(of(y)) for of, y in ((self.query, x), (self.key, read), (self.value, read)))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
        self.alpha = scores.softmax(-1)
        self.x, self.key_input = x, read
        self.context = (self.alpha @ self.v).transpose(0, 1).flatten(1)
        self.made = self.out(self.context)
        return self.norm(x + self.made)

    def backward(self, rules, r):
        """R of the states that ask, R of the states that are read, R of the heads."""
        to_x, r = rules.added(self.x, self.made, rules.norm(self.x + self.made, self.norm, r))
        by_head = self.split(rules.linear(self.context, self.out, r))
        to_v = rules.mixed(self.alpha, self.v, by_head).transpose(0, 1).flatten(1)
        return to_x, rules.linear(self.key_input, self.value, to_v), by_head.sum((-1, -2))


@dataclass
class FeedForward:
    first: Any
    activation: Any
    second: Any
    norm: Any

    def forward(self, x):
        self.x, self.wide = x, self.activation(self.first(x))
        self.made = self.second(self.wide)
        return self.norm(x + self.made)

    def backward(self, rules, r):
        to_x, r = rules.added(self.x, self.made, rules.norm(self.x + self.made, self.norm, r))
        return to_x + rules.linear(self.x, self.first, rules.linear(self.wide, self.second, r))


class BertStack:
    def __init__(self, bert):
        heads = bert.config.num_attention_heads
        self.layers = [
            (
                Attention(
                    *(getattr(one.attention.self, name) for name in ("query", "key", "value")),
                    one.attention.output.dense,
                    one.attention.output.LayerNorm,
                    heads,
                ),
                FeedForward(
                    one.intermediate.dense,
                    one.intermediate.intermediate_act_fn,
                    one.output.dense,
                    one.output.LayerNorm,
                ),
            )
            for one in bert.encoder.layer
        ]

    def forward(self, x):
        for attention, feed_forward in self.layers:
            x = feed_forward.forward(attention.forward(x, x))
        return x

    def backward(self, rules, r):
        heads = []
        for attention, feed_forward in reversed(self.layers):
            to_queries, read, by_head = attention.backward(rules, feed_forward.backward(rules, r))
            r = to_queries + read
            heads.insert(0, by_head)
        return r, heads


@torch.no_grad()
def classified(model, ids, label, rules):
    """R of words, of positions and types, and of the heads of every layer, for one text of a BERT classifier."""
    bert, stack = model.bert, BertStack(model.bert)
    table = bert.embeddings
    word, kind = table.word_embeddings(ids), table.token_type_embeddings.weight[0].expand(len(ids), -1)
    place = table.position_embeddings.weight[: len(ids)]
    top = stack.forward(table.LayerNorm(word + kind + place))
    pooled = bert.pooler(top[None])
    r = torch.zeros(1, model.config.num_labels, dtype=top.dtype)
    r[0, label] = 1.0 if rules.starts_with_one else model.classifier(pooled)[0, label]
    r_top = torch.zeros_like(top)
    r_top[:1] = rules.linear(top[:1], bert.pooler.dense, rules.linear(pooled, model.classifier, r))
    r, heads = stack.backward(rules, r_top)
    r, r_place = rules.added(word + kind, place, rules.norm(word + kind + place, table.LayerNorm, r))
    r_word, r_kind = rules.added(word, kind, r)
    return r_word.sum(-1), (r_kind + r_place).sum(-1), heads


def _attention(layer, norm, heads):
    return Attention(layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj, norm, heads)


@torch.no_grad()
def translated(model, source, target, rules):
    """For one pair of Marian: R of (source words, positions), (target words, positions) and heads by site name.

    What is explained is the sum of the largest logits of all target positions.
    """
    own, scale = model.model, model.model.encoder.embed_scale
    heads = model.config.encoder_attention_heads
    encoder = [
        (
            _attention(one.self_attn, one.self_attn_layer_norm, heads),
            FeedForward(one.fc1, one.activation_fn, one.fc2, one.final_layer_norm),
        )
        for one in own.encoder.layers
    ]
    decoder = [
        (
            _attention(one.self_attn, one.self_attn_layer_norm, heads),
            _attention(one.encoder_attn, one.encoder_attn_layer_norm, heads),
            FeedForward(one.fc1, one.activation_fn, one.fc2, one.final_layer_norm),
        )
        for one in own.decoder.layers
    ]
    words = [stack.embed_tokens(ids) * scale for stack, ids in ((own.encoder, source), (own.decoder, target))]
    places = [stack.embed_positions.weight[: len(ids)].to(words[0]) for stack, ids in
              ((own.encoder, source), (own.decoder, target))]  # fmt: skip
    read, x = (word + place for word, place in zip(words, places, strict=True))
    for attention, feed_forward in encoder:
        read = feed_forward.forward(attention.forward(read, read))
    for attention, cross, feed_forward in decoder:
        x = feed_forward.forward(cross.forward(attention.forward(x, x, causal=True), read))
    z = model.lm_head(x)
    logits = z + model.final_logits_bias
    said = logits.argmax(-1, keepdim=True)
    start = torch.zeros_like(z).scatter(-1, said, 1.0)
    r = start * (share(z, logits) if rules.starts_with_one else z)  # a bias of the logits keeps its own share
    r = rules.linear(x, model.lm_head, r)
    found, r_read = {}, torch.zeros_like(read)
    for number, (attention, cross, feed_forward) in reversed(list(enumerate(decoder))):
        r, more, found["cross", number] = cross.backward(rules, feed_forward.backward(rules, r))
        r_read = r_read + more
        to_queries, more, found["decoder", number] = attention.backward(rules, r)
        r = to_queries + more
    for number, (attention, feed_forward) in reversed(list(enumerate(encoder))):
        to_queries, more, found["encoder", number] = attention.backward(rules, feed_forward.backward(rules, r_read))
        r_read = to_queries + more
    sides = [rules.added(word, place, side) for word, place, side in zip(words, places, (r_read, r), strict=True)]
    return logits, [[part.sum(-1) for part in side] for side in sides], found


class T5Attention:
    """Attention before which the states are normed; scores have a bias of relative positions and no scale."""

    def __init__(self, layer, norm, bias):
        self.layer, self.norm, self.bias = layer, norm, bias

    def split(self, x):
        return x.unflatten(-1, (self.layer.n_heads, -1)).transpose(-2, -3)

    def forward(self, x, read=None, causal=False):
        self.x, self.query_input = x, _t5_normed(x, self.norm)
        self.is_cross = read is not None
        self.key_input = read if self.is_cross else self.query_input
        layer = self.layer
        self.q, self.k, self.v = map(
            self.split, (layer.q(self.query_input), layer.k(self.key_input), layer.v(self.key_input))
        )
        self.scores = self.q @ self.k.mT + self.bias
        hidden = torch.ones(self.scores.shape[-2:], dtype=torch.bool).triu(1) & causal
        self.alpha = self.scores.masked_fill(hidden, -torch.inf).softmax(-1)
        self.context = (self.alpha @ self.v).transpose(0, 1).flatten(1)
        self.made = layer.o(self.context)
        return x + self.made

    def backward(self, r, halves):
        """R of x, of what a cross-attention reads (None else) and of the heads; `halves`: AttnLRP, else the AH-rule."""
        ali, layer = RULES["ah"], self.layer
        to_x, r = ali.added(self.x, self.made, r)
        r = self.split(ali.linear(self.context, layer.o, r))
        by_head, out = r.sum((-1, -2)), self.alpha @ self.v
        parts = self.alpha[..., None] * self.v[:, None] / out[:, :, None] * r[:, :, None]  # [head query key dim]
        if not halves:
            to_queries, to_read = 0, self._joined(parts.sum(1), self.key_input, layer.v)
        else:
            to_alpha = parts.sum(-1) / 2
            seen = self.scores * (self.alpha > 0)
            to_scores = seen * (to_alpha - self.alpha * to_alpha.sum(-1, keepdim=True))
            product = self.q[:, :, None] * self.k[:, None] * share(to_scores, self.scores)[..., None] / 2
            to_queries = self._joined(product.sum(2), self.query_input, layer.q)
            to_read = self._joined(product.sum(1), self.key_input, layer.k) + self._joined(
                parts.sum(1) / 2, self.key_input, layer.v
            )
        if self.is_cross:
            return to_x + to_queries, to_read, by_head
        return to_x + to_queries + to_read, None, by_head  # the norm's scale passes everything on

    def _joined(self, r, x, layer):
        return RULES["ah"].linear(x, layer, r.transpose(0, 1).flatten(1))


def _t5_normed(x, norm):
    return x * (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt() * norm.weight


@torch.no_grad()
def t5_translated(model, source, target, method):
    """Like `translated`, for a T5 with ReLUs; words are all that its states begin with."""
    ali, halves = RULES["ah"], method == "attnlrp"
    words = [model.shared(source), model.shared(target)]
    lengths = len(source), len(target)
    layers, states = [[], []], []
    read = None
    for side, stack in enumerate((model.encoder, model.decoder)):
        first, x = stack.block[0].layer[0].SelfAttention, words[side]
        bias = first.compute_bias(lengths[side], lengths[side])[0]
        for block in stack.block:
            own = T5Attention(block.layer[0].SelfAttention, block.layer[0].layer_norm, bias)
            x = own.forward(x, causal=side == 1)
            cross = None
            if side:
                cross = T5Attention(block.layer[1].EncDecAttention, block.layer[1].layer_norm, 0.0)
                x = cross.forward(x, read)
            feed = block.layer[-1]
            normed = _t5_normed(x, feed.layer_norm)
            wide = feed.DenseReluDense.wi(normed).relu()
            made = feed.DenseReluDense.wo(wide)
            layers[side].append((own, cross, (x, normed, wide, made, feed.DenseReluDense)))
            x = x + made
        read = _t5_normed(x, stack.final_layer_norm)
        states.append(read)
    logits = model.lm_head(states[1])
    scaled = logits * (model.config.d_model**-0.5 if model.config.tie_word_embeddings else 1.0)
    r = torch.zeros_like(scaled).scatter(-1, scaled.argmax(-1, keepdim=True), scaled.max(-1, keepdim=True).values)
    r = ali.linear(states[1], model.lm_head, r)
    found, out, r_read = {}, [None, None], torch.zeros_like(states[0])
    for side, name in ((1, "decoder"), (0, "encoder")):
        for number, (own, cross, (x, normed, wide, made, dense)) in reversed(list(enumerate(layers[side]))):
            to_x, r_made = ali.added(x, made, r)
            r = to_x + ali.linear(normed, dense.wi, ali.linear(wide, dense.wo, r_made))
            if cross is not None:
                r, more, found["cross", number] = cross.backward(r, halves)
                r_read = r_read + more
            r, _, found[name, number] = own.backward(r, halves)
        out[side] = r.sum(-1)
        r = r_read
    return scaled, out, found
