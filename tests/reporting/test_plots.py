"""`plot()` of results, heads and trainings, and the views of bare tensors: their numbers, their files, their slips."""

import base64
import sys
import types
import zlib

import numpy as np
import pytest
import torch
from tiny import EXAMPLES, bert

import lorgnette as lo
from lorgnette.errors import UserError

HEADS = {".svg": b"<svg", ".png": b"\x89PNG", ".pdf": b"%PDF", ".html": b"<!doctype html>"}


@pytest.fixture(scope="module")
def results():
    return lo.look(bert(), EXAMPLES, ["weights"], progress=False)


def values_of(chart):
    """All records that a chart holds."""
    found, stack = [], [chart.to_dict()]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            data = part.get("data")
            found += data.get("values", []) if isinstance(data, dict) else []
            stack += [value for name, value in part.items() if name != "data"]
        elif isinstance(part, list):
            stack += part
    return found


def test_a_variable_is_drawn_with_its_numbers(results):
    result = results["weights"]
    plot = result["entropy"].plot()
    drawn = {(row["layer"], row["head"]): row["value"] for row in values_of(plot.chart)}
    array = result.data["entropy"].squeeze("stack")
    assert drawn == {(int(c["layer"]), int(c["head"])): float(c) for row in array for c in row}
    assert plot.title == "weights: " + result.provenance.model + ", entropy (nats)"
    one = result.plot("mass", category="cls")
    assert len(values_of(one.chart)) == array.size


@pytest.mark.parametrize("ending", HEADS)
def test_a_plot_is_saved(results, ending, tmp_path):
    path = results["weights"]["peak"].plot().save(tmp_path / f"peak{ending}")
    content = path.read_bytes()
    assert content.startswith(HEADS[ending])
    assert b"http://" not in content.replace(b"http://www.w3.org", b"")
    assert b"https://" not in content


def test_all_figures_of_a_result(results):
    from lorgnette.reporting import figures_of

    titles = [figure.title for figure in figures_of(results["weights"])]
    chart = results["weights"].plot().chart.to_dict()
    assert [part["title"] for part in chart["vconcat"]] == titles


def test_a_variable_with_what_belongs_to_it(results):
    measured = results["weights"]["entropy"]
    assert measured.data.identical(results["weights"].data["entropy"])
    assert {"entropy", "entropy_se", "entropy_count"} <= set(measured.to_dataframe().columns)


def test_one_head_of_a_text(tmp_path):
    trace = bert().trace("the cat saw the unbelievable cat .")
    for words in (True, False):
        rows = values_of(trace.plot(2, 3, words=words).chart)
        weights = trace.data(words=words).sel(layer=2, head=3).values
        assert [row["weight"] for row in rows] == pytest.approx(weights.ravel().tolist())
    assert trace.plot(1, 1).save(tmp_path / "head.svg").stat().st_size > 1000
    with pytest.raises(UserError, match=r"no head 1\.9"):
        trace.plot(1, 9)
    assert "</html>" in trace.save(tmp_path / "views.html").read_text()


def test_show_is_for_notebooks(results, monkeypatch):
    with pytest.raises(UserError, match="in a notebook"):
        results["weights"].show()
    shown = []
    made = types.ModuleType("IPython")
    made.get_ipython = lambda: object()
    inner = types.ModuleType("IPython.display")
    inner.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython", made)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    results["weights"].show()
    assert shown == [results["weights"]]
    assert "<svg" in results["weights"].plot("peak")._repr_html_()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda r: r["entropie"], "no variable 'entropie'"),
        (lambda r: r.plot("entropie"), "Did you mean 'entropy'"),
        (lambda r: r.plot("mass", category="clss"), "no category 'clss'"),
        (lambda r: r.plot(category="cls"), "name a variable"),
        (lambda r: r.plot("peak").save("peak.gif"), r"cannot be saved as 'peak.gif'"),
    ],
)
def test_slips_are_one_line(results, what, words):
    with pytest.raises(UserError, match=words):
        what(results["weights"])


