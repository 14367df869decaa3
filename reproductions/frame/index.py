"""The table of all studies, from what they wrote: reproductions/README.md."""

import json
from collections import Counter

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
    return _HEAD + grid(("study", "question", "answer", *VERDICTS), rows) + _FOOT
