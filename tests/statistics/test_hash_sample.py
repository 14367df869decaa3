"""The one sample against a plain sort of everything: order, batches and merges change nothing."""

import random

import pytest
import torch

from lorgnette.statistics.hash_sample import NAME, Column, HashSample, as_names


class Holder:
    def __init__(self):
        self.rules = {}

    def state(self, name, start, merge, *, in_place=True):
        setattr(self, name, start)
        self.rules[name] = merge

    def merge(self, other):
        for name, rule in self.rules.items():
            pair = [getattr(self, name), getattr(other, name)]
            setattr(self, name, torch.cat(pair) if rule == "cat" else torch.minimum(*pair))


def sample(**options):
    holder = Holder()
    columns = {"id": NAME, "value": Column((2,), torch.float32), "list": Column((), torch.int64, ragged=True)}
    return holder, HashSample(holder, "some", columns, **options)


def items(count, strata=1, seed=0, groups=None):
    """(stratum, number, item, id) of made-up items; with `groups`, several items share a number."""
    rng = random.Random(seed)
    numbers = rng.sample(range(2**50), count)
    out = []
    for place, item in enumerate(numbers):
        number = item if groups is None else 1000 + 7 * (place % groups)
        out.append((rng.randrange(strata), number, item, f"text {place} ü"))
    return out


def offer(one, some):
    stratum, number, item, _ = zip(*some, strict=True)
    one.add(torch.tensor(number), torch.tensor(item), torch.tensor(stratum), **columns(some))


def held(one):
    rows = one.rows()
    return list(zip(rows.index[:, 0].tolist(), rows.numbers.tolist(), rows.names(), strict=True))


def parts(some, size):
    return [some[at : at + size] for at in range(0, len(some), size)]


@pytest.mark.parametrize("strata", [1, 3])
def test_the_smallest_of_each_stratum_whatever_the_order(strata):
    everything = items(200, strata)
    expected = []
    for stratum in range(strata):
        mine = sorted(item for item in everything if item[0] == stratum)[:17]
        expected += [(s, number, name) for s, number, _, name in mine]
    for order in (everything, everything[::-1]):
        (_, one), (first, left), (second, right) = (sample(size=17, strata=strata) for _ in range(3))
        for batch in parts(order, 31):
            offer(one, batch)
        assert held(one) == expected
        for batch in parts(order, 31)[:3]:
            offer(left, batch)
        for batch in parts(order, 31)[3:]:
            offer(right, batch)
        first.merge(second)
        assert held(left) == expected
        offer(left, order[:1])  # what was offered twice is there twice: items come once
        assert len(left.rows(0)) <= 17


def test_columns_go_with_their_items():
    everything = items(60)
    _, one = sample(size=20)
    for batch in parts(everything, 7):
        offer(one, batch)
    rows = one.rows()
    by_number = {number: (item, name) for _, number, item, name in everything}
    assert rows["value"].dtype == torch.float32
    for number, value, listed, name in zip(
        rows.numbers.tolist(), rows["value"], rows.pieces("list"), rows.names(), strict=True
    ):
        item, own = by_number[number]
        assert (name, value.tolist(), listed.tolist()) == (own, [len(own), item % 97], list(range(item % 4)))


def columns(some):
    _, _, item, names = zip(*some, strict=True) if some else ((),) * 4
    value = [[float(len(n)), float(i % 97)] for n, i in zip(names, item, strict=True)]
    return {"id": as_names(names), "value": torch.tensor(value), "list": [torch.arange(i % 4) for i in item]}


def offer_in_part(one, some, made):
    """Columns only of what is kept, by stratum as a lens has it; `made` counts them."""
    for stratum in {item[0] for item in some}:
        mine = [item for item in some if item[0] == stratum]

        def make(kept, mine=mine):
            made.append(len(kept))
            return columns([mine[place] for place in kept.tolist()])

        one.offer(torch.tensor([i[1] for i in mine]), make, torch.tensor([i[2] for i in mine]), stratum)


@pytest.mark.parametrize("options", [{"size": 17}, {"size": 50, "each": 4}, {"size": 12, "each": 1}, {"size": None}])
@pytest.mark.parametrize("batch", [1, 7, 60])
def test_columns_are_made_only_of_what_is_kept(options, batch):
    """Items in part are the items of `add`, also after a merge; and most columns are never made."""
    everything = items(240, strata=2, groups=20 if "each" in options else None)
    (whole, added), (other, offered) = sample(strata=2, **options), sample(strata=2, **options)
    made = []
    for number, some in enumerate(parts(everything, batch)):
        if number == 2:  # what another process had
            for holder in (whole, other):
                more, second = sample(strata=2, **options)
                offer(second, items(40, strata=2, seed=1, groups=20 if "each" in options else None))
                holder.merge(more)
        offer(added, some)
        offer_in_part(offered, some, made)
    mine, plain = offered.rows(), added.rows()
    assert torch.equal(mine.index, plain.index)
    for name in ("id", "value", "list"):
        assert torch.equal(mine[name], plain[name])
    assert sum(made) < 240 or options["size"] is None
    if options["size"] is not None:
        offer_in_part(offered, [(0, 2**52, 2**52, "too late")], late := [])
        assert not late


def test_what_changes_nothing_is_not_kept_again():
    """A group that does not fit sets the bar, and the columns stay as they are."""
    holder, one = sample(size=4, each=2)
    offer(one, [(0, 1, 1, "a"), (0, 1, 2, "b"), (0, 2, 3, "c")])
    before = holder.some_value
    assert one.chosen(torch.tensor([5, 5]), torch.tensor([4, 5])) is None
    assert holder.some_value is before
    assert holder.some_bar.tolist() == [5]
    assert one.chosen(torch.tensor([2]), torch.tensor([1])).kept.tolist() == [0]


def test_the_limit_says_what_still_gets_in():
    everything = items(100)
    _, one = sample(size=10)
    offer(one, everything)
    assert float(one.limits()[0]) == sorted(number for _, number, _, _ in everything)[9]


def test_without_a_size_all_are_kept():
    _, one = sample(size=None)
    offer(one, items(30))
    assert len(one.rows()) == 30
    assert one.limits().tolist() == [float("inf")]


@pytest.mark.parametrize("batch", [5, 40, 400])
def test_groups_are_whole_or_not_there(batch):
    """40 groups of 10 items, of which 4 each are kept and 50 rows fit: the first 12 groups."""
    everything = items(400, groups=40)
    expected = []
    for number in sorted({item[1] for item in everything})[:12]:
        mine = sorted(item[2] for item in everything if item[1] == number)[:4]
        expected += [(number, item) for item in mine]
    results = []
    for order in (everything, everything[::-1]):
        (holder, one), (other, two) = sample(size=50, each=4), sample(size=50, each=4)
        for number, some in enumerate(parts(order, batch)):
            offer(one if number % 2 else two, some)
        holder.merge(other)
        rows = one.rows()
        assert {len(group) for group in rows.groups("value")} == {4}
        results.append(rows.index[:, 1:3].tolist())
    assert results[0] == results[1] == [list(pair) for pair in expected]
