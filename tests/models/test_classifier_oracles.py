"""Every preset against its equations in float64, loop by loop, written from the texts and not from the code."""

import math

import numpy as np
import pytest
import torch

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import PRESETS, preset

# Two texts of different length; id 0 is padding, 1 unknown, 2 <cls>.
WORDS = ([5, 9, 1, 7, 5, 11], [8, 3, 6])
VARIANTS = [
    *((name, {}) for name in PRESETS),
    ("tp9-position", {"positions": "learnt"}),
    ("tp9-position", {"positions": "relative", "max_offset": 2}),
    ("tp9-residual-position-cls", {"positions": "learnt"}),
    ("tp9-residual-position-cls", {"positions": "relative", "max_offset": 1}),
    ("tp9-residual", {"transform": "none"}),
    ("tp9-residual", {"heads": 3, "positions": "relative", "max_offset": 2}),
    ("tp9-base", {"embedding_width": 4}),
    ("tp9-position", {"position_scale": 0.25}),
    ("pure-attention", {"layers": 4}),
    ("pure-attention", {"layers": 2, "heads": 2}),
    ("bilstm-attention", {"lstm_layers": 2, "lstm_width": 5}),
    ("bilstm-attention", {"concatenate_state": True}),
]


class Parameters:
    """The weights of a model by name, and W x + b."""

    def __init__(self, model):
        self.all = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}

    def __getitem__(self, name):
        return self.all[name]

    def linear(self, name, x):
        return self.all[f"{name}.weight"] @ x + self.all[f"{name}.bias"]


def softmax(scores):
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


def words(p, config, ids):
    """x⁽⁰⁾ of TP 9: the vector of each word, <cls> first if there is one, plus pe_i."""
    x = [p["embeddings.words.weight"][i].copy() for i in ids]
    if "embeddings.cls" in p.all:
        x[0] = p["embeddings.cls"].copy()
    if "embeddings.projection.weight" in p.all:
        x = [p.linear("embeddings.projection", vector) for vector in x]
    d = len(x[0])
    for i, vector in enumerate(x):
        if config.positions == "sinusoidal":
            for h in range(d):
                pe = math.sin(i / 10000 ** (h / d)) if h % 2 == 0 else math.cos(i / 10000 ** ((h - 1) / d))
                vector[h] += config.position_scale * pe
        if config.positions == "learnt":
            vector += p["embeddings.positions.table"][i]
    return x


def attention(p, config, layer, x):
    """f of TP 9, equation 1: Σ_j p(a_ij) v(x_j), log p(a_ij) = constant + q(x_i)·k(x_j)/√d, for each head."""
    name = f"encoder.layers.{layer}.attention"
    q, k, v = ([p.linear(f"{name}.{part}", vector) for vector in x] for part in ("query", "key", "value"))
    d = config.width // config.heads
    result = []
    for i in range(len(x)):
        heads = []
        for head in range(config.heads):
            part = slice(head * d, (head + 1) * d)
            scores = [float(np.dot(q[i][part], k[j][part])) / math.sqrt(d) for j in range(len(x))]
            if config.positions == "relative":
                for j in range(len(x)):
                    offset = max(-config.max_offset, min(config.max_offset, j - i))
                    scores[j] += p[f"{name}.relative.bias"][head, offset + config.max_offset]
            alpha = softmax(scores)
            heads.append(sum(alpha[j] * v[j][part] for j in range(len(x))))
        result.append(np.concatenate(heads))
    return result


def layer_norm(p, name, x, eps):
    mean = sum(x) / len(x)
    variance = sum((component - mean) ** 2 for component in x) / len(x)
    return (x - mean) / math.sqrt(variance + eps) * p[f"{name}.weight"] + p[f"{name}.bias"]


def relu(x):
    return np.array([max(0.0, component) for component in x])


def tp9_base(p, config, layer, x):
    g = f"encoder.layers.{layer}.transform.linear"
    return [relu(p.linear(g, f)) for f in attention(p, config, layer, x)]


def tp9_residual(p, config, layer, x):
    normed = [layer_norm(p, f"encoder.layers.{layer}.norm", vector, config.layer_norm_eps) for vector in x]
    sums = [vector + f for vector, f in zip(x, attention(p, config, layer, normed), strict=True)]
    if config.transform == "none":
        return sums
    return [relu(p.linear(f"encoder.layers.{layer}.transform.linear", vector)) for vector in sums]


def fosse(p, config, layer, x):
    """Z = (A V) W_O + b_O; x ← norm(x + Z), unbiased variance, no ε."""
    result = []
    for vector, context in zip(x, attention(p, config, layer, x), strict=True):
        y = vector + p.linear(f"encoder.layers.{layer}.attention.output", context)
        mean = sum(y) / len(y)
        variance = sum((component - mean) ** 2 for component in y) / (len(y) - 1)
        result.append((y - mean) / math.sqrt(variance))
    return result


BLOCKS = {"bare": tp9_base, "residual": tp9_residual, "post-norm": fosse}


def mean(x):
    return sum(x) / len(x)


def global_query(p, x):
    alpha = softmax([float(np.dot(p["pooler.query"], vector)) for vector in x])
    return sum(a * vector for a, vector in zip(alpha, x, strict=True))


