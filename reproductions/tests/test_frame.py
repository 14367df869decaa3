"""Claims judge themselves, estimates are what SciPy says, cells are read by their labels."""

import json
import math
from itertools import permutations, product
from pathlib import Path
from types import SimpleNamespace

import altair as alt
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import xarray as xr
from typer.testing import CliRunner

import reproductions
from lorgnette.cli import reproduce as command
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from reproductions.frame import markdown
from reproductions.frame.cells import Cell, Cells
from reproductions.frame.chance import by_interval, corrected, p_value
from reproductions.frame.claims import Bound, Claim, Estimate, Published, as_printed, counted, disagreement
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure, Outcome, Table, estimate_of, row_of
from reproductions.frame.seeds import learnt, with_and_without
from reproductions.frame.settings import Settings
from reproductions.frame.statistics import (
    difference,
    mean_of,
    paired,
    percentile,
    placed_among,
    rank_correlation,
    ranked_within,
    slope,
)
from reproductions.frame.study import Study

ABOVE_ZERO = Bound.above(0)
DRAWN = np.random.default_rng(0)


def between(low, high, value=None):
    return Estimate(value=(low + high) / 2 if value is None else value, low=low, high=high)


@pytest.mark.parametrize(
    ("bound", "low", "high", "verdict"),
    [
        (Bound.above(0), 0.1, 0.2, "holds"),
        (Bound.above(0), -0.2, -0.1, "does not hold"),
        (Bound.above(0), -0.1, 0.1, "cannot tell"),
        (Bound.below(0.5), 0.1, 0.2, "holds"),
        (Bound.below(0.5), 0.6, 0.7, "does not hold"),
        (Bound.below(0.5), 0.5, 0.5, "cannot tell"),
        (Bound.within(-1, 1), -0.5, 0.5, "holds"),
        (Bound.within(-1, 1), 1.5, 2.0, "does not hold"),
        (Bound.within(-1, 1), 0.5, 2.0, "cannot tell"),
    ],
)
def test_the_whole_interval_decides(bound, low, high, verdict):
    assert bound.verdict(between(low, high)) == verdict


def test_without_an_interval_only_an_aim_is_decided():
    one = Estimate(value=0.85)
    assert Bound.above(0).verdict(one) == "cannot tell"
    assert Bound.at_least(0.85).verdict(one) == "holds"
    assert Bound.at_least(0.86).verdict(one) == "does not hold"


def test_every_estimate_of_a_claim_counts():
    def judged(*also, bound=ABOVE_ZERO):
        return Claim(id="x", text="", estimate=between(1, 2), bound=bound, also=also).verdict

    assert judged() == "holds"
    assert judged(between(-1, 1)) == "cannot tell"
    assert judged(between(-1, 1), between(-2, -1)) == "does not hold"
    assert judged(bound=None) == "not judged"
    some = [Claim(id=str(n), text="", estimate=between(n, n + 1), bound=Bound.above(1.5)) for n in range(4)]
    assert counted(some) == {"holds": 2, "does not hold": 1, "cannot tell": 1}


def test_intervals_against_scipy():
    one, other = DRAWN.normal(size=5), DRAWN.normal(size=4)
    same = scipy.stats.ttest_1samp(one, 0).confidence_interval()
    assert mean_of([*one, None, math.nan]).interval == pytest.approx(tuple(same))
    apart = scipy.stats.ttest_ind(one, other).confidence_interval()
    assert difference(one, other).interval == pytest.approx(tuple(apart))
    pairs = scipy.stats.ttest_rel(one[:4], other).confidence_interval()
    assert paired(one[:4], other).interval == pytest.approx(tuple(pairs))
    assert slope(one) == pytest.approx(scipy.stats.linregress(range(5), one).slope)
    assert percentile(2.0, range(101)).interval == pytest.approx((2.5, 97.5))
    assert mean_of([3.0]).interval is None
    assert mean_of([]).value is None


def cell(model: str, seed: int) -> Cell:
    return Cell("nowhere:none", {"seed": seed, "model": model}, {"model": model, "seed": seed})


def test_rank_correlations_are_over_the_seeds_of_each_setting():
    line = [[(x + 0.1 * s, -x - 0.1 * s) for s in range(3)] for x in range(4)]
    rho = rank_correlation(line)
    assert (rho.value, rho.low, rho.high) == pytest.approx((-1.0, -1.0, -1.0))
    assert rank_correlation([[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)]]) is None  # one side is constant
    assert rank_correlation([[(1.0, 1.0)], [(2.0, 3.0)], [(3.0, 2.0)]]).interval is None
    assert rank_correlation([*line, [(9.0, 9.0), (9.5, 9.0)]]).interval is None  # two runs are no sample
    noise = [[(float(x), float((x * 7 + s * 3) % 5)) for s in range(5)] for x in range(5)]
    pairs = [pair for group in noise for pair in group]
    assert rank_correlation(noise).value == pytest.approx(scipy.stats.spearmanr(pairs).statistic)
    assert rank_correlation(noise).low < 0 < rank_correlation(noise).high


