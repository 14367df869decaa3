"""The base class of all lenses: streaming states that merge, and the result."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar

import torch
import torchmetrics
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.attending.sweep import Measured, Wanted
from lorgnette.errors import UserError
from lorgnette.lens.per_text import PerText
from lorgnette.lens.places import Labels, Places
from lorgnette.lens.signals import Signal
from lorgnette.lens.states import Merge, filled, gathered, merged, zeros
from lorgnette.results import Result
from lorgnette.results.provenance import Provenance
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput


class Lens(torchmetrics.Metric):
    """A streaming analysis: `update` runs on every attention call of a batch, `compute` returns a `Result`.

    A `torchmetrics.Metric` whose states are float64 sums, so it works in your own training loop, shards under
    `torchrun`, and merges. A subclass has a name, declares its states in `allocate` and accumulates in `update`.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    wants_residual: ClassVar[bool] = False
    wants_hidden_states: ClassVar[bool] = False
    wants_words: ClassVar[bool] = False
    """It reads which word a piece belongs to: on a GPU, `look` finds the words ahead."""
    tokens_only: ClassVar[bool] = False
    """It reads nothing but the tokens of a batch, in `finish`: where all lenses are such, the model is not run."""
    wants_gradients: ClassVar[bool] = False
    """Run the pass with gradients on; `finish` then does the one backward pass itself."""
    uses_labels: ClassVar[bool] = False
    """Whether it compares the labels of the texts with the classes of a classifier: `look` then matches their names."""
    beside_accuracy: ClassVar[bool] = False
    """Whether its numbers are about what a classifier says, so that accuracy and loss of the whole model, which `look`
    puts beside them, belong to them. A lens that uses labels has them in any case."""
    signals: ClassVar[Mapping[str, Signal]] = {}
    """Numbers of its result that may say how much the model needs a head, by name; no two lenses share a name."""
    full_state_update: bool | None = False
    _update_count: int

    def __init__(self) -> None:
        super().__init__(compute_on_cpu=False)
        self.bound: bool = False
        self._model_id: int | None = None
        self.home: torch.device = torch.device("cpu")
        self.on_device: set[str] = set()
        self.paths: set[str] = set()
        """On a GPU, how the statistics of rows were computed: provenance says it."""
        self.stay: set[str] = set()
        """States on the device that are not moved for `compute`."""
        self.in_place: set[str] = set()
        self.moments_held: list[Any] = []  # moments and samples, which hold the numbers of a batch until it is through
        self._sums_held: list[tuple[str, tuple[Any, ...], Tensor]] = []
        self.provenance: Provenance = Provenance(model="unknown")
        self.keeps_texts: bool = False
        self.per_text: PerText | None = None
        self.text_numbers: xr.Dataset | None = None

    def keep_texts(self) -> None:
        """Keep each text's numbers too; before `bind`. After `compute`, `text_numbers` has them."""
        if self.bound and not self.keeps_texts:
            raise UserError(
                f"The lens {self.name!r} has already processed texts without storing their numbers; create a new lens."
            )
        self.keeps_texts = True

    def bind(self, subject: Subject) -> None:
        """Bind the lens to a subject; `look` does this before the first batch."""
        if self.bound:
            if self.sites != subject.sites or self.heads != subject.heads:
                raise UserError(f"The lens {self.name!r} has already been used with another model; create a new lens.")
            return
        self.sites: tuple[Site, ...] = subject.sites
        self.heads: int = subject.heads
        self.numbers: dict[Site, tuple[int, ...]] = {each.site: each.numbers for each in subject.anatomy.sites}
        self.position: dict[Site, int] = {site: number for number, site in enumerate(self.sites)}
        self.by_head: Places = Places(self.sites, self.heads, self.numbers)
        self.by_layer: Places = Places(self.sites)
        self.provenance = Provenance(model=subject.name)
        if self.keeps_texts:
            self.per_text = PerText(self)
        if subject.device.type != "mps":  # Metal has no float64
            self.home = torch.device(subject.device)
        self.allocate(subject)
        self._move(self.home)
        self._model_id = id(subject.model)
        self.bound = True

    def refuse_if_used(self, subject: Subject) -> None:
        """UserError if it was bound to another model, or holds numbers already: `look` begins from nothing."""
        if not self.bound:
            return
        if self._model_id != id(subject.model):
            raise UserError(f"The lens {self.name!r} has already been used with another model; create a new lens.")
        if self._update_count or not all(map(self._is_at_start, self._defaults)):
            raise UserError(
                f"The lens {self.name!r} already holds the numbers of other texts; create a new lens, or call its "
                "reset() first. To accumulate over several passes, use lo.watch, or merge_state of a second lens."
            )

    def _is_at_start(self, name: str) -> bool:
        state, start = getattr(self, name), self._defaults[name]
        return state.shape == start.shape and torch.equal(state.cpu(), start.cpu())

    def allocate(self, subject: Subject) -> None:
        """Declare the states."""

    def needs(self) -> "Sequence[Lens | str]":
        """Lenses whose results it is made from; `look` brings them along and hands their results to `take`.

        A lens that looks at batches gets them before its first batch: the corpus is gone through once before. A lens
        that looks at nothing gets them before `compute`, from the same pass.
        """
        return ()

    def take(self, results: Mapping[str, Result]) -> None:
        """Take in the results of the lenses that it needs, by lens."""

    @property
    def looks(self) -> bool:
        """Whether it takes anything from a batch, and is not made from results alone."""
        mine = type(self)
        takes = ("update", "take_outputs", "finish", "taps")
        return any(getattr(mine, name) is not getattr(Lens, name) for name in takes)

    @property
    def replays(self) -> bool:
        """Whether `update` and `take_outputs` only launch work for a GPU, to be recorded once and replayed.

        They must not wait for the GPU, decide by numbers there or keep anything of a batch but in the lists of `holds`,
        and have no taps. A subclass that can be replayed says so itself: it does not inherit this.
        """
        return False

    @property
    def at_once(self) -> bool:
        """Whether even its first `update` only launches work, because it makes nothing that later ones use again."""
        return False

    def outgrown(self, batch: Batch) -> bool:
        """Whether the pass recorded of a batch does much work that is not needed any more: it is recorded again."""
        return False

    def holds(self) -> list[tuple[object, str]]:
        """The lists, as owner and attribute, in which the numbers of a batch wait for `commit`."""
        return [(self, "_sums_held"), *((moments, "held") for moments in self.moments_held)]

    def begin(self, batch: Batch) -> None:
        """A batch is about to be looked at; `look` says so."""
        if self.per_text is not None:
            self.per_text.begin([example.id for example in batch.examples])

    def refuse_many_texts(self, texts: int) -> None:
        """UserError if the numbers of so many texts are more than can be kept."""
        if self.per_text is not None:
            self.per_text.refuse_many(texts)

    def taps(self, batch: Batch) -> Sequence[Tap]:
        """Taps of its own that the pass needs, for what `update` (which runs without gradients) cannot do."""
        return ()

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        """What it wants of the rows of a call: computed once with what other lenses want, before `update`."""
        return ()

    def measured(self, call: Call, batch: Batch) -> list[Measured]:
        """What came of its wishes for this call; if nobody has asked for them together, they are computed now."""
        if not call.asked(id(self)):
            call.ask({id(self): self.wants(call, batch)})
        return call.answers(id(self))

    def update(self, call: Call, batch: Batch) -> None:
        """Process one attention call of the forward pass."""

    def take_outputs(self, batch: Batch, outputs: ModelOutput) -> None:
        """Process what the forward pass gives; a lens that `replays` only launches work here too."""

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Process what is known only after the forward pass, or is decided on the CPU; it is never recorded."""

    def sums(self, name: str, *shape: int, in_place: bool = True) -> None:
        """Declare a state that is summed over batches and processes."""
        self.state(name, zeros(*shape), "sum", on_device=True, in_place=in_place)

    def add_later(self, name: str, value: Tensor, *place: slice | int | list[int]) -> None:
        """Add to a part of a state that `sums` has declared with in_place=False, once the batch has gone through."""
        self._sums_held.append((name, place, value))

    def commit(self) -> None:
        """Take the numbers of a batch into the states, now that it has gone through."""
        for moments in self.moments_held:
            moments.commit()
        held, self._sums_held = self._sums_held, []
        for name, place, value in held:
            state = getattr(self, name)
            state[place] += value.to(state.device).double()

    def committed(self) -> None:
        """The numbers of a batch are in the states now; `look` says so, also where `commit` was replayed."""

    def snapshot(self) -> dict[str, Tensor]:
        """The states as they are before a batch: copies only of those that a batch changes in place."""
        return {name: state.clone() if name in self.in_place else state for name, state in self.states().items()}

    def forget(self, states: Mapping[str, Tensor] | None = None) -> None:
        """Let go of a batch that did not go through, and put the states of before it back."""
        self._sums_held = []
        for moments in self.moments_held:
            moments.held.clear()
        for name, state in (states or {}).items():
            setattr(self, name, state)
        self._computed = None

    def state(
        self, name: str, start: Tensor, merge: "str | Merge", *, on_device: bool = False, in_place: bool = True
    ) -> None:
        """Declare a state that merges by "sum", "min", "max", "cat" or a function of the states of several parts.

        A `start` that repeats few numbers (`zeros`, `Tensor.expand`) is kept and sent as these few: states are large.
        `on_device`: it is kept where the model is, so that adding to it waits for nothing; else on the CPU. A state
        that is only ever replaced (`in_place` False) need not be copied before a batch that may fail.
        """
        if name in self._defaults:
            raise ValueError(f"the lens {self.name!r} has a state {name!r} already")
        # An empty one, as torchmetrics fills, copies and keeps all that it is given.
        self.add_state(name, start.new_empty(0), dist_reduce_fx=merge)
        self._defaults[name] = start
        setattr(self, name, filled(start, self.home if on_device else torch.device("cpu")))
        if on_device:
            self.on_device.add(name)
        if in_place:
            self.in_place.add(name)

    def described(self) -> str:
        """Name, settings and shapes of the states: what must be equal for kept states to go on from."""
        plain = {k: v for k, v in vars(self).items() if isinstance(v, str | int | float | tuple) and k[0] != "_"}
        settings = {k: repr(v) for k, v in plain.items() if k not in ("bound", "sites", "training")}
        return f"{self.name} {sorted(settings.items())} {sorted((k, list(v.shape)) for k, v in self.states().items())}"

    def states(self) -> dict[str, Tensor]:
        """All states by name, to be kept, put back or written."""
        self.commit()
        return {name: getattr(self, name) for name in self._defaults}

    def restore(self, states: Mapping[str, Tensor]) -> None:
        """Put kept states back."""
        self.forget()
        for name in self._defaults:
            setattr(self, name, states[name].to(getattr(self, name).device, copy=True))
        self._computed = None
        self._update_count = max(self._update_count, 1)

    def merge_state(self, incoming_state: "dict[str, Any] | torchmetrics.Metric") -> None:
        """Take in another's states; unlike the inherited method, forget what was computed before, count its updates."""
        more = 1
        if isinstance(incoming_state, torchmetrics.Metric):
            if not isinstance(incoming_state, Lens) or type(incoming_state) is not type(self):
                raise ValueError(f"a {type(self).__name__} cannot take in a {type(incoming_state).__name__}")
            more = incoming_state._update_count
            incoming_state = incoming_state.states()
        self._reduce_states(incoming_state)
        self._computed = None
        self._update_count += more

    def _reduce_states(self, incoming_state: Mapping[str, Tensor]) -> None:
        self._take_all([self.states(), incoming_state])

    def sync(self, *arguments: Any, **keywords: Any) -> None:
        self.commit()
        super().sync(*arguments, **keywords)

    def reset(self) -> None:
        self.forget()
        super().reset()

    def _sync_dist(self, dist_sync_fn: Any = None, process_group: Any = None) -> None:
        """Of all processes together; called by `compute`, which puts this process's own states back afterwards."""
        self._take_all(gathered(self.states(), process_group))

    def _take_all(self, parts: Sequence[Mapping[str, Tensor]]) -> None:
        for name, merge in self._reductions.items():
            device = getattr(self, name).device
            setattr(self, name, merged(merge, [part[name].to(device) for part in parts]))

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Results are made of copies of the states on the CPU. Each text's numbers are taken on the way."""

        @wraps(compute)
        def with_texts(*arguments: Any, **keywords: Any) -> Any:
            if self.per_text is not None:
                self.text_numbers = self.per_text.arrays()
            return compute(*arguments, **keywords)

        inner = super()._wrap_compute(with_texts)

        @wraps(compute)
        def on_the_cpu(*arguments: Any, **keywords: Any) -> Any:
            self.commit()
            kept = {name: getattr(self, name) for name in self.on_device}
            self._move("cpu")
            try:
                return inner(*arguments, **keywords)
            finally:
                for name, state in kept.items():
                    setattr(self, name, state)

        return on_the_cpu

    def _move(self, device: torch.device | str) -> None:
        """Not `to`, which would take along whatever part of the model a lens has hold of."""
        for name in self.on_device - (self.stay if device == "cpu" else set()):
            setattr(self, name, getattr(self, name).to(device))

    def result(self, variables: Mapping[str, Any], coordinates: Mapping[str, Any] | None = None) -> Result:
        """Make a result of arrays, with the provenance of this lens."""
        return Result(self.name, xr.Dataset(variables, coords=coordinates), self.provenance)

    def grid(
        self, per_head: Float[Tensor, "site head *rest"], rest: Mapping[str, Labels] | None = None
    ) -> xr.DataArray:
        """Arrange [site head …] as [stack layer head …]; see `Places.grid`."""
        return self.by_head.grid(per_head, rest)
