"""Rationales against definitions written out, text by text and word by word."""

from dataclasses import replace
from importlib.util import find_spec
from itertools import combinations

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, ttest_rel
from sklearn import metrics
from tiny import EXAMPLES, TREEBANK, bert, classifier, gpt2, own_classifier

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.explaining import explain, explanations
from lorgnette.lens.rationales.gold import gold_share, gold_words
from lorgnette.lens.rationales.lens import CHEAP, MEASURES, Rationales, pairs_tested
from lorgnette.lens.rationales.plausibility import chosen_scores, span_scores
from lorgnette.lens.rationales.word_removal import WordRemoval
from lorgnette.lens.rationales.words import BLIND
from lorgnette.statistics.estimate import Estimate
from lorgnette.texts.example import Example

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)


def looked(subject, texts, *arguments, **options):
    truncate = options.pop("truncate", False)
    return lo.look(subject, texts, [Rationales(*arguments, **options)], truncate=truncate, progress=False)["rationales"]


def marked(words, *places, **fields):
    words = tuple(words.split())
    gold = tuple(float(place in places) for place in range(len(words)))
    return Example(fields.pop("id", words[0]), " ".join(words), words=words, label=0, rationale=gold, **fields)


# Plausibility -------------------------------------------------------------------------------------------------------


def slow_spans(flags):
    found, start = [], None
    for place, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = place
        if not flag and start is not None:
            found.append(set(range(start, place)))
            start = None
    return found


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_chosen_words_and_spans_are_those_of_loops(pairs):
    chosen, gold = ([pair[k] for pair in pairs] for k in (0, 1))
    precision, recall, f1 = chosen_scores(torch.tensor(chosen), torch.tensor(gold)).tolist()
    assert precision == pytest.approx(metrics.precision_score(gold, chosen, zero_division=0))
    assert recall == pytest.approx(metrics.recall_score(gold, chosen, zero_division=0))
    assert f1 == pytest.approx(metrics.f1_score(gold, chosen, zero_division=0))
    found, wanted = slow_spans(chosen), slow_spans(gold)
    hits = sum(any(len(a & b) / len(a | b) >= 0.5 for b in wanted) for a in found)
    expected = [hits / len(found) if found else 0.0, hits / len(wanted) if wanted else 0.0]
    assert span_scores(torch.tensor(chosen), torch.tensor(gold)).tolist() == pytest.approx(expected)


def slow_words(subject, batch, method):
    """Word scores text by text: pieces added up in a loop, rounded as documented."""
    tokens = explain(subject, batch, method).tokens
    out = []
    for row, example in enumerate(batch.examples):
        scores = [0.0] * len(example.words)
        for place, word in enumerate(batch.source.word[row].tolist()):
            if word >= 0:
                scores[word] += tokens[row, place].item()
        largest = max(map(abs, scores))
        out.append([round(score / largest, 5) for score in scores])
    return out


@pytest.mark.parametrize("method", ["ah", "attention"])
def test_every_measure_is_that_of_a_loop(method):
    subject = classifier()
    found = looked(subject, TREEBANK, [method], top=2)
    batch = subject.encode(TREEBANK)
    each = {name: [] for name in MEASURES}
    for example, scores in zip(TREEBANK, slow_words(subject, batch, method), strict=True):
        gold = np.array(example.rationale) > 0.5
        assert len(set(scores)) == len(scores)  # so that ties need no oracle here
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        top = np.isin(np.arange(len(scores)), order[:2])
        precision, recall, _ = metrics.precision_recall_curve(gold, scores)
        each["auprc"].append(metrics.auc(recall, precision))
        each["average_precision"].append(metrics.average_precision_score(gold, scores))
        if not gold.all():
            each["auroc"].append(metrics.roc_auc_score(gold, scores))
        support = metrics.precision_recall_fscore_support(gold, top, average="binary", zero_division=0)
        for name, value in zip(MEASURES[3:6], support[:3], strict=True):
            each[name].append(value)
        spans, wanted = slow_spans(top), slow_spans(gold)
        hits = sum(any(len(a & b) / len(a | b) >= 0.5 for b in wanted) for a in spans)
        each["iou_precision"].append(hits / len(spans))
        each["iou_recall"].append(hits / len(wanted))
        for kind, drop in slow_faithfulness(subject, example, order).items():
            each[kind].append(drop)
    row = found.data.sel(explanation=method)
    for name, values in each.items():
        cell = row.sel(measure=name)
        assert cell["score"].item() == pytest.approx(np.mean(values), abs=1e-9), name
        assert cell["score_se"].item() == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5, abs=1e-9), name
        assert cell["score_count"].item() == len(values)
    p, r = np.mean(each["iou_precision"]), np.mean(each["iou_recall"])
    assert row["iou_f1"].item() == pytest.approx(2 * p * r / (p + r) if p + r else 0.0)


