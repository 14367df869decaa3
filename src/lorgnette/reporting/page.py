"""`Report`: one HTML file that opens from disk, today and in ten years; and the same figures as files for a paper."""

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from lorgnette import lens as lenses
from lorgnette.constraints import check, checked
from lorgnette.display import NotebookDisplay
from lorgnette.errors import UserError, near, shown
from lorgnette.figures.cells import number, weight
from lorgnette.figures.drawing import drawings, inline_svg, known_formats
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import Measure
from lorgnette.figures.width import known_width
from lorgnette.files import write_whole, written_whole
from lorgnette.reporting.atlas import Card, atlas, measures
from lorgnette.reporting.contents import (
    figures_of,
    findings_of,
    head_numbers,
    in_chapters,
    opening,
    what_it_is,
    whole_model,
)
from lorgnette.reporting.examples import saved_examples
from lorgnette.reporting.views.page import bundle, hashed, inline_json, source
from lorgnette.results import Result, Results
from lorgnette.results.provenance import Provenance
from lorgnette.types import Chart, Json

if TYPE_CHECKING:
    import pandas as pd

Source = Results | Result | Mapping[str, object] | str | os.PathLike[str]


@dataclass(frozen=True)
class ShownFigure:
    """A figure as the template needs it."""

    id: str
    figure: Figure
    svg: str
    columns: list[str]
    rows: list[list[str]]
    csv: str


@dataclass(frozen=True)
class Section:
    """The part of the page for one lens; `rest` and `more` are the findings and figures that are folded away."""

    id: str
    title: str
    lens: str
    figures: list[ShownFigure] = field(default_factory=list)
    more: list[ShownFigure] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    rest: list[Finding] = field(default_factory=list)
    above: str = ""

    @property
    def folded(self) -> str:
        """What is folded away: "2 more findings, 3 more figures"."""
        counts = {"finding": len(self.rest), "figure": len(self.more)}
        return ", ".join(f"{n} more {what}{'s' if n > 1 else ''}" for what, n in counts.items() if n)


@dataclass(frozen=True)
class Headline:
    """One of the findings that open the page, with the figure that shows it."""

    id: str
    section: Section
    finding: Finding
    shown: ShownFigure | None


@dataclass(frozen=True)
class ChapterPart:
    """What several lenses found on one question, with its sentences."""

    id: str
    title: str
    findings: list[Finding]
    sections: list[Section]


@dataclass(frozen=True)
class SubjectPart:
    """The part of the page about one subject."""

    id: str
    name: str
    origins: list[Provenance]
    chapters: list[ChapterPart]
    heads: int | None
    cards: list[Card] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    examples: list[Json] = field(default_factory=list)
    whole_model: Finding | None = None
    about: Finding | None = None
    headlines: list[Headline] = field(default_factory=list)

    @property
    def first(self) -> str:
        """The initial order of the cards."""
        return max(self.measures, key=lambda measure: measure.rank).name if self.measures else ""

    @property
    def packed(self) -> str:
        """The examples as JSON that can stand in the page."""
        return inline_json(self.examples)


Examples = Sequence[Json] | Mapping[str, Sequence[Json]]


