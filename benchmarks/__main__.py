"""Run the benches and print one JSON line per figure; exit 1 if a bound was missed."""

import sys
from importlib import import_module
from pathlib import Path

from benchmarks.harness import Bench, run


def collect() -> dict[str, Bench]:
    """Every module of this package may define BENCHES: name → function that yields figures."""
    benches: dict[str, Bench] = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if not file.stem.startswith("__") and file.stem != "harness":
            benches |= getattr(import_module(f"benchmarks.{file.stem}"), "BENCHES", {})
    return benches


def main() -> int:
    only = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] else None
    benches = collect()
    if only is not None and not any(name.startswith(only) for name in benches):
        print(f"There is no bench {only!r}. There are: {', '.join(benches)}.", file=sys.stderr)
        return 2
    missed = 0
    for figure in run(benches, only):
        print(figure.line(), flush=True)
        missed += not figure.ok
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
