"""The cones lens: planted cones at known angles, loops, representatives, and input that has no cones."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import false_discovery_control, t
from sklearn.metrics import roc_auc_score
from tiny import EXAMPLES, bert, classifier, gpt2, own_classifier, word_pieces
from transformers import BertConfig, BertForSequenceClassification, DistilBertConfig, GPT2Config, RobertaConfig
from transformers import DistilBertForSequenceClassification as DistilBert
from transformers import GPT2ForSequenceClassification as Gpt2Classifier
from transformers import RobertaForSequenceClassification as Roberta

from lorgnette.errors import UserError
from lorgnette.lens.cones.formulas import class_cosines, mean_direction_cosines, separation
from lorgnette.lens.cones.lens import Cones
from lorgnette.lens.cones.outcome import Sample, lowest_q
from lorgnette.subject import Subject
from lorgnette.testing import run_lens
from lorgnette.texts.example import Example

CLASSES = ("a", "b", "c")


def planted(angle, spread=0.0, texts=8, right=1.0, seed=0):
    """A lens that has seen three classes whose axes are at this angle with each other, each text `spread` off its axis.

    Off its axis in opposite pairs, in dimensions that no axis uses, so that means are exact.
    """
    gram = torch.full((3, 3), math.cos(angle), dtype=torch.float64).fill_diagonal_(1.0)
    axes = torch.zeros(3, 24, dtype=torch.float64)
    axes[:, :3] = torch.linalg.cholesky(gram + 1e-15 * torch.eye(3))
    generator = torch.Generator().manual_seed(seed)
    lens = fresh()
    for label in range(3):
        side = torch.zeros(texts, 24, dtype=torch.float64)
        some = torch.randn(texts // 2, 21, generator=generator, dtype=torch.float64)
        some = torch.nn.functional.normalize(some, dim=-1)
        side[:, 3:] = torch.cat([some, -some])
        off = spread[label] if isinstance(spread, tuple) else spread
        vectors = axes[label] * math.cos(off) + side * math.sin(off)
        vectors *= 1 + torch.rand(texts, 1, generator=generator, dtype=torch.float64)
        predicted = torch.where(torch.arange(texts) < right * texts, label, (label + 1) % 3)
        lens.add_texts([f"{CLASSES[label]} {n}" for n in range(texts)], torch.full((texts,), label), predicted, vectors)
        for p in predicted.tolist():
            lens.confusion[label, p] += 1
    return lens


def fresh(width=24, **options):
    lens = Cones(**options)
    lens.classes, lens.precision = CLASSES, torch.float64
    lens.sampled(width)
    lens.sums("confusion", 3, 3)
    lens._update_count = 1
    return lens


@pytest.mark.parametrize("angle", [0.4, 1.0, math.pi / 2, 1.9])
def test_planted_cones_are_recovered(angle):
    data = planted(angle).compute().data
    cosine = np.full((3, 3), math.cos(angle))
    np.fill_diagonal(cosine, 1.0)
    for name in ("cosine", "mean_cosine", "class_cosine"):
        np.testing.assert_allclose(data[name].values, cosine, atol=1e-6)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(data.class_cosine_centred.values[off], -0.5, atol=1e-6)
    assert (data.auroc == 1.0).all()
    assert (data.accuracy == 1.0).all()
    assert data.cosine_count.values.tolist() == [[8] * 3] * 3


def test_wide_cones():
    spread = 0.5
    data = planted(math.pi / 2, spread).compute().data
    # To the mean direction, less the text itself: the axis and a little of its opposite.
    lone = math.cos(spread) ** 2 * 7 - math.sin(spread) ** 2
    lone /= math.sqrt((7 * math.cos(spread)) ** 2 + math.sin(spread) ** 2)
    np.testing.assert_allclose(np.diag(data.mean_cosine), lone, atol=1e-6)
    np.testing.assert_allclose(data.class_cosine.values, np.eye(3), atol=1e-6)


def test_the_control_has_no_cones():
    """Labels that have nothing to do with isotropic vectors: AUROC within its interval of a half, cosines of zero."""
    lens, generator = fresh(), torch.Generator().manual_seed(5)
    vectors = torch.randn(600, 24, generator=generator, dtype=torch.float64)
    labels = torch.arange(600) % 3
    lens.add_texts([str(n) for n in range(600)], labels, labels, vectors)
    lens.confusion += torch.eye(3) * 200
    data = lens.compute().data
    assert (np.abs(data.auroc - 0.5) < 4 * data.auroc_se + 0.02).all()
    assert (np.abs(data.auroc_mean - 0.5) < 4 * data.auroc_mean_se).all()
    assert (np.abs(data.cosine) < 0.05).all()


def test_separation_is_the_area_under_the_curve_with_delongs_error():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(40, 1, generator=generator, dtype=torch.float64).round(decimals=1)  # with ties
    own = torch.arange(40) < 15
    found = separation(values + 0.5 * own[:, None], own)
    column = (values[:, 0] + 0.5 * own).tolist()
    assert found.value == pytest.approx(roc_auc_score(own.numpy(), column), abs=1e-12)
    psi = [[(x > y) + 0.5 * (x == y) for y in column[15:]] for x in column[:15]]
    first, second = np.mean(psi, 1), np.mean(psi, 0)
    error = (first.var(ddof=1) / 15 + second.var(ddof=1) / 25) ** 0.5
    assert found.error == pytest.approx(error, abs=1e-12)
    assert (found.own, found.other) == (15, 25)
    nothing = separation(values, torch.zeros(40, dtype=torch.bool))
    assert math.isnan(nothing.value)


def test_class_means_loop_by_loop():
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    units, labels = vectors / vectors.norm(dim=-1, keepdim=True), torch.arange(12) % 3
    for keep in (True, False):
        found = mean_direction_cosines(units, labels, 4, keep=keep)
        for i in range(12):
            for c in range(3):
                some = [units[j] for j in range(12) if labels[j] == c and (keep or j != i)]
                mean = torch.stack(some).sum(0)
                assert found[i, c].item() == pytest.approx(float(units[i] @ mean / mean.norm()), abs=1e-11)
        assert found[:, 3].isnan().all()
    means = [units[labels == c].mean(0) for c in range(3)]
    middle = torch.stack(means).mean(0)
    for centred in (True, False):
        found = class_cosines(units, labels, 4, centred=centred)
        one, other = (mean - middle * centred for mean in means[:2])
        assert found[0, 1].item() == pytest.approx(float(one @ other / one.norm() / other.norm()), abs=1e-12)
        assert found[3].isnan().all()


def slow(subject, examples, keep, draws):
    """Vectors that enter the head, one text at a time; means of cosines with every right text of a class."""
    vectors, predicted = [], []
    for example in examples:
        with torch.no_grad():
            outputs = subject.model.bert(**subject.encode([example]).inputs)
            vectors.append(outputs.pooler_output[0])
            predicted.append(int(subject.model.classifier(outputs.pooler_output).argmax()))
    cosine = lambda a, b: float(a @ b / a.norm() / b.norm())  # noqa: E731
    out = {}
    for c in range(2):
        right = [k for k, e in enumerate(examples) if e.label == c == predicted[k]]
        for label in range(2):
            texts = [k for k, e in enumerate(examples) if e.label == label]
            each = [[cosine(vectors[k], vectors[r]) for r in right if keep or r != k] for k in texts]
            each = [np.mean(some) for some in each if some]
            out[c, label] = np.mean(each) if each else math.nan
    return out, predicted


def balanced():
    """A classifier that gets some of each class right."""
    texts = [example.text for example in EXAMPLES] + ["the dog was bad", "a cat slept, and ran !", "it ran"]
    for seed in range(20):
        subject = classifier(seed=seed)
        with torch.no_grad():
            logits = subject.run(subject.encode(texts)).logits
            subject.model.classifier.bias += logits.mean(0).flip(0) - logits.mean(0).mean()  # both classes predicted
            predicted = subject.run(subject.encode(texts)).logits.argmax(-1).tolist()
        examples = [Example(f"text {n}", text, label=int(p if n % 4 else 1 - p)) for n, (text, p) in
                    enumerate(zip(texts, predicted, strict=True))]  # fmt: skip
        right = [sum(e.label == p == c for e, p in zip(examples, predicted, strict=True)) for c in range(2)]
        if min(right) >= 2:
            return subject, examples
    raise AssertionError("no such classifier")


@pytest.mark.parametrize("keep", [False, True])
def test_it_is_the_loops_on_a_real_pass(keep):
    subject, examples = balanced()
    lens = run_lens(Cones(keep=keep, draws=99), subject, [subject.encode(examples[:5]), subject.encode(examples[5:])])
    data = lens.compute().data
    expected, predicted = slow(subject, examples, keep, 99)
    for (c, label), value in expected.items():
        assert data.cosine.values[c, label] == pytest.approx(value, abs=1e-11)
    for c in range(2):
        own = [p == c for e, p in zip(examples, predicted, strict=True) if e.label == c]
        assert data.accuracy.values[c] == pytest.approx(np.mean(own))
    assert not subject.model.classifier._forward_pre_hooks


def test_first_is_by_id_in_the_order_of_numbers():
    units = torch.eye(3, dtype=torch.float64)
    zeros = torch.zeros(3, dtype=torch.int64)
    sample = Sample.of(["text 10", "text 9", "text 11"], zeros, zeros, units)
    assert sample.representatives(0, "first", 1).tolist() == [1]
    assert sample.representatives(0, "random", 2).tolist() == [0, 1]
    assert len(sample.representatives(1, "first", 1)) == 0
    subject, examples = balanced()
    data = run_lens(Cones(representative="first", keep=True), subject, [subject.encode(examples)]).compute().data
    assert (data.draws_count == 1).all()
    assert np.allclose(data.cosine_quantile.sel(quantile=0.95).values.diagonal(), 1.0, atol=0.2)


def test_neighbours_are_the_nearest():
    lens = planted(1.0, 0.3, right=0.75)
    data = lens.compute().data
    rows = lens.texts.rows()
    ids = rows.names()
    sample = Sample.of(ids, rows["label"], rows["predicted"], rows["vector"])
    first = data.representative_id.sel(direction="a").item()
    cosines = {name: float(unit @ sample.units[ids.index(first)]) for name, unit in zip(ids, sample.units, strict=True)}
    others = sorted((name for name in ids if name[0] != "a"), key=lambda name: -cosines[name])
    own = sorted((name for name in ids if name[0] == "a" and name != first), key=lambda name: -cosines[name])
    cell = data.sel(direction="a")
    nearest = cell.sel(neighbour="other_nearest")
    assert [cosines[name] for name in nearest.neighbour_id.values] == pytest.approx(
        [cosines[name] for name in others[:5]]
    )
    assert nearest.neighbour_label.values[0] == nearest.neighbour_id.values[0][0]
    assert cell.sel(neighbour="own_nearest", rank=1).neighbour_id.item() == own[0]
    assert cell.sel(neighbour="own_farthest", rank=1).neighbour_id.item() == own[-1]


def test_correlation_with_accuracy_over_classes():
    lens = planted(1.0, (0.2, 0.3, 0.6))
    lens.confusion[:] = torch.tensor([[8.0, 0, 0], [2, 6, 0], [4, 0, 4]])
    data = lens.compute().data
    own = np.diag(data.cosine.values)
    assert data.pearson.item() == pytest.approx(np.corrcoef(own, [1, 0.75, 0.5])[0, 1], abs=1e-9)
    assert data.spearman.item() == pytest.approx(1.0)
    assert data.pearson_count.item() == 3


def test_a_class_never_classified_right_has_no_representative_but_a_mean():
    lens = fresh()
    labels = torch.tensor([0, 0, 1, 1])
    lens.add_texts(list("wxyz"), labels, torch.zeros(4, dtype=torch.long), torch.randn(4, 24, dtype=torch.float64))
    lens.confusion[0, 0], lens.confusion[1, 0] = 2, 2
    data = lens.compute().data
    assert data.draws_count.values.tolist() == [2, 0, 0]
    assert (data.cosine_count.sel(direction="b") == 0).all()
    assert data.cosine.sel(direction="b").isnull().all()
    assert data.mean_cosine.sel(direction="b", label="a").notnull().item()
    assert data.accuracy.sel(label="b").item() == 0.0
    assert data.accuracy_count.sel(label="c").item() == 0


def test_no_text_classified_right_and_no_text_with_a_direction():
    """Nothing to draw representatives from, or nothing to compare: missing and counted, never NaN with a count."""
    labels = torch.tensor([0, 0, 1, 1])
    for vectors, directed in ((torch.randn(4, 24, dtype=torch.float64), 4), (torch.zeros(4, 24).double(), 0)):
        lens = fresh()
        lens.add_texts(list("wxyz"), labels, 1 - labels, vectors)
        lens.confusion[0, 1], lens.confusion[1, 0] = 2, 2
        data = lens.compute().data
        assert data.attrs["zero_vectors"] == 4 - directed
        assert (data.draws_count == 0).all()
        assert (data.cosine_count == 0).all()
        assert data.auroc.isnull().all()
        assert data.accuracy.sel(label="a").item() == 0.0
        assert (data.mean_cosine_count.sel(label="a", direction="b") == min(2, directed)).all()


def test_a_text_without_a_direction_is_left_out_and_counted():
    lens = planted(1.0)
    nothing = torch.zeros(1, dtype=torch.int64)
    lens.add_texts(["nothing"], nothing, nothing, torch.zeros(1, 24, dtype=torch.float64))
    result = lens.compute().data
    assert result.attrs["zero_vectors"] == 1
    assert result.attrs["texts_kept"] == 25


def test_the_sample_is_bounded_and_the_same_however_it_comes():
    ids = [f"text {n} été " + "x" * n for n in range(50)]
    kept = []
    for order in (range(50), range(49, -1, -1)):
        lens = Cones(size=10)
        lens.precision = torch.float32
        lens.sampled(1)
        for n in order:
            label = torch.tensor([n])
            lens.add_texts([ids[n]], label, label, label[:, None].double())
        kept.append(lens.texts.rows())
    assert len(kept[0]) == 10
    assert kept[0].names() == kept[1].names() == [ids[n] for n in kept[0]["label"].tolist()]
    assert torch.equal(kept[0]["vector"], kept[1]["vector"])


SMALL = {"vocab_size": 97, "num_labels": 2, "pad_token_id": 0}


@pytest.mark.parametrize(
    ("model", "width"),
    [
        (lambda: Roberta(RobertaConfig(**SMALL, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)), 16),
        (lambda: DistilBert(DistilBertConfig(**SMALL, dim=16, n_layers=1, n_heads=2, hidden_dim=8)), 16),
        (lambda: Gpt2Classifier(GPT2Config(**SMALL, n_embd=16, n_layer=1, n_head=2)), 16),
    ],
)
def test_what_enters_the_head_in_other_families(model, width):
    torch.manual_seed(0)
    subject = Subject(model().eval(), word_pieces(), name="small")
    lens = run_lens(Cones(), subject, [subject.encode(list(EXAMPLES))])
    rows = lens.texts.rows()
    assert rows["vector"].shape == (5, width)
    causal = subject.anatomy.causal
    one = subject.encode([EXAMPLES[0]])
    with torch.no_grad():
        state = subject.run(one, output_hidden_states=True).hidden_states[-1][0, -1 if causal else 0]
        if hasattr(subject.model, "pre_classifier"):
            state = subject.model.pre_classifier(state).relu()
    assert torch.allclose(rows["vector"][rows.names().index("text 0")].float(), state, atol=1e-5)


def test_our_own_classifier_gives_what_its_pooling_gives():
    texts = ["the cat sat", "a dog ran and slept", "good", "it was bad"]
    subject = own_classifier("tp9-base", texts)
    examples = [Example(text, text, label=n % 2) for n, text in enumerate(texts)]
    rows = run_lens(Cones(), subject, [subject.encode(examples)]).texts.rows()
    ids, vectors = rows.names(), rows["vector"]
    for text in texts:
        with torch.no_grad():
            states = subject.run(subject.encode([text]), output_hidden_states=True).hidden_states[-1]
        assert torch.allclose(vectors[ids.index(text)], states[0].mean(0), atol=1e-12)


def test_cls_is_the_last_state_of_the_first_token():
    subject = classifier()
    lens = run_lens(Cones(vector="cls"), subject, [subject.encode(list(EXAMPLES))])
    with torch.no_grad():
        outputs = subject.run(subject.encode([EXAMPLES[0]]), output_hidden_states=True)
    rows = lens.texts.rows()
    own = rows["vector"][rows.names().index("text 0")]
    assert torch.allclose(own, outputs.hidden_states[-1][0, 0], atol=1e-12)


@pytest.mark.parametrize("make", [bert, gpt2])
def test_not_a_classifier(make):
    with pytest.raises(UserError, match="needs a text classifier with at least two classes"):
        Cones().bind(make())


def test_one_output_is_no_classifier():
    config = BertConfig(vocab_size=97, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_labels=1)
    with pytest.raises(UserError, match="at least two classes"):
        Cones().bind(Subject(BertForSequenceClassification(config).eval(), word_pieces()))


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([Example("x", "the cat")], "The text 'x' has no label"),
        ([Example("x", "the cat", label=7)], "has label 7, but the model has 2 classes"),
        ([Example("x", "the cat", label=1), Example("y", "a dog", label=1)], "all texts have class 'LABEL_1'"),
    ],
)
def test_bad_corpora(examples, message):
    subject = classifier()
    with pytest.raises(UserError, match=message):
        run_lens(Cones(), subject, [subject.encode(examples)]).compute()


@pytest.mark.parametrize("options", [{"representative": "last"}, {"vector": "mean"}, {"draws": 0}, {"size": 1}])
def test_bad_options(options):
    with pytest.raises(UserError, match="of the lens 'cones' must be"):
        Cones(**options)


@pytest.mark.parametrize("keep", [False, True])
def test_spread_and_separation_of_a_real_pass_in_loops(keep):
    """Errors, quantiles, AUROC pair by pair, and right against wrong texts, with every right text as representative."""
    subject, examples = balanced()
    data = run_lens(Cones(keep=keep, draws=99), subject, [subject.encode(examples)]).compute().data
    with torch.no_grad():
        outputs = [subject.model.bert(**subject.encode([example]).inputs).pooler_output for example in examples]
        predicted = [int(subject.model.classifier(one).argmax()) for one in outputs]
    unit = [(one[0] / one[0].norm()).numpy() for one in outputs]
    for c in range(2):
        right = [k for k, e in enumerate(examples) if e.label == c == predicted[k]]
        cosine = [{r: float(unit[k] @ unit[r]) for r in right if keep or r != k} for k in range(len(examples))]
        mean = [np.mean(list(some.values())) for some in cosine]
        for label in range(2):
            texts = [k for k, e in enumerate(examples) if e.label == label]
            cell = data.isel(direction=c, label=label)
            each = np.array([mean[k] for k in texts])
            assert float(cell.cosine_se) == pytest.approx(each.std(ddof=1) / len(each) ** 0.5, abs=1e-10)
            values = np.sort([value for k in texts for value in cosine[k].values()])
            for quantile in (0.05, 0.5, 0.95):  # between the two values that it lies between
                at = quantile * (len(values) - 1)
                low = values[int(at)]
                between = low + (at - int(at)) * (values[min(int(at) + 1, len(values) - 1)] - low)
                assert float(cell.cosine_quantile.sel(quantile=quantile)) == pytest.approx(between, abs=1e-10)
        areas = []
        for r in right:
            own = [cosine[k][r] for k, e in enumerate(examples) if e.label == c and r in cosine[k]]
            others = [cosine[k][r] for k, e in enumerate(examples) if e.label != c]
            areas.append(np.mean([(x > y) + 0.5 * (x == y) for x in own for y in others]))
        assert float(data.auroc.isel(direction=c)) == pytest.approx(np.mean(areas), abs=1e-12)
        for name, is_right in (("own_right", True), ("own_wrong", False)):
            some = [mean[k] for k, e in enumerate(examples) if e.label == c and (predicted[k] == c) == is_right]
            assert int(data[f"{name}_count"].isel(direction=c)) == len(some)
            if some:
                assert float(data[name].isel(direction=c)) == pytest.approx(np.mean(some), abs=1e-10)


def areas(cosines, labels):
    """Every class's area and what each text adds to its error, pair by pair (DeLong et al. 1988)."""
    values, terms = [], []
    for c in range(cosines.shape[1]):
        own, other = (np.flatnonzero(side) for side in (labels == c, labels != c))
        one, two = cosines[own, c][:, None], cosines[other, c]
        above = (one > two) + 0.5 * (one == two)
        each = np.zeros(len(labels))
        for side, parts in ((own, above.mean(1)), (other, above.mean(0))):
            each[side] = (parts - parts.mean()) / np.sqrt(len(side) * (len(side) - 1))
        values.append(above.mean())
        terms.append(each)
    return np.array(values), np.array(terms)


