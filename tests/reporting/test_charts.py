"""Charts show the numbers of the result, all of them and no others."""

import ast
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from made import norms, nothing, plugin, weights
from scipy import stats

from lorgnette import lens as lenses
from lorgnette.errors import UserError
from lorgnette.figures.cells import VARIABLES, number, said
from lorgnette.reporting import categories_by_layer, figures_of, heat_map, layer_curves
from lorgnette.results import Result


def rows(chart) -> list[dict]:
    """All inline data of a chart, in order."""
    found = []

    def walk(part):
        if isinstance(part, dict):
            found.extend(part["values"] if isinstance(part.get("values"), list) else ())
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for item in part:
                walk(item)

    spec = chart.to_dict()
    walk({key: value for key, value in spec.items() if key != "datasets"})
    return found


def test_a_heat_map_holds_every_head_but_the_missing_one():
    result = weights()
    found = {(row["layer"], row["head"]): row for row in rows(heat_map(result, "confidence"))}
    assert set(found) == {(layer, head) for layer in (1, 2, 3) for head in (1, 2, 3, 4)} - {(1, 1)}
    for (layer, head), row in found.items():
        cell = result.data.sel(stack="encoder", layer=layer, head=head)
        assert row["value"] == cell["confidence"].item()
        assert row["label"] == f"layer {layer}, head {head}: {cell['confidence']:.3f} ± {cell['confidence_se']:.3f}"


@pytest.mark.parametrize(("layers", "heads", "drawn"), [(6, 12, (30, 30)), (12, 12, (30, 30)), (30, 9, (40, 12))])
def test_the_map_of_a_deep_model_is_no_taller_than_that_of_a_shallow_one(layers, heads, drawn):
    chart = heat_map(weights(layers, heads), "confidence").to_dict()
    assert (chart["width"]["step"], chart["height"]["step"]) == drawn
    assert chart["height"]["step"] * layers <= 360
    # Numbers of layers that would touch each other are left out; those of heads have room.
    axes = [chart["encoding"][name]["axis"] for name in ("x", "y")]
    assert ["labelExpr" in axis for axis in axes] == [False, drawn[1] < 17]
    several = heat_map(weights(layers, heads), "mass", category=["cls", "next"]).to_dict()["concat"]
    assert all(panel["height"]["step"] * layers <= 240 for panel in several)


def test_a_selection_and_small_multiples():
    result = weights()
    one = rows(heat_map(result, "mass", category="previous"))
    expected = result.data["mass"].sel(category="previous").values.ravel()
    assert sorted(row["value"] for row in one) == sorted(expected[~np.isnan(expected)])
    several = rows(heat_map(result, "mass", category=["cls", "next"]))
    assert {row["panel"] for row in several} == {said("cls"), said("next")}
    assert len(several) == 2 * 11


def test_several_stacks_are_panels():
    assert {row["panel"] for row in rows(heat_map(weights(stacks=("encoder", "cross")), "peak"))} == {
        "encoder",
        "cross",
    }


def test_colours_go_from_zero_or_both_ways():
    def scale(result, variable):
        return heat_map(result, variable).to_dict()["encoding"]["color"]["scale"]

    assert scale(weights(), "confidence") == {"scheme": "viridis", "domain": [0, 1.0]}
    signed = scale(plugin(), "score")
    assert signed["scheme"] == "blueorange"
    assert signed["reverse"]  # blue above zero
    assert signed["domain"][0] == -signed["domain"][1] == -np.abs(plugin().data["score"]).max()


def test_curves_are_means_over_heads_with_t_intervals():
    result = weights()
    found = {row["layer"]: row for row in rows(layer_curves(result, "entropy")) if "mean" in row}
    for layer, row in found.items():
        values = result.data["entropy"].sel(stack="encoder", layer=layer).values
        values = values[~np.isnan(values)]
        assert row["mean"] == pytest.approx(values.mean())
        if layer == 1:  # three heads: no interval
            assert row["low"] == row["high"] == row["mean"]
            continue
        low, high = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
        assert (row["low"], row["high"]) == pytest.approx((low, high))


def test_curves_without_heads_have_errors_over_texts():
    found = [row for row in rows(layer_curves(plugin(), "depth")) if "mean" in row]
    assert [row["mean"] for row in found[:3]] == [0, 1, 2]
    assert found[0]["high"] == pytest.approx(0.1 * stats.t.ppf(0.975, 9))


