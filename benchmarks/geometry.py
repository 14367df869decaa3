"""Benches of the geometry lens: the mean over all pairs, and what looking adds to a forward pass."""

from collections.abc import Iterator

import torch

from benchmarks.harness import Figure, side_by_side
from benchmarks.shapes import E5_SMALL, subject, texts
from lorgnette.lens.geometry.cosine import sim
from lorgnette.lens.geometry.lens import Geometry
from lorgnette.looking.passes import Passes


def pairs() -> Iterator[Figure]:
    """SIM of 20,000 vectors of width 768 (two hundred million pairs) against torch on 100,000 sampled pairs."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(20_000, 768, generator=generator) + 0.5
    sampled = torch.randint(0, 20_000, (5_000, 2), generator=generator).tolist()

    def by_pairs() -> None:
        for one, other in sampled:
            torch.nn.functional.cosine_similarity(vectors[one], vectors[other], dim=0)

    ratio = side_by_side(lambda: sim(vectors), by_pairs, seconds=20)
    units = torch.nn.functional.normalize(vectors.double(), dim=-1)
    exact = float((units.sum(0).square().sum() - len(units)) / (len(units) * (len(units) - 1)))
    # 5,000 pairs are timed for 100,000: each is one call.
    details = ratio.details(error=abs(sim(vectors) - exact), pairs_timed=len(sampled))
    faster = ratio.value * 100_000 / len(sampled)
    yield Figure("sim_times_faster_than_pairs", faster, 100.0, higher=True, details=details)
    yield Figure("sim_error", abs(sim(vectors) - exact), 1e-6)


def over_forward() -> Iterator[Figure]:
    """What SIM of states, queries, keys and values adds to the plain sdpa forward, without and with covariances.

    As `look` runs it, all layers; reading the numbers off at the end is not part of a pass and not timed.
    """
    watched = subject(E5_SMALL)
    corpus = list(texts(32, 128))
    encoded = [watched.tokenize(example) for example in corpus]
    batch = watched.collate(encoded)

    def plain() -> None:
        with torch.no_grad():
            watched.run(batch)

    for name, covariances, bound in (("sim", False, 1.15), ("covariances", True, 1.35)):
        lens = Geometry(covariances=covariances, words=False)
        lens.bind(watched)

        passes = Passes(watched, [lens])

        def looking(passes: Passes = passes) -> None:
            with torch.no_grad():
                passes.take(encoded)

        ratio = side_by_side(plain, looking, seconds=60)
        yield Figure(f"geometry_{name}_over_forward", ratio.value, bound, details=ratio.details(batch=32, tokens=128))


BENCHES = {"geometry_pairs": pairs, "geometry_over_forward": over_forward}
