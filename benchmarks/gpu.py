"""What looking costs on a GPU, over the plain sdpa pass of the same calls and batches: `make bench-gpu`.

Single calls are timed by the device's clock, whole looks by the wall clock; medians. First every statistic of the
kernels is compared with the float64 matrix. JSON lines, as the other benches.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu_looks import LOOKS
from benchmarks.harness import Figure
from lorgnette.attending.scores import Scores, dense, softmax
from lorgnette.attending.sweep import Wanted, from_matrix
from lorgnette.gpu import attention as kernels

SHAPES = {  # batch, heads, tokens, dim, bound
    "64x12x512x64": (64, 12, 512, 64, 3.0),
    "1x12x32768x64": (1, 12, 32768, 64, 2.6),
    "1x12x131072x64": (1, 12, 131072, 64, 2.5),
}


def made(batch: int, heads: int, tokens: int, dim: int, dtype: torch.dtype) -> tuple[Scores, Tensor, Wanted]:
    """Random queries, keys and values, and everything that the `weights` lens wants of a call."""
    query, key, value = (torch.randn(batch, heads, tokens, dim, device="cuda", dtype=dtype) for _ in range(3))
    kinds = torch.zeros(batch, tokens, 7, device="cuda", dtype=dtype)
    kinds.scatter_(2, torch.randint(0, 7, (batch, tokens, 1), device="cuda"), 1.0)
    among = torch.rand(batch, tokens, device="cuda") < 0.9
    rows = torch.ones(batch, tokens, device="cuda")
    wanted = Wanted(kinds, entropy=True, peak=True, among=among, offsets=(-1, 0, 1), received=rows, context=True)
    return Scores(query * 1.5, key * 1.5, dim**-0.5), value, wanted


def milliseconds(work: Callable[[], Any], repeats: int) -> float:
    """The median by the device's clock."""
    for _ in range(2):
        work()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def queued(work: Callable[[], Any], calls: int = 10) -> float:
    """Milliseconds of one of many calls in a row: what a call costs where the GPU does not wait for its launch."""
    return milliseconds(lambda: [work() for _ in range(calls)], 5) / calls


def check() -> dict[str, dict[str, float]]:
    """The largest error of each statistic, relative to its largest value, against the float64 matrix."""
    out: dict[str, dict[str, float]] = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for causal in (False, True):
            for dim in (64, 80, 128):
                scores, value, wanted = made(2, 4, 777, dim, dtype)
                scores = Scores(scores.query, scores.key, scores.scale, causal=causal)
                exact = Scores(scores.query.double(), scores.key.double(), scores.scale, causal=causal)
                weights = softmax(dense(exact))
                features = None if wanted.features is None else wanted.features.double()
                reference = from_matrix(weights, Wanted(**{**wanted.__dict__, "features": features, "context": False}))
                fused = kernels.measured(scores, value, wanted)
                names = ("average", "entropy", "peak", "peak_among", "at", "received")
                errors = {name: _error(fused[name], reference[name]) for name in names}
                errors["context"] = _error(fused["context"], weights @ value.double())
                out[f"{dtype} d={dim} causal={causal}".removeprefix("torch.")] = errors
    return out


def _error(mine: Tensor, exact: Tensor) -> float:
    return float((mine.double() - exact).abs().max() / exact.abs().max())


def statistics_over_sdpa() -> Iterator[Figure]:
    """All row statistics and column sums in bfloat16, over sdpa of the same call."""
    for name, (batch, heads, tokens, dim, bound) in SHAPES.items():
        scores, value, wanted = made(batch, heads, tokens, dim, torch.bfloat16)
        repeats = 3 if tokens > 100_000 else 15
        sdpa = partial(F.scaled_dot_product_attention, scores.query, scores.key, value)
        plain = milliseconds(sdpa, repeats)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        ours = partial(kernels.measured, scores, value, wanted)
        fused = milliseconds(ours, repeats)
        added = (torch.cuda.max_memory_allocated() - before) / 2**30
        details = {"sdpa_ms": round(plain, 4), "all_ms": round(fused, 4), "added_gib": round(added, 3)}
        if tokens < 1000:
            details["queued"] = round(queued(ours) / queued(sdpa), 3)
        yield Figure(f"gpu_statistics_{name}", fused / plain, bound, details=details)


def float32_over_sdpa() -> Iterator[Figure]:
    """The same in float32, exact to 1e-5."""
    scores, value, wanted = made(1, 12, 32768, 64, torch.float32)
    plain = milliseconds(lambda: F.scaled_dot_product_attention(scores.query, scores.key, value), 5)
    fused = milliseconds(lambda: kernels.measured(scores, value, wanted), 5)
    details = {"sdpa_ms": round(plain, 2), "all_ms": round(fused, 2)}
    yield Figure("gpu_statistics_float32_1x12x32768x64", fused / plain, 1.2, details=details)


def look_over_forward() -> Iterator[Figure]:
    """`look` on BERT-base's shape (random weights, bfloat16), 1,024 texts of 502 words, everything included."""
    from benchmarks.shapes import texts

    bounds = {"weights": 1.5, "norms": 3.0, "norms:sample=0": 3.0, "geometry": 4.5, "weights,norms,geometry": 4.5}
    yield from _looks(texts(1024, 512), bounds, "gpu_look")


def mixed_over_forward() -> Iterator[Figure]:
    """The same on 4,096 texts of 20 to 510 words, 170 on average, in batches of similar length."""
    from benchmarks.shapes import mixed_texts

    yield from _looks(mixed_texts(4096, 170, 512), {"weights": 1.5, "norms:sample=0": 3.0}, "gpu_mixed")


def _looks(corpus: Any, bounds: dict[str, float], name: str) -> Iterator[Figure]:
    from benchmarks.shapes import BERT_BASE, subject
    from lorgnette.looking.look import look
    from lorgnette.looking.texts import TokenizedTexts, batches

    watched = subject(BERT_BASE)
    watched.model.to("cuda", torch.bfloat16)
    plain_batches = [watched.collate(some) for some in batches(TokenizedTexts(watched, corpus), 64 * 512, "cuda")]

    def plain() -> None:
        with torch.no_grad():
            for batch in plain_batches:
                watched.run(batch)
        torch.cuda.synchronize()

    for lenses, bound in bounds.items():
        times = []
        for _ in range(5):
            first = time.perf_counter()
            plain()
            second = time.perf_counter()
            look(watched, corpus, lenses.split(","), batch_tokens=64 * 512, progress=False)
            times.append((second - first, time.perf_counter() - second))
        times = times[2:]  # the first compile and check
        details = {"seconds": [(round(before, 3), round(after, 3)) for before, after in times]}
        yield Figure(
            f"{name}_{lenses}", statistics.median(after / before for before, after in times), bound, details=details
        )


BENCHES_GPU = {
    "statistics": statistics_over_sdpa,
    "float32": float32_over_sdpa,
    "look": look_over_forward,
    "mixed": mixed_over_forward,
    **LOOKS,
}


def main() -> int:
    if not torch.cuda.is_available():
        print("There is no GPU here: bench-gpu measures nothing.", file=sys.stderr)
        return 2
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    chosen = sys.argv[1:] or ["check", *BENCHES_GPU]
    for name in chosen:
        if name == "check":
            for case, errors in check().items():
                rounded = {of: float(f"{error:.2e}") for of, error in errors.items()}
                print(json.dumps({"check": case, **rounded}), flush=True)
            continue
        for figure in BENCHES_GPU[name]():
            print(figure.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