def test_few_settings_of_a_seed_have_an_exact_test():
    """p against all orders of all seeds, written out: three seeds of three settings, 216 of them."""
    first = np.tile([0.0, 1.0, 2.0], (3, 1))
    second = np.array([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0], [2.0, 3.0, 1.0]])
    said = ranked_within(first, second, np.ones((3, 3), dtype=bool))
    rhos = [scipy.stats.spearmanr([0, 1, 2], order).statistic for order in permutations(range(3))]
    extreme = [abs(sum(three)) >= 2 - 1e-9 for three in product(rhos, repeat=3)]
    assert said.value == pytest.approx(-2 / 3)
    assert said.p == pytest.approx(np.mean(extreme))
    assert (said.interval, said.n) == (None, 3)
    # The review's example: five seeds whose mean is -.6 have p = .079, where a t interval says less than .005.
    five = np.array([[3, 2, 1], [3, 1, 2], [2, 3, 1], [3, 1, 2], [2, 3, 1]], dtype=float)
    said = ranked_within(np.tile([0.0, 1.0, 2.0], (5, 1)), five, np.ones((5, 3), dtype=bool))
    assert said.value == pytest.approx(-0.6)
    assert said.p == pytest.approx(0.079, abs=5e-4)
    assert ABOVE_ZERO.verdict(said) == "cannot tell"


def test_an_exact_test_judges_its_side_and_its_p_is_corrected():
    clear = Estimate(value=-1.0, n=5, over="seeds", method="permutation", p=0.001)
    below = Claim(id="x", text="", estimate=clear, bound=Bound.below(0))
    assert (below.verdict, ABOVE_ZERO.verdict(clear)) == ("holds", "does not hold")
    assert by_interval(below)
    assert p_value(below) == 0.001
    assert markdown.estimate(clear) == "-1.000 (p = 0.001)"
    with pytest.raises(ValueError, match="against zero"):
        Bound.above(0.5).verdict(clear)


def test_a_row_is_judged_on_the_side_of_its_printed_number():
    def row(printed, bound=ABOVE_ZERO):
        source = None if printed is None else Published(value=printed, source="a table")
        return Claim(id="x", text="it rises", estimate=between(-0.2, -0.1), bound=bound, published=source)

    agrees = as_printed(row(-0.168))
    assert (agrees.verdict, agrees.opposed) == ("holds", True)
    assert "opposite of “it rises”" in agrees.text
    assert as_printed(row(0.3)).verdict == "does not hold"
    for untouched in (row(0.3), row(None), row("it rises"), row(9.0, Bound.within(0, 1))):
        assert as_printed(untouched) == untouched


def test_chance_is_the_largest_class():
    assert learnt([0.412, 0.406, 0.416, 0.5], "hatexplain").tolist() == [False, False, False, True]


def test_the_place_of_a_choice_among_random_ones_is_tested_exactly():
    draws = [[1.0, 2.0, 3.0], [5.0, 6.0], [0.0, 1.0, 2.0]]
    chosen = [2.5, 7.0, 9.0]
    found = placed_among(chosen, draws)
    shares = [2 / 3, 1.0, 1.0]
    assert found.value == pytest.approx(np.mean(shares) - 0.5)
    every = [sum(places) / 3 - 0.5 for places in product([0, 1 / 3, 2 / 3, 1], [0, 0.5, 1], [0, 1 / 3, 2 / 3, 1])]
    assert found.p == pytest.approx(np.mean(np.abs(every) >= found.value - 1e-9))
    assert Bound.above(0).verdict(placed_among([9.0] * 3, [list(range(9))] * 3)) == "holds"
    assert placed_among([9.0] * 3, [list(range(9))] * 3).p == pytest.approx(2 / 1000)
    assert placed_among([], []).value is None


