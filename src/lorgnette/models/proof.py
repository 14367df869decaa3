"""Proof that captured attention is what the model computes, for every way to run it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lorgnette.attending import Call, Site, Tap
from lorgnette.errors import CaptureError, reason
from lorgnette.models.anatomy import Anatomy, AttentionSite
from lorgnette.models.switching import eager, evaluating
from lorgnette.models.watching import watched
from lorgnette.models.ways import NoCache, Run, Step, Way
from lorgnette.statistics.entropy import entropy

PRECISE = (torch.float32, torch.float64)
"""In other precisions, eager attention rounds its scores before the softmax, which alone makes the weights differ."""

OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)
NOT_FINITE = "without us the model gives NaN or infinity"


@dataclass
class Largest:
    """The largest difference so far, and the way on which it was found."""

    size: float = 0.0
    way: str = ""

    def take(self, difference: Tensor, way: str, scale: float = 1.0) -> None:
        """Infinity for NaN: Python's max would skip NaN, and the proof would hold."""
        if difference.numel():
            size = float(difference.abs().nan_to_num(nan=torch.inf).max()) / scale
            if size > self.size or not self.way:
                self.size, self.way = size, way


@dataclass
class Proof:
    """The largest differences between a model's attention and what was captured, over all ways to run it."""

    output: Largest = field(default_factory=Largest)
    """of the model's output, seen and unseen, relative to its largest number"""
    restored: Largest = field(default_factory=Largest)
    """of the output before and afterwards"""
    mixing: Largest = field(default_factory=Largest)
    """of weights · value from the context"""
    written: Largest = field(default_factory=Largest)
    """of heads · W_O from the output of the projection"""
    rows: Largest = field(default_factory=Largest)
    """of a row's sum from one"""
    padding: Largest = field(default_factory=Largest)
    """of a weight on padding from zero"""
    swept: Largest = field(default_factory=Largest)
    """of an entropy computed without the matrix from that of the matrix"""
    eager_output: Largest = field(default_factory=Largest)
    eager_weights: Largest = field(default_factory=Largest)
    sites: dict[str, list[Site]] = field(default_factory=dict)
    """the sites that were called in the first pass of each way"""
    left_out: dict[str, str] = field(default_factory=dict)
    """ways in which the model itself cannot run, and why"""
    failed: tuple[str, str] | None = None
    """the way on which the attention could not be captured at all, and why"""
    without_eager: dict[str, str] = field(default_factory=dict)
    """ways on which the model offers no eager weights, and why"""

    @property
    def ways(self) -> list[str]:
        return list(self.sites)


@dataclass(frozen=True)
class _Seen:
    """The weights of a call, or the states of a pass, and which of its queries are real."""

    numbers: Float[Tensor, "..."]
    queries: Bool[Tensor, "batch query"]
    sink: bool = False
    """whether a learnt sink takes a share of each row of weights"""
    module: nn.Module | None = None
    """the module that made the call, if these are weights"""

    @property
    def real(self) -> Float[Tensor, "..."]:
        """The vectors of real tokens, where there is one for each token."""
        return self.numbers[self.queries] if self.numbers.shape[:2] == self.queries.shape else self.numbers

    def differs(self, other: Tensor) -> Float[Tensor, "..."]:
        return self.real - _Seen(other, self.queries).real

    @property
    def is_finite(self) -> bool:
        return bool(self.real.isfinite().all())

    @property
    def scale(self) -> float:
        return float(self.real.abs().max()) or 1.0


