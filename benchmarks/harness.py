"""How a figure is measured and printed."""

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Figure:
    """One measured figure beside its bound; `higher` says on which side of the bound is good."""

    bench: str
    value: float
    bound: float
    higher: bool = False
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.value >= self.bound if self.higher else self.value <= self.bound

    def line(self) -> str:
        """The figure as one line of JSON."""
        better = "higher" if self.higher else "lower"
        head = {
            "bench": self.bench,
            "value": round(self.value, 4),
            "bound": self.bound,
            "ok": self.ok,
            "better": better,
        }
        return json.dumps({**head, "processor": processor(), "threads": torch.get_num_threads(), **self.details})


@cache
def processor() -> str:
    """The processor's name, as the system has it, and the second-level cache of a core where that is known."""
    try:
        told = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
        name = next(value.strip() for key, _, value in told if key.strip() == "model name")
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    try:
        return f"{name}, L2 {Path('/sys/devices/system/cpu/cpu0/cache/index2/size').read_text().strip()}"
    except OSError:
        return name


Bench = Callable[[], Iterable[Figure]]


@dataclass(frozen=True)
class Ratio:
    """Candidate over baseline: the median over interleaved repeats, and the middle half of them."""

    value: float
    low: float
    high: float
    baseline: float
    candidate: float
    repeats: int

    def details(self, **more: Any) -> dict[str, Any]:
        spread = [round(self.low, 4), round(self.high, 4)]
        seconds = {"baseline_s": round(self.baseline, 5), "candidate_s": round(self.candidate, 5)}
        return {"middle_half": spread, "repeats": self.repeats, **seconds, **more}


def side_by_side(
    baseline: Callable[[], Any], candidate: Callable[[], Any], *, seconds: float = 20.0, least: int = 7, most: int = 60
) -> Ratio:
    """Time both in turn, in changing order, until the median of their ratio is stable or the time is up."""
    baseline(), candidate()  # warm up
    ratios: list[float] = []
    times: tuple[list[float], list[float]] = ([], [])
    start = time.perf_counter()
    while len(ratios) < most:
        pair = [_timed(baseline), _timed(candidate)] if len(ratios) % 2 else [_timed(candidate), _timed(baseline)][::-1]
        times[0].append(pair[0]), times[1].append(pair[1])
        ratios.append(pair[1] / pair[0])
        if len(ratios) >= least and (time.perf_counter() - start > seconds or _stable(ratios)):
            break
    low, _, high = statistics.quantiles(ratios, n=4)
    medians = [statistics.median(t) for t in times]
    return Ratio(statistics.median(ratios), low, high, *medians, len(ratios))


def _stable(ratios: list[float]) -> bool:
    """The median hardly moves and the middle half is narrow."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return len(ratios) >= 15 and (high - low) / middle < 0.04


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_memory(code: str) -> int:
    """Peak resident bytes of a fresh process that runs this code: allocators keep what they once had."""
    # Not getrusage: its peak is never below what the parent had when it forked.
    tail = "\nprint(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) * 1024


def run(benches: dict[str, Bench], only: str | None = None) -> Iterator[Figure]:
    """Run all benches, or those whose name starts with `only`."""
    for name, bench in benches.items():
        if only is None or name.startswith(only):
            yield from bench()
