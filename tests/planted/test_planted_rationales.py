"""Rationales on the classifier whose decisive words are set by hand and whose attention is uniform."""

from functools import cache
from importlib.util import find_spec

import pytest
from test_planted_relevance import classifier, texts

from lorgnette.lens.rationales.gold import gold_share
from lorgnette.lens.rationales.lens import Rationales
from lorgnette.looking.look import look

RELEVANCE = ("attnlrp", "ah", "decompx")
MIXING = ("attention", "rollout", "attention_flow")


@cache
def found(control: bool = False):
    share = gold_share(texts())
    lens = Rationales((*RELEVANCE, *MIXING), share=share)
    return look(classifier(control), texts()[:50], [lens], progress=False)["rationales"].data


@pytest.mark.parametrize("method", RELEVANCE)
def test_relevance_finds_what_people_would_mark_and_the_model_needs(method):
    row, by_chance = found().sel(explanation=method), found().sel(explanation="random")
    assert row.sel(measure="average_precision")["score"].item() >= 0.95
    assert row["pooled_auprc"].item() >= 0.95
    assert row["pooled_auroc"].item() >= 0.95
    assert row.sel(measure="token_f1")["score"].item() > by_chance.sel(measure="token_f1")["score"].item() + 0.3
    for measure, sign in (("comprehensiveness", 1), ("sufficiency", -1)):
        gain = row.sel(measure=measure)["score"] - by_chance.sel(measure=measure)["score"]
        assert sign * gain.item() > 0.1


@cache
def by_captum(control: bool = False):
    subject = classifier(control) if control else classifier(carried=0.2)
    lens = Rationales(("shap", "lime"), share=gold_share(texts()))
    return look(subject, texts()[:12], [lens], progress=False)["rationales"].data


@pytest.mark.skipif(find_spec("captum") is None, reason="Captum is not installed: pip install 'lorgnette[captum]'")
@pytest.mark.parametrize("method", ["shap", "lime"])
def test_shap_and_lime_find_them_where_a_word_changes_the_logit_and_nothing_in_the_control(method):
    row = by_captum().sel(explanation=method)
    assert row.sel(measure="average_precision")["score"].item() >= 0.95
    gain = row.sel(measure="comprehensiveness") - by_captum().sel(explanation="random", measure="comprehensiveness")
    assert gain["score"].item() > 0.02
    control = by_captum(control=True).sel(explanation=method, measure="average_precision")
    assert control["score"].item() < 0.55


@pytest.mark.parametrize("method", MIXING)
def test_uniform_attention_is_at_chance(method):
    row = found().sel(explanation=method)
    assert row.sel(measure="average_precision")["score"].item() == pytest.approx(found()["chance"].item(), abs=0.02)
    assert row.sel(measure="auroc")["score"].item() == pytest.approx(0.5, abs=0.02)
    assert row["pooled_auprc"].item() == pytest.approx(found()["pooled_chance"].item(), abs=0.03)
    gain = row.sel(measure="comprehensiveness") - found().sel(explanation="random", measure="comprehensiveness")
    assert abs(gain["score"].item()) < 0.1


def test_random_words_are_at_chance():
    row = found().sel(explanation="random")
    auroc = row.sel(measure="auroc")
    assert abs(auroc["score"].item() - 0.5) < 3 * auroc["score_se"].item()
    assert row["pooled_auprc"].item() == pytest.approx(found()["pooled_chance"].item(), abs=0.06)


@pytest.mark.parametrize("method", RELEVANCE)
def test_nothing_is_found_in_the_control(method):
    row = found(control=True).sel(explanation=method)
    assert row.sel(measure="average_precision")["score"].item() < 0.55
    assert row.sel(measure="auroc")["score"].item() == pytest.approx(0.5, abs=0.2)