def test_cells_are_read_by_their_labels():
    grid = {f"{model}-{seed}": cell(model, seed) for model in ("a", "b") for seed in (0, 1)}
    results = {
        "a-0": {"test": {"accuracy": 0.5}, "curve": [{"loss": 2.0}, {"loss": 1.0}]},
        "a-1": {"test": {"accuracy": 0.7}, "curve": [{"loss": 3.0}]},
        "b-0": {"test": {"accuracy": 0.9}, "curve": []},
    }
    cells = Finished(Settings(out=Path()), grid, results, {key: {} for key in results})
    assert cells.missing == ("b-1",)
    accuracy = cells.array("test.accuracy", "model", "seed")
    assert accuracy.dims == ("model", "seed")
    assert accuracy.sel(model="a").values.tolist() == [0.5, 0.7]
    assert math.isnan(accuracy.sel(model="b", seed=1))
    losses = cells.array("curve.*.loss", "seed", inner="epoch", model="a")
    assert losses.shape == (2, 2)
    assert math.isnan(losses[1, 1])
    assert cells.array("test.accuracy", "seed", model="c").shape == (0,)
    assert cells.one(model="b")["test"]["accuracy"] == 0.9
    assert cells.labels("seed", model="a") == [0, 1]
    with pytest.raises(KeyError, match="2 finished cells"):
        cells.one(model="a")
    with pytest.raises(ValueError, match="two cells lie at"):
        cells.array("test.accuracy", "model")


def test_labelled_arrays_come_back_as_they_went(tmp_path, monkeypatch):
    data = xr.Dataset({"rho": (("block", "kind"), [[0.5, math.nan]])}, {"kind": ["cls", "sep"]}, {"corpus": "x"})
    monkeypatch.setattr(Cell, "run", lambda self: data)
    wanted = {"one": Cell("nowhere:none", {"x": 1})}
    xr.testing.assert_identical(Cells(tmp_path).run(wanted)["one"], data)
    moved = {"one": Cell("elsewhere:other", {"x": 1})}
    assert list(Cells(tmp_path).done(moved)) == ["one"]
    assert Cells(tmp_path).documents(moved)["one"]["versions"]["torch"]


class Tiny(Study):
    """A study without a package."""

    def grid(self, settings, done):
        rounds = {0: (0,), 1: (0, 1)}.get(len(done), (0, 1))
        return {f"cell-{seed}": cell("a", seed) for seed in rounds}

    def module(self, name):
        frame = pd.DataFrame({"head": ["1-2", "a|b"], "pairs": [17_443_296, 3], "ρ": [-0.12345678901234, None]})
        chart = alt.Chart(alt.Data(values=[{"x": 1, "y": 2}])).mark_point().encode(x="x:Q", y="y:Q")
        judged = Claim(
            id="below", text="ρ < 0", estimate=between(-0.2, -0.05, -0.1234), bound=Bound.below(0),
            published=Published(-0.69, "Table 2"), note="a note",
        )  # fmt: skip
        return SimpleNamespace(
            claims=lambda cells: [judged],
            tables=lambda cells: [Table("heads", "Heads", frame, "A note.")],
            figures=lambda cells: [Figure("dots", chart, "One dot.")],
        )


TINY = Tiny(name="nguyen2022", title="A tiny finding", question="Is it so?", headline=["below"])


@pytest.fixture
def measured(monkeypatch):
    runs = []
    monkeypatch.setattr(Cell, "run", lambda self: runs.append(self.arguments["seed"]) or {"x": 1})
    return runs


def test_a_grid_grows_until_nothing_is_new(tmp_path, measured):
    settings = Settings(out=tmp_path / "tiny")
    assert TINY.measure(settings) == 0
    assert measured == [0, 1]
    assert len(TINY.finished(settings)) == 2
    assert TINY.measure(settings) == 0
    assert measured == [0, 1]
    with pytest.raises(UserError, match="no finished cell"):
        TINY.finished(Settings(out=tmp_path / "empty"))


