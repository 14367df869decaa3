"""In which order heads can go: one order for the report and for `prune`."""

import xarray as xr

from lorgnette.results import Result


def need(result: Result) -> xr.DataArray:
    """How much the loss depends on each head: the mean over texts of |∂L/∂ξ| (Michel et al. 2019, eq. 2).

    Not the change of the loss with its sign: taking out together the heads without which the loss falls was worse than
    taking out random ones (docs/pruning.md has the table). `prune` takes the lowest first and measures the rest again.
    It does not tell which heads stand in for each other.
    """
    return result.data["sensitivity"]
