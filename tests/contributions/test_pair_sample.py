"""What a sample of pairs keeps: of each site and kind the smallest numbers; of equal ones, those that came first."""

import pytest
import torch

from lorgnette.attending import Site
from lorgnette.contributions.pairs import TokenPairs
from lorgnette.lens.base import Lens
from lorgnette.lens.norms.pair_sample import PairSample

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SITES = [Site("encoder", "self", layer) for layer in range(3)]
KINDS = ("cls", "other")
SIZE = 7


class Holder(Lens):
    """As much of a lens as a sample needs."""

    name = "holder"

    def compute(self):
        raise NotImplementedError("the test reads the states")


def sample_on(device):
    lens = Holder()
    lens.sites, lens.position = tuple(SITES), {site: at for at, site in enumerate(SITES)}
    lens.states.device = torch.device(device)
    return lens, PairSample(lens, KINDS, SIZE)


def some_pairs(seed, count, device):
    make = torch.Generator().manual_seed(seed)
    number = torch.randint(1, 30, (count,), generator=make).double()  # many are equal
    number[torch.rand(count, generator=make) < 0.2] = torch.inf
    kind = (torch.rand(count, generator=make) < 0.8).long()
    weight, norm = torch.rand(2, count, generator=make, dtype=torch.float64).to(device)
    first, each = torch.zeros_like(kind).to(device), torch.arange(count, device=device)
    return TokenPairs(first, first, first, each, kind.to(device), number.to(device), weight), norm[None, None]


@pytest.mark.parametrize("device", DEVICES)
def test_the_smallest_are_kept(device):
    lens, sample = sample_on(device)
    came = {(site, kind): [] for site in SITES for kind in range(len(KINDS))}
    for batch in range(4):
        for site in SITES[batch % 2 :]:
            pairs, norms = some_pairs(10 * batch + site.layer, 5 + 3 * batch, device)
            sample.add(site, pairs, norms)
            columns = (pairs.kind, pairs.number, pairs.weight, norms[0, 0])
            for kind, *row in zip(*(column.tolist() for column in columns), strict=True):
                came[site, kind] += [row] if row[0] < torch.inf else []
        sample.commit()
        for (site, kind), rows in came.items():
            first = sorted(rows, key=lambda row: row[0])[:SIZE]
            first += [[torch.inf, 0.0, 0.0]] * (SIZE - len(first))
            assert lens.pairs[:, lens.position[site], kind].T.tolist() == first


def test_samples_of_sites_together():
    lens, sample = sample_on("cpu")
    for site in SITES:
        sample.add(site, *some_pairs(site.layer, 20, "cpu"))
    sample.commit()
    found = sample.samples([[0, 2], [1]], most=SIZE)
    assert torch.equal(found[:, :3], lens.pairs)
    assert torch.equal(found[:, 4], lens.pairs[:, 1])
    both = [row for site in (0, 2) for row in lens.pairs[:, site, 1].T.tolist()]
    assert found[:, 3, 1].T.tolist() == sorted(both, key=lambda row: row[0])[:SIZE]
    assert torch.equal(sample.samples([[0, 2], [1]], most=2), found[..., :2])
    assert sample.samples([[0], [1, 2]], most=0).shape == (3, 5, 2, 1)
