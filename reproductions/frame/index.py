"""The table of all studies, from what they wrote: reproductions/README.md."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import reproductions
from reproductions.frame.claims import FAILS, HOLDS, NOT_IDENTIFIED, NOT_JUDGED, OPEN, VERDICTS
from reproductions.frame.markdown import NOTHING, grid, styled
from reproductions.frame.study import ROOT

_HEAD = """# Reproductions

Published findings, measured again on available models and data. Each page opens with its answer, then states the
question, our results next to the published ones, and the differences in the set-up; its appendix has every claim and
table. This table is generated.

"""
_FOOT = """

A claim *holds* if the whole 95 % interval of our estimate lies where the claim says, *does not hold* if none of it
does; otherwise we *cannot tell*. A claim is *not identified* if other weights that compute the same function could give
its number any value ([same function, other numbers](../docs/gauge.md)), and *not judged* if we could not measure its
number as the source did. All tests of a study are corrected together (false discovery rate of 5 %, Benjamini and
Hochberg, 1995).

`lorgnette reproduce NAME` runs a study from a checkout, `--quick` runs a small part of it, and `--partial` makes its
page from the committed cells. The docstring of [frame](frame/__init__.py) says how to write a study.
"""


_STATEMENTS = """

## Where each statement is answered

Every statement of the slides, the poster and the practical that we started from, with the claims that bear on it (`*`
stands for the models and corpora). A claim *supports* the statement if the statement would be true where the claim
holds, and *contradicts* it if the statement would then be false. The last column counts the evidence: for (supporting
claims that hold, contradicting ones that do not), against (the other way round), and undecided. A question has neither
side; its claims hold or do not.

"""
SIGNS = {"supports": 1, "contradicts": -1, "answers": 0}
"""How a claim that holds bears on a statement; a question is only answered."""


def index() -> str:
    """A row for each study, in the order of STUDIES."""
    rows = []
    for name in reproductions.STUDIES:
        study = reproductions.find(name)
        written = json.loads((ROOT / name / "results.json").read_text(encoding="utf-8"))
        counts = Counter(claim["verdict"] for claim in written["claims"])
        verdicts = [str(counts.get(verdict, 0) or NOTHING) for verdict in VERDICTS]
        answer = written["answer"].replace("](../", "](")  # a page links to another from its own folder
        rows.append((f"[{written['title']}]({name}/README.md)", study.question, answer, *verdicts))
    return styled(_HEAD + grid(("study", "question", "answer", *VERDICTS), rows) + _STATEMENTS + _statements() + _FOOT)


def _statements() -> str:
    rows = []
    for entry in json.loads((ROOT / "statements.json").read_text(encoding="utf-8")):
        not_run = f"not run: {entry['why']}" if "why" in entry else "not run"
        where = "; ".join(f"[{name}]({name}/APPENDIX.md): {_named(signed)}" for name, signed in entry["claims"].items())
        rows.append((entry["source"], entry["statement"], where or not_run, evidence(entry["claims"]) or NOTHING))
    return grid(("source", "statement", "claims", "evidence"), rows)


def evidence(claims: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """How many claims speak for a statement, against it, and do not decide; of a question, how many hold."""
    counts: Counter[str] = Counter()
    for study, signed in claims.items():
        for sign, patterns in signed.items():
            counts.update(_weighed(verdict, SIGNS[sign] * way) for verdict, way in _verdicts(study, patterns))
    order = ("for", "against", "hold", "do not hold", "undecided", NOT_IDENTIFIED, NOT_JUDGED)
    one = {"hold": "holds", "do not hold": "does not hold"}
    return ", ".join(f"{n} {one.get(name, name) if n == 1 else name}" for name in order if (n := counts[name]))


def _weighed(verdict: str, sign: int) -> str:
    """What a verdict says of a statement that its claim supports (1), contradicts (−1) or answers (0)."""
    if verdict not in (HOLDS, FAILS):
        return "undecided" if verdict == OPEN else verdict
    if not sign:
        return "hold" if verdict == HOLDS else "do not hold"
    return "for" if (verdict == HOLDS) == (sign > 0) else "against"


def _named(signed: Mapping[str, Sequence[str]]) -> str:
    """The patterns of a study's claims, by how they bear on the statement."""
    listed = {sign: ", ".join(f"`{pattern}`" for pattern in patterns) for sign, patterns in signed.items()}
    return ", ".join(f"{sign} {names}" if sign == "contradicts" else names for sign, names in listed.items())


def _verdicts(study: str, patterns: Sequence[str]) -> list[tuple[str, int]]:
    """Of the claims that any pattern names; −1 beside those whose opposite was tested."""
    written = json.loads((ROOT / study / "results.json").read_text(encoding="utf-8"))["claims"]
    named = [claim for claim in written if any(fnmatchcase(claim["id"], pattern) for pattern in patterns)]
    return [(claim["verdict"], -1 if claim.get("opposed") else 1) for claim in named]
