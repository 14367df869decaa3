"""The base class of all lenses, and the whole contract between a lens and whoever runs it."""

import contextlib
from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, TypeVar

import torch
import torchmetrics
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.attending.sweep import Measured, Wanted
from lorgnette.constraints import check
from lorgnette.errors import UserError
from lorgnette.lens.options import parameters
from lorgnette.lens.per_text import PerText
from lorgnette.lens.places import Labels, Places
from lorgnette.lens.signals import Signal
from lorgnette.lens.states import Merge, States, gathered, zeros
from lorgnette.results import Result
from lorgnette.results.provenance import Provenance
from lorgnette.results.result import OPTIONS
from lorgnette.results.schema import plain
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import Json, ModelOutput

Kind = TypeVar("Kind", bound="Lens")


class CheckedOptions(ABCMeta):
    """The type of lens classes: calling one checks the options before the lens sees them, and keeps them."""

    def __call__(cls: type[Kind], *arguments: object, **options: object) -> Kind:  # type: ignore[misc]
        known = parameters(cls)
        made_with = {**dict(zip(known, arguments, strict=False)), **options}
        for name, value in made_with.items():
            if name in known and value is not known[name].default:
                check(value, known[name].annotation, f"The option {name!r} of the lens {cls.name!r}")
        lens: Kind = super().__call__(*arguments, **options)  # type: ignore[misc]
        lens.made_with = made_with
        return lens