def test_the_folder_says_it_all(tmp_path, measured, monkeypatch):
    templates = {
        "page.md.j2": "# {{ study.title }}\n{{ headline }}\n{{ table('heads') }}\n",
        "appendix.md.j2": "{{ all_claims }}",
    }
    (tmp_path / "nguyen2022").mkdir()
    (tmp_path / "nguyen2022" / "published.json").write_text('{"reference": "Somebody 1999."}')
    for name, text in templates.items():
        (tmp_path / "nguyen2022" / name).write_text(text)
    for module in ("page", "study"):
        monkeypatch.setattr(f"reproductions.frame.{module}.ROOT", tmp_path)
    first, second = (
        TINY.reproduce(Settings(out=tmp_path / where, data=data, models=data)).write(tmp_path / where)
        for where, data in (("one", None), ("two", "/secret"))
    )
    readme = (first / "README.md").read_text()
    assert "| ρ < 0 | −0.690 | −0.123 [−0.200, −0.050] | **holds** |" in readme
    assert "| a\\|b | 3 | – |" in readme
    assert "| 1-2 | 17,443,296 | −0.123 |" in readme
    document = json.loads((first / "results.json").read_text())
    assert document["tables"][0]["rows"] == [["1-2", 17_443_296, -0.12345678901234], ["a|b", 3, None]]
    assert document["claims"][0]["estimate"]["low"] == -0.2
    assert document["provenance"]["cells"] == 2
    assert (first / "figures" / "dots.png").read_bytes().startswith(b"\x89PNG")
    for path in (path for path in first.rglob("*") if path.is_file() and path.parent.name != "cells"):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()
        assert b"secret" not in path.read_bytes()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    with pytest.raises(UserError, match="no reproduction wrote"):
        Outcome.of(TINY, TINY.finished(Settings(out=first))).write(tmp_path / "mine")


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "–"), (float("nan"), "–"), (12_345, "12,345"), (0.5, "0.500"), ("x", "x"), (True, "True")],
)
def test_numbers_to_read(value, said):
    assert markdown.number(value) == said


def test_the_command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = []

    def run(settings):
        seen.append(settings)
        return SimpleNamespace(claims=[], write=lambda folder: folder)

    study = SimpleNamespace(
        name="tiny", question="Is it so?", seeds=(0, 1), home=tmp_path / "home" / "tiny", reproduce=run
    )
    monkeypatch.setattr(reproductions, "STUDIES", ("tiny",))
    monkeypatch.setattr(reproductions, "find", lambda name: study)
    invoke = CliRunner().invoke
    assert "Is it so?" in invoke(app, ["reproduce"]).stdout
    done = invoke(app, ["reproduce", "tiny", "--seeds", "3,1", "--only", "x", "--models", "m", "--jobs", "2"])
    assert done.exit_code == 0, done.output
    assert (seen[0].seeds, seen[0].only, seen[0].models, seen[0].jobs) == ((3, 1), "x", "m", 2)
    assert seen[0].out == study.home
    assert seen[0].command("tiny") == "lorgnette reproduce tiny --seeds 3,1 --only x"
    assert invoke(app, ["reproduce", "tiny", "--quick", "--budget-seconds", "5"]).exit_code == 0
    assert seen[1].out == Path("out/tiny")
    assert seen[1].seeds == (0, 1)
    assert seen[1].until is not None
    for wrong in (["tiny", "--quick", "--out", str(study.home)], ["tiny", "--seeds", "a"]):
        assert invoke(app, ["reproduce", *wrong]).exit_code == 1


def test_names():
    with pytest.raises(UserError, match="Did you mean 'tp9'"):
        reproductions.find("tp8")


def test_without_a_checkout_one_line_says_where_they_are(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "__file__", str(tmp_path / "site-packages" / "lorgnette" / "cli" / "reproduce.py"))
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    refused = CliRunner().invoke(app, ["reproduce", "tp9"])
    assert refused.exit_code == 1
    assert "checkout" in refused.stderr


def test_a_p_value_belongs_to_its_interval():
    values = np.linspace(0, 3, 8)
    one = Claim(id="x", text="", estimate=mean_of(values), bound=Bound.above(-0.6))
    assert one.verdict == "holds"
    assert p_value(one) == pytest.approx(scipy.stats.ttest_1samp(values, -0.6).pvalue)
    first, second = DRAWN.normal(0, 1, 6), DRAWN.normal(3, 1, 6)
    apart = Claim(id="x", text="", estimate=difference(first, second), bound=ABOVE_ZERO)
    assert apart.verdict == "does not hold"
    assert p_value(apart) == pytest.approx(scipy.stats.ttest_ind(first, second).pvalue)
    both = Claim(id="x", text="", estimate=between(1, 2), bound=Bound.within(0, 3), also=[between(0.1, 2.1)])
    assert p_value(both) == pytest.approx(2 * scipy.stats.norm.sf(1.1 / 1.0 * scipy.stats.norm.ppf(0.975)))
    assert p_value(Claim(id="x", text="", estimate=between(-1, 1), bound=ABOVE_ZERO)) == 1


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-1.0, 1.0)])
def test_an_interval_of_a_share_or_a_cosine_stays_between_its_ends(ends):
    for values in ([0.99, 0.999, 0.95], [1.0, 1.0, 0.9], [0.2, 0.9, 0.5], [1.0, 1.0, 1.0]):
        one = mean_of(values, ends=ends)
        assert ends[0] <= one.low <= one.value <= one.high <= ends[1]
    middle = [0.1, 0.12, 0.11, 0.09]  # where nothing is near an end, the interval is that of t
    assert mean_of(middle, ends=(-1.0, 1.0)).interval == pytest.approx(mean_of(middle).interval, abs=1e-4)
    shares = np.array([0.8, 0.95, 0.9, 0.99])
    angles = np.arcsin(np.sqrt(shares))
    half = scipy.stats.t.ppf(0.975, 3) * angles.std(ddof=1) / 2
    low = np.sin(angles.mean() - half) ** 2
    assert mean_of(shares, ends=(0.0, 1.0)).low == pytest.approx(low)


