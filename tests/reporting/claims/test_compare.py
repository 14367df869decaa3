"""`compare`: what two runs differ by."""

import re
from collections import Counter

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binomtest, ttest_ind_from_stats

from claims.numbers import (
    NAMED,
    NUMBER,
    PER_HEAD,
    Draw,
    are_named,
    by_head,
    discovered,
    number,
    prints,
    single,
    triples,
)
from claims.rules import DRAWS
from claims.test_attention import weights
from claims.test_function import roles
from lorgnette.reporting import Comparison
from lorgnette.results import Results


def welch(one, other):
    """p of two independent means, from their errors."""
    (m, se, n), (m2, se2, n2) = one, other
    return ttest_ind_from_stats(m, se * n**0.5, n, m2, se2 * n2**0.5, n2, equal_var=False).pvalue


COMPARED = (
    rf"(Confidence|Normalised entropy|Share of attention, .*?): ({NUMBER}) → ({NUMBER}), ({NUMBER}) "
    rf"\(({NUMBER}) to ({NUMBER})\); (?:(none|\d+) of (\d+) heads differs? significantly)(?:, most "
    rf"({NAMED}))?\."
)


def test_comparisons_say_what_the_numbers_say():
    """Means of both runs, their difference and its interval, and which heads differ (Welch's t by SciPy)."""
    kinds = {"opening token ([CLS])": "cls", "closing token ([SEP])": "sep"}
    seen = Counter()
    for seed in range(DRAWS // 2):
        draw = Draw(seed)
        draw.texts = int(draw.rng.choice([3, 8, 40]))
        before, after = weights(draw), weights(draw)
        for finding in Comparison(Results([before]), Results([after])).findings():
            match = re.fullmatch(COMPARED, finding.text)
            assert match, finding.text
            variable = {"Confidence": "confidence", "Normalised entropy": "entropy_normalised"}.get(match[1], "mass")
            at = {"category": kinds[match[1].partition(", ")[2]]} if variable == "mass" else {}
            old, new = (triples(run.data.squeeze("stack", drop=True), variable, **at) for run in (before, after))
            means = [np.mean([mean[0] for mean in run.values()]) for run in (old, new)]
            for place, mean in zip((2, 3), means, strict=True):
                assert number(match[place]) == pytest.approx(mean, rel=0.006)
            prints(match[4], means[1] - means[0])
            first, last = (tuple(np.mean([mean[k] for mean in run.values()]) for k in range(3)) for run in (old, new))
            sure_of_mean = welch(last, first) < 0.05
            assert (number(match[5]) * number(match[6]) > 0) == sure_of_mean or match[5].strip("+−0.") == ""
            p = {name: welch(new[name], old[name]) for name in old}
            sure = discovered(p)
            assert (0 if match[7] == "none" else int(match[7]), int(match[8])) == (len(sure), len(old))
            if sure:
                gains = {name: new[name][0] - old[name][0] for name in sure}
                named = [part.split(" (")[0] for part in match[9].split(", ")]
                assert named == sorted(gains, key=lambda name: -abs(gains[name]))[:3]
            seen[bool(sure)] += 1
    assert seen[True]
    assert seen[False]


def sentences(before, after):
    return [finding.text for finding in Comparison(Results([before]), Results([after])).findings()]


VARIABLES = {"Confidence": "confidence", "Normalised entropy": "entropy_normalised"}
SAYS = r"(Confidence|Normalised entropy|Share of attention, .*?)"


def test_runs_of_one_text_have_no_interval():
    """Means of both runs and the largest differences, but no word on how sure they are."""
    for seed in range(DRAWS // 2):
        draw = Draw(seed)
        draw.texts = 1
        before, after = weights(draw), weights(draw)
        for text in sentences(before, after):
            match = re.fullmatch(
                rf"{SAYS}: ({NUMBER}) → ({NUMBER}); largest differences: ({NAMED}) \(no interval\)\.", text
            )
            assert match, text
            if match[1] in VARIABLES:
                old, new = (by_head(run.data[VARIABLES[match[1]]].squeeze("stack")) for run in (before, after))
                for place, values in ((2, old), (3, new)):
                    assert number(match[place]) == pytest.approx(np.mean(list(values.values())), rel=0.006)
                are_named(match[4], {name: new[name] - old[name] for name in old}, size=abs)


def test_one_number_is_significant_or_said_not_to_be():
    """A model of one head: nothing is counted."""
    seen = Counter()
    for seed in range(DRAWS):
        draw = Draw(seed)
        draw.texts = int(draw.rng.choice([3, 8, 40]))
        draw.sizes |= {"layer": [1], "head": [1]}
        before, after = (draw.result("weights", draw.mean("confidence", PER_HEAD, 0.4, 0.6)) for _ in range(2))
        (text,) = sentences(before, after)
        match = re.fullmatch(
            rf"Confidence: ({NUMBER}) → ({NUMBER}), ({NUMBER}) \({NUMBER} to {NUMBER}\)(; not significant)?\.", text
        )
        assert match, text
        at = {"stack": "encoder", "layer": 1, "head": 1}
        old, new = (single(run.data, "confidence", **at) for run in (before, after))
        prints(match[3], new[0] - old[0])
        assert (match[4] is None) == (welch(new, old) < 0.05)
        seen[match[4]] += 1
    assert len(seen) == 2


@pytest.mark.parametrize("errors", [True, False])
def test_numbers_of_many_kinds_are_only_counted(errors):
    for seed in range(DRAWS // 2):
        draw = Draw(seed)
        draw.texts = 8
        draw.sizes["kind"] = list("abcdefghijklm")
        runs = [draw.mean("score", (*PER_HEAD, "kind"), 0.4, 0.6) for _ in range(2)]
        kept = [{name: each for name, each in run.items() if errors or not name.endswith("_se")} for run in runs]
        before, after = (draw.result("plug", run) for run in kept)
        (text,) = sentences(before, after)
        if not errors:
            assert text == "Score: 156 numbers of 13 kinds, without errors."
            continue
        sure = 0
        for kind in draw.sizes["kind"]:
            old, new = (triples(run.data.squeeze("stack"), "score", kind=kind) for run in (before, after))
            sure += len(discovered({name: welch(new[name], old[name]) for name in old}))
        assert text == f"Score: {sure} of 156 numbers of 13 kinds differ significantly."


def test_whole_models_are_as_good_as_is_said():
    draw = np.random.default_rng(0)
    for _ in range(DRAWS):
        runs, wanted = [], []
        for name in ("before", "after"):
            texts = int(draw.integers(2, 3000))
            right, loss = int(draw.integers(texts + 1)), float(draw.uniform(0, 2))
            result = weights(Draw(1))
            result.data.attrs["whole_model"] = {"accuracy": right / texts, "loss": loss, "texts": texts}
            runs.append(Results([result]))
            low, high = binomtest(right, texts).proportion_ci(0.95, method="wilson")
            wanted.append(
                f"{name} has accuracy {right / texts:.3f} (95 % CI {low:.3f} to {high:.3f}), loss {loss:.3f} over "
                f"{texts:,} texts"
            )
        assert Comparison(*runs).whole_models().text == f"Whole models: {'; '.join(wanted)}."
    assert Comparison(runs[0], Results([weights(Draw(1))])).whole_models() is None


def test_roles_that_change_are_those_of_heads_that_both_models_have():
    seen = Counter()
    for seed in range(DRAWS):
        draw = Draw(seed)
        before, after = roles(draw), roles(draw)
        if seed % 3 == 0:
            after = before
        gone = (0, 0, 1)  # pruned in the second model, with the role that it had in the first
        before.data["label"].values[gone][0] = True
        if after is not before:
            after.data["label"].values[gone] = False
            after.data["peak_count"].values[gone] = 0
        for run in (before, after):
            named = xr.apply_ufunc(lambda label: "", run.data["label"].isel(role=0, drop=True), vectorize=True)
            run.data["roles"] = named.astype(object)
        (text,) = sentences(before, after)
        labels = [run.data["label"].squeeze("stack") for run in (before, after)]
        there = [by_head(run.data["peak_count"].squeeze("stack").sum("part").astype(float)) for run in (before, after)]
        both = [name for name in there[0] if there[0][name] and there[1][name]]
        said = {
            name: [
                ", ".join(
                    str(role)
                    for role in label["role"].values
                    if bool(label.sel(layer=int(name[0]), head=int(name[2]), role=role))
                )
                or "none"
                for label in labels
            ]
            for name in both
        }
        changed = [f"{name} ({old} → {new})" for name, (old, new) in said.items() if old != new]
        seen[bool(changed)] += 1
        if not changed:
            assert text == f"None of {len(both)} heads changed its role."
            continue
        more = " …" if len(changed) > 3 else "."
        assert text == f"{len(changed)} of {len(both)} heads changed their role: {'; '.join(changed[:3])}{more}"
    assert len(seen) == 2
