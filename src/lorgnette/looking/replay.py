"""Passes of one shape as CUDA graphs: recorded once, then launched as one piece, with no Python between the kernels.

So is what comes after a pass: taking the numbers of the batch into the states of the lenses.

A model of BERT's size launches its kernels no faster than a GPU runs them, and lenses launch as many again. A graph
reads and writes the same memory in every replay: the tensors of a new batch are copied into those of the recorded one,
and what the lenses held after the recording they hold again, with new numbers in it.

A batch is recorded when its shape has come before and the model was seen not to wait for the GPU: what a program
decides by numbers on the GPU, a graph cannot follow.
"""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lorgnette.errors import Unreplayable
from lorgnette.lens.base import Lens
from lorgnette.subject import Subject
from lorgnette.texts.batch import ON_THE_CPU, Batch, Tokens
from lorgnette.types import ModelOutput

MOST = 16
"""Shapes that are recorded in one pass over a corpus. They share the memory of what a pass needs for itself."""
OFTEN = 64
"""Replays after which a pass may be recorded anew, to do less: recording takes as long as dozens of replays save."""
_CHECKED: WeakKeyDictionary[nn.Module, set[tuple[str, ...]]] = WeakKeyDictionary()
"""Models, and lenses with their settings, that were seen not to wait for the GPU."""

Run = Callable[[Batch], ModelOutput]

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool


class Replays:
    """What was recorded of a model with some lenses, by the shape of the batch."""

    def __init__(self, model: nn.Module, lenses: Sequence[Lens]) -> None:
        self.lenses = lenses
        self.checked: set[tuple[str, ...]] = _CHECKED.setdefault(model, set())
        self.described: tuple[str, ...] = tuple(lens.described() for lens in lenses)
        self.met: Counter[object] = Counter()
        self.recorded: dict[object, Recording] = {}
        self._pool: Pool | None = None

    @staticmethod
    def of(subject: Subject, lenses: Sequence[Lens]) -> "Replays | None":
        """None where nothing can be replayed: not on one GPU, or a lens decides by what it sees; or nobody wants it."""
        if subject.device.type != "cuda" or os.environ.get("LORGNETTE_RECORD") == "0":
            return None
        spread = {parameter.device for parameter in subject.model.parameters()} - {subject.device}
        return None if spread or not all(map(_declared, lenses)) else Replays(subject.model, lenses)

    def ready(self, batch: Batch, run: Run) -> "Watched | None":
        """How to take this batch through, if not as usual: the recording of its shape, or a pass that is watched."""
        shape = shape_of(batch)
        if shape in self.recorded and self.recorded[shape].outgrown:
            del self.recorded[shape]
        elif shape not in self.recorded:
            self.met[shape] += 1
            checked = self.described in self.checked
            first = self.met[shape] == 1 and not (checked and all(lens.at_once for lens in self.lenses))
            if first or len(self.recorded) >= MOST or not self._by_kernels():
                return None
            if not checked:
                return Watched(run, self.lenses, lambda: self.checked.add(self.described))
        if shape not in self.recorded:
            self.recorded[shape] = Recording(run, self.lenses, self._memory)
        return self.recorded[shape]

    def _memory(self) -> "Pool":
        """What recordings share; with the last of them it is gone."""
        if self._pool is None or all(one.graph is None for one in self.recorded.values()):
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def _by_kernels(self) -> bool:
        """The sweep looks at blocks of rows, and waits for the GPU."""
        return all(lens.paths <= {"kernels"} for lens in self.lenses)


def _declared(lens: Lens) -> bool:
    """Whether this very class says that it can be replayed: who inherits from it may do other things in a pass."""
    return "replays" in vars(type(lens)) and lens.replays


class Watched:
    """A pass as usual, in which waiting for the GPU is an error."""

    batch: Batch | None

    def __init__(self, run: Run, lenses: Sequence[Lens], passed: Callable[[], None] = lambda: None) -> None:
        self._run, self.lenses, self._passed = run, lenses, passed
        self.batch = None

    def taken(self, batch: Batch) -> Batch:
        self.batch = batch.to(self.lenses[0].home)
        return self.batch

    def run(self) -> ModelOutput:
        assert self.batch is not None
        before = torch.cuda.get_sync_debug_mode()
        try:
            _set_sync_mode("error")
            outputs = self._run(self.batch)
        except RuntimeError as error:
            raise Unreplayable from error
        finally:
            _set_sync_mode(before)
        self._passed()
        return outputs

    def commit(self) -> None:
        """Take the numbers of the batch into the states, if there is a better way than each lens's own."""


