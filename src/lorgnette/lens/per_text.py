"""Each text's own numbers, as states that merge: what `look(…, keep="texts")` keeps beside the means."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.errors import UserError

if TYPE_CHECKING:
    from lorgnette.lens.base import Lens
    from lorgnette.lens.moments import Moments

MOST_NUMBERS = 2**25
"""Numbers that a lens keeps at most, of all texts together; each takes eight bytes (value and weight)."""
IDS = "text_ids"
VALUE, WEIGHT = range(2)


class PerText:
    """The values and weights that texts give to the `Moments` of a lens, and the ids of these texts."""

    def __init__(self, lens: "Lens") -> None:
        self.lens = lens
        self.moments: list[Moments] = []
        self.batch: int = 0
        lens.state(IDS, torch.zeros(0, dtype=torch.uint8), "cat")

    def join(self, moments: "Moments", shape: Sequence[int]) -> None:
        """Keep what these moments are given: [variable *cell] of every text."""
        self.moments.append(moments)
        self.lens.state(_state(moments), torch.zeros(0, 2, *shape), "cat")

    @property
    def numbers(self) -> int:
        """How many numbers one text has."""
        return sum(math.prod(getattr(self.lens, _state(each)).shape[2:]) for each in self.moments)

    def refuse_many(self, texts: int) -> None:
        """UserError if so many texts have too many numbers."""
        if texts * self.numbers > MOST_NUMBERS:
            raise UserError(
                f"The lens {self.lens.name!r} has {self.numbers:,} numbers for each text, so they can be "
                f"kept for at most {MOST_NUMBERS // self.numbers:,} texts. Use fewer texts (--limit), or omit "
                "--keep texts."
            )

    def begin(self, ids: Sequence[str]) -> None:
        """Room for the texts of a batch, which is about to be looked at."""
        self.batch = len(ids)
        written = "".join(f"{name}\0" for name in ids).encode("utf-8", "surrogatepass")
        known = getattr(self.lens, IDS)
        setattr(self.lens, IDS, torch.cat([known, torch.tensor(list(written), dtype=torch.uint8)]))
        for each in self.moments:
            state = getattr(self.lens, _state(each))
            room = torch.zeros(self.batch, *state.shape[1:])
            setattr(self.lens, _state(each), torch.cat([state, room]))
        self.refuse_many(len(self.ids()))

    def add(
        self,
        moments: "Moments",
        variable: int,
        where: tuple[int | slice, ...],
        value: Float[Tensor, "text *cell"],
        weight: Float[Tensor, "text *cell"],
        rows: Sequence[int] | None,
    ) -> None:
        """What some texts of the batch (all, without `rows`) give to one variable at one place."""
        if self.batch == 0:
            return  # a loop of one's own, without `look`
        chosen = list(range(self.batch)) if rows is None else list(rows)
        if len(chosen) != len(value):
            raise ValueError(f"{len(value)} values of {moments.variables[variable]!r} for {len(chosen)} texts")
        new = getattr(self.lens, _state(moments))[-self.batch :]
        has = weight > 0
        for part, numbers in ((VALUE, torch.where(has, value, 0.0)), (WEIGHT, torch.where(has, weight, 0.0))):
            cells = new[:, part, variable][(slice(None), *where)]
            cells[chosen] = numbers.float().cpu()

    def ids(self) -> list[str]:
        written = bytes(getattr(self.lens, IDS).tolist()).decode("utf-8", "surrogatepass")
        return written.split("\0")[:-1]

    def arrays(self) -> xr.Dataset:
        """By variable the value of every text ([text …], missing where it has none) and its `_weight`; texts by id."""
        ids = self.ids()
        out: dict[str, xr.DataArray] = {}
        for each in self.moments:
            state = getattr(self.lens, _state(each)).cpu()
            for number, variable in enumerate(each.variables):
                name = variable if variable not in out else f"{each.state}_{variable}"
                value, weight = (
                    each.laid_out(state[:, part, number].movedim(0, -1), {axes.TEXT: ids}) for part in (VALUE, WEIGHT)
                )
                out[name] = value.where(weight > 0).transpose(axes.TEXT, ...)
                out[f"{name}_weight"] = weight.transpose(axes.TEXT, ...)
        if not out:  # a lens whose numbers are no means over texts
            return xr.Dataset()
        data = xr.Dataset(out).sortby(axes.TEXT)  # variables that share an axis with other labels get missing cells
        return data.assign({str(name): data[name].fillna(0.0) for name in data if str(name).endswith("_weight")})


def _state(moments: "Moments") -> str:
    return f"{moments.state}_texts"
