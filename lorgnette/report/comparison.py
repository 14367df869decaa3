"""`Comparison`: the page on what differs between two runs."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt
import xarray as xr

from lorgnette import lenses
from lorgnette.axes import CATEGORY, HEAD, LAYER, STACK, STATE
from lorgnette.figures.cells import BESIDE, said, shown, titled
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import Changes
from lorgnette.figures.sentences import literal
from lorgnette.figures.variables import states_as_layers, variable_figure
from lorgnette.files import written_whole
from lorgnette.report.compare import Differences, differences, surely
from lorgnette.report.contents import in_chapters
from lorgnette.report.page import ChapterPart, Section, SubjectPart, head_count, rendered, shown_figure
from lorgnette.results import Result, Results

_NAMED = 3
_KINDS = ("cls", "sep", "punctuation", "other", "previous", "next", "self")


@dataclass(frozen=True)
class Comparison:
    """Two runs of models of the same shape: `Comparison(before, after).write("compare.html")`."""

    before: Results
    after: Results
    names: tuple[str, str] = ("before", "after")

    @classmethod
    def of(cls, before: str | os.PathLike[str], after: str | os.PathLike[str]) -> "Comparison":
        """From the folders of two runs; they are called after their folders."""
        names = (Path(before).resolve().name, Path(after).resolve().name)
        if names[0] == names[1]:
            names = (str(before), str(after))
        return cls(Results.load(before), Results.load(after), names)

    def differences(self) -> Differences:
        return differences(self.before, self.after, self.names)

    def findings(self) -> list[Finding]:
        """What differs, in sentences whose numbers are those of `differences`."""
        changes = self._changes(self.differences())
        return [finding for part in in_chapters(self._shown(changes)).values() for lens in part
                for finding in changes[lens].findings]  # fmt: skip

    def html(self) -> str:
        """The page as text."""
        compared = self.differences()
        changes = self._changes(compared)
        chapters = []
        for chapter, results in in_chapters(self._shown(changes)).items():
            here = f"s1-{chapter.name}"
            parts = []
            for place, lens in enumerate(results, 1):
                drawn = enumerate(changes[lens].figures, 1)
                figures = [shown_figure(f"{here}-{place}-{number}", figure) for number, figure in drawn]
                parts.append(Section(f"{here}-{place}", lenses.report_of(lens).title, lens, figures))
            sentences = [finding for lens in results for finding in changes[lens].findings]
            chapters.append(ChapterPart(here, chapter.title, sentences, parts))
        origins = [next(iter(run.values())).provenance for run in (self.before, self.after)]
        origins[1] = replace(origins[1], notes=(*origins[1].notes, *compared.notes))
        part = SubjectPart("s1", " and ".join(self.names), origins, chapters, head_count(self.after))
        return rendered("page.html", title=f"From {self.names[0]} to {self.names[1]}: what differs", subjects=[part])

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page, whole or not at all."""
        html = self.html()
        with written_whole(path) as partial:
            partial.write_text(html, encoding="utf-8")
        return Path(path)

    def _changes(self, compared: Differences) -> dict[str, Changes]:
        """What differs by lens: in the lens's own way where it has one, else as differences of numbers."""
        out = {}
        runs = [{result.lens: result for result in run.values()} for run in (self.before, self.after)]
        for lens in (lens for lens in runs[0] if lens in runs[1]):
            before, after = (run[lens] for run in runs)
            own = lenses.report_of(lens).changes
            if own is not None:
                out[lens] = own(before, after, self.names)
            elif lens in compared.results:
                result = compared.results[lens]
                out[lens] = Changes(list(sentences(result, before, after, self.names)), figures(result, self.names))
        return out

    def _shown(self, changes: Mapping[str, Changes]) -> dict[str, Result]:
        return {result.lens: result for result in self.after.values() if result.lens in changes}


def _words(lens: str, variable: str) -> str:
    """A compared variable in words."""
    compared = lenses.report_of(lens).compared or ()
    return next((one.words for one in compared if one.variable == variable), titled(variable))


