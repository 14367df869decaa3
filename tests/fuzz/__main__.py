"""`make fuzz`, or `python -m fuzz --cases 6000 --seed 1 --only corpora`: tables, and status 1 if one case went wrong.

Cases are drawn by Hypothesis from a seed. Whole chunks of them run in forked processes, so that one that dies or never
comes back is counted, and the rest goes on. What went wrong is in out/fuzz/wrong.txt, with the seed of its chunk; what
was said in one line is in said.txt. Then look, train, prune and reproduce are killed at every write and gone on with
(`--only kills`: this alone), and `look` is stopped by signals at random moments and resumed (`--only signals`).
`--only arguments` gives every argument of every function every odd value, once each.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import chdir
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import torch

from fuzz.areas import AREAS, SHARES, place_for_cases, run_cases
from fuzz.calls import every_argument
from fuzz.interrupted import interrupted_at_random
from fuzz.killed import NAMES, killed_everywhere
from fuzz.place import Place
from fuzz.trial import WALL_SECONDS, Outcome, called

CHUNK = 40
KINDS = ("right", "one line", "traceback", "hang", "silent change")
WRONG = KINDS[2:]


class Worker:
    """A forked process that runs one chunk and reports each case."""

    def __init__(self, place: Place, area: str, seed: int, cases: int) -> None:
        self.area, self.seed, self.cases = area, seed, cases
        self.here, there = get_context("fork").Pipe(duplex=False)
        self.process = get_context("fork").Process(target=_reporting, args=(there, place, area, seed, cases))
        self.process.start()
        there.close()
        self.last = time.monotonic()

        self.ended = False

    def heard(self) -> list[Outcome]:
        """Outcomes since the last time; a process that died, or that no library came back to, is one too."""
        out: list[Outcome] = []
        try:
            while self.here.poll():
                out.append(self.here.recv())
                self.last = time.monotonic()
        except EOFError:
            self.process.join()
            self.ended = True
            if self.process.exitcode:
                out.append(Outcome("traceback", f"the process died with {self.process.exitcode}"))
        if not self.ended and time.monotonic() - self.last > 2 * WALL_SECONDS:
            self.process.kill()
            self.process.join()
            self.ended = True
            out.append(Outcome("hang", "a library did not come back"))
        return out


def _reporting(there: Connection, place: Place, area: str, seed: int, cases: int) -> None:
    run_cases(place, area, seed, cases, there.send)
    there.close()
    os._exit(0)


def fuzzed(place: Place, chunks: list[tuple[str, int, int]], jobs: int, out: Path) -> dict[str, Counter[str]]:
    """How many cases of each area ended how; the files below `out` grow with every chunk."""
    counts: dict[str, Counter[str]] = {area: Counter() for area, _, _ in chunks}
    waiting, working, said, started = chunks[::-1], list[Worker](), Counter[str](), time.monotonic()
    with (out / "wrong.txt").open("w", encoding="utf-8", errors="backslashreplace") as wrong:
        while waiting or working:
            while waiting and len(working) < jobs:
                working.append(Worker(place, *waiting.pop()))
            wait([worker.here for worker in working], timeout=5)
            for worker in list(working):
                for outcome in worker.heard():
                    counts[worker.area][outcome.kind] += 1
                    if outcome.kind == "one line":
                        said[f"{worker.area}: {' '.join(outcome.details.split())[:300]}"] += 1
                    if outcome.kind in WRONG:
                        head = f"\n=== {outcome.kind}, {worker.area}, seed {worker.seed}"
                        print(head, outcome.what, outcome.details, sep="\n", file=wrong, flush=True)
                if worker.ended:
                    working.remove(worker)
                    (out / "table.md").write_text(table(counts, time.monotonic() - started) + "\n")
    lines = (f"{count}\t{line}\n" for line, count in sorted(said.items()))
    (out / "said.txt").write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
    return counts


def arguments(place: Place, out: Path, cases: int) -> dict[str, Counter[str]]:
    """Every argument with every odd value, function by function, or so many of them."""
    counts: dict[str, Counter[str]] = {}
    every = list(every_argument(place))
    some = [every[number * len(every) // cases] for number in range(cases)] if cases < len(every) else every
    with (out / "wrong.txt").open("w", encoding="utf-8", errors="backslashreplace") as wrong, chdir(place.root):
        for case in some:
            outcome = called(case)
            counts.setdefault(case.what.partition("(")[0], Counter())[outcome.kind] += 1
            if outcome.kind in WRONG:
                print(f"\n=== {outcome.kind}", outcome.what, outcome.details, sep="\n", file=wrong, flush=True)
    return counts


def table(counts: dict[str, Counter[str]], seconds: float) -> str:
    rows = [("area", "cases", *KINDS), ("---",) * (2 + len(KINDS))]
    for area, count in [*counts.items(), ("**all**", sum(counts.values(), Counter()))]:
        rows.append((area, f"{count.total():,}", *(f"{count[kind]:,}" for kind in KINDS)))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", f"{seconds:.0f} s"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description="Hostile input for the command line, from a seed.")
    parser.add_argument("--cases", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[*AREAS, "arguments", "kills", "signals"])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    torch.set_num_threads(1)  # a forked process has none of its parent's threads
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root, place_for_cases(Path(root)) as place:
        shares = {given.only: 1.0} if given.only in AREAS else {} if given.only else SHARES
        chunks = [
            (area, given.seed * 10_000 + number, min(CHUNK, cases - number * CHUNK))
            for area, share in shares.items()
            for cases in [round(given.cases * share)]
            for number in range(-(-cases // CHUNK))
        ]
        chunks.sort(key=lambda chunk: chunk[1])  # areas in turn: a run that is stopped has seen all of them
        counts = fuzzed(place, chunks, given.jobs, given.out)
        if given.only == "arguments":
            counts = arguments(place, given.out, given.cases)
        text = table(counts, time.monotonic() - started) if counts else ""
        print(text, file=sys.stderr, flush=True)  # the kills take longer than the cases
        killed, wrong = kills(place) if given.only in (None, "kills") else ("", [])
        stopped, more = signals(place, given.seed) if given.only in (None, "signals") else ("", [])
        wrong += more
    text = "\n\n".join(filter(None, (text, killed, stopped)))
    (given.out / "table.md").write_text(text + "\n")
    print(text, *wrong, sep="\n")
    return int(bool(wrong) or any(count[kind] for count in counts.values() for kind in WRONG))


def kills(place: Place) -> tuple[str, list[str]]:
    rows, wrong = ["| kill −9 at every write of | points | same numbers, no debris |", "| --- | --- | --- |"], []
    for name in NAMES:
        tried, bad = killed_everywhere(name, place.root / "kills" / name, place)
        rows.append(f"| {name} | {tried} | {tried - len(bad)} |")
        print(rows[-1], file=sys.stderr, flush=True)
        wrong += [f"{name}: {said}" for said in bad]
    return "\n".join(rows), wrong


def signals(place: Place, seed: int) -> tuple[str, list[str]]:
    stopped, saved, wrong = interrupted_at_random(place, place.root / "signals", seed=seed)
    rows = [
        "| SIGINT, SIGTERM at random | stopped | of these, saved | same numbers after --resume |",
        "| --- " * 4 + "|",
    ]
    return "\n".join([*rows, f"| look | {stopped} | {saved} | {stopped - len(wrong)} |"]), wrong


if __name__ == "__main__":
    sys.exit(main())
