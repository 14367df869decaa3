"""Forward passes as CUDA graphs: a graph is recorded once for each shape of batch, then launched as one piece.

Python takes as long to launch the kernels of a model of BERT's size as the GPU takes to run them, and lenses launch as
many again; a graph launches them all at once. The commit that follows a pass (the parts of the lenses take the numbers
of the batch into their states) is recorded in the same way.

A graph reads and writes the same memory in every replay. So a new batch is copied into the tensors of the recorded one,
and after the replay each part is given the tensors that it held after the recording, which now hold the new numbers.

A pass is recorded once its shape has come before, and an ordinary pass has been checked: it must not wait for the GPU,
because a graph cannot follow what Python decides by numbers on the GPU. A lens declares none of this, except that it
reads numbers on the CPU.
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
from lorgnette.lens.parts import Part
from lorgnette.lens.states import description
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens

MOST = 16
"""At most so many shapes are recorded in one pass over a corpus. Their graphs share one pool of memory."""
OFTEN = 64
"""After so many replays, a pass may be recorded again to do less work; recording costs what dozens of replays save."""
_CHECKED: WeakKeyDictionary[nn.Module, set[tuple[str, ...]]] = WeakKeyDictionary()
"""For each model, the lenses with their settings that a checked pass has found not to wait for the GPU."""

Run = Callable[[Batch], object]

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool


class Redrawn:
    """A part of a lens that prepares something for each batch, in memory that a recorded pass reads."""

    def too_large(self, batch: Batch) -> bool:
        """Whether the pass recorded for this batch does much work that the part no longer needs."""
        raise NotImplementedError


class Recordings:
    """The recorded passes of a model with some lenses, by the shape of the batch."""

    def __init__(self, model: nn.Module, lenses: Sequence[Lens], paths: set[str]) -> None:
        self.lenses, self.paths = lenses, paths
        self.checked: set[tuple[str, ...]] = _CHECKED.setdefault(model, set())
        self.described: tuple[str, ...] = tuple(description(lens) for lens in lenses)
        self.met: Counter[object] = Counter()
        self.recorded: dict[object, Recording] = {}
        self._pool: Pool | None = None

    @staticmethod
    def of(subject: Subject, lenses: Sequence[Lens], paths: set[str]) -> "Recordings | None":
        """None where nothing can be recorded (not on one GPU, or a lens reads numbers on the CPU) or recording is off.

        `paths`: how the statistics of rows were computed so far, which grows during the passes.
        """
        if subject.device.type != "cuda" or os.environ.get("LORGNETTE_RECORD") == "0":
            return None
        spread = {parameter.device for parameter in subject.model.parameters()} - {subject.device}
        return None if spread or not all(map(recordable, lenses)) else Recordings(subject.model, lenses, paths)

    def ready(self, batch: Batch, run: Run) -> "CheckedPass | None":
        """The recording of this batch's shape, or a checked pass; None to run it in the ordinary way."""
        shape = shape_of(batch)
        if shape in self.recorded and self.recorded[shape].too_large:
            self.recorded.pop(shape).close()
        elif shape not in self.recorded:
            self.met[shape] += 1
            # The first pass is never recorded: in it, a lens may compute what it keeps for later passes.
            if self.met[shape] == 1 or len(self.recorded) >= MOST or not self._by_kernels():
                return None
            if self.described not in self.checked:
                return CheckedPass(run, self.lenses, lambda: self.checked.add(self.described))
        if shape not in self.recorded:
            self.recorded[shape] = Recording(run, self.lenses, self._memory)
        return self.recorded[shape]

    def close(self) -> None:
        """Drop all recordings and free their memory, which graphs hold until they are reset."""
        for one in self.recorded.values():
            one.close()
        self.recorded.clear()
        self._pool = None

    def _memory(self) -> "Pool":
        """The memory that recordings share; it is freed with the last of them."""
        if self._pool is None or all(one.graph is None for one in self.recorded.values()):
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def _by_kernels(self) -> bool:
        """Whether kernels compute all statistics; the sweep goes through blocks of rows and waits for the GPU."""
        return self.paths <= {"kernels"}


