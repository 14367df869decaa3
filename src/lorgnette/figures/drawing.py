"""Draw charts: as SVG that is safe inside a page, or as files for a paper."""

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import altair as alt

from lorgnette.errors import UserError, listed, near, optional, shown
from lorgnette.figures.width import LETTERS, fitted_to, known_width
from lorgnette.types import Chart, Json

FORMATS = ("png", "svg", "pdf")
INK = "#010203"
"""Stands for the colour of the text around the chart until the chart is in the page."""
_SVG = "http://www.w3.org/2000/svg"
_TAGS = frozenset(
    ("svg", "g", "path", "rect", "line", "circle", "text", "tspan", "defs", "linearGradient", "stop", "clipPath")
)
# fmt: off
_ATTRIBUTES = frozenset((
    "width", "height", "viewBox", "transform", "d", "x", "y", "x1", "y1", "x2", "y2", "dx", "dy", "r", "cx", "cy", "id",
    "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-miterlimit",
    "stroke-linecap", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "font-style",
    "text-anchor", "offset", "stop-color", "stop-opacity", "gradientUnits", "clip-path",
))
# fmt: on
_REFERENCE = re.compile(r"url\(['\"]?#?([^)'\"]*)['\"]?\)")
_FONT = "Helvetica Neue, Arial, Liberation Sans, sans-serif"
ROOM = 1.25
"""Text in an SVG is laid out so much larger than it is drawn: where the reader has none of these fonts, the one that
stands in (DejaVu Sans, Verdana) is wider, and would run over the edge or into the next word."""


NOT_DRAWN = "The charts are not drawn, because vl-convert is not installed: pip install 'lorgnette[figures]'."


def renderer() -> ModuleType:
    """vl-convert, which draws charts without a browser; an error names the extra that installs it."""
    return optional("vl_convert", "figures")


def can_draw() -> bool:
    return find_spec("vl_convert") is not None


def theme(ink: str, *, size: int = 11) -> Json:
    """How every chart looks: one ink in several strengths, no frame, no decoration."""
    faint = {"gridColor": ink, "gridOpacity": 0.12, "domainColor": ink, "tickColor": ink, "domainOpacity": 0.4}
    words = {"labelColor": ink, "titleColor": ink, "labelFontSize": size, "titleFontSize": size, "labelLimit": 0}
    calm = {"titleFontWeight": "normal", "titleOpacity": 0.75, "labelOpacity": 0.75}
    return {
        "background": None,
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {**faint, **words, **calm, "tickOpacity": 0.4, "titlePadding": 6},
        "legend": {
            **words,
            "labelOpacity": 0.85,
            "titleLimit": 300,
            "gradientLength": 120,
            "gradientThickness": 10,
            "symbolType": "square",
        },
        "header": {"labelColor": ink, "labelFontSize": size + 1, "labelPadding": 4, "title": None},
        "title": {"color": ink, "fontSize": size, "fontWeight": "normal", "offset": 4},
        "concat": {"spacing": 14},
        "text": {"color": ink, "opacity": 0.75},
        "facet": {"spacing": 18},
    }


def inline_svg(chart: Chart, prefix: str, label: str) -> str:
    """The chart as an SVG element for a page: its text takes the page's colour, its ids begin with `prefix`.

    Only tags and attributes that draw are let through, so that nothing in it can act, whatever the data say; a mark's
    description becomes its tooltip. Where charts cannot be drawn, a line says so in place of each.
    """
    if not can_draw():
        return f"<p>{NOT_DRAWN}</p>"
    root = ElementTree.fromstring(_roomy(_without_legend_titles(chart.to_dict()), theme(INK)))
    remove_foreign(root, numbered_ids(root, prefix))
    # With a viewBox but no fixed height it can shrink with the page.
    root.set("role", "img")
    root.set("aria-label", label)
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def drawn(chart: Chart, format_name: str, *, ppi: int = 300, width: str | int | float | None = None) -> bytes:
    """The chart as a file for a paper: black on white, letters of ten points and more, `ppi` dots per inch (PNG).

    With `width` ("column", "page", or points) it is at most that wide, with letters of eight points.
    """
    return drawings(chart, [format_name], ppi=ppi, width=width)[format_name]


