"""The page of a study: README.md, APPENDIX.md and results.json, a pure function of its finished cells."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from lorgnette.errors import UserError
from lorgnette.files import write_whole, written_whole
from reproductions.frame import markdown
from reproductions.frame.chance import LEVEL, by_interval, corrected
from reproductions.frame.claims import Claim, Estimate, as_printed, counted
from reproductions.frame.finished import Finished
from reproductions.frame.study import ROOT, Study

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("svg", "png")
_PPI = 110  # to look at; the SVG is for print, and outcomes are kept under version control
FORMAT = "lorgnette-reproduction"
_SCHEMA = 3
PAGES = {"README.md": "page.md.j2", "APPENDIX.md": "appendix.md.j2"}


@dataclass(frozen=True)
class Table:
    """`id` is short and stable; a cell that is None or NaN is shown as missing."""

    id: str
    title: str
    frame: "pd.DataFrame"
    note: str = ""

    def record(self) -> dict[str, Any]:
        # pandas knows how to write its own cells; NaN becomes null.
        rows = json.loads(self.frame.to_json(orient="split", index=False, double_precision=15))
        return {"id": self.id, "title": self.title, "note": self.note, "columns": rows["columns"], "rows": rows["data"]}


@dataclass(frozen=True)
class Figure:
    """`name` names its files; `chart` is an Altair chart."""

    name: str
    chart: Any
    caption: str

    def record(self) -> dict[str, str]:
        """With a fingerprint of what is drawn, so that a drawing that is older than its cells is noticed."""
        drawn = json.dumps(_rounded(self.chart.to_dict()), sort_keys=True, ensure_ascii=False)
        return {
            "name": self.name,
            "caption": self.caption,
            "fingerprint": hashlib.sha256(drawn.encode()).hexdigest()[:12],
        }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the finished cells of a study say."""

    study: Study
    cells: Finished
    claims: Sequence[Claim]
    tables: Sequence[Table]
    figures: Sequence[Figure]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(study: Study, cells: Finished) -> "Outcome":
        claims = corrected(map(as_printed, study.module("claims").claims(cells)))
        twice = [claim.id for place, claim in enumerate(claims) if claim.id in {c.id for c in claims[:place]}]
        if twice:
            raise ValueError(f"{study.name}: claims share the id {twice[0]!r}")
        return Outcome(
            study=study,
            cells=cells,
            claims=claims,
            tables=list(study.module("tables").tables(cells)),
            figures=list(study.module("figures").figures(cells)),
            facts=_facts(study, cells, claims),
        )

    def page(self, name: str) -> str:
        """README.md or APPENDIX.md."""
        return markdown.tidy(self._template(name).render(self._context()))

    def answer(self) -> str:
        """The two or three sentences with which the page opens: its block `answer`, on one line."""
        template = self._template("README.md")
        block = template.blocks.get("answer")
        if block is None:
            return ""
        return markdown.styled(" ".join("".join(block(template.new_context(self._context()))).split()))

    def _template(self, name: str) -> Template:
        environment = Environment(
            loader=FileSystemLoader(ROOT),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,
        )
        environment.filters["number"] = markdown.number
        environment.filters["points"] = markdown.points
        environment.filters["told"] = markdown.estimate
        return environment.get_template(f"{self.study.name}/{PAGES[name]}")

    def _context(self) -> dict[str, Any]:
        claims = {claim.id: claim for claim in self.claims}
        figures = {figure.name: figure for figure in self.figures}
        tables = {table.id: table for table in self.tables}
        tests = sum(map(by_interval, self.claims))
        return {
            "study": self.study,
            "reference": published(self.study.name)["reference"],
            "published": published(self.study.name),
            "cells": self.cells,
            "settings": self.cells.settings,
            "missing": self.cells.missing,
            "command": self.cells.settings.command(self.study.name),
            "claims": claims,
            "counts": counted(self.claims),
            "tests": tests,
            "by_chance": LEVEL * tests,
            "overturned": [claim.id for claim in self.claims if claim.overturned],
            "tables": tables,
            "figures": figures,
            "headline": markdown.headline([claims[id] for id in self.study.headline if id in claims]),
            "all_claims": markdown.claims(self.claims),
            "table": lambda id: markdown.table(tables[id]) if id in tables else "",
            "figure": lambda name: markdown.figure(figures[name]) if name in figures else "",
            "estimate_of": estimate_of,
            "row_of": row_of,
            **self.facts,
        }

    def results(self) -> str:
        """Every number, unrounded; nothing in it depends on the hour, nor on the machine that makes the page."""
        document = {
            "format": FORMAT,
            "schema": _SCHEMA,
            "name": self.study.name,
            "title": self.study.title,
            "reference": published(self.study.name)["reference"],
            "answer": self.answer(),
            "claims": [claim.record() for claim in self.claims],
            "tables": [table.record() for table in self.tables],
            "figures": [figure.record() for figure in self.figures],
            "provenance": self.provenance(),
        }
        return json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1) + "\n"

    def provenance(self) -> dict[str, Any]:
        """What the cells say of how they were measured."""
        settings, versions = self.cells.settings, {}
        for cell in self.cells:
            plain = cell.result if isinstance(cell.result, dict) else cell.result.attrs
            told = cell.document.get("versions") or plain.get("versions")
            if told:
                versions[json.dumps(told, sort_keys=True)] = told
        return {
            "command": settings.command(self.study.name),
            "quick": settings.quick,
            "seeds": list(settings.seeds),
            "cells": len(self.cells),
            "missing": list(self.cells.missing),
            "versions": [versions[key] for key in sorted(versions)],
        }

    def write(self, folder: str | Path) -> Path:
        """README.md, APPENDIX.md, results.json and figures/; all is made before anything is written."""
        from lorgnette.figures.drawing import drawn

        folder = Path(folder)
        refuse_other_folder(folder)
        before = _written(folder).get("figures", [])
        # Figures, then what they were drawn from, then pages: killed in between, the next run finds a folder of ours,
        # and no drawing that is older than the numbers that it is taken to show.
        contents: dict[str, bytes] = {}
        for figure in self.figures:
            files = [f"figures/{figure.name}.{kind}" for kind in FORMATS]
            # Letters are drawn otherwise on another machine: what shows the same numbers is not drawn again.
            if figure.record() not in before or not all((folder / name).is_file() for name in files):
                contents |= {name: drawn(figure.chart, name.rsplit(".")[-1], ppi=_PPI) for name in files}
        contents |= {"results.json": self.results().encode()} | {name: self.page(name).encode() for name in PAGES}
        names = {figure.name for figure in self.figures}
        for stale in (path for kind in FORMATS for path in (folder / "figures").glob(f"*.{kind}")):
            if stale.stem not in names:
                stale.unlink()
        for name, content in contents.items():
            with written_whole(folder / name) as partial:
                partial.write_bytes(content)
        if folder.resolve() == self.study.home.resolve():
            from reproductions.frame.index import index

            write_whole(ROOT / "README.md", index())
        return folder