def weights(layers=2, texts=3, heads=4, queries=5, keys=5):
    return torch.rand(layers, texts, heads, queries, keys, generator=torch.Generator().manual_seed(0)).softmax(-1)


def unpacked(stack):
    shape = (stack["heads"], -1, 5)
    layers = [np.frombuffer(zlib.decompress(base64.b64decode(each)), np.uint8) for each in stack["weights"]]
    return np.stack([(layer / 255.0) ** 2 for layer in layers]).reshape(len(layers), *shape)


@pytest.mark.parametrize("form", ["batch", "list", "one", "numpy"])
def test_views_of_bare_tensors_hold_the_weights(form, tmp_path):
    whole = weights()
    given = {"batch": whole, "list": tuple(whole), "one": whole[:, 1], "numpy": whole[:, 1].numpy()}[form]
    shown = lo.views(given, list("abcde"), text=1 if form in ("batch", "list") else None)
    (stack,) = shown.document["stacks"]
    assert unpacked(stack) == pytest.approx(whole[:, 1].numpy(), abs=0.004)
    nats = np.frombuffer(zlib.decompress(base64.b64decode(stack["entropy"]["data"])), "<f4")
    rows = whole[:, 1].double()
    assert nats == pytest.approx((-(rows * rows.log()).sum(-1).mean(-1)).flatten().numpy(), rel=1e-5)
    page = shown.save(tmp_path / "bare.html").read_text()
    assert "<h1>Attention</h1>" in page
    assert "iframe" in shown._repr_html_()


def test_views_of_cross_attention():
    shown = lo.views(weights(queries=3)[:, 0], ["x", "y", "z"], keys=list("abcde"))
    assert [side["pieces"] for side in shown.document["sides"]] == [["x", "y", "z"], list("abcde")]
    assert (shown.document["stacks"][0]["queries"], shown.document["stacks"][0]["keys"]) == (0, 1)


@pytest.mark.parametrize(
    ("given", "tokens", "words"),
    [
        (weights()[:, 0], list("abcd"), "5 query positions, and 4 tokens were given"),
        (weights()[:, 0], "abcde", "one text was given"),
        (weights()[0, 0], list("abcde"), r"Got \[4, 5, 5\]"),
        (2 * weights()[:, 0], list("abcde"), "not attention weights"),
        (weights()[:, 0] * torch.nan, list("abcde"), "not attention weights"),
        ([weights()[0], weights(queries=4)[0]], list("abcde"), "of one shape"),
        (tuple(weights()), list("abcde"), "of 3 texts, and the tokens of one"),
    ],
)
def test_what_is_no_attention_is_refused(given, tokens, words):
    with pytest.raises(UserError, match=words):
        lo.views(given, tokens)


def test_a_text_that_is_not_in_the_batch():
    with pytest.raises(UserError, match="no text 7"):
        lo.views(weights(), list("abcde"), text=7)
    with pytest.raises(UserError, match="no axis of texts"):
        lo.views(weights()[:, 0], list("abcde"), text=1)


def test_tokens_of_white_space_can_be_read():
    shown = lo.views(weights()[:, 0], ["Ġthe", "▁cat", "Ċ", "\t", ""])
    assert shown.document["sides"][0]["pieces"] == ["␣the", "␣cat", "⏎", "⇥", "∅"]


def test_without_vl_convert_a_line_names_the_extra(results, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from lorgnette.cli.app import app

    folder = results.save(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for ending in HEADS:
        with pytest.raises(UserError, match=r"'vl_convert'.*lorgnette\[figures\]"):
            results["weights"]["peak"].plot().save(tmp_path / f"peak{ending}")
    with pytest.raises(UserError, match=r"lorgnette\[figures\]"):
        lo.report(folder, figures="pdf")
    assert not (folder / "figures").exists()
    told = CliRunner().invoke(app, ["report", str(folder)])
    page = (folder / "report.html").read_text()
    assert told.exit_code == 0
    assert "lorgnette[figures]" in told.output
    assert "lorgnette[figures]" in page
    assert "Numbers" in page  # the tables stay
    assert "lorgnette[figures]" in results["weights"]._repr_html_()