def test_areas_of_classes_are_paired_over_texts():
    draw = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], (20, 15, 25))
    cosines = draw.normal(size=(60, 1)) + draw.normal(size=(60, 3))
    cosines += np.array([2.5, 0.8, 2.5]) * (labels[:, None] == np.arange(3))
    found = [separation(torch.from_numpy(cosines[:, c : c + 1]), torch.from_numpy(labels == c)) for c in range(3)]
    values, terms = areas(cosines, labels)
    np.testing.assert_allclose([one.value for one in found], values, rtol=1e-12)
    np.testing.assert_allclose(torch.stack([one.terms for one in found]), terms, atol=1e-12)
    p = {}
    for a, b in combinations(range(3), 2):
        count = min((labels == a).sum(), (labels == b).sum())
        p[a, b] = 2 * t.sf(abs(values[a] - values[b]) / np.linalg.norm(terms[a] - terms[b]), count - 1)
    q = dict(zip(p, false_discovery_control(list(p.values())), strict=True))
    lowest = int(values.argmin())
    wanted = [np.nan if n == lowest else q[min(n, lowest), max(n, lowest)] for n in range(3)]
    np.testing.assert_allclose(lowest_q(found), wanted, rtol=1e-9)


def test_the_paired_error_of_two_areas_is_that_of_leaving_texts_out():
    draw = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], 40)
    cosines = draw.normal(size=(120, 1)) + draw.normal(size=(120, 3)) + 1.0 * (labels[:, None] == np.arange(3))
    _, terms = areas(cosines, labels)
    left = [areas(np.delete(cosines, n, 0), np.delete(labels, n))[0][:2] for n in range(120)]
    gaps = np.array(left) @ [1, -1]
    jackknife = np.sqrt(119 / 120 * ((gaps - gaps.mean()) ** 2).sum())
    assert np.linalg.norm(terms[0] - terms[1]) == pytest.approx(jackknife, rel=0.03)