class _Examiner(Tap):
    """Measures at every site how far the recorded quantities of a call are from each other."""

    def __init__(self, anatomy: Anatomy, proof: Proof) -> None:
        self.anatomy, self.proof = anatomy, proof
        self.way = ""
        self.calls: list[Call] = []
        self.outputs: list[tuple[AttentionSite, Call, Tensor]] = []
        self.waiting: dict[int, tuple[AttentionSite, Call]] = {}

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Keeps the output of every output projection."""
        modules = {
            id(s.output): s.output for s in self.anatomy.sites if s.output and s.lack("output", gated=True) is None
        }
        with ExitStack() as undo:
            for module in modules.values():
                undo.callback(module.register_forward_hook(self.keep_output).remove)
            yield

    def keep_output(self, module: nn.Module, arguments: object, output: Tensor) -> None:
        attention, call = self.waiting.pop(id(module), (None, None))
        if attention is not None and call is not None:
            self.outputs.append((attention, call, output))

    def see(self, call: Call) -> None:
        # Swept, before the matrix exists.
        call.once("swept", call.entropy)
        attention = self.anatomy[call.site]
        self.waiting[id(attention.output)] = attention, call
        self.calls.append(call)

    def judge(self, step: Step) -> list[_Seen]:
        """Measure all calls of a pass, drop them, and return their weights."""
        for call in self.calls:
            self.judge_call(call, step)
        for attention, call, output in self.outputs:
            self.judge_output(attention, call, output, step)
        seen = [
            _Seen(
                call.weights.transpose(1, 2),
                _real_queries(call, step),
                call.scores.sink is not None,
                self.anatomy[call.site].module,
            )
            for call in self.calls
        ]
        self.calls, self.outputs, self.waiting = [], [], {}
        return seen

    def judge_call(self, call: Call, step: Step) -> None:
        proof, way = self.proof, self.way
        weights, sink = call.weights, call.sink
        keys = _known_keys(call, step)[:, -weights.shape[-1] :]  # a sliding cache has dropped the first ones
        real = _real_queries(call, step)[:, None, :].expand(weights.shape[:3])
        proof.rows.take((weights.sum(-1) + sink - 1)[real], way)
        proof.padding.take(weights.masked_fill(keys[:, None, None, :], 0)[real], way)
        context = weights.to(call.value.dtype) @ call.value
        proof.mixing.take((context - call.context)[real], way, float(context.abs().max()) or 1.0)
        again = entropy(torch.cat([weights, sink[..., None].to(weights.dtype)], -1))
        proof.swept.take((again - call.once("swept", call.entropy))[real], way)

    def judge_output(self, attention: AttentionSite, call: Call, output: Tensor, step: Step) -> None:
        weight, bias = attention.output_weights(gated=True)
        context = call.context if call.gate is None else call.context * call.gate.to(call.context)
        expected = context.transpose(1, 2).flatten(2) @ weight.flatten(0, 1)
        expected = expected if bias is None else expected + bias
        real = _real_queries(call, step)
        output = output.view(expected.shape)
        scale = float(output[real].abs().max()) or 1.0
        self.proof.written.take((expected - output)[real], self.way, scale)


def _real_queries(call: Call, step: Step) -> Bool[Tensor, "batch query"]:
    """The real queries; among patches, those that may see any key."""
    if call.site.of_texts:
        return step.queries(call.site)
    return call.scores.visible_keys().any((1, 3))


def _known_keys(call: Call, step: Step) -> Bool[Tensor, "batch key"]:
    """The real keys; among patches, those that any query may see."""
    beside = call.site.kind == "cross" and (step.target is None or call.site.stack == "encoder")
    return step.keys(call.site) if call.site.of_texts and not beside else call.scores.visible_keys().any((1, 2))


def proof_of(model: nn.Module, anatomy: Anatomy, ways: Sequence[Way], run: Run, *, with_eager: bool = True) -> Proof:
    """Run a model on each way by itself, captured, and (`with_eager`) with its own eager attention, and compare.

    What the model itself does not run, or answers with NaN, is in `left_out`; if it runs on no way, its error is
    raised. Stops at the first way on which capturing fails.
    """
    proof = Proof()
    examiner = _Examiner(anatomy, proof)
    errors = []
    with torch.no_grad(), evaluating(model):
        for way in ways:
            try:
                plain = _states(way, run)
            except OUT_OF_MEMORY:
                raise
            except NoCache:
                continue
            except Exception as error:
                errors.append(error)
                proof.left_out[way.name] = reason(error)
                continue
            if not all(states.is_finite for states in plain):
                proof.left_out[way.name] = NOT_FINITE
                continue
            examiner.way = way.name
            try:
                seen, weights = _captured(model, way, run, examiner)
            except OUT_OF_MEMORY:
                raise
            except Exception as error:
                proof.failed = way.name, str(error) if isinstance(error, CaptureError) else reason(error)
                return proof
            for before, states in zip(plain, seen, strict=True):
                proof.output.take(before.differs(states.numbers), way.name, before.scale)
            if len(proof.sites) == 1:
                for before, after in zip(plain, _states(way, run), strict=True):
                    proof.restored.take(before.differs(after.numbers), way.name)
            if with_eager and plain[0].numbers.dtype in PRECISE:
                _compare_with_eager(model, way, run, seen, weights, examiner)
    if errors and not proof.ways:
        raise errors[0]
    return proof


def _states(way: Way, run: Run) -> list[_Seen]:
    return [_Seen(step.states, step.last_queries) for step in way.steps(run)]


def _captured(model: nn.Module, way: Way, run: Run, examiner: _Examiner) -> tuple[list[_Seen], list[_Seen]]:
    """The states of every pass, and the weights of every call."""
    states, weights = [], []
    with watched(model, examiner.anatomy, examiner), examiner.hooked():
        for step in way.steps(run):
            examiner.proof.sites.setdefault(way.name, [call.site for call in examiner.calls])
            states.append(_Seen(step.states, step.last_queries))
            weights += examiner.judge(step)
    return states, weights


def _compare_with_eager(
    model: nn.Module, way: Way, run: Run, seen: list[_Seen], weights: list[_Seen], examiner: _Examiner
) -> None:
    """Compare states and weights with those of the model's eager attention, or note why there are none."""
    proof = examiner.proof
    returned: dict[int, list[Tensor]] = {}

    def keep(module: nn.Module, arguments: object, output: object) -> None:
        parts = output[1:] if isinstance(output, tuple) else ()
        found = [part for part in parts if isinstance(part, Tensor) and part.ndim in (3, 4)]
        # WavLM gives its position bias behind the weights.
        returned.setdefault(id(module), []).extend((list(filter(_are_weights, found)) or found)[-1:])

    try:
        with eager(model), ExitStack() as undo:
            for module in {id(site.module): site.module for site in examiner.anatomy.sites}.values():
                undo.callback(module.register_forward_hook(keep).remove)
            states = _states(way, lambda **inputs: run(**inputs, output_attentions=True))
    except OUT_OF_MEMORY:
        raise
    except Exception as error:
        proof.without_eager[way.name] = f"it does not run with eager attention ({reason(error)})"
        return
    if not all(one.is_finite for one in states):
        proof.without_eager[way.name] = "its eager attention gives NaN or infinity"
        return
    for own, mine in zip(states, seen, strict=True):
        proof.eager_output.take(own.differs(mine.numbers), way.name, own.scale)
    for caller in {id(call.module): call.module for call in weights}.values():
        calls = [call for call in weights if call.module is caller]
        if [one.numel() for one in returned.get(id(caller), [])] != [one.numbers.numel() for one in calls]:
            proof.without_eager[way.name] = f"{type(caller).__name__} does not return its weights"
        else:
            _compare_weights(returned[id(caller)], calls, way, proof)


def _are_weights(part: Tensor) -> bool:
    return bool((part >= 0).all()) and bool((part.sum(-1) <= 1.01).all())


def _compare_weights(returned: list[Tensor], calls: list[_Seen], way: Way, proof: Proof) -> None:
    for theirs, call in zip(returned, calls, strict=True):
        theirs = theirs.view(call.numbers.transpose(1, 2).shape).transpose(1, 2)
        if theirs.shape[2] > 1 and torch.equal(theirs, theirs[:, :, :1].expand_as(theirs)):
            # The mean over heads, given for each of them (WavLM).
            call = replace(call, numbers=call.numbers.mean(2, keepdim=True).expand_as(theirs))
        if call.sink:  # some models return the weights with what the sink takes, some without
            theirs = theirs / theirs.sum(-1, keepdim=True) * call.numbers.sum(-1, keepdim=True)
        proof.eager_weights.take(call.differs(theirs), way.name)
