"""Charts for the column of a paper: marks shrink and panels are stacked until they fit; letters keep their size."""

from collections.abc import Callable
from typing import Any

from lorgnette.errors import UserError, near, shown
from lorgnette.types import Json

WIDTHS = {"column": 240.0, "page": 500.0}
"""Points: a column of a two-column paper, and both of them."""
LETTERS = 8
"""Points of the letters in a chart that was fitted."""
_NARROWEST, _WIDEST = 120.0, 2000.0
_LEAST = 0.3
_SMALLEST = 0.45
"""Panels are stacked rather than shrunk below this share of their size."""


def known_width(width: str | int | float) -> float:
    """Points from "column", "page", or a number of points."""
    if isinstance(width, str) and width in WIDTHS:
        return WIDTHS[width]
    try:
        points = float(width)
    except (TypeError, ValueError):
        names, meant = " or ".join(WIDTHS), near(str(width), WIDTHS)
        raise UserError(
            f"The width of a figure is {names}, or a number of points. Got {shown(width)} instead.{meant}"
        ) from None
    if not _NARROWEST <= points <= _WIDEST:
        raise UserError(f"The width of a figure is {_NARROWEST:g} to {_WIDEST:g} points. Got {shown(width)} instead.")
    return points


def narrow(config: Json, width: float, columns: int) -> Json:
    """The theme of a chart of this width: its legend below it in so many columns, so that the width is the chart's."""
    legend = {"orient": "bottom", "titleOrient": "top", "titleLimit": width * 0.9, "gradientLength": width * 0.5}
    return {
        **config,
        "legend": {**config["legend"], **legend, "titleFontWeight": "normal", "columns": columns, "offset": 6},
        "axis": {**config["axis"], "titlePadding": 3},
        "concat": {"spacing": 8},
        "facet": {"spacing": 8},
    }


def fitted_to(spec: Json, config: Json, width: float, measured: Callable[[Json, Json], float]) -> tuple[Json, Json]:
    """The chart and the theme with the largest marks with which it is at most `width` wide, as `measured` says.

    Where the words of its legend alone are wider, it is as wide as they are.
    """
    spec = _with_plain_legends(spec)
    for below in range(max(1, int(width // 110)), 0, -1):  # columns of the legend
        theme = narrow(config, width, below)
        if below == 1 or measured(_shrunk(_stacked(spec, 1), _LEAST), theme) <= width:
            break
    for columns in range(_columns(spec), 0, -1):
        stacked = _stacked(spec, columns)
        share = _share(stacked, width, lambda one: measured(one, theme))
        if share >= _SMALLEST or columns == 1:
            return _shrunk(stacked, share), theme
    raise AssertionError("a chart has at least one column")


def _with_plain_legends(part: Any) -> Any:
    """The theme says where legends are."""
    if isinstance(part, list):
        return [_with_plain_legends(item) for item in part]
    if not isinstance(part, dict) or "values" in part:
        return part
    out = {name: _with_plain_legends(value) for name, value in part.items()}
    if isinstance(out.get("legend"), dict):
        out["legend"] = {name: value for name, value in out["legend"].items() if name not in ("orient", "columns")}
    return out


def _columns(spec: Json) -> int:
    panels = spec.get("concat") or spec.get("hconcat") or [spec]
    return min(len(panels), int(spec.get("columns", len(panels))))


def _stacked(spec: Json, columns: int) -> Json:
    """Panels in so many columns; where only the outer ones named their axes, those that are outside now do."""
    panels = spec.get("concat") or spec.get("hconcat")
    if panels is None or columns == _columns(spec):
        return spec
    rest = {name: value for name, value in spec.items() if name not in ("hconcat", "concat", "columns")}
    for axis in ("x", "y"):
        given = [panel.get("encoding", {}).get(axis, {}).get("title") for panel in panels]
        title = next((words for words in given if words), None)
        if title is None or None not in given:
            continue
        outside = [place % columns == 0 if axis == "y" else place + columns >= len(panels)
                   for place in range(len(panels))]  # fmt: skip
        panels = [_with_title(panel, axis, title if out else None) for panel, out in zip(panels, outside, strict=True)]
    return {**rest, "concat": panels, "columns": columns}


def _with_title(panel: Json, axis: str, title: str | None) -> Json:
    encoding = panel["encoding"]
    return {**panel, "encoding": {**encoding, axis: {**encoding[axis], "title": title}}}


def _share(spec: Json, width: float, measured: Callable[[Json], float]) -> float:
    """The factor by which marks must shrink; axes and letters keep their size, so the width is nearly linear in it."""
    whole = measured(spec)
    if whole <= width:
        return 1.0
    half = measured(_shrunk(spec, 0.5))
    slope = max(1e-6, 2 * (whole - half))
    share = max(_LEAST, min(1.0, 1 - (whole - width) / slope))
    while share > _LEAST and measured(_shrunk(spec, share)) > width + 0.01:
        share = max(_LEAST, share * 0.97)
    return share


def _shrunk(part: Any, share: float) -> Any:
    """Widths and heights of plots times `share`, and letters that are larger than `LETTERS` made that small."""
    if isinstance(part, list):
        return [_shrunk(item, share) for item in part]
    if not isinstance(part, dict) or "values" in part:
        return part
    out = {name: _shrunk(value, share) for name, value in part.items()}
    for name in ("width", "height"):
        if isinstance(out.get(name), int | float):
            out[name] *= share
        elif isinstance(out.get(name), dict) and "step" in out[name]:
            out[name] = {"step": out[name]["step"] * share}
    for name in ("fontSize", "labelFontSize", "titleFontSize"):
        if isinstance(out.get(name), int | float):
            out[name] = min(out[name], LETTERS)
    return out
