"""Labelled numbers with their provenance, and folders of them."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.constraints import checked
from lorgnette.display import NotebookDisplay, plot_of
from lorgnette.errors import UserError, near, optional, reason, shown
from lorgnette.files import folder_written_whole, written_whole
from lorgnette.results import schema
from lorgnette.results.folder import (
    FOLDER_FORMAT,
    INDEX,
    SCHEMA_VERSION,
    files_of,
    hashes_in,
    looked_in,
    names_in,
    parsed,
    read,
    refuse_edited,
    refuse_odd_name,
)
from lorgnette.results.provenance import Provenance
from lorgnette.results.texts import TextNumbers, texts_file
from lorgnette.results.variable import ResultVariable

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.figures.plot import Plot

__all__ = ["SCHEMA_VERSION", "Provenance", "Result", "Results"]
CENTRED = "centred"
"""The attribute of a result that is about values less their mean over the corpus (docs/gauge.md)."""
OPTIONS = "options"
"""The attribute with the options that the lens was made with, defaults included."""
WHOLE_MODEL = "whole_model"
"""The attribute with accuracy and loss of a classifier, where a lens is read beside them."""
_FORMAT = "lorgnette-result"
_SUFFIXES = (".json", ".csv", ".parquet")
_SPREAD = ("_se", "_low", "_high", "_q")  # of a mean: they need two texts
_DAMAGED = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, MemoryError)
"""Errors that reading an edited document can raise."""


class Result(NotebookDisplay):
    """The result of one lens: an `xarray.Dataset` with the dimensions of `lorgnette.axes`, and its provenance.

        >>> result = results["weights"]
        >>> result.data["entropy"].dims, result.provenance.texts
        (('stack', 'layer', 'head'), 2)

    A mean `x` comes with `x_count` (the number of texts) and `x_se` (its standard error). A cell with count 0 is
    missing: NaN here, null in JSON. Any other NaN, and any infinity, is refused, so a result never holds a wrong number
    silently.
    """

    def __init__(self, lens: str, data: xr.Dataset, provenance: Provenance) -> None:
        _refuse_unsound(lens, data)
        self.lens = lens
        self.data: xr.Dataset = data.copy(deep=False)
        self.data.attrs = schema.plain(data.attrs, "attrs")
        self.provenance = provenance

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        same_origin = self.lens == other.lens and self.provenance == other.provenance
        return same_origin and self.data.identical(other.data)

    __hash__: ClassVar[None]  # type: ignore[assignment]  # what has __eq__ alone has no hash

    def __repr__(self) -> str:
        shape = " × ".join(f"{dim} {size}" for dim, size in self.data.sizes.items())
        names = ", ".join(name for name in map(str, self.data.data_vars) if not name.endswith(("_se", "_count")))
        return f"Result({self.lens!r}: {names} | {shape} | {self.provenance.model} on {self.provenance.corpus})"

    def __getitem__(self, variable: str) -> ResultVariable:
        """One variable, with `.data`, `.to_dataframe()` and `.plot()`.

        >>> results["weights"]["mass"].data.sel(category="previous").sizes["stack"]
        1
        """
        return ResultVariable(self, next(name for name in self._chosen(variable) if name == variable))

    @checked
    def plot(self, variable: str | None = None, **selection: axes.Selected) -> "Plot":
        """The figures of the report, or one variable; keywords select by label.

        >>> results["weights"].plot("mass", category="cls").save("mass.svg").name
        'mass.svg'
        """
        return plot_of(self, variable, **selection)

    @checked
    def to_dataframe(self, variable: str | None = None) -> "pd.DataFrame":
        """A data frame with one row per cell and one column per coordinate and variable.

        Variables with the same axes share rows. Rows with other axes follow, with coordinates that do not apply left
        empty. With `variable`, only that variable and its `_se`, `_count` and so on.

        >>> frame = results["weights"].to_dataframe("confidence")
        >>> frame.nlargest(1, "confidence").columns.tolist()
        ['stack', 'layer', 'head', 'confidence', 'confidence_se', 'confidence_count']
        """
        import pandas as pd

        groups: dict[tuple[str, ...], list[str]] = {}
        for name in self._chosen(variable):
            groups.setdefault(tuple(map(str, self.data[name].dims)), []).append(name)
        frames = [frame(self.data[names], dims) for dims, names in groups.items()]
        if len(frames) == 1:
            return frames[0]
        whole = {column: "Int64" for frame in frames for column in frame.select_dtypes("integer").columns}
        frames = [frame.astype({name: kind for name, kind in whole.items() if name in frame}) for frame in frames]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def _chosen(self, variable: str | None) -> list[str]:
        names = [str(name) for name in self.data.data_vars]
        if variable is None:
            return names
        if variable not in names:
            raise UserError(f"The lens {self.lens!r} has no variable {variable!r}; it has {', '.join(names)}.")
        return [name for name in names if name in {variable, *(variable + tail for tail in (*_SPREAD, "_count"))}]

    def to_json(self) -> str:
        """The whole result as JSON, without loss; `from_json` reads it."""
        head = {"format": _FORMAT, "schema": SCHEMA_VERSION, "lens": self.lens}
        document = {**head, "provenance": self.provenance.to_dict(), "data": schema.encode(self.data)}
        return json.dumps(document, allow_nan=False) + "\n"

    @classmethod
    @checked
    def from_json(cls, text: str, *, source: str = "The text") -> "Result":
        document = parsed(text, source, _FORMAT)
        try:
            data = schema.decode(document["data"])
            provenance = Provenance.from_dict(document["provenance"])
            _refuse_double_labels(data)
            return cls(str(document["lens"]), data, provenance)
        except _DAMAGED as error:
            raise UserError(f"{source} is a damaged result ({reason(error)}). Run look again.") from error

    @checked
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write .json (everything), or .csv or .parquet (the table of `to_dataframe`), atomically.

        >>> path = results["weights"].save("weights.json")
        >>> lo.Result.load(path) == results["weights"]
        True
        """
        path = Path(path)
        if path.suffix not in _SUFFIXES:
            raise UserError(f"Cannot save a result as {path.name!r}: the name must end in {', '.join(_SUFFIXES)}.")
        with written_whole(path) as partial:
            if path.suffix == ".json":
                partial.write_text(self.to_json(), encoding="utf-8")
            elif path.suffix == ".csv":
                self.to_dataframe().to_csv(partial, index=False)
            else:
                self._write_parquet(partial)
        return path

    def _write_parquet(self, path: Path) -> None:
        pa, pq = optional("pyarrow", "export"), optional("pyarrow.parquet", "export")

        table = pa.Table.from_pandas(self.to_dataframe(), preserve_index=False)
        origin = {"lorgnette": json.dumps({"lens": self.lens, "provenance": self.provenance.to_dict()})}
        pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **origin}), path)

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> "Result":
        """Load a .json file that `save` wrote; tables are incomplete and cannot be loaded."""
        path = Path(path)
        if path.suffix != ".json":
            raise UserError(f"Cannot load a result from {path.name!r}: only .json holds everything.")
        return cls.from_json(read(path), source=str(path))