class Report(NotebookDisplay):
    """A report of results as one HTML page.

        >>> lo.Report(results, title="A small model").write("report.html").name
        'report.html'

    `results` are those of one subject, a dictionary from the names of subjects to theirs, or the folder of a run.
    `examples` (from `examples_of`; by subject if there are several) are texts that show heads at work; the folder of a
    run may have some. The page needs no network, supports light and dark mode, and is the same for the same results.
    Its script sorts cards, opens views and saves figures; without it, all numbers can still be read.
    """

    def __init__(self, results: Source, title: str | None = None, examples: Examples | None = None) -> None:
        check(title, str | None, "The title of a report")
        self.subjects: dict[str, Results] = subjects(results)
        self.examples: dict[str, list[Json]] = _examples(results, self.subjects, examples)
        self.title: str = title or _title(self.subjects)

    def __repr__(self) -> str:
        return f"Report({self.title!r})"

    @cached_property
    def findings(self) -> dict[str, dict[str, list[Finding]]]:
        """The sentences of the page, by subject and lens."""
        return {
            name: {lens: findings_of(result) for lens, result in results.items()}
            for name, results in self.subjects.items()
        }

    def html(self) -> str:
        """The page as HTML."""
        # A model that decides comes before one that only reads.
        names = sorted(self.subjects, key=lambda name: whole_model(self.subjects[name]) is None)
        parts = [self._part(f"s{place}", name) for place, name in enumerate(names, 1)]
        return rendered("page.html", title=self.title, subjects=parts, views=any(part.examples for part in parts))

    @checked
    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically."""
        return write_whole(path, self.html())

    def _part(self, place: str, name: str) -> SubjectPart:
        results, examples, found = self.subjects[name], self.examples.get(name, []), self.findings[name]
        origins = list({repr(result.provenance): result.provenance for result in results.values()}.values())
        first = {key: f"{place}-first-{number}" for number, key in enumerate(opening(results, found), 1)}
        chapters: list[ChapterPart] = []
        headlines: dict[str, Headline] = {}
        for chapter, results_in in in_chapters(results).items():
            here, sections = f"{place}-{chapter.name}", []
            for position, (key, result) in enumerate(results_in.items(), 1):
                section, headline = _section(f"{here}-{position}", key, result, found[key], first.get(key, ""))
                sections.append(section)
                headlines |= {key: headline} if headline else {}
            chapters.append(ChapterPart(here, chapter.title, [], sections))
        return SubjectPart(
            place, name, origins, chapters, head_count(results), atlas(results, examples), measures(results), examples,
            whole_model(results), what_it_is(name, results), [headlines[key] for key in first],
        )  # fmt: skip


def figures(
    results: Source,
    folder: str | os.PathLike[str],
    formats: str | Iterable[str] = ("png", "svg", "pdf"),
    *,
    width: str | int | float | None = None,
    only: str | None = None,
) -> list[Path]:
    """Every figure as files for a paper, named after lens and variable; with several subjects, a folder for each.

    `width`: "column", "page", or points (see `Plot.save`). `only`: the name of one figure, such as "weights-mass".
    """
    wanted = known_formats(formats if isinstance(formats, str) else tuple(formats))
    points = None if width is None else known_width(width)
    named = subjects(results)
    charts: dict[Path, Chart] = {}
    for subject, subject_results in named.items():
        place = Path(folder) / _slug(subject) if len(named) > 1 else Path(folder)
        for name, result in subject_results.items():
            charts |= {place / f"{_slug(name)}-{_slug(figure.name)}": figure.chart for figure in figures_of(result)}
    names = list(dict.fromkeys(path.name for path in charts))
    if only is not None and only not in names:
        raise UserError(f"There is no figure {only!r}.{near(only, names)} There are {', '.join(names)}.")
    paths = []
    for stem, chart in charts.items():
        if only not in (None, stem.name):
            continue
        for format_name, content in drawings(chart, wanted, width=points).items():
            path = stem.with_name(f"{stem.name}.{format_name}")
            with written_whole(path) as partial:
                partial.write_bytes(content)
            paths.append(path)
    return paths


def subjects(results: Source) -> dict[str, Results]:
    """Results by the name of their subject."""
    if isinstance(results, str | os.PathLike):
        results = Results.load(results)
    if isinstance(results, Result):
        results = Results([results])
    if not isinstance(results, Mapping):
        raise UserError(f"A report needs a run: its folder, or the results of look. Got {shown(results)} instead.")
    if not results:
        raise UserError("There are no results to report on. Run look first.")
    if isinstance(results, Results):
        return {next(iter(results.values())).provenance.model: results}
    named: dict[str, Results] = {}
    for name, result in results.items():
        if not isinstance(result, Results):
            kind = type(result).__name__
            raise UserError(f"A report on several subjects needs a dictionary of Results by name. Got a {kind} in it.")
        named |= {str(name): result} if len(result) else {}
    return named


def rendered(template: str, *, views: bool = False, **values: object) -> str:
    """A page from one of our templates, with our style and script, which alone are let run (by their hashes)."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("lorgnette.reporting", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["weight"] = weight
    style = (files("lorgnette.reporting") / "page.css").read_text(encoding="utf-8")
    if views:
        style = source("views.css") + style
    script = bundle("report" if views else "plainreport")
    policy = (
        f"default-src 'none'; script-src '{hashed(script)}'; style-src '{hashed(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template(template).render(style=style, script=script, policy=policy, **values)


def _examples(source: Source, named: Mapping[str, Results], given: Examples | None) -> dict[str, list[Json]]:
    if given is None:
        if not isinstance(source, str | os.PathLike):
            return {}
        name, results = next(iter(named.items()))
        return {name: saved_examples(source, next(iter(results.values())).provenance.weights_hash)}
    by_subject = given if isinstance(given, Mapping) else {next(iter(named)): given}
    for documents in by_subject.values():
        check(documents, Sequence[Mapping], "examples, of one subject,")
    return {name: [dict(document) for document in documents] for name, documents in by_subject.items()}


MOST_FIGURES, MOST_FINDINGS = 2, 2
"""Of one lens; what else it has is folded away."""


def _section(
    here: str, key: str, result: Result, findings: list[Finding], first: str
) -> tuple[Section, Headline | None]:
    """What one lens found; where `first` is an id, without its first finding and the figure of it, a headline."""
    figures, shows = figures_of(result), -1
    if first and figures:
        wanted = findings[0].figure
        shows = next((k for k, one in enumerate(figures) if wanted and one.name.startswith(wanted)), 0)
    shown = [shown_figure(f"{here}-{k}", figure) for k, figure in enumerate(figures, 1)]
    left = [one for k, one in enumerate(shown) if k != shows]
    said = findings[1:] if first else findings
    section = Section(
        here, lenses.report_of(result.lens).title, key, left[:MOST_FIGURES], left[MOST_FIGURES:],
        said[:MOST_FINDINGS], said[MOST_FINDINGS:], first,
    )  # fmt: skip
    headline = Headline(first, section, findings[0], shown[shows] if shows >= 0 else None) if first else None
    return section, headline


def shown_figure(place: str, figure: Figure) -> ShownFigure:
    svg = inline_svg(figure.chart, f"{place}-", figure.title)
    columns, rows = _cells(figure.table)
    csv = base64.b64encode(figure.data.to_csv(index=False).encode()).decode()
    return ShownFigure(place, figure, svg, columns, rows, csv)


def _cells(frame: "pd.DataFrame") -> tuple[list[str], list[list[str]]]:
    rows = frame.astype(object).itertuples(index=False, name=None)
    return [str(column) for column in frame.columns], [[_cell(value) for value in row] for row in rows]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "–" if value != value else number(value)
    return str(value)


def head_count(results: Results) -> int | None:
    """Heads that were seen, if a result has a number for each of them."""
    there = head_numbers(results)
    return None if there is None else int(there.notnull().sum())


def _title(named: Mapping[str, Results]) -> str:
    origin = next(iter(next(iter(named.values())).values())).provenance
    if len(named) > 1:
        return f"Attention report: {', '.join(list(named)[:-1])} and {list(named)[-1]}"
    return f"Attention report: {Path(origin.model).name or origin.model}"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_+-]+", "-", name).strip("-") or "unnamed"
