"""The pairs that a GPU draws for a batch: those that a CPU draws, again in the same memory for the next batch."""

import numpy as np
import pytest
import torch
from tiny import examples, subject
from torch import Tensor

import lorgnette as lo
from lorgnette import kernels as door

pytest.importorskip("triton", reason="Triton is not installed: the kernels are for GPUs (pip install triton, Linux)")
from lorgnette.errors import Unreplayable
from lorgnette.gpu import pairs as pair_kernels
from lorgnette.lens.norms.pair_sample import padded_only
from lorgnette.statistics.hashing import bar, text_key
from lorgnette.statistics.hashing import drawn as drawn_plainly

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def no_pinned_memory(monkeypatch):
    if DEVICE == "cpu":
        monkeypatch.setattr(Tensor, "pin_memory", lambda self: self)
        monkeypatch.setattr(door, "is_gpu", lambda device: True)


def lens_and_batches(sample, *lengths, model="bert"):
    tiny = subject(model, dtype=torch.float32)
    tiny.model.to(DEVICE)
    lens = lo.lens.Norms(sample=sample)
    lens.bind(tiny)
    return lens, tiny, [tiny.encode(examples(some)) for some in lengths]


def numbered(text, head, query, key, kind, number):
    """The pairs that may belong to the sample, by their numbers."""
    rows = zip(*(each.tolist() for each in (number, text, head, query, key, kind)), strict=True)
    return sorted(row for row in rows if row[0] < torch.inf)


def of_site(drawn, lens, site):
    at = drawn.sites.index(site)
    mine = slice(drawn.ends[at - 1] if at else 0, drawn.ends[at])
    return numbered(*(getattr(drawn, name)[mine] for name in ("text", "head", "query", "key", "kind", "number")))


@pytest.mark.parametrize(
    ("sample", "model"), [(40, "bert"), (5, "llama"), (40, "mistral"), *((100_000, name) for name in ("bert", "llama"))]
)
def test_they_are_those_of_a_cpu(sample, model):
    lens, tiny, (batch,) = lens_and_batches(sample, (9, 5, 7), model=model)
    lens.pairs_sample.prepare(batch)
    drawn = pair_kernels.DrawnPairs(lens.pairs_sample, batch, batch.source)
    seen = []

    class Draw(lo.Tap):
        def see(self, call):
            if not padded_only(call.scores, causal=lens.pairs_sample.causal):
                assert model == "mistral"  # a window that hides something: a CPU draws these
                return
            pairs = lens.pairs_sample.draw(call, batch, call.site)
            made = drawn.pairs(call.site, call.scores)
            names = ("text", "head", "query", "key", "kind", "number")
            host, mine = (numbered(*(getattr(each, name) for name in names)) for each in (pairs, made))
            seen.append(call.site)
            assert mine
            assert set(mine) <= set(host) or model == "llama"  # a CPU raises its limit until there are enough
            for kind in range(len(lens.pairs_sample.kinds)):  # and these are those of the sample
                wanted = [row for row in host if row[-1] == kind][:sample]
                assert [row for row in mine if row[-1] == kind][: len(wanted)] == wanted
            assert sample != 100_000 or mine == host

    with tiny.tapped(Draw()), torch.no_grad():
        tiny.run(batch)
    assert seen == list(lens.sites) or model == "mistral"


class Seen:
    """Limits of a sample as they were last seen."""

    def __init__(self, limits):
        self.limits = limits

    def read(self, sample):
        return self.limits


def plain_pairs(lens, batch, site, limits):
    """The pairs of a site below the bar, group by group, each found from its number in its group alone."""
    sample, tokens = lens.pairs_sample, batch.source.on_host
    heads = len(lens.numbers[site])
    asked = [row.nonzero()[:, 0].tolist() for row in tokens.mask]
    read = [[(tokens.categories[k] & tokens.mask)[t].nonzero()[:, 0].tolist() for k in sample.kinds] for t in range(3)]
    sizes = np.array([[heads * len(asked[t]) * len(keys) for keys in read[t]] for t in range(3)])
    below = np.minimum(limits, bar(sizes.sum(0), sample.size))
    out = []
    for text, kind in np.ndindex(sizes.shape):
        key = text_key(batch.examples[text].id, site, sample.kinds[kind])
        found = drawn_plainly(np.array([key], dtype=np.uint64), sizes[text, kind][None], below[kind][None])
        for index, number in zip(*found[1:], strict=True):
            rest, nth_key = divmod(int(index), len(read[text][kind]))
            head, nth_query = divmod(rest, len(asked[text]))
            out.append((number, text, head, asked[text][nth_query], read[text][kind][nth_key], kind))
    return out


@pytest.mark.parametrize("sample", [5, 40, 100_000])
@pytest.mark.parametrize("limited", [False, True])
def test_each_is_found_from_its_number_in_its_group(sample, limited):
    lens, _, (batch,) = lens_and_batches(sample, (9, 5, 7))
    limits = np.full((len(lens.sites), len(lens.pairs_sample.kinds)), np.inf)
    if limited:
        limits[:, 1:] = np.geomspace(1e11, 1e14, limits[:, 1:].size).reshape(limits[:, 1:].shape)
        lens.pairs_sample.limits_seen = Seen(limits)
    lens.pairs_sample.prepare(batch)
    drawn = pair_kernels.DrawnPairs(lens.pairs_sample, batch, batch.source)
    names = ("number", "text", "head", "query", "key", "kind")
    for at, site in enumerate(lens.sites):
        mine = slice(drawn.ends[at - 1] if at else 0, drawn.ends[at])
        rows = list(zip(*(getattr(drawn, name)[mine].tolist() for name in names), strict=True))
        plain = plain_pairs(lens, batch, site, limits[at])
        assert plain
        assert [row for row in rows if row[0] < torch.inf] == plain
    shape = (3, len(lens.numbers[site]), *[batch.source.mask.shape[1]] * 2, len(lens.pairs_sample.kinds))
    for name, size in zip(names[1:], shape, strict=True):  # what does not count is somewhere too
        assert 0 <= int(getattr(drawn, name).min()) <= int(getattr(drawn, name).max()) < size


def test_the_next_batch_is_drawn_into_the_same_memory():
    lens, _, (first, second) = lens_and_batches(50, (9, 5, 7), (8, 9, 6))
    sample = lens.pairs_sample
    sample.prepare(second)
    fresh = pair_kernels.DrawnPairs(sample, second, second.source)
    sample.prepare(first)
    again = pair_kernels.DrawnPairs(sample, first, first.source)
    memory = again.number.data_ptr()
    for old, new in ((first.source, second.source),):
        for name in ("ids", "mask", "special"):
            getattr(old, name).copy_(getattr(new, name))
        for name, where in old.categories.items():
            where.copy_(new.categories[name])
        if DEVICE == "cuda":
            old.host = new.on_host
    first.examples = second.examples
    sample.batch_pairs = first.shared[sample] = again
    sample.prepare(first)
    assert again.number.data_ptr() == memory
    for site in lens.sites:
        assert of_site(again, lens, site) == of_site(fresh, lens, site)
    again.room = [1] * len(again.sites)
    with pytest.raises(Unreplayable):
        sample.prepare(first)