class NoResult(UserError, KeyError):
    """No result has this name; mappings raise a KeyError."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would quote it


class Results(NotebookDisplay, Mapping[str, Result]):
    """Results by the name of their lens; a results folder holds one JSON file for each.

    >>> folder = results.save("runs/mine")
    >>> lo.Results.load(folder)["weights"] == results["weights"]
    True
    """

    def __init__(
        self,
        results: Mapping[str, Result] | Iterable[Result] = (),
        texts: "Mapping[str, xr.Dataset] | TextNumbers | None" = None,
    ) -> None:
        self.looked: dict[str, str] = {}  # by lens, what was looked at with which settings; see `looking.finished`
        self.text_numbers: TextNumbers = texts if isinstance(texts, TextNumbers) else TextNumbers(dict(texts or {}))
        pairs = results.items() if isinstance(results, Mapping) else [(result.lens, result) for result in results]
        self._results: dict[str, Result] = {}
        for name, result in pairs:
            if name in self._results:
                raise UserError(f"Two results are named {name!r}; give each its own name in a dictionary.")
            self._results[name] = result

    def __getitem__(self, name: str) -> Result:
        if not isinstance(name, str) or name not in self._results:
            raise NoResult(
                f"There is no result {shown(name)}.{near(str(name), self._results)} There are: "
                f"{', '.join(self._results) or 'none'}."
            )
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"Results({', '.join(self._results)})"

    def to_dataframe(self) -> "pd.DataFrame":
        """All tables concatenated, with the lens in the first column.

        >>> results.to_dataframe()["lens"].unique().tolist()
        ['weights']
        """
        import pandas as pd

        frames = [result.to_dataframe() for result in self.values()]
        for name, frame in zip(self, frames, strict=True):
            frame.insert(0, "lens", name)
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @checked
    def texts(self, lens: str | None = None, variable: str | None = None) -> "pd.DataFrame":
        """The numbers of each text, one row per text and cell: lens, text, variable, axes, value, weight.

        Of all lenses that keep them, or of one, or of one variable of it; they are there if `look` was told
        `keep="texts"`. A mean of a result is Σ weight · value / Σ weight over texts.

        >>> kept = lo.look(subject, texts, "weights", keep="texts", progress=False)
        >>> rows = kept.texts("weights", "entropy")
        >>> rows.query("layer == 2 and head == 1")["text"].nunique()
        2
        """
        return self.text_numbers.frame(lens, variable)

    @checked
    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the folder atomically; a folder that holds anything but results is refused."""
        for name in self:
            refuse_odd_name(name)
        with folder_written_whole(folder, ours=files_of) as partial:
            contents = {name: result.to_json().encode() for name, result in self.items()}
            for name, content in contents.items():
                (partial / f"{name}.json").write_bytes(content)
            names = [name for name in self.text_numbers if name in self]
            for name in names:
                self.text_numbers.write(name, partial / texts_file(name))
            index = {"format": FOLDER_FORMAT, "schema": SCHEMA_VERSION, "results": list(self), "texts": names}
            index["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
            index["looked"] = {name: key for name, key in self.looked.items() if name in self}
            (partial / INDEX).write_text(json.dumps(index) + "\n", encoding="utf-8")
        return Path(folder)

    @classmethod
    @checked
    def load(cls, folder: str | os.PathLike[str]) -> "Results":
        folder = Path(folder)
        if not folder.is_dir():
            raise UserError(f"There is no results folder {folder}. `lorgnette look … --out {folder}` makes one.")
        names, hashes = names_in(folder), hashes_in(folder)
        for name in names:
            refuse_edited(folder / f"{name}.json", hashes.get(name))
        results = {name: Result.load(folder / f"{name}.json") for name in names}
        for name, result in results.items():
            _refuse_unlabelled(result, folder / f"{name}.json")
        loaded = cls(results, TextNumbers({}, {name: folder / texts_file(name) for name in names_in(folder, "texts")}))
        loaded.looked = looked_in(folder)
        return loaded


def _refuse_double_labels(data: xr.Dataset) -> None:
    for dim, size in data.sizes.items():
        if dim in data.coords and len(set(data.coords[dim].values.tolist())) < size:
            raise ValueError(f"two places of the axis {dim!r} have the same label")


def _refuse_unlabelled(result: Result, source: Path) -> None:
    """In what look wrote, stacks, layers and heads are known by their labels."""
    for dim in (axes.STACK, axes.LAYER, axes.HEAD):
        if dim in result.data.sizes and dim not in result.data.coords:
            raise UserError(f"{source} is a damaged result (the axis {dim!r} has no labels). Run look again.")


def frame(data: xr.Dataset, dims: tuple[str, ...]) -> "pd.DataFrame":
    import pandas as pd

    if dims:
        return data.to_dataframe(dim_order=dims).reset_index()
    return pd.DataFrame({str(name): [array.values[()]] for name, array in data.variables.items()})


def _refuse_unsound(lens: str, data: xr.Dataset) -> None:
    """UserError on an infinity, on NaN that no zero count explains, and on coordinates that cannot be labels."""
    for name in data.coords:
        array = data.variables[name]  # without its labels, which are slow and only needed for what is wrong
        if array.dtype.kind == "f" and not np.isfinite(array.values).all():
            raise UserError(f"The lens {lens!r} labels {name!r} with a number that is not finite.")
        if array.dtype.kind == "O" and any(isinstance(cell, tuple) for cell in array.values.ravel()):
            raise UserError(f"The lens {lens!r} stacks several axes into {name!r}; unstack them.")
    for name in data.data_vars:
        array = data.variables[name]
        if array.dtype.kind != "f" or np.isfinite(array.values).all():
            continue
        infinite = np.asarray(np.isinf(array.values))
        if infinite.any():
            raise UserError(f"The lens {lens!r} gave an infinite {name!r} at {_cell(data[name], infinite)}. {_ADVICE}")
        unexplained = np.asarray(np.isnan(array.values))
        if unexplained.any():
            why, unexplained = _without_excuse(str(name), data, unexplained)
            if unexplained.any():
                raise UserError(
                    f"The lens {lens!r} gave NaN for {name!r} at {_cell(data[name], unexplained)}, {why}. {_ADVICE}"
                )


_ADVICE = "Does the model hold NaN? `lorgnette check MODEL` tells."


def _without_excuse(name: str, data: xr.Dataset, missing: np.ndarray) -> tuple[str, np.ndarray]:
    """The NaN cells whose count is not zero (a spread: is above one), and the words that say so."""
    mean = next((name.removesuffix(tail) for tail in _SPREAD if name.endswith(tail)), name)
    spread = mean != name
    sizes = data.variables[name].sizes
    for candidate, enough in ((f"{name}_count", 1), (f"{mean}_count", 1 + spread), ("count", 1 + spread)):
        if candidate == name or candidate not in data.data_vars:
            continue
        count = data.variables[candidate]
        if set(count.dims) <= set(sizes):
            count = count.set_dims(sizes).transpose(*sizes)
            return f"where {candidate!r} is not {enough - 1}", np.asarray(missing & (count.values >= enough))
    return f"and no {mean + '_count'!r} says that the cell is empty", missing


def _cell(array: xr.DataArray, where: np.ndarray) -> str:
    """The first cell of `where`, as "stack=encoder, layer=1, head=3"."""
    index = np.argwhere(where)[0]
    labels = (
        f"{dim}={array.coords[dim].values[i] if dim in array.coords else i}"
        for dim, i in zip(array.dims, index, strict=True)
    )
    return ", ".join(labels) or "its only cell"
