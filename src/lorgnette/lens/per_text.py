"""Each text's own numbers, as states that merge: what `look(…, keep="texts")` keeps beside the means."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.lens.parts import Part

if TYPE_CHECKING:
    from lorgnette.lens.base import Lens
    from lorgnette.lens.moments import Moments
    from lorgnette.texts.batch import Batch

MOST_NUMBERS = 2**25
"""The most numbers that a lens keeps over all texts; each takes eight bytes (value and weight)."""
IDS = "text_ids"
VALUE, WEIGHT = range(2)


class _Given(NamedTuple):
    """Values and weights of some texts of a batch, for one variable of some moments at one place."""

    moments: "Moments"
    variable: int
    where: tuple[int | slice, ...]
    value: Float[Tensor, "text *cell"]
    weight: Float[Tensor, "text *cell"]
    rows: Sequence[int] | None


class PerText(Part["_Given"]):
    """The values and weights that texts give to the `Moments` of a lens, and the ids of these texts."""

    on_cpu = True

    def __init__(self, lens: "Lens") -> None:
        self.lens = lens  # last, after the parts that hand it their numbers
        self.held: list[_Given] = []
        self.moments: list[Moments] = []
        self.batch: Batch | None = None
        self.named: Callable[[xr.Dataset], xr.Dataset] | None = None
        """Renames the variables as in the result of the lens, where its moments name them otherwise."""
        lens.state(IDS, torch.zeros(0, dtype=torch.uint8), "cat", in_place=False)

    def join(self, moments: "Moments", shape: Sequence[int]) -> None:
        """Keep what these moments are given: [variable *cell] of every text."""
        self.moments.append(moments)
        self.lens.state(_state(moments), torch.zeros(0, 2, *shape), "cat", in_place=False)

    @property
    def numbers(self) -> int:
        """How many numbers one text has."""
        return sum(math.prod(self.lens.states[_state(each)].shape[2:]) for each in self.moments)

    def refuse_many(self, texts: int) -> None:
        """Raise a UserError if this many texts would have too many numbers."""
        if texts * self.numbers > MOST_NUMBERS:
            raise UserError(
                f"The lens {self.lens.name!r} has {self.numbers:,} numbers for each text, so they can be "
                f"kept for at most {MOST_NUMBERS // self.numbers:,} texts. Use fewer texts (--limit), or omit "
                "--keep texts."
            )

    def begin(self, batch: "Batch") -> None:
        self.batch = batch
        self.refuse_many(len(self.ids()) + len(batch))

    def add(
        self,
        moments: "Moments",
        variable: int,
        where: tuple[int | slice, ...],
        value: Float[Tensor, "text *cell"],
        weight: Float[Tensor, "text *cell"],
        rows: Sequence[int] | None,
    ) -> None:
        """Keep the values of some texts of the batch (all, without `rows`), for one variable at one place."""
        self.held.append(_Given(moments, variable, where, value, weight, rows))

    def commit(self) -> None:
        """Extend every state by the texts of the batch, with their numbers."""
        (held, self.held), (batch, self.batch) = (self.held, []), (self.batch, None)
        if batch is None:
            return
        written = "".join(f"{example.id}\0" for example in batch.examples).encode("utf-8", "surrogatepass")
        self._append(IDS, torch.tensor(list(written), dtype=torch.uint8))
        new = {id(each): torch.zeros(len(batch), *self.lens.states[_state(each)].shape[1:]) for each in self.moments}
        for given in held:
            chosen = list(range(len(batch))) if given.rows is None else list(given.rows)
            if len(chosen) != len(given.value):
                name = given.moments.variables[given.variable]
                raise ValueError(f"{len(given.value)} values of {name!r} for {len(chosen)} texts")
            value, weight = given.value.cpu(), given.weight.cpu()
            has = weight > 0
            for part, numbers in ((VALUE, torch.where(has, value, 0.0)), (WEIGHT, torch.where(has, weight, 0.0))):
                cells = new[id(given.moments)][:, part, given.variable][(slice(None), *given.where)]
                cells[chosen] = numbers.float()
        for each in self.moments:
            self._append(_state(each), new[id(each)])

    def discard(self) -> None:
        super().discard()
        self.batch = None

    def _append(self, state: str, rows: Tensor) -> None:
        setattr(self.lens, state, torch.cat([self.lens.states[state], rows]))

    def ids(self) -> list[str]:
        written = bytes(self.lens.states[IDS].tolist()).decode("utf-8", "surrogatepass")
        return written.split("\0")[:-1]

    def arrays(self) -> xr.Dataset:
        """The value of every text by variable ([text …], NaN where it has none) and its `_weight`; texts by id."""
        ids = self.ids()
        out: dict[str, xr.DataArray] = {}
        for each in self.moments:
            state = self.lens.states[_state(each)].cpu()
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
        data = data.assign({str(name): data[name].fillna(0.0) for name in data if str(name).endswith("_weight")})
        return data if self.named is None else self.named(data)


def _state(moments: "Moments") -> str:
    return f"{moments.state}_texts"
