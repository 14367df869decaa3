"""A fact in one of ten documents: masking it out is what the planted copying model cannot do without; no control is."""

import random
from dataclasses import replace

import numpy as np
import pytest
from copying import copying

import lorgnette as lo
from lorgnette.lens.sources.lens import SourceSignals
from lorgnette.lens.sources.report import findings
from lorgnette.lens.synthetic import haystack
from lorgnette.looking.look import look
from lorgnette.results import Result
from lorgnette.texts.prompts import prompt_of

DOCUMENTS = 10


def prompt(number, *, fact=True):
    """Ten documents of filler; one of them says "The secret code of NAME is CODE ."; the question asks for it."""
    draw = random.Random(number)
    filler = [f"{draw.choice(haystack.WHO)} {draw.choice(haystack.DID)} {draw.choice(haystack.WHAT)} ."
              for _ in range(DOCUMENTS)]  # fmt: skip
    code, name, place = draw.choice(haystack.CODES), draw.choice(haystack.NAMES), draw.randrange(DOCUMENTS)
    if fact:
        filler[place] = f"The secret code of {name} is {code} ."
    parts = {"start": "[PAD]", **{f"document {n + 1}": said for n, said in enumerate(filler)}}
    parts["question"] = f"The secret code of {name} is"
    row = {"parts": parts, "answer": f" {code}", "gold": f"document {place + 1}"}
    return replace(prompt_of(row), id=str(number))


def measured(model, *, fact=True):
    lens = SourceSignals(among="document *")
    return look(model, [prompt(n, fact=fact) for n in range(6)], [lens], progress=False)["sources"]


@pytest.fixture(scope="module")
def found():
    return measured(copying())


def test_the_document_with_the_fact_is_found(found):
    data = found.data
    assert float(data["matters"]) == 1.0
    assert float(data["gold"].sel(signal="drop")) == 1.0
    for signal in ("alone", "attention", "norm"):
        assert float(data["found"].sel(signal=signal)) == 1.0
    assert float(data["found"].sel(signal="recency")) < 0.5
    rows = data.sel(source=[label for label in data["source"].values if label.startswith("3: ")])
    drops = dict(zip(rows["source"].values.tolist(), rows["drop"].values.tolist(), strict=True))
    gold = prompt(3).extra["gold"]
    assert max((name for name in drops if "document" in name), key=drops.get) == f"3: {gold}"
    others = [value for name, value in drops.items() if "document" in name and name != f"3: {gold}"]
    assert drops[f"3: {gold}"] > 20 * max(map(abs, others))


def test_the_head_that_copies_it_is_named(found):
    used = lo.sources(copying(), prompt(0), among="document *")
    gold = prompt(0).extra["gold"]
    assert used.first == gold
    assert float(used.heads("attention", gold).sel(layer=2, head=1)) > 0.9
    norms = used.heads("norm", gold)  # the duplicate-token head attends to the fact too, and adds nothing
    assert float(np.delete(norms.values.ravel(), 2).max()) < 1e-6 < float(norms.sel(layer=2, head=1))
    said = [finding.text for finding in findings(Result("sources", found.data.sel(stack="decoder"), found.provenance))]
    assert said[0].startswith("In 6 of 6 prompts")
    assert "has the highest rank agreement with deletion" in said[1]


def test_without_the_fact_no_document_matters():
    result = measured(copying(), fact=False)
    data = result.data
    assert float(data["matters"]) == 0.0
    assert float(data["largest_drop"]) < 0.05
    assert int(data["agreement_count"].max()) == int(data["head_agreement_count"].max()) == 0
    (finding,) = findings(result)
    assert finding.text == (
        "In 0 of 6 prompts the answer is at most half as likely without one of the sources: nothing shows that an "
        "answer uses any one of them."
    )


@pytest.mark.parametrize("fact", [True, False])
def test_one_prompt_has_no_interval_and_no_test(fact):
    result = look(copying(), [prompt(0, fact=fact)], [SourceSignals(among="document *")], progress=False)["sources"]
    said = [finding.text for finding in findings(result)]
    assert not any(word in " ".join(said) for word in ("prompts", "CI", "significant", "nan"))
    if fact:
        assert said[0].startswith("Without one of the sources the answer is at most half as likely")
        assert said[1].startswith("That source is ranked first by")
    else:
        assert said == ["Without any one of the sources, the answer stays more than half as likely: nothing shows that "
                        "it uses one of them."]  # fmt: skip


def test_random_weights_use_none():
    data = measured(copying(control=True)).data
    assert float(data["gold"].sel(signal="attention")) < 0.5