class Lens(torchmetrics.Metric, metaclass=CheckedOptions):
    """A streaming analysis of attention: it sees every attention call of every batch, and returns a `Result`.

    A subclass has a name, and overrides what it needs:

        allocate(subject)           declare parts (`Moments`, samples, …) and states, before the first batch
        wants(call, batch)          statistics of the rows of a call, computed once for all lenses
        update(call, batch)         read one attention call, and add to the parts
        finish(batch, outputs)      read what the model returned
        compute()                   make the result
        needs(), take(results)      results of other lenses, or of a pass before, that it is made from
        taps(batch)                 taps of its own, for what `update` cannot see (gradients, say)
        cost()                      what a batch takes beside its own pass, said beforehand

    What was added during a batch reaches the states only when the whole batch has succeeded. Batches that fail,
    interruptions, processes, devices and the numbers of single texts are the business of the parts.

    It is a `torchmetrics.Metric`, so it also works in your own loop (`lo.watch`), resets, and merges.

    >>> from lorgnette.lens import Lens, Moments, Wanted
    >>> class Sharpness(Lens):
    ...     name = "sharpness"
    ...     def allocate(self, subject):
    ...         self.moments = Moments(self, "peak")
    ...     def wants(self, call, batch):
    ...         return (Wanted(peak=True),)
    ...     def update(self, call, batch):
    ...         (rows,) = self.measured(call, batch)
    ...         there = batch.queries(call.site).mask.to(rows["peak"])[:, None]  # [batch 1 query]: no padding
    ...         self.moments.add(call.site, peak=((rows["peak"] * there).sum(-1) / there.sum(-1), there.amax(-1)))
    ...     def compute(self):
    ...         return self.result(self.moments.arrays())
    >>> lo.look(subject, texts, Sharpness(), progress=False)["sharpness"]["peak"].data.dims
    ('stack', 'layer', 'head')
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    signals: ClassVar[Mapping[str, Signal]] = {}
    """Numbers of its result that may say how much the model needs a head, by name; no two lenses share a name."""
    reads: frozenset[str] = frozenset()
    """What it reads beside the attention calls:

    residual        `call.residual`, the state that the heads' output is added to
    hidden states   `outputs.hidden_states`, in `finish`
    words           which word a piece belongs to
    gradients       the pass runs with gradients on; `finish` then does the backward pass itself
    labels          those of the texts: `look` matches their names with the classes of the model
    tokens          the tokens of a batch and nothing else: where all lenses are such, the model is not run
    cpu             numbers on the CPU, during a pass (`.item()`, `if tensor.any()`), which a device has to wait for
    """
    full_state_update: bool | None = False
    _update_count: int

    made_with: Mapping[str, object]
    """The arguments that it was made with, by name: another process makes the same lens of them."""

    def __init__(self) -> None:
        super().__init__(compute_on_cpu=False)
        self.bound: bool = False
        self.states: States = States(self)
        self.per_text: PerText | None = None
        self.text_numbers: xr.Dataset | None = None
        """After `compute`, the numbers of each text, if they were kept."""
        self.provenance: Provenance = Provenance(model="unknown")
        self._model: _Model | None = None

    # What a lens overrides

    def allocate(self, subject: Subject) -> None:
        """Declare parts and states."""

    def needs(self) -> "Sequence[Lens | str]":
        """Lenses whose results it is made from; `look` runs them too and hands their results to `take`.

        A lens that looks at batches gets the results before its first batch, from a pass of their own over the corpus.
        A lens that looks at nothing gets them before `compute`, from the same pass. What a lens needs may need others.
        """
        return ()

    def take(self, results: Mapping[str, Result]) -> None:
        """Take in the results of the lenses that it needs, by lens."""

    def cost(self) -> str:
        """What a batch takes beside its own pass, in a phrase, if that is many passes; `look` says so beforehand."""
        return ""

    def taps(self, batch: Batch) -> Sequence[Tap]:
        """Taps of its own that the pass needs, for what `update` (which runs without gradients) cannot do."""
        return ()

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        """Statistics of the rows of a call: computed before `update`, together with what other lenses want."""
        return ()

    def update(self, call: Call, batch: Batch) -> None:
        """Read one attention call of the forward pass."""

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Read what the forward pass returned."""

    # What a lens uses

    @property
    def subject(self) -> Subject:
        """The model that it was bound to."""
        if self._model is None:
            raise UserError(f"The lens {self.name!r} is not bound to a model: call bind(subject), or use lo.look.")
        return self._model.subject

    def measured(self, call: Call, batch: Batch) -> list[Measured]:
        """The statistics that `wants` requested; computed now, unless those of all lenses were computed together."""
        if not call.has_answers(id(self)):
            call.ask({id(self): self.wants(call, batch)})
        return call.answers(id(self))

    def sums(self, name: str, *shape: int, in_place: bool = True) -> None:
        """Declare a state that is summed over batches and processes."""
        self.state(name, zeros(*shape), "sum", on_device=True, in_place=in_place)

    def state(
        self,
        name: str,
        start: Tensor,
        merge: "str | Merge",
        *,
        on_device: bool = False,
        in_place: bool = True,
        large: bool = False,
    ) -> None:
        """Declare a state that merges by "sum", "min", "max", "cat" or a function of the states of several processes.

        A `start` that repeats few numbers (`zeros`, `Tensor.expand`) is kept and sent as these few. `on_device`: it is
        kept where the model is, so that adding to it waits for nothing; else on the CPU. A state that is only ever
        replaced (`in_place` False) need not be copied before a batch that may fail. One that is `large` is not moved to
        the CPU for `compute`.
        """
        self.states.declare(name, start, merge, on_device=on_device, in_place=in_place, large=large)

    def result(
        self,
        variables: Mapping[str, object],
        coordinates: Mapping[str, object] | None = None,
        descriptions: Mapping[str, str] | None = None,
    ) -> Result:
        """Make a result of arrays, with the provenance of this lens; `descriptions` say what variables are, by name."""
        data = xr.Dataset(variables, coords=coordinates)
        for name, text in (descriptions or {}).items():
            if name in data:
                data[name].attrs["description"] = text
        return Result(self.name, data, self.provenance)

    def grid(
        self, per_head: Float[Tensor, "site head *rest"], rest: Mapping[str, Labels] | None = None
    ) -> xr.DataArray:
        """Arrange [site head …] as [stack layer head …]; see `Places.grid`."""
        return self.by_head.grid(per_head, rest)

    def bind(self, subject: Subject, *, keep_texts: bool = False) -> None:
        """Bind the lens to a model; whoever runs it does so before the first batch.

        With `keep_texts` it also keeps the numbers of each text; after `compute`, `text_numbers` has them.
        """
        if self.bound:
            self._refuse_other(subject, keep_texts)
            self._model = _Model(subject)
            return
        self._model = _Model(subject)
        self.sites: tuple[Site, ...] = subject.text_sites
        self.heads: int = subject.heads
        self.numbers: dict[Site, tuple[int, ...]] = {each.site: each.numbers for each in subject.anatomy.sites}
        self.position: dict[Site, int] = {site: number for number, site in enumerate(self.sites)}
        self.by_head: Places = Places(self.sites, self.heads, self.numbers)
        self.by_layer: Places = Places(self.sites)
        self.provenance = Provenance(model=subject.name)
        if subject.device.type != "mps":  # Metal has no float64
            self.states.device = torch.device(subject.device)
        if keep_texts:
            self.per_text = PerText(self)
        self.allocate(subject)
        if self.per_text is not None:
            self.states.parts.append(self.per_text)  # behind the parts that hand it their numbers
        self.states.move(self.states.device)
        self.bound = True

    def _refuse_other(self, subject: Subject, keep_texts: bool) -> None:
        if self.sites != subject.text_sites or self.heads != subject.heads:
            raise UserError(f"The lens {self.name!r} has already been used with another model; create a new lens.")
        if keep_texts and self.per_text is None:
            raise UserError(
                f"The lens {self.name!r} has already processed texts without storing their numbers; create a new lens."
            )

    # What torchmetrics calls

    def merge_state(self, incoming_state: "dict[str, Any] | torchmetrics.Metric") -> None:
        """Merge another lens's states; unlike the inherited method, drop cached results and count its updates."""
        more = 1
        if isinstance(incoming_state, torchmetrics.Metric):
            if not isinstance(incoming_state, Lens) or type(incoming_state) is not type(self):
                raise ValueError(f"a {type(self).__name__} cannot take in a {type(incoming_state).__name__}")
            more = incoming_state._update_count
            incoming_state = incoming_state.states.tensors()
        self._reduce_states(incoming_state)
        self._computed = None
        self._update_count += more

    def _reduce_states(self, incoming_state: Mapping[str, Tensor]) -> None:
        self.states.take_in([self.states.tensors(), incoming_state])

    def sync(self, *arguments: object, **keywords: object) -> None:
        self.states.commit()
        super().sync(*arguments, **keywords)

    def reset(self) -> None:
        self.states.discard()
        super().reset()

    def _sync_dist(self, dist_sync_fn: Any = None, process_group: Any = None) -> None:
        """Merge the states of all processes; `compute` calls it, and restores those of this process afterwards."""
        self.states.take_in(gathered(self.states.tensors(), process_group))

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Results are made of copies of the states on the CPU. The numbers of each text are taken on the way."""

        @wraps(compute)
        def with_texts(*arguments: object, **keywords: object) -> Any:
            if self.per_text is not None:
                self.text_numbers = self.per_text.arrays()
            return compute(*arguments, **keywords)

        inner = super()._wrap_compute(with_texts)

        @wraps(compute)
        def on_the_cpu(*arguments: object, **keywords: object) -> Any:
            self.states.commit()
            kept = {name: self.states[name] for name in self.states.on_device}
            self.states.move("cpu")
            try:
                found = inner(*arguments, **keywords)
            finally:
                for name, state in kept.items():
                    setattr(self, name, state)
            if isinstance(found, Result):
                found.data.attrs[OPTIONS] = options_of(self)
            return found

        return on_the_cpu


def options_of(lens: Lens) -> Json:
    """Every option of a lens by name, defaults included, as far as a result can keep it."""
    known = parameters(type(lens)).values()
    defaults = {one.name: one.default for one in known if one.default is not one.empty}
    out: Json = {}
    for name, value in {**defaults, **lens.made_with}.items():
        with contextlib.suppress(UserError):  # a Python object that no file can hold
            out[name] = plain(value, name)
    return out


class _Model:
    """Holds the subject of a lens: copies of the lens share it, and pickles leave it out."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def __deepcopy__(self, memo: dict[int, object]) -> "_Model":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()
