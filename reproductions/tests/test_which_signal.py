"""Which signal to trust, on made-up cells: planted orders are judged as they were planted."""

import re

import pytest
from made_cells import finished

from reproductions.frame.page import Outcome
from reproductions.frame.settings import Settings
from reproductions.frame.study import ROOT
from reproductions.which_signal import STUDY
from reproductions.which_signal.claims import claims
from reproductions.which_signal.readings import Place, Readings

RHO = {"confidence": 0.2, "norm": 0.4, "direct_effect": 0.6, "gradient": 0.8, "facilitation": 0.7, "ablation_zero": 0.9}
RHO |= {"output_length": 0.5, "slope": 0.1, "sharpness": 0.1}
SAVED = {
    "confidence": 0.0,
    "norm": 0.3,
    "direct_effect": 0.4,
    "gradient": 0.6,
    "facilitation": 0.8,
    "ablation_zero": 0.6,
    "output_length": 0.5,
    "slope": -0.9,
    "sharpness": -0.4,
}


def cell(labels):
    """One stack, or three of a translation model; every number a little different for every model and seed."""
    shift = 0.01 * labels["seed"] + 0.001 * len(labels["model"])
    stacks = {"translation": ("encoder", "decoder", "cross"), "language": ("decoder",)}.get(
        labels["task"], ("encoder",)
    )
    return {"texts": {"ranking": 8, "test": 9}, "stacks": {stack: one_stack(stack, shift, labels) for stack in stacks}}


def one_stack(stack, shift, labels):
    signals = {}
    for name, rho in RHO.items():
        sign = -1 if (name, stack) == ("confidence", "decoder") else 1
        numbers = {f"{key}_{how}": sign * rho + shift for how in ("zero", "mean") for key in ("spearman", "within")}
        numbers |= {f"ceiling_{how}": 0.95 for how in ("zero", "mean")}
        signals[name] = {"values": [0.1, 0.2], "reliability": 0.9, **numbers}
    losses = {name: [1 - saved + shift] * 3 for name, saved in SAVED.items()} | {"random": [1.0] * 3}
    metrics = ("loss", "accuracy") if labels["task"] == "classifier" else ("loss",)
    removed = {
        name: {metric: values if metric == "loss" else [-0.1 * value for value in values] for metric in metrics}
        for name, values in losses.items()
    }
    return {
        "heads": 2,
        "signals": signals,
        "removed": removed,
        "intact": {"loss": 0.3, **({"accuracy": 0.9} if "accuracy" in metrics else {})},
    }


@pytest.fixture(scope="module")
def cells():
    return finished(STUDY, cell)


def test_planted_orders_are_judged_as_planted(cells):
    verdicts = {claim.id: claim.verdict for claim in claims(cells)}
    assert set(STUDY.headline) <= {id for id, v in verdicts.items() if v == "holds"}


def test_a_model_counts_once_however_many_stacks_it_has(cells):
    readings = Readings(cells)
    opus = Place("opus-mt-en-fr", "multi30k")
    at = readings.places.index(opus)
    assert len(readings.places) == 7
    by_stack = [readings.rho(opus, stack, "confidence") for stack in ("encoder", "decoder", "cross")]
    assert by_stack[0] == pytest.approx(0.2 + 0.005 + 0.013)  # mean over the seeds
    assert readings.of_places(readings.rho, "confidence")[at] == pytest.approx(sum(by_stack) / 3)
    classifier = readings.places.index(Place("minilm", "sst2"))
    assert readings.of_places(readings.rho, "confidence", ["decoder"])[classifier] is None  # it has no decoder
    assert readings.saved(opus, "encoder", "gradient") == pytest.approx(0.6 - 0.005 - 0.013)


def test_the_page_of_made_up_cells(cells):
    outcome = Outcome.of(STUDY, cells)
    page = outcome.page("README.md")
    assert "ablation zero" not in page.split("**One head at a time.**")[1].split("**The gradient")[0]
    assert "better than chance in 7 of 7 models" in page
    assert "gradient avoids 0.59, facilitation 0.79" in page
    tables = {table.id: table.frame for table in outcome.tables}
    assert tables["single"]["signal"].tolist()[0] == "ablation zero"
    assert tables["accuracy-minilm-sst2"].set_index("ranked by").loc["random", "50% gone"] == pytest.approx(0.8)
    assert outcome.page("APPENDIX.md")


NAMES = {
    "gradient of a gate": "gradient",
    "ablation, mean": "ablation_mean",
    "ablation, zero": "ablation_zero",
    "effect by gradient": "gradient_effect",
    "rank of W_V W_O": "ov_rank",
    r"slope, \|∂L/∂α\|": "slope",
}


def test_the_table_in_the_documentation_is_that_of_the_cells():
    page = (ROOT.parent / "docs" / "which-signal.md").read_text(encoding="utf-8")
    readings = Readings(STUDY.finished(Settings(out=STUDY.home, partial=True, seeds=STUDY.seeds)))
    rows = [re.split(r"(?<!\\\\) \| ", line.strip("| ")) for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(readings.signals)
    language = next(place for place in readings.places if place.corpus == "wikitext2")
    for name, _, _, *cells in rows:
        signal = NAMES.get(name, name.replace(" ", "_"))
        wanted = [*(written(readings, read, signal) for read in (readings.rho, readings.saved)),
                  *(digits(read(language, "decoder", signal)) for read in (readings.rho, readings.saved))]  # fmt: skip
        for shown, number in zip(cells, wanted, strict=True):
            assert shown.replace("*", "") in ("–", number), f"{name}: {shown}"


def digits(value):
    return f"{value:.2f}".replace("-", "−")


def written(readings, read, signal):
    """Mean over models and the range over stacks, as the page writes them."""
    level = [value for value in readings.of_places(read, signal) if value is not None]
    each = [value for place, stack in readings.every() if (value := read(place, stack, signal)) is not None]
    return "{} ({} to {})".format(*(digits(value) for value in (sum(level) / len(level), min(each), max(each))))
