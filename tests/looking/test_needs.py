"""A lens may need a result of the whole corpus before it looks, and what it needs may need one too."""

import math

import pytest
import xarray as xr
from tiny.subjects import examples, subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.looking import corpus_pass as looking
from lorgnette.looking.choosing import with_needed

TEXTS = examples((9, 4, 1, 6, 12, 3))


class Lengths(Lens):
    """The mean over texts of what `of` makes of their length."""

    reads = frozenset({"tokens"})
    wanted = ()

    def __init__(self):
        super().__init__()
        self.given = {}

    def needs(self):
        return tuple(make() for make in self.wanted)

    def take(self, results):
        self.given = {name: float(result.data["mean"]) for name, result in results.items()}

    def allocate(self, subject):
        self.sums("total", 2)

    def finish(self, batch, outputs):
        for length in batch.source.mask.sum(1).tolist():
            self.total[0] += self.of(length)
            self.total[1] += 1

    def compute(self):
        return self.result({"mean": xr.DataArray(float(self.total[0] / self.total[1]))})


class Mean(Lengths):
    name, summary = "mean-length", "the mean length of texts"

    def of(self, length):
        return length


class Variance(Lengths):
    name, summary, wanted = "variance", "their variance", (Mean,)

    def of(self, length):
        return (length - self.given["mean-length"]) ** 2


class Kurtosis(Lengths):
    name, summary, wanted = "kurtosis", "their fourth moment in units of the variance", (Mean, Variance)

    def of(self, length):
        return (length - self.given["mean-length"]) ** 4 / self.given["variance"] ** 2


class Deviation(Lens):
    """Made from a result alone."""

    name, summary = "deviation", "the root of the variance"

    def needs(self):
        return (Variance(),)

    def take(self, results):
        self.variance = float(results["variance"].data["mean"])

    def compute(self):
        return self.result({"mean": xr.DataArray(math.sqrt(self.variance))})


class Scaled(Lengths):
    """Needs a result that is made from a result that needs a look of its own."""

    name, summary, wanted = "scaled", "the mean length in units of the deviation", (Deviation,)

    def of(self, length):
        return length / self.given["deviation"]


def moments(model):
    lengths = [model.encode([text]).source.mask.sum().item() for text in TEXTS]
    mean = sum(lengths) / len(lengths)
    variance = sum((length - mean) ** 2 for length in lengths) / len(lengths)
    return mean, variance, sum((length - mean) ** 4 for length in lengths) / len(lengths) / variance**2


@pytest.fixture
def model():
    return subject("bert")


def test_a_need_that_needs_a_look(model):
    mean, variance, kurtosis = moments(model)
    found = lo.look(model, TEXTS, [Kurtosis(), Scaled(), Deviation()], progress=False)
    assert set(found) == {"kurtosis", "scaled", "deviation", "variance"}
    assert found["kurtosis"].data["mean"].item() == pytest.approx(kurtosis)
    assert found["deviation"].data["mean"].item() == pytest.approx(math.sqrt(variance))
    assert found["scaled"].data["mean"].item() == pytest.approx(mean / math.sqrt(variance))


def test_each_look_before_is_resumed(model, tmp_path, monkeypatch):
    """Interrupted in the last of three looks, a run repeats neither of those before it."""
    once, through, interrupt, looks = lo.look(model, TEXTS, Kurtosis(), progress=False), looking._through, [True], []

    def counted(texts, left, passes, *args, **options):
        name, left = passes.driver.lenses[-1].name, list(left)
        if name == "kurtosis" and interrupt.pop():
            raise KeyboardInterrupt
        looks.append((name, sum(text is not None for text in left)))
        through(texts, iter(left), passes, *args, **options)

    monkeypatch.setattr(looking, "_through", counted)
    options = {"out": tmp_path / "out", "progress": False}
    with pytest.raises(KeyboardInterrupt):
        lo.look(model, TEXTS, Kurtosis(), **options)
    interrupt.append(False)
    found = lo.look(model, TEXTS, Kurtosis(), resume=True, **options)
    first, then = looks[: len(looks) // 2], looks[len(looks) // 2 :]
    assert first == [("mean-length", 6), ("variance", 6)]
    assert then == [("mean-length", 0), ("variance", 0), ("kurtosis", 6)]
    assert found["kurtosis"].data["mean"].item() == once["kurtosis"].data["mean"].item()


def test_shards_have_as_many_rounds_as_are_needed(model):
    """The folder of any round but the last says which one comes next."""
    seen, first = [], None
    for left in (2, 1, 0):
        shards = [lo.look(model, TEXTS, Kurtosis(), shard=(n, 2), first=first, progress=False) for n in (1, 2)]
        seen.append([each.name for each in shards[0].look.needed])
        first = lo.merge(shards, subject=model, lenses=Kurtosis(), first=first)
        assert shards[0].look.rounds_left == left
    assert seen == [["mean-length"], ["mean-length", "variance"], []]
    assert first["kurtosis"].data["mean"].item() == pytest.approx(moments(model)[2])


def test_a_circle_is_refused(model):
    class One(Mean):
        name = "one"

    class Two(Mean):
        name, wanted = "two", (One,)

    One.wanted = (Two,)
    with pytest.raises(UserError, match=r"^The lens 'one' needs itself: one needs two needs one\.$"):
        lo.look(model, TEXTS, One(), progress=False)

    class Itself(Deviation):
        name = "itself"

        def needs(self):
            return (Itself(),)

    with pytest.raises(UserError, match=r"^The lens 'itself' needs itself: itself needs itself\.$"):
        with_needed([Itself()])