def slow_faithfulness(subject, example, order, top=2):
    """One text at a time, without padding: ids of the words that stay, [CLS] before and [SEP] behind them."""
    alone = subject.encode([example])
    ids, word = alone.source.ids[0].tolist(), alone.source.word[0].tolist()

    def probability(stays):
        kept = torch.tensor([[i for i, w in zip(ids, word, strict=True) if w < 0 or w in stays]])
        with torch.no_grad():
            return subject.model(input_ids=kept).logits[0].softmax(-1)

    words = set(range(len(example.words)))
    whole = probability(words)
    said = int(whole.argmax())
    drop = lambda stays: (whole[said] - probability(stays)[said]).item()  # noqa: E731
    first = [set(order[: int(np.ceil(share * len(order) - 1e-9))]) for share in SHARES]
    return {
        "comprehensiveness": np.mean([drop(words - some) for some in first]),
        "sufficiency": np.mean([drop(some) for some in first]),
        "comprehensiveness_top": drop(words - set(order[:top])),
        "sufficiency_top": drop(set(order[:top])),
    }


def test_pooled_areas_are_those_of_all_words_together():
    torch.manual_seed(0)  # of the embeddings: two words in one bin are a tie here and none there
    subject = classifier()
    texts = [
        Example(f"{one.id} {n}", " ".join(one.words[n:]), words=one.words[n:], rationale=one.rationale[n:])
        for one in TREEBANK[:2] + TREEBANK[3:]
        for n in range(3)
    ]
    texts = [text for text in texts if any(text.rationale)]
    found = looked(subject, texts, ["attnlrp"])
    scores, gold = [], []
    for example, row in zip(texts, slow_words(subject, subject.encode(texts), "attnlrp"), strict=True):
        scores += [(score - min(row)) / (max(row) - min(row)) for score in row]
        gold += example.rationale
    row = found.data.sel(explanation="attnlrp")
    assert row["pooled_auprc"].item() == pytest.approx(metrics.average_precision_score(gold, scores), abs=2e-3)
    assert row["pooled_auroc"].item() == pytest.approx(metrics.roc_auc_score(gold, scores), abs=2e-3)
    assert found.data["pooled_chance"].item() == pytest.approx(np.mean(gold))
    assert found.data["chance"].item() == pytest.approx(np.mean([np.mean(text.rationale) for text in texts]))


# What stands beside the methods --------------------------------------------------------------------------------------


def test_random_first_and_last_are_always_there():
    found = looked(classifier(), TREEBANK, ["ah"])
    assert found.data["explanation"].values.tolist() == ["ah", *BLIND]
    text = [marked("the cat sat on the mat", 0, 1)] * 2
    found = looked(classifier(), [replace(t, id=str(n)) for n, t in enumerate(text)], ["ah"], top=2).data["score"]
    assert found.sel(explanation="first", measure=["auprc", "token_f1", "iou_recall"]).values.tolist() == [
        1.0,
        1.0,
        1.0,
    ]
    assert found.sel(explanation="last", measure=["token_f1", "auroc"]).values.tolist() == [0.0, 0.0]


def test_random_words_are_at_chance_and_depend_on_the_seed_alone():
    words = "the cat sat on the mat and a dog ran"
    texts = [marked(words, number % 10, (number + 3) % 10, id=str(number)) for number in range(90)]
    subject = classifier()
    one = looked(subject, texts, ["random"]).data
    assert one["explanation"].values.tolist() == ["random", "first", "last"]
    assert one.sel(explanation="random")["pooled_auprc"].item() == pytest.approx(0.2, abs=0.07)
    auroc = one.sel(explanation="random", measure="auroc")
    assert abs(auroc["score"].item() - 0.5) < 3 * auroc["score_se"].item()
    some, again, other = (looked(subject, texts[:9], ["random"], seed=seed).data["score"] for seed in (0, 0, 1))
    assert np.allclose(some, again, atol=1e-12)
    assert not np.allclose(some, other)
    assert one["chance"].item() == pytest.approx(0.2)