def recordable(lens: Lens) -> bool:
    """Whether a lens declares that it only launches kernels in a pass; `CheckedPass` verifies it."""
    return "cpu" not in lens.reads and "gradients" not in lens.reads and type(lens).taps is Lens.taps


class CheckedPass:
    """An ordinary pass that raises if a lens waits for the GPU, or keeps anything outside its parts."""

    batch: Batch | None

    def __init__(self, run: Run, lenses: Sequence[Lens], passed: Callable[[], None] = lambda: None) -> None:
        self._run, self.lenses, self._passed = run, lenses, passed
        self.batch = None

    def taken(self, batch: Batch) -> Batch:
        self.batch = batch.to(self.lenses[0].states.device)
        return self.batch

    def run(self) -> object:
        assert self.batch is not None
        before, own = torch.cuda.get_sync_debug_mode(), [_attributes(lens) for lens in self.lenses]
        try:
            _set_sync_mode("error")
            outputs = self._run(self.batch)
        except RuntimeError as error:
            raise Unreplayable from error
        finally:
            _set_sync_mode(before)
        if own != [_attributes(lens) for lens in self.lenses]:
            raise Unreplayable
        self._passed()
        return outputs

    def commit(self) -> None:
        """Commit the parts, if that has been recorded; otherwise they commit themselves."""


class Recording(CheckedPass):
    """The graphs of one shape of batch (its pass and its commit), and the memory that they read and write."""

    def __init__(self, run: Run, lenses: Sequence[Lens], memory: "Callable[[], Pool]") -> None:
        super().__init__(run, lenses)
        self.outputs: object = None
        self._memory = memory
        self.graph: torch.cuda.CUDAGraph | None = None
        self.closing: torch.cuda.CUDAGraph | None = None
        """The graph of `commit`, which reads and writes the states in the same memory each time."""
        self.states: list[tuple[Lens, str, Tensor]] = []
        self.alone = False
        """Whether the commit cannot be recorded, so that the parts commit themselves."""
        self.replayed = 0
        self.parts: Sequence[Part[object]] = [part for lens in lenses for part in lens.states.parts]
        self.held: list[list[object]] = []
        """The items that each part held after the recorded pass."""
        self.left: list[list[object]] = []
        """The items that each part still held after the recorded commit: those of parts that work on the CPU."""
        self.bare: list[dict[object, object]] = []
        """For each side of the batch, the cached quantities that were there before the pass."""
        self.made: list[dict[object, object]] = []
        """For each side of the batch, the cached quantities that the graph computes."""

    def close(self) -> None:
        """Forget the graphs, and the tensors in their memory."""
        for graph in (self.graph, self.closing):
            if graph is not None:
                graph.reset()
        self.graph = self.closing = self.batch = None
        self.outputs, self.held, self.left, self.bare, self.made, self.states = None, [], [], [], [], []

    @property
    def too_large(self) -> bool:
        batch = self.batch
        if batch is None or self.replayed < OFTEN:
            return False
        return any(part.too_large(batch) for part in self.parts if isinstance(part, Redrawn))

    def taken(self, batch: Batch) -> Batch:
        """Copy the batch into the memory that the graph reads."""
        if self.batch is None:
            taken = super().taken(batch)
            self.bare = [side.known() for side in _sides(taken)]
            return taken
        for name, tensor in batch.inputs.items():
            self.batch.inputs[name].copy_(tensor, non_blocking=True)
        self.batch.examples = batch.examples
        for mine, new, bare in zip(_sides(self.batch), _sides(batch), self.bare, strict=True):
            mine.know(bare, only=True)  # drop what was computed from the old tokens
            mine.overwrite(new)
        return self.batch

    def run(self) -> object:
        """Replay the pass; the first time, record it before."""
        assert self.batch is not None
        if self.graph is None:
            for side, bare in zip(_sides(self.batch), self.bare, strict=True):
                side.know(bare, only=True)  # everything is computed in the graph
            self._record(self.batch)
            self.held = [list(part.held) for part in self.parts]
            self.made = [
                {name: value for name, value in side.known().items() if name not in bare}
                for side, bare in zip(_sides(self.batch), self.bare, strict=True)
            ]
        assert self.graph is not None
        self.graph.replay()
        self.replayed += 1
        for part, held in zip(self.parts, self.held, strict=True):
            part.held = list(held)
        for side, made in zip(_sides(self.batch), self.made, strict=True):
            side.know(made)
        return self.outputs

    def _record(self, batch: Batch) -> None:
        def run() -> None:
            self.outputs = self._run(batch)

        self.graph = _recorded(run, self._memory())

    def commit(self) -> None:
        """Replay the commit; the first time, record it before. Parts on the CPU commit themselves later."""
        if self.closing is None and not self.alone:
            self._record_commit()
        if self.closing is None:
            return
        for lens, name, state in self.states:
            if (now := lens.states[name]) is not state:  # another batch was added without this graph
                state.copy_(now)
                setattr(lens, name, state)
        self.closing.replay()
        for part, left in zip(self.parts, self.left, strict=True):
            part.held = list(left)

    def _record_commit(self) -> None:
        """Record the commit, and a copy of each new state into the memory of the old one, which replays read."""
        held = [list(part.held) for part in self.parts]
        before = [(lens, name, lens.states[name]) for lens in self.lenses for name in lens.states.on_device]
        versions = [state._version for _, _, state in before]

        def commit() -> None:
            for part in self.parts:
                if not part.on_cpu:
                    part.commit()
            for lens, name, state in before:
                if (new := lens.states[name]) is not state:
                    state.copy_(new)

        try:
            self.closing = _recorded(commit, self._memory())
            self.left = [list(part.held) for part in self.parts]
        except Unreplayable:
            self.alone = True
            for part, items in zip(self.parts, held, strict=True):
                part.held = items
        self.states = [one for one, version in zip(before, versions, strict=True) if one[2]._version != version]
        for lens, name, state in before:
            setattr(lens, name, state)