def test_two_further_axes_are_panels_and_colours():
    result = weights(stacks=("encoder", "cross"))
    chart = layer_curves(result, "mass", category=["cls", "sep"])
    titles = [part["title"] for part in chart.to_dict()["concat"]]
    assert titles == ["encoder", "cross"]
    found = [row for row in rows(chart) if "mean" in row]
    assert {row["panel"] for row in found} == {said("cls"), said("sep")}
    means = result.data["mass"].sel(category=["cls", "sep"]).mean("head").values.ravel()
    assert sorted({row["mean"] for row in found}) == pytest.approx(sorted(means))


def test_a_stack_without_numbers_is_not_in_the_legend_and_leaves_the_colours():
    result = weights(stacks=("encoder", "cross"))
    colours, legends = [], []
    for missing in (None, "encoder"):
        there = result.data["stack"] != missing
        empty = {"entropy": np.nan, "entropy_se": np.nan, "entropy_count": 0}
        data = xr.Dataset({name: result.data[name].where(there, value) for name, value in empty.items()})
        layer = layer_curves(Result("weights", data, result.provenance), "entropy").to_dict()["layer"][1]
        colours.append(layer["encoding"]["color"]["scale"])
        legends.append(layer["encoding"]["color"]["legend"].get("values"))
    assert colours[0] == colours[1]
    assert legends == [None, ["cross"]]


def test_categories_share_out_the_whole():
    result = weights()
    found = rows(categories_by_layer(result))
    for layer in (1, 2, 3):
        shares = {row["kind"]: row["value"] for row in found if row["layer"] == layer}
        assert set(shares) == {said(kind) for kind in ("cls", "sep", "period_comma", "other")}
        assert sum(shares.values()) == pytest.approx(1)
        mean = result.data["mass"].sel(stack="encoder", layer=layer, category="cls").mean().item()
        assert shares[said("cls")] == pytest.approx(mean)


def test_norms_stand_beside_weights():
    assert {row["panel"] for row in rows(categories_by_layer(norms()))} == {"share of attention", "share of the norm"}


@pytest.mark.parametrize(
    ("draw", "said_so"),
    [
        (lambda: heat_map(weights(), "confidance"), "Did you mean 'confidence'"),
        (lambda: heat_map(weights(), "mass", category="clss"), "has no category 'clss'"),
        (lambda: heat_map(weights(), "peak", category="cls"), "has no axis 'category'"),
        (lambda: heat_map(plugin(), "depth"), "needs layer and head"),
        (lambda: layer_curves(plugin(), "between"), "need a layer"),
        (lambda: categories_by_layer(plugin()), "nothing by category"),
    ],
)
def test_what_cannot_be_drawn_is_said(draw, said_so):
    with pytest.raises(UserError, match=said_so):
        draw()


def test_a_chart_without_numbers_says_so():
    chart = heat_map(nothing(), "confidence").to_dict()
    assert chart["mark"]["type"] == "text"
    assert "no text gives a number" in chart["data"]["values"][0]["said"]


def test_a_lens_that_is_not_known_gets_a_figure_per_variable():
    assert [figure.name for figure in figures_of(plugin())] == ["score", "depth"]
    assert [figure.name for figure in figures_of(weights())][:3] == ["entropy_normalised", "confidence", "mass"]


def test_what_is_missing_has_no_figure():
    assert "confidence" not in [figure.name for figure in figures_of(nothing())]


def test_numbers_keep_three_digits():
    assert [number(value) for value in (0.5, 0.0, 12.34567, 1e-5, 123456.0, -0.25)] == [
        "0.500", "0.000", "12.346", "1e-05", "1.23e+05", "-0.250",
    ]  # fmt: skip


def test_every_variable_that_a_lens_draws_has_words_for_its_axis():
    """Names that reports give a title to, or draw by name; "state_sim" is no label for a paper."""
    drawn = set()
    for path in Path(lenses.__file__).parent.glob("*/report.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if name in ("variable_figure", "figures_by_stack", "layer_curves", "heat_map"):
                drawn |= {one.value for one in call.args[1:2] if isinstance(one, ast.Constant)}
        for table in (node for node in ast.walk(tree) if isinstance(node, ast.Dict)):
            keys = [key.value for key in table.keys if isinstance(key, ast.Constant)]
            texts = [isinstance(value, ast.Constant | ast.JoinedStr) for value in table.values]
            if "titled_figures" in path.read_text(encoding="utf-8") and keys and all(texts):
                drawn |= {key for key in keys if isinstance(key, str) and "_" in key}
    assert {"state_sim", "entropy_normalised", "loss_change"} <= drawn
    assert drawn - set(VARIABLES) <= {"weight"}