def drawings(
    chart: Chart, formats: Iterable[str], *, ppi: int = 300, width: str | int | float | None = None
) -> dict[str, bytes]:
    """The drawing in several formats."""
    spec, config = chart.to_dict(), {**theme("black", size=13), "background": "white"}
    if width is not None:
        small = {**theme("black", size=LETTERS), "background": "white", "point": {"size": 14}, "circle": {"size": 14}}
        spec, config = fitted_to(spec, small, known_width(width), lambda *given: _size(_roomy(*given)))
        config["text"] = {**config["text"], "fontSize": LETTERS}
    options: dict[str, object] = {"config": config, "vl_version": _version(), "allowed_base_urls": []}
    out: dict[str, bytes] = {}
    for name in formats:
        if name == "svg":
            svg = _roomy(spec, config)
            out[name] = (svg if width is None else _in_points(svg)).encode()
        elif name == "png":
            out[name] = bytes(renderer().vegalite_to_png(spec, ppi=ppi, scale=1, **options))
        else:
            out[name] = bytes(renderer().vegalite_to_pdf(spec, **options))
    return out


def _size(svg: str) -> float:
    """The width of a drawing, in pixels, each of which is a point on paper."""
    found = re.search(r'<svg[^>]* width="([\d.]+)"', svg)
    assert found is not None
    return float(found[1])


def _in_points(svg: str) -> str:
    """With its size in points: a program that sets a page takes a pixel for three quarters of one."""
    return re.sub(r'(<svg[^>]*? width="[\d.]+)(" height="[\d.]+)"', r'\1pt\2pt"', svg, count=1)


def known_formats(names: str | Sequence[str]) -> tuple[str, ...]:
    """Formats from "png,svg" or a list of them, each once."""
    parts: Sequence[str] = names.split(",") if isinstance(names, str) else names
    if not all(isinstance(part, str) for part in listed(parts) or [None]):
        raise UserError(f"The formats of figures are some of {', '.join(FORMATS)}. Got {shown(names)} instead.")
    formats = tuple(dict.fromkeys(part.strip().lower().removeprefix(".") for part in parts if part.strip()))
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"Figures cannot be written as {name!r}.{near(name, FORMATS)} Give {', '.join(FORMATS)}.")
    if not formats:
        raise UserError(f"No format was given for the figures: expected some of {', '.join(FORMATS)}.")
    return formats


def _without_legend_titles(part: Any) -> Any:
    """In the page the words above a figure say what its colours are."""
    if isinstance(part, list):
        return [_without_legend_titles(item) for item in part]
    if not isinstance(part, dict) or "values" in part:
        return part
    out = {name: _without_legend_titles(value) for name, value in part.items()}
    if isinstance(out.get("color"), dict):
        out["color"] = {**out["color"], "title": None}
    return out


def _roomy(spec: Json, config: Json) -> str:
    """The chart as SVG, laid out with larger text than it is drawn with."""
    # Vega's own size of text marks is 11, and must be named to grow.
    config = {**config, "text": {**config["text"], "fontSize": min(11, config["title"]["fontSize"])}}
    svg = _svg(_larger(spec), _larger(config))
    return re.sub(r'font-size="([\d.]+)px"', lambda size: f'font-size="{float(size[1]) / ROOM:g}px"', svg)


def _larger(part: Any) -> Any:
    """Every font size times ROOM."""
    if isinstance(part, list):
        return [_larger(item) for item in part]
    if not isinstance(part, dict) or "values" in part:
        return part
    sizes = ("fontSize", "labelFontSize", "titleFontSize")
    return {name: value * ROOM if name in sizes else _larger(value) for name, value in part.items()}


def _svg(spec: Json, config: Json) -> str:
    # No URL is allowed: a chart holds its numbers.
    return str(renderer().vegalite_to_svg(spec, config=config, vl_version=_version(), allowed_base_urls=[]))


def _version() -> str:
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def numbered_ids(root: ElementTree.Element, prefix: str) -> dict[str, str]:
    """New ids by the old ones, numbered in order: Vega counts its own over the life of the process."""
    ids = dict.fromkeys(element.get("id") for element in root.iter() if element.get("id") is not None)
    return {str(name): f"{prefix}{place}" for place, name in enumerate(ids)}


def remove_foreign(element: ElementTree.Element, ids: dict[str, str]) -> None:
    """Remove every tag and attribute that is not on our list, and use the new ids."""
    is_mark = element.get("aria-roledescription", "").endswith(" mark")  # not an axis, not a legend
    label = element.get("aria-label") if is_mark else None
    for name, value in list(element.attrib.items()):
        if name not in _ATTRIBUTES:
            del element.attrib[name]
        elif name == "id":
            element.set(name, ids[value])
        elif value == INK:
            element.set(name, "currentColor")

        else:
            element.set(name, _REFERENCE.sub(lambda match: f"url(#{ids.get(match[1], '')})", value))
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.removeprefix(f"{{{_SVG}}}") not in _TAGS:
            element.remove(child)
        else:
            remove_foreign(child, ids)
    if label is not None:
        title = ElementTree.Element(f"{{{_SVG}}}title")
        title.text = label
        element.insert(0, title)