def sentences(result: Result, before: Result, after: Result, names: tuple[str, str]) -> Iterator[Finding]:
    """For every variable: both means, for how many cells the difference is sure, and where it is largest."""
    for name in [str(name) for name in result.data.data_vars if not str(name).endswith(BESIDE)]:
        for label, pick in _slices(result.data[name]):
            value, old, new = (
                (run.data[name].sel(pick) if pick else run.data[name]) for run in (result, before, after)
            )
            if not bool(value.notnull().any()):
                continue
            what = literal(f"{_words(result.lens, name)}{f', {label}' if label else ''}")
            numbers: dict[str, Any] = {"before": float(old.mean()), "after": float(new.mean())}
            numbers |= {"first": names[0], "second": names[1]}
            told = f"{what[:1].upper()}{what[1:]}: {{before:.3g}} on average in {{first}}, {{after:.3g}} in {{second}}"
            sure = surely(result.data, name)
            if sure is not None:
                numbers |= _counted(sure.sel(pick) if pick else sure, value)
                told += f"; {{count}} of {{cells}} {_unit(value)} surely differ (by chance {{chance:.1f}} would)"
            if named := _most(value):
                numbers["named"] = named
                told += ", most: {named}"
            yield Finding(told + ".", numbers)


def _counted(sure: xr.DataArray, value: xr.DataArray) -> dict[str, Any]:
    """Cells that surely differ, cells there are, and how many would be called sure if nothing differed."""
    cells = int(value.notnull().sum())
    return {"count": int(sure.where(value.notnull(), False).sum()), "cells": cells, "chance": 0.05 * cells}


def _most(value: xr.DataArray) -> str:
    """The heads that differ most, where there is one number for each."""
    if set(value.dims) - {STACK} != {LAYER, HEAD} or value.sizes.get(STACK, 1) > 1:
        return ""
    flat = value.squeeze(STACK, drop=True) if STACK in value.dims else value
    most = sorted(heads(flat), key=lambda one: -abs(one.value))
    return ", ".join(f"{one.layer}.{one.head} ({one.value:+.2f})" for one in most[:_NAMED])


def _unit(value: xr.DataArray) -> str:
    """What is counted: heads or layers where there is one number for each."""
    inner = {str(dim) for dim in value.dims if value.sizes[dim] > 1} - {STACK}
    return "heads" if inner <= {LAYER, HEAD} and HEAD in inner else "layers" if inner <= {LAYER, STATE} else "numbers"


def _slices(array: xr.DataArray) -> Iterator[tuple[str, dict[str, Any]]]:
    """One kind of token after another; everything else as a whole."""
    if CATEGORY not in array.dims:
        yield "", {}
        return
    for kind in array[CATEGORY].values.tolist():
        if kind in ("cls", "sep") and bool(array.sel({CATEGORY: kind}).notnull().any()):
            yield said(kind), {CATEGORY: kind}


def figures(result: Result, names: tuple[str, str]) -> list[Figure]:
    """Differences as heat maps around zero, by layer with their intervals."""
    out = []
    for source in (result, states_as_layers(result)):
        for name in shown(source):
            pick = {}
            if CATEGORY in source.data[name].dims:
                part = source.data[name]
                there = [k for k in _KINDS if k in part[CATEGORY].values]
                pick = {CATEGORY: [k for k in there if bool(part.sel({CATEGORY: k}).notnull().any())]}
                if not pick[CATEGORY]:
                    continue
            words = _words(result.lens, name)
            figure = variable_figure(
                source, name, f"{words[:1].upper()}{words[1:]}: {names[1]} less {names[0]}", **pick
            )
            out.append(replace(figure, table=figure.data.dropna(subset=[name]).round(5)))
    if not out:
        frame = result.to_dataframe()
        chart = alt.Chart(alt.Data(values=[{"text": "no difference"}])).mark_text().encode(text="text:N")
        out.append(Figure("same", "Nothing differs", "Every difference is zero.", chart, frame.head(1), frame))
    return out
