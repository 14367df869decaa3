"""Passes that are recorded once and replayed give what passes give that go through the model."""

from dataclasses import fields, is_dataclass

import pandas as pd
import pytest
import torch
import xarray as xr
from tiny import examples, subject
from torch import Tensor

import lorgnette as lo
from lorgnette.errors import Unreplayable
from lorgnette.gpu import recording as replay
from lorgnette.lens.base import Lens
from lorgnette.looking import passes, texts

LENSES = ("weights", "norms:sample=0", "geometry", "weights,norms:sample=0,geometry")
ON_CHIP = (*LENSES, "norms:sample=20", "weights,norms:sample=200,geometry")
FAMILIES = ("bert", "llama", "gpt2")
LENGTHS = {"even": (8,) * 14, "padded": (8, 7) * 7, "another between": (8,) * 8 + (40,) + (8,) * 6}
ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: nothing can be recorded")


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """So that batches with padding have one shape too."""
    monkeypatch.setattr(texts, "FIRST", {"cpu": 2, "cuda": 2})
    monkeypatch.setattr(texts, "WINDOW", 2)


def looked(name: str, lenses: str, lengths: tuple[int, ...], device: str) -> lo.Results:
    tiny = subject(name, dtype=torch.float32)
    tiny.model.to(device)
    return lo.look(tiny, examples(lengths), lenses.split(","), batch_tokens=2 * max(lengths) + 8, progress=False)


def alike(one: lo.Results, other: lo.Results) -> None:
    assert list(one) == list(other)
    for name in one:
        # Effective ranks come from roots of eigenvalues, q from small differences: some rounding is seen in both.
        ranks = [variable for variable in one[name].data if "effective_rank" in variable or variable.endswith("_q")]
        mine, theirs = one[name].data, other[name].data
        xr.testing.assert_allclose(mine.drop_vars(ranks), theirs.drop_vars(ranks), rtol=1e-5, atol=1e-6)
        xr.testing.assert_allclose(mine[ranks], theirs[ranks], rtol=1e-3)


@ON_A_GPU
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("lenses", ON_CHIP)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_replay_on_a_gpu_gives_the_same(name, lenses, lengths, monkeypatch):
    recorded = []
    keep = replay.Recording._record
    monkeypatch.setattr(replay.Recording, "_record", lambda self, batch: (recorded.append(1), keep(self, batch))[1])
    replayed = looked(name, lenses, lengths, "cuda")
    assert recorded
    monkeypatch.setattr(replay.Recordings, "of", staticmethod(lambda *_: None))
    # With the same padding: else eigenvalues that are zero but for rounding differ, and so do the ranks.
    monkeypatch.setattr(passes.Passes, "step", passes.STEP)
    alike(replayed, looked(name, lenses, lengths, "cuda"))


class Rehearsal(replay.Recording):
    """A recording on a CPU: a replay runs the pass again and puts its numbers where those of the first run are."""

    def __init__(self, run, lenses, memory):
        super().__init__(run, lenses, lambda: self)

    def _record(self, batch):
        self.outputs = self._run(batch)
        self.graph = self

    def reset(self):
        """There is no graph."""

    def replay(self):
        source = self.batch.source
        old = _tensors([self.held, self.outputs, self.made])
        for part in self.parts:
            part.held = []
        kept, source.cache = source.cache, dict(self.bare[0])
        shared = dict(self.batch.shared)
        outputs = self._run(self.batch)
        made = {name: value for name, value in source.cache.items() if name not in self.bare[0]}
        new = _tensors([[list(part.held) for part in self.parts], outputs, [made]])
        source.cache = kept
        self.batch.shared.clear()
        self.batch.shared.update(shared)
        assert len(old) == len(new)
        for mine, fresh in zip(old, new, strict=True):
            once = tuple(slice(0, 1) if step == 0 else slice(None) for step in mine.stride())  # what was expanded
            mine[once].copy_(fresh[once].clone())


