"""Results as LaTeX tables for a paper: means with their standard errors, and the heads with the highest values."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr

from lorgnette.axes import HEAD, LAYER, METHOD, STATE
from lorgnette.errors import UserError, near
from lorgnette.figures.cells import is_measure, said, titled
from lorgnette.files import write_whole
from lorgnette.reporting.compare import slices
from lorgnette.results import Result, Results
from lorgnette.statistics.estimate import Estimate

TOP = 3
"""Heads that are named in a row."""
MOST_LABELS = 16
"""Labels of an axis, each of which gets its rows; a variable with a longer axis is left out, and named."""
_CELLS = (LAYER, HEAD, STATE)
_SPECIAL = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$",
    "‖": r"$\|$", "|": "$|$", "α": r"$\alpha$", "∂": r"$\partial$", "ρ": r"$\rho$", "ξ": r"$\xi$", "−": "$-$",
    "→": r"$\to$", "×": r"$\times$", "Σ": r"$\Sigma$", "≥": r"$\ge$", "·": r"$\cdot$",
}  # fmt: skip
_NORM = re.compile(r"‖([a-zα()]+)‖")


def write_latex(results: Results, folder: Path, lens: str | None = None) -> list[Path]:
    """Writes FOLDER/lens.tex for every lens, or for one; each file whole or not at all."""
    if lens is not None and lens not in results:
        raise UserError(f"The run has no lens {lens!r}.{near(lens, list(results))} It has {', '.join(results)}.")
    paths = []
    for name in results if lens is None else [lens]:
        path = folder / f"{name}.tex"
        write_whole(path, latex_table(results[name]))
        paths.append(path)
    return paths


def latex_table(result: Result) -> str:
    r"""One table (booktabs) with a row for every variable and kind of number.

    A row has the mean over heads (or layers) ± its standard error, and the highest of them. Heads share their texts, so
    the error of their mean is taken to be the mean of their errors, the largest that it can be.
    """
    names = [str(name) for name, array in result.data.data_vars.items() if is_measure(array)]
    fit = [name for name in names if _fits(result.data[name])]
    rows = [row for name in fit for row in _rows(result.data, name)]
    origin = result.provenance
    about = f"{origin.model} on {origin.corpus}, {origin.texts:,} texts"
    caption = (
        f"{escaped(result.lens)}: {escaped(about)}. Means over texts $\\pm$ standard errors; for a mean over heads or "
        "layers, the mean of their errors. Heads are written as layer.head."
    )
    left_out = [name for name in names if name not in fit]
    lines = [
        "% Needs \\usepackage{booktabs}.",
        *(f"% Left out, because an axis has more than {MOST_LABELS} labels: {name}" for name in left_out),
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{caption}}}",
        f"  \\label{{tab:{re.sub('[^a-z0-9-]', '-', result.lens.lower())}}}",
        "  \\begin{tabular}{lrl}",
        "    \\toprule",
        "    Measure & Mean & Highest \\\\",
        "    \\midrule",
        *(f"    {' & '.join(row)} \\\\" for row in rows),
        "    \\bottomrule",
        "  \\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: object) -> str:
    """Text as LaTeX prints it, whatever it holds; control characters are dropped. A norm ‖αf(x)‖ is one formula."""
    plain = "".join(letter for letter in " ".join(str(text).split()) if letter.isprintable())
    between, out = _NORM.split(plain), ""
    for words, norm in zip(between[::2], [*between[1::2], ""], strict=True):
        out += "".join(_SPECIAL.get(letter, letter) for letter in words)
        if norm:
            out += r"$\|" + norm.replace("α", r"\alpha ") + r"\|$"
    return out


def _fits(array: xr.DataArray) -> bool:
    return all(array.sizes[dim] <= MOST_LABELS for dim in array.dims if dim not in (*_CELLS, METHOD))


def _rows(data: xr.Dataset, name: str) -> Iterator[tuple[str, str, str]]:
    array = data[name]
    has_errors = all(f"{name}{tail}" in data and data[f"{name}{tail}"].dims == array.dims for tail in ("_se", "_count"))
    for pick in slices(array):
        cells = Estimate.of(data, name, pick) if has_errors else Estimate(array.sel(pick), array.sel(pick) * np.nan, 0)
        if not bool(cells.value.notnull().any()):
            continue
        several = [said(label) for axis, label in pick.items() if array.sizes[axis] > 1]
        mean = _number(float(cells.value.mean()), float(cells.se.mean()))
        yield escaped(", ".join([titled(name), *several])), mean, _highest(cells)


def _highest(cells: Estimate) -> str:
    """The highest cells by name, if there are several that differ."""
    if not float(cells.value.max()) > float(cells.value.min()):
        return ""
    flat, errors = (array.stack(cell=cells.value.dims) for array in (cells.value, cells.se))
    order = np.argsort(-flat.fillna(-np.inf).values, kind="stable")[: min(TOP, int(flat.notnull().sum()))]
    dims = [str(dim) for dim in cells.value.dims]
    names = [".".join(str(flat[dim].values[at]) for dim in sorted(dims, key=_CELLS.index)) for at in order]
    numbers = [_number(float(flat.values[at]), float(errors.values[at])) for at in order]
    return ", ".join(f"{name} ({number})" for name, number in zip(names, numbers, strict=True))


def _number(value: float, se: float) -> str:
    """ "$0.412 \\pm 0.021$": decimals that show two digits of the error; three significant digits without one."""
    if se != se:
        return f"${_plain(value, 3)}$"
    digits = 3 if se == 0 else int(min(6, max(0, 1 - np.floor(np.log10(se)))))
    return f"${value:.{digits}f} \\pm {se:.{digits}f}$"


def _plain(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    mantissa, _, power = text.partition("e")
    return text if not power else f"{mantissa} \\cdot 10^{{{int(power)}}}"