class Recording(Watched):
    """The pass of one shape of batch, and the memory that it reads and writes."""

    outputs: ModelOutput

    def __init__(self, run: Run, lenses: Sequence[Lens], memory: "Callable[[], Pool]") -> None:
        super().__init__(run, lenses)
        self.outputs, self._memory = None, memory
        self.graph: torch.cuda.CUDAGraph | None = None
        self.closing: torch.cuda.CUDAGraph | None = None
        """What `commit` does; it reads and writes the same memory of the states each time."""
        self.states: list[tuple[Lens, str, Tensor]] = []
        self.alone = False
        """Whether `commit` cannot be recorded."""
        self.replayed = 0
        self.held: list[tuple[object, str, list[object]]] = []
        self.bare: list[dict[str, object]] = []
        self.made: list[dict[str, object]] = []

    @property
    def outgrown(self) -> bool:
        batch = self.batch
        return batch is not None and self.replayed >= OFTEN and any(lens.outgrown(batch) for lens in self.lenses)

    def taken(self, batch: Batch) -> Batch:
        """The batch in the memory that the graph reads."""
        if self.batch is None:
            taken = super().taken(batch)
            self.bare = [
                {name: value for name, value in _copied(vars(mine)).items() if name not in ON_THE_CPU}
                for mine, _ in _sides(taken, taken)
            ]
            return taken
        for name, tensor in batch.inputs.items():
            self.batch.inputs[name].copy_(tensor, non_blocking=True)
        object.__setattr__(self.batch, "examples", batch.examples)
        for (mine, new), bare in zip(_sides(self.batch, batch), self.bare, strict=True):
            _renew(mine, new, bare)
        return self.batch

    def run(self) -> ModelOutput:
        """The pass: recorded if it was not yet, then replayed."""
        assert self.batch is not None
        sides = [vars(mine) for mine, _ in _sides(self.batch, self.batch)]
        if self.graph is None:
            for own, bare in zip(sides, self.bare, strict=True):  # all that is worked out is worked out in the graph
                _put(own, bare)
            self._record(self.batch)
            places = [place for lens in self.lenses for place in lens.holds()]
            self.held = [(owner, name, list(getattr(owner, name))) for owner, name in places]
            self.made = [_worked_out(own, bare) for own, bare in zip(sides, self.bare, strict=True)]
        assert self.graph is not None
        self.graph.replay()
        self.replayed += 1
        for owner, name, held in self.held:
            setattr(owner, name, list(held))
        for own, made in zip(sides, self.made, strict=True):
            own.update(_copied(made))
        return self.outputs

    def _record(self, batch: Batch) -> None:
        def run() -> None:
            self.outputs = self._run(batch)

        self.graph = _recorded(run, self._memory())

    def commit(self) -> None:
        """What the lenses do in theirs: recorded if it was not yet, then replayed."""
        if self.closing is None and not self.alone:
            self._record_commit()
        if self.closing is None:
            return
        for lens, name, state in self.states:
            if (now := getattr(lens, name)) is not state:  # another batch was taken in without this graph
                state.copy_(now)
                setattr(lens, name, state)
        self.closing.replay()
        for owner, name, _ in self.held:
            setattr(owner, name, [])

    def _record_commit(self) -> None:
        """New states are copied into the memory of the old ones, which the next replay reads."""
        places = [(owner, name, list(getattr(owner, name))) for owner, name, _ in self.held]
        before = [(lens, name, getattr(lens, name)) for lens in self.lenses for name in lens.on_device]
        versions = [state._version for _, _, state in before]

        def commit() -> None:
            for lens in self.lenses:
                lens.commit()
            for lens, name, state in before:
                if (new := getattr(lens, name)) is not state:
                    state.copy_(new)

        try:
            self.closing = _recorded(commit, self._memory())
        except Unreplayable:
            self.alone = True
            for owner, name, held in places:
                setattr(owner, name, held)
        self.states = [one for one, version in zip(before, versions, strict=True) if one[2]._version != version]
        for lens, name, state in before:
            setattr(lens, name, state)


def _recorded(work: Callable[[], None], memory: "Pool") -> torch.cuda.CUDAGraph:
    """On a stream of its own. Other threads may reserve memory meanwhile: they prepare batches."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=memory, capture_error_mode="thread_local")
        try:
            work()
        except RuntimeError as error:
            with suppress(RuntimeError), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # so it is
                graph.capture_end()
            raise Unreplayable from error
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def _set_sync_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # "a prototype", torch says
        torch.cuda.set_sync_debug_mode(mode)


def shape_of(batch: Batch) -> object:
    """Equal for batches that one recording serves: shapes of all tensors, kinds of token, whether there is padding."""
    sides = tuple((side.ids.shape, tuple(side.categories), "word" in vars(side)) for side, _ in _sides(batch, batch))
    return batch.padded, sides, tuple((name, tensor.shape, tensor.dtype) for name, tensor in batch.inputs.items())


def _sides(first: Batch, second: Batch) -> list[tuple[Tokens, Tokens]]:
    pairs = [(first.source, second.source), (first.target, second.target)]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _tensors(tokens: Tokens) -> list[Tensor]:
    more = [tokens.word] if "word" in vars(tokens) else []
    return [tokens.ids, tokens.mask, tokens.special, *tokens.categories.values(), *more]


def _put(own: dict[str, object], attributes: dict[str, object]) -> None:
    own.clear()
    own.update(_copied(attributes))


def _worked_out(own: dict[str, object], bare: dict[str, object]) -> dict[str, object]:
    """What the graph has added: new numbers come into it with every replay."""
    return {name: value for name, value in _copied(own).items() if name not in bare}


def _renew(mine: Tokens, new: Tokens, bare: dict[str, object]) -> None:
    """Copy new tokens into those that the graph reads; what was worked out from the old ones is forgotten."""
    own = vars(mine)
    _put(own, bare)
    own["_host"] = new
    own.update({name: vars(new)[name] for name in ("_later", *ON_THE_CPU) if name in vars(new)})
    for old, tensor in zip(_tensors(mine), _tensors(new), strict=True):
        old.copy_(tensor, non_blocking=True)


def _copied(attributes: dict[str, object]) -> dict[str, object]:
    """So that what is added to a table later does not come into this one."""
    return {name: dict(value) if isinstance(value, dict) else value for name, value in attributes.items()}
