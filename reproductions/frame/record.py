"""What a reproduction leaves: claims with verdicts, tables, figures and provenance, as a folder written whole."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError
from lorgnette.files import folder_written_whole
from lorgnette.results.provenance import versions
from reproductions.frame.old_page import page
from reproductions.frame.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = ("holds", "does not hold", "cannot tell", "not the same quantity")
FORMATS = ("svg", "png")
_PPI = 110  # to look at; the SVG is for print, and outcomes are kept under version control
_FORMAT = "lorgnette-reproduction"
_SCHEMA = 1
_FILES = ("README.md", "results.json", "figures")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that can be wrong, what we measured, with a 95 % interval, and what was printed."""

    text: str
    ours: float | int | str | None
    interval: tuple[float, float] | None = None
    published: float | int | str | None = None
    verdict: str
    why: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"The verdict of a claim must be one of {', '.join(VERDICTS)}. Got {self.verdict!r}.")


@dataclass(frozen=True)
class Table:
    title: str
    frame: "pd.DataFrame"
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """`name` names its files; `chart` is an Altair chart."""

    name: str
    chart: Any
    caption: str


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """`question` and `setup` say what was done, `summary` what holds and what does not, in paragraphs."""

    name: str
    title: str
    reference: str
    question: str = ""
    setup: Sequence[str] = ()
    summary: Sequence[str]
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    claims: Sequence[Claim] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: str | Path) -> Path:
        """README.md, results.json and figures/, whole or not at all; what else lies in the folder stays there."""
        from lorgnette.figures.drawing import drawn

        # Everything is made before anything is written.
        drawings = {f"{f.name}.{kind}": drawn(f.chart, kind, ppi=_PPI) for f in self.figures for kind in FORMATS}
        document = self.to_json()
        with folder_written_whole(folder, ours=_ours) as partial:
            (partial / "README.md").write_text(page(self), encoding="utf-8")
            (partial / "results.json").write_text(document, encoding="utf-8")
            (partial / "figures").mkdir()
            for name, drawing in drawings.items():
                (partial / "figures" / name).write_bytes(drawing)
        return Path(folder)

    def to_json(self) -> str:
        """Every number, unrounded; nothing in it depends on the hour."""
        document = {
            "format": _FORMAT,
            "schema": _SCHEMA,
            "name": self.name,
            "title": self.title,
            "reference": self.reference,
            "claims": [{**vars(claim), "interval": _listed(claim.interval)} for claim in self.claims],
            "tables": [_table(table) for table in self.tables],
            "figures": [{"name": figure.name, "caption": figure.caption} for figure in self.figures],
            "summary": list(self.summary),
            "provenance": dict(self.provenance),
        }
        return json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def published(name: str) -> Any:
    """The paper's numbers, each entry with its source and how sure that is (the tags of METHODS)."""
    home = files("reproductions")
    old, new = home.joinpath("published", f"{name}.json"), home.joinpath(name, "published.json")
    return json.loads((new if new.is_file() else old).read_text(encoding="utf-8"))


def origin(settings: Settings, name: str, **more: Any) -> dict[str, Any]:
    """The provenance that every reproduction has; `more` is counts, hashes of weights, fingerprints of corpora."""
    return {
        "command": settings.command(name),
        "quick": settings.quick,
        "seeds": list(settings.seeds),
        "versions": dict(versions()),
        **more,
    }


def refuse_other_folder(folder: Path) -> None:
    """UserError if the outcome could not be written there: before the work, not after it."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; a folder is needed.")
    if folder.is_dir():
        _ours(folder)


def _ours(folder: Path) -> set[str]:
    """The entries that a reproduction wrote and may replace; a UserError when they are somebody else's."""
    there = {name for name in _FILES if (folder / name).exists()}
    if not there:
        return set()
    try:
        mine = json.loads((folder / "results.json").read_text(encoding="utf-8")).get("format") == _FORMAT
    except (OSError, ValueError, AttributeError):
        mine = False
    if not mine:
        raise UserError(f"{folder} holds a {min(there)} that no reproduction wrote; give another --out.")
    return there


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else [float(end) for end in interval]


def _table(table: Table) -> dict[str, Any]:
    # pandas knows how to write its own cells; NaN becomes null.
    rows = json.loads(table.frame.to_json(orient="split", index=False, double_precision=15))
    return {"title": table.title, "note": table.note, "columns": rows["columns"], "rows": rows["data"]}