def test_what_other_weights_could_make_any_number_is_not_judged():
    free = Claim(id="x", text="", estimate=between(1, 2), bound=ABOVE_ZERO, identified=False)
    assert free.verdict == free.record()["verdict"] == "not identified"
    assert not by_interval(free)
    assert counted([free]) == {"not identified": 1}


def test_runs_at_chance_must_not_make_the_verdict():
    assert disagreement(ABOVE_ZERO, between(1, 2), between(0.5, 3)) == ""
    assert disagreement(ABOVE_ZERO, between(1, 2), between(-1, 3))
    assert disagreement(ABOVE_ZERO, between(1, 2), Estimate(value=None))


def test_tests_of_a_study_are_corrected_together():
    barely, clearly = between(0.02, 2), between(3, 4)
    open_ones = [Claim(id=f"open{n}", text="", estimate=between(-1, 1), bound=ABOVE_ZERO) for n in range(8)]
    decided = [Claim(id=id, text="", estimate=e, bound=ABOVE_ZERO) for id, e in (("b", barely), ("c", clearly))]
    assert [claim.verdict for claim in corrected(decided)] == ["holds", "holds"]
    verdicts = {claim.id: claim for claim in corrected([*decided, *open_ones])}
    assert (verdicts["b"].verdict, verdicts["b"].overturned) == ("cannot tell", "holds")
    assert verdicts["c"].verdict == "holds"
    aim = Claim(id="aim", text="", estimate=Estimate(value=1.0), bound=Bound.at_least(1))
    count = Claim(id="count", text="", estimate=Estimate(value=1, low=1, high=1, method="counted"), bound=ABOVE_ZERO)
    assert [by_interval(one) for one in (aim, count)] == [False, False]
    assert corrected([aim, count]) == [aim, count]
    assert Bound.above(0).record() == {"low": 0}


def test_two_seeds_that_learnt_something_decide_nothing():
    """Whatever the interval of the two, and of all with the runs at chance."""
    values, about = [0.30, 0.31, 0.29, 0.30, 0.31], {"id": "x", "text": "x", "bound": Bound.above(0)}
    for count, verdict in ((5, "holds"), (3, "holds"), (2, "cannot tell")):
        claim = with_and_without(values, np.arange(5) < count, published=None, **about)
        assert claim.verdict == verdict
    assert claim.undecided == "too few seeds learnt anything: 2 of 5"


def test_a_page_quotes_another_study_from_its_results(tmp_path, monkeypatch):
    monkeypatch.setattr("reproductions.frame.page.ROOT", tmp_path)
    claim = {"id": "rises", "estimate": {"value": 0.3, "low": 0.1, "high": 0.5}}
    table = {"id": "levels", "columns": ["model", "SIM"], "rows": [["a", 0.25], ["b", 0.5], ["b", 0.75]]}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "results.json").write_text(json.dumps({"claims": [claim], "tables": [table]}))
    assert estimate_of("other", "rises") == Estimate(value=0.3, low=0.1, high=0.5)
    assert row_of("other", "levels", model="a") == {"model": "a", "SIM": 0.25}
    with pytest.raises(ValueError, match="no claim 'falls'"):
        estimate_of("other", "falls")
    with pytest.raises(ValueError, match="2 rows"):
        row_of("other", "levels", model="b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ρ is -.5 [-0.61, -.4]", "ρ is −0.5 [−0.61, −0.4]"),
        ("within ±.02 of 30% or 95 %", "within ±0.02 of 30\u00a0% or 95\u00a0%"),
        ("e5-small, GLUE-2, 1-3, `-.5 30%`, 1e-3", "e5-small, GLUE-2, 1-3, `-.5 30%`, 1e-3"),
        ("[page](../x-.5.md) v1.2.3 [a].5", "[page](../x-.5.md) v1.2.3 [a].5"),
        ("    run --level -.5", "    run --level -.5"),
        ("- 3 models", "- 3 models"),
    ],
)
def test_numbers_are_written_in_one_style(text, said):
    assert markdown.styled(text) == said