def query_from_mean(p, x):
    q = p.linear("pooler.attention.query", mean(x))
    alpha = softmax([float(np.dot(q, vector)) for vector in x])
    return sum(a * p.linear("pooler.attention.value", vector) for a, vector in zip(alpha, x, strict=True))


def lstm(p, suffix, x):
    """i, f, o = σ(·), c̃ = tanh(·); c ← f c + i c̃, h ← o tanh(c): the states in the order in which x comes."""
    size = p[f"pooler.lstm.weight_hh_{suffix}"].shape[1]
    h, c, states = np.zeros(size), np.zeros(size), []
    for vector in x:
        gates = p[f"pooler.lstm.weight_ih_{suffix}"] @ vector + p[f"pooler.lstm.bias_ih_{suffix}"]
        gates = gates + p[f"pooler.lstm.weight_hh_{suffix}"] @ h + p[f"pooler.lstm.bias_hh_{suffix}"]
        i, f, candidate, o = np.split(gates, 4)
        c = c / (1 + np.exp(-f)) + np.tanh(candidate) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        states.append(h)
    return states


def bilstm(p, config, x):
    for level in range(config.lstm_layers):
        forward, backward = lstm(p, f"l{level}", x), lstm(p, f"l{level}_reverse", x[::-1])[::-1]
        x = [np.concatenate(pair) for pair in zip(forward, backward, strict=True)]
    final = np.concatenate((forward[-1], backward[0]))
    q = p.linear("pooler.attention.query", final)
    scores = [float(np.dot(q, p.linear("pooler.attention.key", h))) / math.sqrt(len(q)) for h in x]
    values = [p.linear("pooler.attention.value", h) for h in x]
    context = p.linear("pooler.attention.output", sum(a * v for a, v in zip(softmax(scores), values, strict=True)))
    if config.concatenate_state:
        context = np.concatenate((context, final))
    return relu(p.linear("pooler.linear", context))


def logits(model, ids):
    p, config = Parameters(model), model.config
    x = words(p, config, ids)
    for layer in range(config.layers):
        x = BLOCKS[config.block](p, config, layer, x)
    pooled = {
        "mean": lambda: mean(x),
        "cls": lambda: x[0],
        "cls-zero": lambda: x[0],
        "attention": lambda: global_query(p, x),
        "query": lambda: query_from_mean(p, x),
        "bilstm-attention": lambda: bilstm(p, config, x),
    }[config.pooling]()
    return p.linear("classifier", pooled)


def make(name, seed=0, **overrides):
    """A small double-precision model; every parameter is moved, so that no zero start or dead ReLU hides a mistake."""
    torch.manual_seed(seed)
    model = SelfAttentionClassifier(preset(name, **{"vocab_size": 12, "width": 6, "num_labels": 3, **overrides}))
    model.double().eval()
    with torch.no_grad():
        for each, parameter in model.named_parameters():
            parameter += 0.3 * torch.randn_like(parameter) + each.endswith("transform.linear.bias")
    return model


def batch(config):
    texts = [[2, *ids] if config.uses_cls else ids for ids in WORDS]
    longest = max(map(len, texts))
    return texts, torch.tensor([ids + [0] * (longest - len(ids)) for ids in texts])


@pytest.mark.parametrize(("name", "overrides"), VARIANTS, ids=lambda part: str(part))
@pytest.mark.parametrize("seed", [0, 1])
def test_logits_are_those_of_the_equations(name, overrides, seed):
    model = make(name, seed, **overrides)
    texts, ids = batch(model.config)
    found = model(ids, (ids != 0).long()).logits.detach().numpy()
    for row, text in zip(found, texts, strict=True):
        np.testing.assert_allclose(row, logits(model, text), rtol=0, atol=1e-10)
    assert np.abs(found[0] - found[1]).max() > 1e-6  # the texts differ, and so must what is said of them


def ffn(p, name, x):
    return p.linear(f"{name}.contract", relu(p.linear(f"{name}.expand", x)))


@pytest.mark.parametrize("block", ["bare", "residual", "post-norm"])
def test_feed_forward_is_the_usual_one_in_each_style(block):
    model = make("tp9-base", block=block, transform="feed-forward", layers=1, heads=2)
    p, config, texts = Parameters(model), model.config, WORDS
    name = "encoder.layers.0"
    for text in texts:
        x = words(p, config, text)
        inside = [layer_norm(p, f"{name}.norm", v, config.layer_norm_eps) for v in x] if block == "residual" else x
        f = [p.linear(f"{name}.attention.output", context) for context in attention(p, config, 0, inside)]
        if block == "bare":
            out = [ffn(p, f"{name}.transform", y) for y in f]
        elif block == "residual":
            y = [a + b for a, b in zip(x, f, strict=True)]
            normed = [layer_norm(p, f"{name}.transform.norm", v, config.layer_norm_eps) for v in y]
            out = [a + ffn(p, f"{name}.transform", b) for a, b in zip(y, normed, strict=True)]
        else:
            y = [(v - v.mean()) / v.std(ddof=1) for v in (a + b for a, b in zip(x, f, strict=True))]
            z = [v + ffn(p, f"{name}.transform", v) for v in y]
            out = [(v - v.mean()) / v.std(ddof=1) for v in z]
        expected = p.linear("classifier", mean(out))
        found = model(torch.tensor([text])).logits[0].detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
