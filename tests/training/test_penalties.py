"""What penalties add to a loss, against loops in float64."""

import math

import pytest
import torch
from tiny import inputs, tiny_model

from lorgnette.attending import Tap, sweep
from lorgnette.attending.entropy import swept_entropy
from lorgnette.attending.scores import Scores, dense, softmax
from lorgnette.errors import UserError
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from lorgnette.models.tapping import tapped
from lorgnette.statistics.entropy import entropy, normalised_entropy
from lorgnette.training import EntropyPenalty, HeuristicPenalty, RationalePenalty
from lorgnette.training.penalties import kl_divergence, soft_jaccard

LENGTHS = (7, 3, 1)


def entropy_oracle(row, n):
    """METHODS: H = −Σ a log a / log n, n = 1 divides by log 2, zeros are 1e-10 inside the log."""
    total = 0.0
    for a in row[:n]:
        total -= float(a) * math.log(float(a) if a > 0 else 1e-10)
    return total / math.log(n if n > 1 else 2)


def jaccard_oracle(a, b):
    smaller = sum(min(float(x), float(y)) for x, y in zip(a, b, strict=True))
    larger = sum(max(float(x), float(y)) for x, y in zip(a, b, strict=True))
    return smaller / larger


def kl_oracle(t, a):
    return sum(float(x) * math.log(float(x) / max(float(y), 1e-10)) for x, y in zip(t, a, strict=True) if x > 0)


class Keep(Tap):
    """Every call's weights, layer by layer."""

    def __init__(self):
        self.kept = []

    def see(self, call):
        self.kept.append(call.block().detach())


def classifier(**overrides):
    torch.manual_seed(0)
    settings = {"layers": 2, "width": 8, "heads": 2, "vocab_size": 40, "freeze_embeddings": False, **overrides}
    return SelfAttentionClassifier(preset("tp9-residual-cls", **settings)).double()


def batch(lengths=LENGTHS):
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(3, 40, mask.shape, generator=torch.Generator().manual_seed(1))
    ids[:, 0] = 2
    return {"input_ids": ids.masked_fill(~mask, 0), "attention_mask": mask.long(), "labels": torch.tensor([0, 1, 0])}


def seen(model, given, *penalties, extra=None):
    """One pass; the values, and the weights of every layer."""
    keep = Keep()
    for penalty in penalties:
        penalty.begin(given["attention_mask"].bool(), extra or {})
    with tapped(model, *penalties, keep):
        output = model(**given)
    return output, keep.kept


@pytest.mark.parametrize("rows", ["cls", "all"])
@pytest.mark.parametrize("layers", [None, (2,)])
def test_entropy_is_the_paper_s(rows, layers):
    model, given, penalty = classifier(), batch(), EntropyPenalty(0.1, rows, layers)
    _, weights = seen(model, given, penalty)
    chosen = weights if layers is None else [weights[layer - 1] for layer in layers]
    expected = []
    for layer in chosen:
        for text, n in enumerate(LENGTHS):
            for head in range(2):
                queries = range(n) if rows == "all" else (0,)
                expected.append(sum(entropy_oracle(layer[text, head, i], n) for i in queries) / len(queries))
    assert penalty.value.item() == pytest.approx(sum(expected) / len(expected), abs=1e-12)


@pytest.mark.parametrize("family", ["bert-classifier", "distilbert", "mpnet"])
def test_entropy_of_pretrained_models(family):
    model = tiny_model(family, dtype=torch.float64)
    given = inputs(model, LENGTHS)
    penalty = EntropyPenalty(1.0, "cls", (1,))
    _, weights = seen(model, given, penalty)
    expected = [entropy_oracle(weights[0][b, h, 0], n) for b, n in enumerate(LENGTHS) for h in range(4)]
    assert penalty.value.item() == pytest.approx(sum(expected) / len(expected), abs=1e-9)


def test_entropy_of_an_attention_pooler():
    model = classifier(layers=0, heads=1, pooling="attention")
    given, penalty = batch(), EntropyPenalty(1.0)
    with torch.no_grad():
        model.pooler.query.normal_()
    _, weights = seen(model, given, penalty)
    expected = [entropy_oracle(weights[0][b, 0, 0], n) for b, n in enumerate(LENGTHS)]
    assert penalty.value.item() == pytest.approx(sum(expected) / 3, abs=1e-12)


def test_one_key_and_an_even_row():
    assert normalised_entropy(entropy(torch.ones(1, 1)), torch.ones(1, dtype=torch.long)).item() == 0
    even = torch.full((1, 8), 1 / 8)
    assert normalised_entropy(entropy(even), torch.tensor([8])).item() == pytest.approx(1)


@pytest.mark.parametrize("rows", ["cls", "all"])
def test_gradients_are_those_of_differences_and_padding_gives_none(rows):
    model, given = classifier(), batch()

    def loss():
        penalty = EntropyPenalty(1.0, rows)
        output, _ = seen(model, given, penalty)
        task = torch.nn.functional.cross_entropy(output.logits, given["labels"])  # output.loss is float32
        return task + 0.5 * penalty.value

    loss().backward()
    weight = model.encoder.layers[1].attention.query.weight
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    found, step = weight.grad[1, 2].item(), 1e-6
    with torch.no_grad():
        weight[1, 2] += step
        above = loss().item()
        weight[1, 2] -= 2 * step
        below = loss().item()
    assert found == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-9)


