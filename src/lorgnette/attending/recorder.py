"""Recording a pass: whole calls, parts of them, or anything computed from them."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from lorgnette.attending.call import Call, Site
from lorgnette.attending.scores import EVERY, Rows, row_positions
from lorgnette.attending.taps import Tap

Record = TypeVar("Record")
PARTS = ("query", "key", "value", "weights", "context")


class Recorder(Tap, Generic[Record]):
    """Keeps `keep(call)` of every call of a pass, by site, in the order of the pass; `sites` says of which.

        whole = Recorder(lambda call: call)
        row = Recorder.of("weights", heads=[2], rows=[0])
        with tapped(model, row):
            model(**inputs)
        row.records[site]["weights"]                        # [batch 1 1 key]

    A later pass takes the place of the former, stack by stack. What is kept lives as long as the recorder: a call holds
    query, key and value, a matrix grows with the square of a text's length.
    """

    def __init__(
        self, keep: Callable[[Call], Record], sites: Container[Site] | None = None, *, residual: bool = False
    ) -> None:
        self.keep, self.sites, self.wants_residual = keep, sites, residual
        self.records: dict[Site, Record] = {}

    @staticmethod
    def of(
        *parts: str,
        sites: Container[Site] | None = None,
        heads: Sequence[int] | None = None,
        rows: Rows | None = None,
        graph: bool = False,
    ) -> "Recorder[dict[str, Tensor]]":
        """Keeps some of query, key, value, weights and context, of some heads and query rows (all by default).

        Weights of some rows are made without the other rows. Gradients are cut off unless `graph` is set.
        """
        return Recorder(_Parts(parts, heads, rows, graph), sites)

    def __getitem__(self, site: Site) -> Record:
        return self.records[site]

    def open(self, stack: str) -> None:
        for site in [site for site in self.records if site.stack == stack]:
            del self.records[site]

    def see(self, call: Call) -> None:
        if self.sites is None or call.site in self.sites:
            self.records[call.site] = self.keep(call)


@dataclass(frozen=True)
class _Parts:
    names: tuple[str, ...]
    heads: Sequence[int] | None
    rows: Rows | None
    graph: bool

    def __post_init__(self) -> None:
        unknown = [name for name in self.names if name not in PARTS]
        if unknown or not self.names:
            raise ValueError(f"a recorder keeps {', '.join(PARTS)}; got {', '.join(unknown) or 'nothing to keep'}")

    def __call__(self, call: Call) -> dict[str, Tensor]:
        rows = None if self.rows is None else row_positions(self.rows, call.query.shape[2])
        out = {name: self._part(call, name, rows) for name in self.names}
        return out if self.graph else {name: tensor.detach() for name, tensor in out.items()}

    def _part(self, call: Call, name: str, rows: Rows | None) -> Tensor:
        if name == "weights":
            tensor = call.weights if rows is None else call.block(rows=rows)
        else:
            tensor = getattr(call, name)
            if rows is not None and name in ("query", "context"):
                tensor = tensor[:, :, rows]
        return tensor[:, EVERY if self.heads is None else list(self.heads)]