def test_equal_scores_are_not_the_first_words():
    """Attention with queries of zero is uniform: one threshold for all words, and the top ones in random order."""
    subject = classifier()
    with torch.no_grad():
        for layer in subject.model.bert.encoder.layer:
            layer.attention.self.query.weight.zero_(), layer.attention.self.query.bias.zero_()
    texts = [marked("the cat sat on a mat and dog ran", 0, id=str(n)) for n in range(60)]
    found = looked(subject, texts, ["attention"], top=3).data.sel(explanation="attention")
    assert found.sel(measure="auroc")["score"].item() == 0.5
    assert found["pooled_auprc"].item() == pytest.approx(1 / 9)
    assert 0.1 < found.sel(measure="token_recall")["score"].item() < 0.6


def test_every_method_can_be_asked_for():
    found = looked(classifier(), TREEBANK, "all", share=0.4, perturbation="mask").data
    assert found["explanation"].values.tolist() == [*explanations(), *BLIND]
    assert (found["seconds_per_text"] > 0).all()
    assert found.attrs["k"] == "40 % of words"


def test_the_default_methods_are_known():
    assert set(CHEAP) < set(explanations())


def test_models_without_special_tokens_keep_at_least_one_token():
    texts = [marked("good", 0), marked("cat dog cat", 1), marked("the mat was not good at all .", 3, 4)]
    subject = own_classifier("tp9-residual", [text.text for text in texts])
    found = looked(subject, texts, ["ah", "attention"], top=3).data
    cell = found.sel(explanation="ah")["score_count"]
    assert cell.sel(measure="comprehensiveness_top").item() == (3 if subject.model.config.uses_cls else 1)
    assert cell.sel(measure="sufficiency").item() == 3


# Gold ---------------------------------------------------------------------------------------------------------------


def test_gold_by_majority_union_and_corpus():
    masks = ((1.0, 1.0, 0.0, 0.0), (0.0, 1.0, 1.0, 0.0))
    text = replace(marked("a b c d", 0, 1), extra={"rationales": masks, "rationale_union": (1.0, 1.0, 1.0, 0.0)})
    assert gold_words(text).tolist() == [False, True, False, False]
    assert gold_words(text, "union").tolist() == [True, True, True, False]
    assert gold_words(text, "corpus").tolist() == [True, True, False, False]
    train = replace(text, extra={"rationales": (), "rationale_union": (1.0, 1.0, 1.0, 0.0)})
    assert gold_words(train).tolist() == [True, True, False, False]
    assert gold_words(train, "union").tolist() == [True, True, True, False]
    assert gold_words(replace(text, rationale=None)) is None
    assert gold_share([text, train, marked("a b")]) == pytest.approx((0.25 + 0.5) / 2)


def test_the_share_may_be_that_of_another_split():
    found = looked(classifier(), [marked("a b c d", 0), marked("b c d a", 2)], "ah", share="planted:val")
    assert found.data.attrs["k"] == f"{100 * gold_share(lo.corpus('planted:val')):.3g} % of words"
    assert found.data.attrs["options"]["share"] == "planted:val"


def test_gold_beyond_the_window_is_counted():
    words = "the cat sat on the mat and a dog ran " * 7
    inside, outside = marked(words, 0, 1, 68, id="in"), marked(words, 65, 66, id="out")
    with pytest.raises(UserError, match="--truncate"):
        looked(classifier(), [inside, outside], ["ah"])
    found = looked(classifier(), [inside, outside, marked("a dog", id="no")], ["ah"], truncate=True).data
    counts = {
        name: found[name].item() for name in ("texts", "texts_gold_cut", "texts_without_gold", "gold", "gold_cut")
    }
    assert counts == {"texts": 1, "texts_gold_cut": 1, "texts_without_gold": 1, "gold": 2, "gold_cut": 3}
    assert found["gold_cut_share"].item() == pytest.approx(3 / 5)
    assert found["words"].item() == 62  # 64 tokens less [CLS] and [SEP]


