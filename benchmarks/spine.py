"""The spine: what looking costs beyond the forward pass, in time and memory, and how fast the commands start."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import torch

from benchmarks.harness import Figure, peak_memory, side_by_side
from benchmarks.shapes import E5_SMALL, subject, texts
from lorgnette.attending.scores import Scores
from lorgnette.attending.sweep import Wanted, swept
from lorgnette.looking.look import look


def look_over_forward() -> Iterator[Figure]:
    """`look` with the weights lens, everything included, over the plain sdpa forward of the same batches."""
    watched = subject(E5_SMALL)
    for tokens, count, bound in ((128, 32, 1.4), (512, 8, 1.7)):
        corpus = texts(count, tokens)
        batches = [watched.encode(list(corpus))]

        def plain(batches=batches) -> None:  # type: ignore[no-untyped-def]
            with torch.no_grad():
                for batch in batches:
                    watched.run(batch)

        def looking(corpus=corpus) -> None:  # type: ignore[no-untyped-def]
            look(watched, corpus, ["weights"], progress=False, batch_tokens=4096)

        ratio = side_by_side(plain, looking, seconds=60)
        yield Figure(f"look_over_forward_n{tokens}", ratio.value, bound, details=ratio.details(batch=count))


_SETUP = """
import torch
from benchmarks.shapes import E5_SMALL, subject, texts
torch.set_num_threads(1)
watched = subject(E5_SMALL)
corpus = texts(8, 512)
batch = watched.encode(list(corpus))
from lorgnette.looking.look import look
from lorgnette.lens.weights.lens import Weights
with torch.no_grad():
    watched.run(watched.encode([next(iter(corpus))]))
"""
_PLAIN = _SETUP + "\nwith torch.no_grad():\n    watched.run(batch)\n"
_LOOK = _SETUP + "\nlook(watched, corpus, ['weights'], progress=False)\n"
_EAGER = _SETUP + (
    "\nwatched.model.set_attn_implementation('eager')\n"
    "with torch.no_grad():\n    kept = watched.run(batch, output_attentions=True)\n"
)


def look_memory() -> Iterator[Figure]:
    """What looking adds to the memory of the plain pass, n = 512, over what keeping `output_attentions` adds."""
    plain, looking, eager = (statistics.median(peak_memory(code) for _ in range(3)) for code in (_PLAIN, _LOOK, _EAGER))
    details = {name: round(value / 2**20, 1) for name, value in
               (("plain_mib", plain), ("look_mib", looking), ("attentions_mib", eager))}  # fmt: skip
    yield Figure("look_memory_n512", max(0.0, looking - plain) / (eager - plain), 0.10, details=details)


def long_rows() -> Iterator[Figure]:
    """All statistics at n = 4096 against a textbook version with the whole matrix."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 4, 4096, 32) for _ in range(3))
    features = torch.rand(1, 4096, 7)
    among = torch.ones(1, 4096, dtype=torch.bool)
    among[:, 0] = among[:, -1] = False
    weight = torch.ones(1, 4096)
    wanted = Wanted(features, True, True, among, False, (-1, 0, 1), weight, True)

    def textbook() -> None:
        weights = torch.softmax(query @ key.transpose(-1, -2) * 32**-0.5, -1)
        _ = weights @ value
        _ = -(weights * torch.log(weights + 1e-12)).sum(-1)
        _ = weights.amax(-1)
        _ = (weights * among[:, None, None]).amax(-1)
        _ = weights @ features[:, None]
        _ = [weights.diagonal(offset, dim1=-2, dim2=-1) for offset in (-1, 0, 1)]
        _ = weights.sum(-2)

    ratio = side_by_side(lambda: swept(Scores(query, key, 32**-0.5), value, wanted), textbook, seconds=60)
    yield Figure("rows_n4096_times_faster", ratio.value, 3.0, higher=True, details=ratio.details())


def start_up() -> Iterator[Figure]:
    """Seconds until `lorgnette --help` has answered, and for `import lorgnette`."""
    commands = {
        "help_seconds": ([sys.executable, "-m", "lorgnette", "--help"], 0.5),
        "import_seconds": ([sys.executable, "-c", "import lorgnette"], 0.3),
    }
    for name, (command, bound) in commands.items():
        times = []
        for _ in range(9):
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        times = sorted(times[1:])
        yield Figure(name, statistics.median(times), bound, details={"fastest": round(times[0], 3)})


BENCHES = {
    "look_over_forward": look_over_forward,
    "look_memory": look_memory,
    "rows": long_rows,
    "start": start_up,
}