def _facts(study: Study, cells: Finished, claims: Sequence[Claim]) -> dict[str, Any]:
    if not (study.home / "facts.py").is_file():
        return {}
    return dict(study.module("facts").facts(cells, {claim.id: claim for claim in claims}))


def published(name: str) -> Any:
    """The paper's numbers, each entry with its source and how sure that is."""
    return json.loads((ROOT / name / "published.json").read_text(encoding="utf-8"))


def estimate_of(name: str, id: str) -> Estimate:
    """The estimate of a claim of another study, from what that one wrote: a page that refers to it types no number."""
    claims = json.loads((ROOT / name / "results.json").read_text(encoding="utf-8"))["claims"]
    found = next((claim["estimate"] for claim in claims if claim["id"] == id), None)
    if found is None:
        raise ValueError(f"{name} has no claim {id!r}")
    return Estimate(**{"value": None, **found})


def row_of(name: str, table: str, **where: Any) -> dict[str, Any]:
    """The one row of a table of another study that has these values, by column."""
    tables = json.loads((ROOT / name / "results.json").read_text(encoding="utf-8"))["tables"]
    rows = [dict(zip(t["columns"], row, strict=True)) for t in tables if t["id"] == table for row in t["rows"]]
    found = [row for row in rows if all(row.get(column) == value for column, value in where.items())]
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows of the table {table!r} of {name} have {where}, not one")
    return found[0]


def refuse_other_folder(folder: Path) -> None:
    """UserError if the outcome could not be written there: before the work, not after it."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; a folder is needed.")
    if any((folder / name).exists() for name in PAGES) and _written(folder).get("format") != FORMAT:
        raise UserError(f"{folder} holds a README.md that no reproduction wrote; give another --out.")


def _written(folder: Path) -> dict[str, Any]:
    """The results that were written there before; nothing, if there are none."""
    try:
        return dict(json.loads((folder / "results.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _rounded(value: Any) -> Any:
    """Six digits of every number: the last bits differ between machines. No version of Vega either."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items() if key not in ("$schema", "config")}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