def _recorded(work: Callable[[], None], memory: "Pool") -> torch.cuda.CUDAGraph:
    """Record on a stream of its own, while other threads, which prepare batches, may still allocate memory."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=memory, capture_error_mode="thread_local")
        try:
            work()
        except RuntimeError as error:
            with suppress(RuntimeError):
                _end(graph)
            raise Unreplayable from error
        _end(graph)
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def _end(graph: torch.cuda.CUDAGraph) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # of lenses that add nothing on the GPU
        graph.capture_end()


def _set_sync_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")  # "a prototype", torch says
        torch.cuda.set_sync_debug_mode(mode)


def _attributes(lens: Lens) -> dict[str, tuple[int, int]]:
    """The identity and length of what a lens holds beside its states; if a pass changes them, a replay would not."""
    changing = {*lens.states.names, "_computed", "_update_count", "_to_sync", "_should_unsync"}
    own = {name: value for name, value in vars(lens).items() if name not in changing}
    return {name: (id(value), len(value) if isinstance(value, list | dict | set) else 0) for name, value in own.items()}


def shape_of(batch: Batch) -> object:
    """A key that is equal for batches which share a recording: shapes, kinds of token, whether there is padding."""
    sides = tuple((side.ids.shape, tuple(side.categories), "word" in side.known()) for side in _sides(batch))
    return batch.padded, sides, tuple((name, tensor.shape, tensor.dtype) for name, tensor in batch.inputs.items())


def _sides(batch: Batch) -> list[Tokens]:
    return [side for side in (batch.source, batch.target) if side is not None]
