"""Does docs/models.md hold for the newest transformers? `make canary`.

1. Make a fresh environment with the newest releases that the package index has of everything Lorgnette needs.
2. In it, make every row of every section anew (tests/verified.py), without touching the table.
3. Say which rows are new, gone or changed, and fail if one says less than the table: it is refused, lacks a part, a
   stack, relevance or the removal of heads, is no longer compared with eager attention, or other layers have attention.

python scripts/canary.py                    all architectures, and all formats of quantised weights
python scripts/canary.py bert llama         some of them
python scripts/canary.py pictures           a section: models, pictures, senses or quantised
python scripts/canary.py --here bert        in this environment, which already has another transformers
"""

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "src" / "lorgnette" / "models" / "families" / "verified.json"
NEEDED = ("pillow", "pytest", "torchao", "bitsandbytes")
"""What tests/tiny needs beside Lorgnette."""
ROWS = """
import json, sys, warnings
sys.path[:0] = [sys.argv[1] + "/src", sys.argv[1], sys.argv[1] + "/tests"]
import torch, transformers
from tests.verified import rows_of
warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
rows = {}
for kind, row in rows_of(sys.argv[3:]):
    rows[kind] = row.plain()
    print(kind, row.outcome, flush=True)
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump({"transformers": transformers.__version__, "rows": rows}, file)
"""
Row = Mapping[str, Any]


def main(arguments: Sequence[str]) -> int:
    kinds = [argument for argument in arguments if argument != "--here"]
    with tempfile.TemporaryDirectory() as scratch:
        python = sys.executable if "--here" in arguments else environment(Path(scratch) / "venv")
        made = Path(scratch) / "rows.json"
        subprocess.run([python, "-c", ROWS, str(ROOT), str(made), *kinds], check=True, cwd=ROOT)
        found = json.loads(made.read_text(encoding="utf-8"))
    table = json.loads(FILE.read_text(encoding="utf-8"))
    known = known_rows(table, kinds)
    said, worse = changes(known, found["rows"])
    print(f"\ntransformers {found['transformers']}; the table was made with {table['transformers']}.")
    print("\n".join(said) or f"Nothing changed for {len(known)} models.")
    return 1 if worse else 0


def known_rows(table: Mapping[str, Any], named: Sequence[str]) -> dict[str, Row]:
    """The rows of all sections, or of those models, formats and sections that are named."""
    sections = {name: rows for name, rows in table.items() if isinstance(rows, list) and not name.startswith("untried")}
    rows = [(name, row) for name, members in sections.items() for row in members]
    return {row["model_type"]: row for name, row in rows if not named or {name, row["model_type"]} & {*named}}


def environment(folder: Path) -> str:
    """A fresh virtual environment with the newest releases; gives its interpreter."""
    venv.create(folder, with_pip=True)
    python = str(folder / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", f"{ROOT}[language]", "transformers", *NEEDED], check=True)
    return python


def changes(known: Mapping[str, Row], found: Mapping[str, Row]) -> tuple[list[str], list[str]]:
    """What is to be said, and which models are less exact than the table says."""
    said, worse = [], []
    for kind in sorted({*known, *found}):
        before, now = known.get(kind), found.get(kind)
        if before is None or now is None:
            said.append(f"{kind}: {'gone' if now is None else f'new, {told(now)}'}")
        elif told(before) != told(now):
            said.append(f"{kind}: {told(before)} → {told(now)}")
        if before is not None and before["outcome"] == "exact" and (now is None or is_less(before, now)):
            worse.append(kind)
    return said + ([f"Less exact than the table says: {', '.join(worse)}."] if worse else []), worse


def is_less(before: Row, now: Row) -> bool:
    """Refused now, with other layers that have attention, or without a part, stack, comparison or use that it had."""
    if now["outcome"] != "exact" or before.get("hybrid") != now.get("hybrid"):
        return True
    lost = set(now.get("lacks", ())) - set(before.get("lacks", ()))
    lost |= set(before.get("stacks", ())) - set(now.get("stacks", ()))
    return bool(lost) or any(before.get(use) and not now.get(use) for use in USES)


USES = {
    "eager": "compared with eager attention",
    "relevance": "with relevance",
    "prunes": "whose heads can be removed",
}
"""What may hold of a row, in words."""


def told(row: Row) -> str:
    """A row in words, without figures."""
    parts = [f"without {', '.join(row['lacks'])}"] if row.get("lacks") else []
    parts += [f"with the stacks {', '.join(row['stacks'])}"] if row.get("stacks") else []
    parts += [f"attention in {row['hybrid']} layers"] if row.get("hybrid") else []
    parts += [words for use, words in USES.items() if row.get(use)]
    return f"{', '.join([row['outcome'], *parts])}{'' if not row.get('why') else ' (' + row['why'] + ')'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
