"""Means over texts with their standard errors: the only thing that averages."""

from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette.attention import Site
from lorgnette.lenses.base import Lens


class Moments:
    """Means over texts, with standard errors, for many columns of [site head]: the only thing that averages.

    Each text t gives a value m_t with a weight w_t: 1 (mean over texts), or its number of queries (`by="token"`).

        mean = Σ w m / Σ w        se² = n/(n−1) · Σ w² (m − mean)² / (Σ w)²

    which for equal weights is the usual standard error of a mean, and else the linearised one of a ratio. Texts are
    the clusters: tokens of one text are not independent. Six sums per cell hold it all, in one float64 state.
    """

    def __init__(self, lens: Lens, columns: Sequence[str], state: str = "totals", *, heads: int | None = None) -> None:
        self.lens, self.columns, self.state = lens, tuple(columns), state
        self.index = {name: number for number, name in enumerate(self.columns)}
        lens.sums(state, 6, len(lens.sites), heads or lens.heads, len(self.columns))

    def add(
        self, site: Site, values: Float[Tensor, "text head column"], weights: Float[Tensor, "text #head column"]
    ) -> None:
        """Add the values of some texts at one site; weight 0 means that a text has no such value."""
        w = weights.double().cpu().expand(values.shape)
        m = torch.where(w > 0, values.double().cpu(), 0.0)
        wm = w * m
        batch = torch.stack([(w > 0).double(), w, wm, w * w, w * wm, wm * wm]).sum(1)
        getattr(self.lens, self.state)[:, self.lens.position[site], : values.shape[1]] += batch

    def arrays(
        self, name: str, columns: Sequence[str] | None = None, axis: str | None = None
    ) -> dict[str, xr.DataArray]:
        """`name`, `name_se` and `name_count` on [stack layer head], or with an axis over several columns."""
        picked = [self.index[column] for column in (columns or (name,))]
        n, w, wm, ww, wwm, wwmm = getattr(self.lens, self.state)[..., picked]
        mean = wm / w
        spread = wwmm - 2 * mean * wwm + mean**2 * ww
        spread = torch.where(spread > 1e-14 * wwmm, spread, 0.0)  # equal values leave nothing but rounding
        se = torch.where(n > 1, (n / (n - 1) * spread).sqrt() / w, torch.nan)
        out = {}
        for tail, tensor in (("", mean), ("_se", se), ("_count", n)):
            rest = () if axis is None else (axis,)
            array = self.lens.grid(tensor if axis is not None else tensor[..., 0], rest)
            if axis is not None:
                array = array.assign_coords({axis: list(columns or ())})
            out[name + tail] = array.fillna(0).astype("int64") if tail == "_count" else array
        return out
