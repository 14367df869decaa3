"""The table of all studies, from what they wrote: reproductions/README.md."""

import json
from collections import Counter
from fnmatch import fnmatchcase

import reproductions
from reproductions.frame.claims import VERDICTS
from reproductions.frame.markdown import NOTHING, grid
from reproductions.frame.study import ROOT

_HEAD = """# Reproductions

Published findings, measured again on available models and data. Each page states the question, our results next to the
published ones, and the differences in the set-up; its appendix has every claim and table. This table is generated.

"""
_FOOT = """

A claim *holds* if the whole 95 % interval of our estimate lies where the claim says, *does not hold* if none of it
does; otherwise we *cannot tell*. A claim is *not judged* if we could not measure its number as the source did. All
tests of a study are corrected together (false discovery rate of 5 %, Benjamini and Hochberg, 1995).

`lorgnette reproduce NAME` runs a study from a checkout, `--quick` runs a small part of it, and `--partial` makes its
page from the committed cells. The docstring of [frame](frame/__init__.py) says how to write a study.
"""


_STATEMENTS = """

## Where each statement is answered

Every statement of the slides, the poster and the practical that we started from, with the claims that answer it (`*`
stands for the models and corpora) and their verdicts.

"""


def index() -> str:
    """A row for each study, in the order of STUDIES."""
    rows = []
    for name in reproductions.STUDIES:
        study = reproductions.find(name)
        written = json.loads((ROOT / name / "results.json").read_text(encoding="utf-8"))
        counts = Counter(claim["verdict"] for claim in written["claims"])
        verdicts = [str(counts.get(verdict, 0) or NOTHING) for verdict in VERDICTS]
        answer = getattr(study, "answer", NOTHING)
        rows.append((f"[{written['title']}]({name}/README.md)", study.question, answer, *verdicts))
    return _HEAD + grid(("study", "question", "answer", *VERDICTS), rows) + _STATEMENTS + _statements() + _FOOT


def _statements() -> str:
    rows = []
    for entry in json.loads((ROOT / "statements.json").read_text(encoding="utf-8")):
        answered = entry["claims"].items()
        where = (
            f"[{name}]({name}/APPENDIX.md): {', '.join(f'`{p}`' for p in patterns)}" for name, patterns in answered
        )
        counts = Counter(verdict for name, patterns in answered for verdict in _verdicts(name, patterns))
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
        not_run = f"not run: {entry['why']}" if "why" in entry else "not run"
        rows.append((entry["source"], entry["statement"], "; ".join(where) or not_run, verdicts or NOTHING))
    return grid(("source", "statement", "claims", "verdicts"), rows)


def _verdicts(study: str, patterns: list[str]) -> list[str]:
    """Of the claims that any pattern names."""
    written = json.loads((ROOT / study / "results.json").read_text(encoding="utf-8"))["claims"]
    return [claim["verdict"] for claim in written if any(fnmatchcase(claim["id"], pattern) for pattern in patterns)]
