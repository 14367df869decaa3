"""The benches can be run: what they import is there. What they measure is no test."""

import pytest

pytest.importorskip("triton", reason="Triton is not installed: the benches on a GPU import it")
from benchmarks.__main__ import collect


def test_every_bench_is_found():
    names = set(collect())
    assert {
        "look_over_forward",
        "geometry_over_forward",
        "norms_over_forward",
        "relevance",
        "rows",
        "trees",
        "fixed_cost",
    } <= names


def test_benches_of_a_cpu_start_nothing_that_needs_a_gpu():
    from benchmarks.gpu_looks import LOOKS

    assert "decoder_8b" in LOOKS
    assert not set(LOOKS) & set(collect())


def test_one_batch_goes_through_the_bench_of_geometry():
    """It runs a pass without a look around it."""
    from benchmarks.shapes import E5_SMALL, subject, texts
    from lorgnette.lens.geometry.lens import Geometry
    from lorgnette.looking.passes import Passes

    watched = subject({**E5_SMALL, "hidden_size": 24, "intermediate_size": 24}, layers=1)
    lens = Geometry(words=False)
    lens.bind(watched)
    Passes(watched, [lens]).take([watched.tokenize(example) for example in texts(2, 8)])
    assert lens.compute().data["vectors_count"].sum() > 0
