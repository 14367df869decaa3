"""Trees, relations and the attention probe from nothing but transformers' eager weights, in loops.

Words come from the tokenizer's own word ids, trees from a list of all trees, the probe from an Adam written out.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from tiny import bert

from lorgnette.lens.attention_probe.lens import AttentionProbe
from lorgnette.lens.relations.lens import Relations
from lorgnette.lens.trees.lens import Trees
from lorgnette.looking.look import look
from lorgnette.texts.annotated import share
from lorgnette.texts.example import Example

GOLD = (
    ("the cat sat .", (2, 3, 0, 3)),
    ("unbelievable , it ran", (4, 1, 4, 0)),
    ("a good dog slept", (3, 3, 4, 0)),
    ("it was unbelievable", (3, 3, 0)),
    ("the dog was not bad", (2, 5, 5, 5, 0)),
    ("good cat", (2, 0)),
    ("the unbelievable dog ran .", (3, 3, 4, 0, 4)),
    ("it slept and ran", (2, 0, 4, 2)),
    ("very good , dog", (2, 0, 2, 2)),
    ("not a cat", (3, 3, 0)),
)
TEXTS = [
    Example(f"text {n}", text, words=tuple(text.split()), heads=heads,
            relations=tuple("root" if h == 0 else "punct" if w in ".," else "dep"
                            for w, h in zip(text.split(), heads, strict=True)))
    for n, (text, heads) in enumerate(GOLD)
]  # fmt: skip


@pytest.fixture(scope="module")
def subject():
    return bert()


@pytest.fixture(scope="module")
def attention(subject):
    """Of each text [layer head word word + 2]: to a word the sum, from a word the mean; then to [CLS] and [SEP]."""
    found, model = {}, bert().model
    model.set_attn_implementation("eager")
    for text in TEXTS:
        given = subject.tokenizer(list(text.words), is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            layers = torch.stack(model(**given, output_attentions=True).attentions)[:, 0].numpy()
        place, n = given.word_ids(0), len(text.words)
        out = np.zeros((*layers.shape[:2], n, n + 2))
        for row, word in enumerate(place):
            if word is None:
                continue
            for column, other in enumerate(place):
                at = other if other is not None else n if column == 0 else n + 1
                out[:, :, word, at] += layers[:, :, row, column] / place.count(word)
        found[text.id] = out
    assert any(len(subject.tokenizer(text.text)["input_ids"]) > len(text.words) + 2 for text in TEXTS)
    return found


@cache
def all_trees(n):
    """Every way to give n words heads (−1: the root) without a circle."""
    out = []
    for heads in product(range(-1, n), repeat=n):
        ends = []
        for word in range(n):
            for _ in range(n + 1):
                word = heads[word] if word >= 0 else -1
            ends.append(word)
        if heads.count(-1) == 1 and set(ends) == {-1}:
            out.append(heads)
    return out


def best_tree(scores, root=None, root_scores=None):
    """The heaviest tree; scores [dependent, head]."""

    def weight(heads):
        edges = sum(scores[d][h] for d, h in enumerate(heads) if h >= 0)
        return edges + (0 if root_scores is None else root_scores[heads.index(-1)])

    return max((tree for tree in all_trees(len(scores)) if root is None or tree[root] == -1), key=weight)


@pytest.mark.parametrize("root", ["gold", "free"])
@pytest.mark.parametrize("way", ["to_head", "read_by_head"])
def test_uas_of_the_heaviest_of_all_trees(subject, attention, root, way):
    data = look(subject, TEXTS, [Trees(root=root)], progress=False)["trees"].data
    for layer, head in product(range(3), range(4)):
        right = total = 0
        for text in TEXTS:
            n = len(text.words)
            scores = attention[text.id][layer, head, :, :n]
            tree = best_tree(scores if way == "to_head" else scores.T, text.heads.index(0) if root == "gold" else None)
            right += sum(found == gold - 1 for found, gold in zip(tree, text.heads, strict=True))
            total += n
        cell = data.uas.sel(stack="encoder", layer=layer + 1, head=head + 1, way=way)
        assert float(cell) == pytest.approx(right / total, abs=1e-12)


def test_relations_are_largest_weights_among_other_words(subject, attention):
    data = look(subject, TEXTS, [Relations(["dep"])], progress=False)["relations"].data
    for part, way, layer, head in product(("development", "held_out"), ("to_head", "to_dependent"), range(3), range(4)):
        hits = pairs = 0
        for text in TEXTS:
            if (share(f"part/{text.id}") < 0.5) != (part == "development"):
                continue
            n = len(text.words)
            alpha = attention[text.id][layer, head]
            for dependent, (governor, label) in enumerate(zip(text.heads, text.relations, strict=True)):
                if label == "dep":
                    start, end = (dependent, governor - 1) if way == "to_head" else (governor - 1, dependent)
                    hits += end == max((j for j in range(n) if j != start), key=lambda j: alpha[start, j])
                    pairs += 1
        cell = data.sel(relation="dep", way=way, part=part, stack="encoder", layer=layer + 1, head=head + 1)
        assert float(cell["accuracy"]) == pytest.approx(hits / pairs, abs=1e-12)


def features(alpha):
    """Of each dependent and candidate (the root last): Clark et al. 2019, §5.1, eq. 1, as a vector to be weighted."""
    alpha = alpha.reshape(-1, *alpha.shape[2:])
    heads, n, _ = alpha.shape
    out = np.zeros((n, n + 1, 4 * heads + 1))
    for j in range(n):
        for i in range(n):
            out[j, i, :heads], out[j, i, heads : 2 * heads] = alpha[:, j, i], alpha[:, i, j]
        out[j, n, 2 * heads :] = [*alpha[:, j, n], *alpha[:, j, n + 1], 1.0]
    return out


def log_odds(x, weights):
    scores = x @ weights
    scores[np.arange(len(x)), np.arange(len(x))] = -np.inf  # no word is its own head
    return scores


def test_the_probe_is_a_softmax_over_heads_trained_by_adam(subject, attention):
    """The whole lens: features, −log p(gold), Adam (Kingma & Ba 2015), UAS of the likeliest heads and trees."""
    lens = AttentionProbe(development=0.5, steps=60, batch=len(TEXTS), rate=0.05)
    data = look(subject, TEXTS, [lens], progress=False)["attention-probe"].data
    early = [text for text in TEXTS if share(f"part/{text.id}") < 0.5]
    late = [text for text in TEXTS if share(f"part/{text.id}") >= 0.5]
    assert min(len(early), len(late)) >= 3
    # Attention is kept in half precision, as in the paper's code.
    known = {text.id: features(attention[text.id].astype(np.float16).astype(float)) for text in TEXTS}
    gold = {text.id: [len(text.words) if h == 0 else h - 1 for h in text.heads] for text in TEXTS}
    weights = np.zeros(49)
    mean, square = np.zeros(49), np.zeros(49)
    words = sum(len(text.words) for text in early)
    for step in range(1, 61):
        slope = np.zeros(49)
        for text in early:
            x = known[text.id]
            for j, row in enumerate(log_odds(x, weights)):
                p = np.exp(row - row.max())
                slope += (p / p.sum()) @ x[j] - x[j, gold[text.id][j]]
        slope /= words
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        weights -= 0.05 * mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    found = data.weight.sel(stack="encoder").transpose("way", "layer", "head").values.reshape(2, 12)
    np.testing.assert_allclose(found, weights[:24].reshape(2, 12), atol=6e-4)  # it is rounded to a thousandth
    right = {"argmax": 0, "tree": 0}
    for text in late:
        odds, n = log_odds(known[text.id], weights), len(text.words)
        likeliest = [int(row.argmax()) for row in odds]
        tree = best_tree(odds[:, :n], root_scores=odds[:, n])
        right["argmax"] += sum(a == b for a, b in zip(likeliest, gold[text.id], strict=True))
        right["tree"] += sum(a == b - 1 for a, b in zip(tree, text.heads, strict=True))
    total = sum(len(text.words) for text in late)
    for decoding, count in right.items():
        assert float(data.uas.sel(features="attention", decoding=decoding)) == pytest.approx(count / total, abs=1e-12)