class Closing:
    """What is recorded of `commit`, on a CPU: it is run in full each time, from what the recording holds."""

    def __init__(self, work, recording):
        self.work, self.recording = work, recording
        self.before = self._states()
        kept = [(state, state.clone(), state._version) for _, _, state in self.before]
        work()
        for state, before, version in kept:  # to record is not to do
            if state._version != version:
                state.copy_(before)

    def replay(self):
        for part, held in zip(self.recording.parts, self.recording.held, strict=True):
            part.held = list(held)
        now = self._states()
        for lens, name, state in self.before:
            setattr(lens, name, state)
        self.work()
        for lens, name, state in now:
            setattr(lens, name, state)
        on_cpu = [pair for pair in zip(self.recording.parts, self.recording.left, strict=True) if pair[0].on_cpu]
        for part, left in on_cpu:
            for mine, fresh in zip(_tensors(left), _tensors(part.held), strict=True):
                mine.copy_(fresh.clone())
        CLOSED.append(1)

    def reset(self):
        """There is no graph."""

    def _states(self):
        return [(lens, name, lens.states[name]) for lens in self.recording.lenses for name in lens.states.on_device]


CLOSED: list[int] = []


def _tensors(thing, seen=None):
    """All tensors in there, in order."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, Lens | replay.Part | replay.Batch):
        return []
    if isinstance(thing, Tensor):
        return [thing]
    parts = []
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, list | tuple):
        parts = list(thing)
    elif is_dataclass(thing) and not isinstance(thing, type):
        seen.add(id(thing))
        parts = [getattr(thing, field.name) for field in fields(thing) if field.name in vars(thing)]
    return [tensor for part in parts for tensor in _tensors(part, seen)]


TAKE = passes.Passes.take


def with_words(self, encoded, batch=None, *more):
    """Words are found before a batch is taken, as the thread does that prepares batches for a GPU."""
    assert batch is None or batch.source.occurrences is not None
    assert batch is None or batch.source.word is not None
    TAKE(self, encoded, batch, *more)


@pytest.fixture
def rehearsed(monkeypatch):
    """Recordings on a CPU; the number of replays is in the list."""
    counted = []
    run = replay.Recording.run
    monkeypatch.setattr(Rehearsal, "run", lambda self: (counted.append(1), run(self))[1])
    monkeypatch.setattr(replay, "Recording", Rehearsal)
    monkeypatch.setattr(replay, "_recorded", Closing)
    CLOSED.clear()
    monkeypatch.setattr(passes.Passes, "take", with_words)
    monkeypatch.setattr(replay, "_set_sync_mode", lambda mode: None)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(replay.Recordings, "of", staticmethod(lambda tiny, *rest: replay.Recordings(tiny.model, *rest)))
    return counted


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("lenses", LENSES)
def test_what_is_held_is_held_again(lenses, lengths, rehearsed, monkeypatch):
    replayed = looked("bert", lenses, lengths, "cpu")
    assert len(rehearsed) >= 4
    assert len(CLOSED) == len(rehearsed)
    monkeypatch.setattr(replay.Recordings, "of", staticmethod(lambda *_: None))
    alike(replayed, looked("bert", lenses, lengths, "cpu"))


@pytest.mark.parametrize("lenses", LENSES)
def test_a_batch_that_is_not_recorded_comes_between(lenses, rehearsed, monkeypatch):
    """It makes new states; the recorded ones go on from these."""
    monkeypatch.setattr(replay, "MOST", 1)
    replayed = looked("bert", lenses, LENGTHS["another between"], "cpu")
    assert 4 <= len(CLOSED) == len(rehearsed) <= 6  # of eight batches
    monkeypatch.setattr(replay.Recordings, "of", staticmethod(lambda *_: None))
    alike(replayed, looked("bert", lenses, LENGTHS["another between"], "cpu"))


def test_a_commit_that_cannot_be_recorded_goes_as_usual(rehearsed, monkeypatch):
    def refuse(work, recording):
        recording.lenses[0].states.commit()  # half of it
        raise Unreplayable

    monkeypatch.setattr(replay, "_recorded", refuse)
    refused = looked("bert", "weights,geometry", (8,) * 14, "cpu")
    assert len(rehearsed) >= 4
    monkeypatch.setattr(replay.Recordings, "of", staticmethod(lambda *_: None))
    alike(refused, looked("bert", "weights,geometry", (8,) * 14, "cpu"))


def test_a_pass_that_cannot_be_recorded_goes_through_as_usual(rehearsed, monkeypatch):
    def refuse(self, batch):
        raise Unreplayable

    monkeypatch.setattr(Rehearsal, "_record", refuse)
    refused = looked("bert", "weights", (8,) * 14, "cpu")
    assert len(rehearsed) == 1
    monkeypatch.setattr(replay.Recordings, "of", staticmethod(lambda *_: None))
    alike(refused, looked("bert", "weights", (8,) * 14, "cpu"))


def test_what_is_recorded(monkeypatch):
    tiny = subject("bert", dtype=torch.float32)
    weights, rollout, texts_kept = lo.lens.Weights(), lo.lens.Rollout(), lo.lens.Weights()
    for lens in (weights, rollout, distances := lo.lens.Distances()):
        lens.bind(tiny)
    texts_kept.bind(tiny, keep_texts=True)
    assert passes.Passes(tiny, [weights]).recordings is None  # not on a GPU
    devices = ["cuda:0"]
    monkeypatch.setattr(tiny.model, "parameters", lambda: [Placed(device) for device in devices])
    assert replay.Recordings.of(tiny, [weights], set()) is not None
    assert replay.Recordings.of(tiny, [texts_kept], set()) is not None
    for reads_numbers in (rollout, distances):
        assert replay.Recordings.of(tiny, [weights, reads_numbers], set()) is None
    for elsewhere in ("meta", "cuda:1", "cpu"):
        devices[1:] = [elsewhere]
        assert replay.Recordings.of(tiny, [weights], set()) is None
    devices[1:] = []
    monkeypatch.setenv("LORGNETTE_RECORD", "0")
    assert replay.Recordings.of(tiny, [weights], set()) is None


def test_the_numbers_of_each_text_are_those_of_a_plain_pass(rehearsed, monkeypatch):
    """They go to the CPU when the batch is through, which is left out of the recording."""

    def kept():
        tiny = subject("bert", dtype=torch.float32)
        texts_of = examples((8, 7) * 7)
        found = lo.look(tiny, texts_of, ["weights", "geometry"], batch_tokens=24, progress=False, keep="texts")
        return {name: found.texts(name) for name in found}

    replayed = kept()
    assert len(rehearsed) >= 4
    monkeypatch.setattr(replay.Recordings, "of", staticmethod(lambda *_: None))
    for name, frame in kept().items():
        pd.testing.assert_frame_equal(replayed[name], frame, rtol=1e-5)


class Counting(lo.lens.Weights):
    """A lens that keeps something of a batch beside its parts: in a replay it would not be told."""

    name = "counting"

    def __init__(self):
        super().__init__()
        self.seen = []

    def update(self, call, batch):
        super().update(call, batch)
        self.seen.append(call.site)


def test_a_lens_that_keeps_more_than_its_parts_is_not_recorded(rehearsed):
    lens = Counting()
    lo.look(subject("bert", dtype=torch.float32), examples((8,) * 14), [lens], batch_tokens=24, progress=False)
    assert not rehearsed
    assert len(lens.seen) >= 7 * len(lens.sites)


class Placed:
    """As much of a parameter as is asked."""

    def __init__(self, device):
        self.device, self.is_meta = torch.device(device), device == "meta"