def test_texts_that_nobody_was_asked_about_are_counted():
    subject, texts = classifier(), [*TREEBANK, replace(TREEBANK[0], id="not asked", rationale=None)]
    found = looked(subject, texts, ["ah"]).data
    assert (found["texts"].item(), found["texts_not_marked"].item()) == (len(TREEBANK), 1)
    alone = looked(subject, TREEBANK, ["ah"]).data
    assert np.allclose(found["score"], alone["score"], atol=1e-12)


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"methods": ["atnlrp"]}, "Did you mean 'attnlrp'"),
        ({"methods": "saliency"}, "There are: attnlrp"),
        ({"top": 0}, "at least 1"),
        ({"share": 1.5}, "at most 1"),
        ({"share": 0.1, "top": 5}, "one of the two"),
        ({"gold": "majorty"}, "Did you mean 'majority'"),
        ({"perturbation": "cut"}, "'delete' or 'mask'"),
    ],
)
def test_wrong_options(options, said):
    with pytest.raises(UserError, match=said):
        Rationales(**options)


@pytest.mark.parametrize("maker", [bert, gpt2])
def test_no_classifier(maker):
    with pytest.raises(UserError, match="is not a text classifier"):
        looked(maker(), TREEBANK)


def test_no_rationales():
    with pytest.raises(UserError, match="Give a corpus with rationales: hatexplain"):
        looked(classifier(), EXAMPLES)
    many = [Example(str(number), "good") for number in range(300)]
    lens = Rationales(["ah"])
    lens.bind(classifier())
    with pytest.raises(UserError, match="Give a corpus with rationales"):
        lens.finish(classifier().encode(many), None)  # at once, not at the end of the corpus


def test_a_rationale_for_other_words():
    with pytest.raises(UserError, match="has 4 words and a rationale for 2"):
        looked(classifier(), [replace(marked("a dog", 0), pair="the cat")], ["ah"])


def test_no_mask_token():
    texts = [marked("cat dog cat", 1)]
    subject = own_classifier("tp9-residual", ["cat dog"])
    if subject.tokenizer.mask_token_id is None:
        with pytest.raises(UserError, match="perturbation='delete'"):
            looked(subject, texts, ["ah"], perturbation="mask")


def test_explanations_of_the_same_texts_are_compared_in_pairs():
    """What a text does to all explanations cancels: errors as if of different texts would tell nothing apart."""
    lens = Rationales(("attention", "rollout"))
    lens.bind(classifier())
    draw = torch.Generator().manual_seed(0)
    texts, methods = 40, len(lens.methods)
    common = torch.randn(texts, 1, len(MEASURES), generator=draw, dtype=torch.float64)
    own = 0.05 * torch.randn(texts, methods, len(MEASURES), generator=draw, dtype=torch.float64)
    own[:, 0] += 0.1  # a tenth of what texts differ by
    values, weights = common + own, torch.ones_like(own)
    weights[:3, 1] = 0  # three texts have no score of the second
    apart, both = values[:, :, None] - values[:, None], weights[:, :, None] * weights[:, None]
    lens.differences.add(None, list(range(texts)), score_difference=(apart, both))
    p = pairs_tested(Estimate.of(xr.Dataset(lens.differences.arrays()), "score_difference"))
    for number, measure in enumerate(MEASURES):
        raw = {}
        for a, b in combinations(range(methods), 2):
            some = (weights[:, a, 0] * weights[:, b, 0]).bool()
            raw[a, b] = ttest_rel(values[some, a, number], values[some, b, number]).pvalue
        for (a, b), wanted in zip(raw, false_discovery_control(list(raw.values())), strict=True):
            assert p.sel(measure=measure)[a, b].item() == pytest.approx(wanted)
            assert p.sel(measure=measure)[b, a].item() == pytest.approx(wanted)
        assert (p.sel(measure=measure)[0, 1:] < 0.05).all()


def test_the_cost_is_said_beforehand_and_is_right(capsys, monkeypatch):
    copies = []
    drops = WordRemoval._drops
    monkeypatch.setattr(
        WordRemoval, "_drops", lambda self, gone: copies.append(gone[..., 0].numel()) or drops(self, gone)
    )
    texts = [example for example in TREEBANK if example.rationale is not None]
    lo.look(classifier(), texts, ["rationales:methods=occlusion+gradient_x_input"])
    said = capsys.readouterr().err
    each = sum(copies) / len(texts)
    assert each == 12 * 5  # two explanations, and three that look at nothing
    assert "rationales: for each text 12 copies without some words for each of 5 rankings; occlusion: one" in said
    lens = Rationales("lime" if find_spec("captum") else "integrated_gradients")
    assert ("512 passes for each text" if find_spec("captum") else "gradients a text") in lens.cost()