def test_more_padding_changes_nothing():
    model, penalty = classifier(), EntropyPenalty(1.0, "all")
    short = batch()
    seen(model, short, penalty)
    before = penalty.value.item()
    wider = {k: torch.nn.functional.pad(v, (0, 5)) if v.dim() == 2 else v for k, v in short.items()}
    seen(model, wider, penalty)
    assert penalty.value.item() == pytest.approx(before, abs=1e-12)


@pytest.mark.parametrize("loss", ["jaccard", "kl"])
def test_rationales_count_only_texts_that_have_one(loss):
    model, given = classifier(layers=1), batch()
    gold = torch.zeros(3, 7, dtype=torch.float64)
    gold[0, [2, 4]] = 1.0
    gold[1, 1] = 0.5
    penalty = RationalePenalty(1.0, loss)
    _, weights = seen(model, given, penalty, extra={"gold": gold})
    expected = []
    for text in (0, 1):
        target = [float(g) / float(gold[text].sum()) for g in gold[text]]
        row = [sum(float(weights[0][text, h, 0, j]) for h in range(2)) / 2 for j in range(7)]
        expected.append(1 - jaccard_oracle(row, target) if loss == "jaccard" else kl_oracle(target, row))
    assert penalty.value.item() == pytest.approx(sum(expected) / 2, abs=1e-12)
    penalty.value.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    _, _ = seen(model, given, penalty, extra={"gold": torch.zeros(3, 7)})
    assert penalty.value.item() == 0


def test_maps_against_loops_and_at_their_ends():
    draw = torch.Generator().manual_seed(3)
    a, b = torch.rand(5, 6, generator=draw, dtype=torch.float64), torch.rand(5, 6, generator=draw, dtype=torch.float64)
    a[:, 2] = 0
    found = soft_jaccard(a, b)
    assert found.tolist() == pytest.approx([jaccard_oracle(x, y) for x, y in zip(a, b, strict=True)])
    assert soft_jaccard(a, a).tolist() == pytest.approx([1] * 5)
    assert soft_jaccard(torch.eye(2)[:1], torch.eye(2)[1:]).item() == 0
    assert soft_jaccard(torch.zeros(1, 3), torch.zeros(1, 3)).item() == 1
    p, q = a / a.sum(-1, keepdim=True), b / b.sum(-1, keepdim=True)
    assert kl_divergence(p, q).tolist() == pytest.approx([kl_oracle(x, y) for x, y in zip(p, q, strict=True)])
    assert kl_divergence(p, p).tolist() == pytest.approx([0] * 5, abs=1e-12)


def test_the_cls_row_needs_no_matrix():
    """One row is asked for, so the n×n weights are never built."""

    class Whole(Tap):
        built = 0

        def see(self, call):
            self.built += call.has_weights

    model, given, whole, penalty = classifier(), batch(), Whole(), EntropyPenalty(1.0)
    penalty.begin(given["attention_mask"].bool(), {})
    with tapped(model, penalty, whole):
        model(**given)
    assert whole.built == 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: EntropyPenalty(-0.1), "must be 0 or more; got -0.1"),
        (lambda: EntropyPenalty(float("nan")), "must be 0 or more; got nan"),
        (lambda: EntropyPenalty(1.0, "clss"), "Did you mean 'cls'"),
        (lambda: EntropyPenalty(1.0, layers=[0]), "counted from 1"),
        (lambda: RationalePenalty(1.0, "dice"), "one of jaccard, kl"),
        (lambda: HeuristicPenalty(1.0).begin(None, {}), "this corpus does not give"),
    ],
)
def test_wrong_settings(make, said):
    with pytest.raises(UserError, match=said):
        make()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_the_swept_entropy_and_its_gradient_are_the_matrix_s(masked, causal, biased, monkeypatch):
    monkeypatch.setitem(sweep.BLOCK, "cpu", 40)  # many blocks
    draw = torch.Generator().manual_seed(4)
    query, key = (torch.randn(3, 2, 6, 4, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(2))
    bias = torch.randn(1, 2, 6, 6, generator=draw, dtype=torch.float64).requires_grad_() if biased else None
    allowed = (torch.arange(6) < torch.tensor([6, 3, 1])[:, None])[:, None, None] if masked else None
    scores = Scores(query, key, 0.7, allowed, bias, causal)
    towards = torch.randn(3, 2, 6, generator=draw, dtype=torch.float64)
    inputs_ = [tensor for tensor in (query, key, bias) if tensor is not None]
    found = swept_entropy(scores)
    expected = entropy(softmax(dense(scores)))
    assert torch.allclose(found, expected, atol=1e-8)
    ours = torch.autograd.grad((found * towards).sum(), inputs_)
    theirs = torch.autograd.grad((expected * towards).sum(), inputs_)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-8)
