"""One variable of a result: its numbers, its table, its plot."""

from typing import TYPE_CHECKING

import xarray as xr

from lorgnette.axes import Selected

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.figures.plot import Plot
    from lorgnette.results.result import Result


class ResultVariable:
    """One variable of a result, with its standard errors and counts.

    >>> entropy = results["weights"]["entropy"]
    >>> entropy.data.dims
    ('stack', 'layer', 'head')
    >>> list(entropy.to_dataframe().columns)
    ['stack', 'layer', 'head', 'entropy', 'entropy_se', 'entropy_count']
    >>> entropy.plot().save("entropy.svg").name
    'entropy.svg'
    """

    def __init__(self, result: "Result", name: str) -> None:
        self.result: Result = result
        self.name: str = name

    @property
    def data(self) -> xr.DataArray:
        """The numbers, labelled."""
        return self.result.data[self.name]

    def to_dataframe(self) -> "pd.DataFrame":
        """A row per cell, with standard errors and counts."""
        return self.result.to_dataframe(self.name)

    def plot(self, **selection: Selected) -> "Plot":
        """A map of layers and heads, or a curve by layer; `plot(stack="encoder")` selects by label."""
        return self.result.plot(self.name, **selection)

    def __repr__(self) -> str:
        shape = " × ".join(f"{dim} {size}" for dim, size in self.data.sizes.items())
        return f"ResultVariable({self.result.lens!r}, {self.name!r}: {shape})"
