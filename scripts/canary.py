"""Does docs/models.md hold for the newest transformers? `make canary`.

1. Make a fresh environment with the newest releases that the package index has of everything Lorgnette needs.
2. In it, run `check` on a tiny random model of every architecture (tests/verified.py), without touching the table.
3. Say which models are new, gone or changed, and fail if one is less exact than the table says.

python scripts/canary.py                    all architectures
python scripts/canary.py bert llama         some of them
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
NEEDED = ("pillow", "pytest")
"""What tests/tiny needs beside Lorgnette."""
ROWS = """
import json, sys, warnings
sys.path[:0] = [sys.argv[1] + "/src", sys.argv[1], sys.argv[1] + "/tests"]
import torch, transformers
from tests.verified import pictured, picture_types, text_types, verified
warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
rows = {}
for kind in sys.argv[3:] or (*text_types(), *picture_types()):
    rows[kind] = (pictured if kind in picture_types() else verified)(kind).plain()
    print(kind, rows[kind]["outcome"], flush=True)
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
    known = {row["model_type"]: row for row in (*table["models"], *table["pictures"])}
    if kinds:
        known = {kind: row for kind, row in known.items() if kind in kinds}
    said, worse = changes(known, found["rows"])
    print(f"\ntransformers {found['transformers']}; the table was made with {table['transformers']}.")
    print("\n".join(said) or f"Nothing changed for {len(known)} models.")
    return 1 if worse else 0


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
    """Refused now, or with more parts unknown, or no longer compared with eager attention."""
    lost = set(now.get("lacks", ())) - set(before.get("lacks", ()))
    return now["outcome"] != "exact" or bool(lost) or bool(before.get("eager")) > bool(now.get("eager"))


def told(row: Row) -> str:
    """A row in words."""
    lacks = f" without {', '.join(row['lacks'])}" if row.get("lacks") else ""
    return f"{row['outcome']}{lacks}{'' if not row.get('why') else ' (' + row['why'] + ')'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
