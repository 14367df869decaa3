"""Records the answers of the program, or compares them with those recorded before."""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from net.answers import answers


def main() -> int:
    parser = argparse.ArgumentParser(prog="net", description=__doc__)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a part of the names, such as 'llama norms'")
    told = parser.parse_args()
    told.folder.mkdir(parents=True, exist_ok=True)
    unlike = seen = 0
    for name, answer in answers(told.only):
        file = told.folder / f"{name.replace('/', '-')}.json"
        text = json.dumps(answer, sort_keys=True)
        seen += 1
        if told.what == "record":
            file.write_text(text, encoding="utf-8")
            continue
        before = file.read_text(encoding="utf-8") if file.exists() else '"nothing was recorded"'
        if before != text:
            unlike += 1
            print(f"{name}: {difference(json.loads(before), json.loads(text))}", flush=True)
    print(f"{seen} answers, {unlike} of them differ" if told.what == "compare" else f"{seen} answers recorded")
    return int(unlike > 0)


def difference(before: Any, after: Any, path: str = "") -> str:
    """The first place at which two answers differ; of numbers, by how much."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.keys() != after.keys():
            return f"{path} has {sorted(map(str, before.keys() ^ after.keys()))[:4]} on one side only"
        return next((difference(before[k], after[k], f"{path}.{k}") for k in before if before[k] != after[k]), "")
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        unlike = [n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
        return difference(before[unlike[0]], after[unlike[0]], f"{path}[{unlike[0]}]")
    if isinstance(before, float) and isinstance(after, float) and not math.isnan(before):
        return f"{path}: {before!r} → {after!r} ({abs(after - before):.1e})"
    return f"{path}: {str(before)[:200]!r} → {str(after)[:200]!r}"


sys.exit(main())
