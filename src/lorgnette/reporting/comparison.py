"""`Comparison`: the page on what differs between two runs."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import altair as alt
import xarray as xr

from lorgnette import lens as lenses
from lorgnette.axes import HEAD, LAYER, STATE
from lorgnette.figures.cells import said, shown
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads, written
from lorgnette.figures.lens_report import Changes, Compared
from lorgnette.figures.sentences import NAMED, literal
from lorgnette.figures.variables import states_as_layers, variable_figure
from lorgnette.files import written_whole
from lorgnette.reporting.compare import PAIRED, Differences, compared, differences, slices
from lorgnette.reporting.contents import in_chapters, whole_model
from lorgnette.reporting.page import ChapterPart, Section, SubjectPart, head_count, rendered, shown_figure
from lorgnette.results import Result, Results
from lorgnette.statistics.estimate import LEVEL
from lorgnette.types import Json

MOST_SENTENCES = 12  # of one variable; one with more kinds of numbers gets one sentence that counts


@dataclass(frozen=True)
class Comparison:
    """Two runs of models of the same shape; `lo.compare` makes it.

    >>> compared = lo.Comparison(results, results)
    >>> float(compared.differences().results["weights"].data["confidence"].max())
    0.0
    """

    before: Results
    after: Results
    names: tuple[str, str] = ("before", "after")

    @classmethod
    def of(cls, before: Results | str | os.PathLike[str], after: Results | str | os.PathLike[str]) -> "Comparison":
        """From the folders of two runs, which also name them, or from their results."""
        runs = [run if isinstance(run, Results) else Results.load(run) for run in (before, after)]
        if isinstance(before, Results) or isinstance(after, Results):
            return cls(runs[0], runs[1])
        names = (Path(before).resolve().name, Path(after).resolve().name)
        if names[0] == names[1]:
            names = (str(before), str(after))
        return cls(runs[0], runs[1], names)

    def differences(self) -> Differences:
        """after − before, lens by lens, with intervals."""
        return self._differences

    def findings(self) -> list[Finding]:
        """The differences in sentences, in the order of the page; their numbers are those of `differences`."""
        return [finding for lenses_of in self._chapters.values() for lens in lenses_of
                for finding in self._findings[lens]]  # fmt: skip

    def whole_models(self) -> Finding | None:
        """Accuracy and loss of both models, where the results have them."""
        pair = [whole_model(run) for run in (self.before, self.after)]
        if pair[0] is None or pair[1] is None:
            return None
        parts = ("accuracy", "low", "high", "loss", "texts")
        numbers = {f"{part}_{n}": one.numbers[part] for n, one in enumerate(pair) if one for part in parts}
        words = [
            f"{literal(name)} has accuracy {{accuracy_{n}:.3f}} (95 % CI {{low_{n}:.3f}} to {{high_{n}:.3f}}), loss "
            f"{{loss_{n}:.3f}} over {{texts_{n}:,}} texts"
            for n, name in enumerate(self.names)
        ]
        return Finding(f"Whole models: {'; '.join(words)}.", numbers)

    def html(self) -> str:
        """The page as HTML."""
        chapters = []
        for chapter, results in self._chapters.items():
            here = f"s1-{chapter.name}"
            parts = []
            for place, lens in enumerate(results, 1):
                drawn = enumerate(self._figures(lens), 1)
                shown_figures = [shown_figure(f"{here}-{place}-{number}", figure) for number, figure in drawn]
                parts.append(Section(f"{here}-{place}", lenses.report_of(lens).title, lens, shown_figures))
            sentences = [finding for lens in results for finding in self._findings[lens]]
            chapters.append(ChapterPart(here, chapter.title, sentences, parts))
        origins = [next(iter(run.values())).provenance for run in (self.before, self.after)]
        origins[1] = replace(origins[1], notes=(*origins[1].notes, *self._differences.notes))
        heads, whole = head_count(self.after), self.whole_models()
        part = SubjectPart("s1", " and ".join(self.names), origins, chapters, heads, whole_model=whole)
        return rendered("page.html", title=f"What differs between {self.names[0]} and {self.names[1]}", subjects=[part])

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically."""
        html = self.html()
        with written_whole(path) as partial:
            partial.write_text(html, encoding="utf-8")
        return Path(path)

    @cached_property
    def _differences(self) -> Differences:
        return differences(self.before, self.after, self.names)

    @cached_property
    def _pairs(self) -> dict[str, tuple[Result, Result]]:
        """Both results of every lens with something to show."""
        first, second = ({result.lens: result for result in run.values()} for run in (self.before, self.after))
        return {
            lens: (first[lens], second[lens])
            for lens in first
            if lens in self._differences.results or (lens in second and lenses.report_of(lens).changes is not None)
        }

    @cached_property
    def _own(self) -> dict[str, Changes]:
        """What differs for lenses that compare in a way of their own."""
        reports = {lens: lenses.report_of(lens).changes for lens in self._pairs}
        return {lens: changes(*self._pairs[lens], self.names) for lens, changes in reports.items() if changes}

    @cached_property
    def _findings(self) -> dict[str, list[Finding]]:
        return {
            lens: self._own[lens].findings
            if lens in self._own
            else list(sentences(self._differences.results[lens], *pair, self.names))
            for lens, pair in self._pairs.items()
        }

    @cached_property
    def _chapters(self) -> Mapping[Any, Mapping[str, Result]]:
        return in_chapters({lens: after for lens, (_, after) in self._pairs.items()})

    def _figures(self, lens: str) -> list[Figure]:
        if lens in self._own:
            return self._own[lens].figures
        return figures(self._differences.results[lens], compared(*self._pairs[lens]), self.names)


def sentences(result: Result, before: Result, after: Result, names: tuple[str, str]) -> Iterator[Finding]:
    """For every variable and kind of number: both means, for how many heads it differs, and where most."""
    for one in compared(before, after):
        if one.variable not in result.data:
            continue
        value = result.data[one.variable]
        picks = [pick for pick in slices(value) if _is_named(one, pick) and bool(value.sel(pick).notnull().any())]
        if len(picks) > MOST_SENTENCES:
            yield _counted_only(result, one)
            continue
        for pick in picks:
            several = {axis: label for axis, label in pick.items() if value.sizes[axis] > 1 or axis in one.named}
            yield _sentence(result.data.sel(pick), [run.data[one.variable].sel(pick) for run in (before, after)],
                            one, [said(label) for label in several.values()], names)  # fmt: skip


def _is_named(one: Compared, pick: Mapping[str, str]) -> bool:
    return all(pick[axis] in labels for axis, labels in one.named.items() if axis in pick)


def _sentence(
    data: xr.Dataset, runs: list[xr.DataArray], one: Compared, labels: list[str], names: tuple[str, str]
) -> Finding:
    value = data[one.variable]
    # Heads that only one of the models has are in neither mean.
    before, after = (float(run.where(value.notnull()).mean()) for run in runs)
    numbers: Json = {"before": before, "after": after, "first": names[0], "second": names[1]}
    what = literal(", ".join([one.words, *labels]))
    words = f"{what[:1].upper()}{what[1:]}: mean {{before:.3g}} in {{first}}, {{after:.3g}} in {{second}}"
    if f"{one.variable}_q" in data:
        numbers |= counts(data, one.variable)
        words += (
            f"; {{count}} of {{cells}} {_unit(value)} differ significantly ({_how(value)}, false discovery rate 5 %; "
            "{uncorrected} without this correction, {chance:.1f} expected by chance)"
        )
    if named := _largest(value):
        numbers["named"] = named
        words += ". Largest differences: {named}"
    return Finding(words + ".", numbers)


def _counted_only(result: Result, one: Compared) -> Finding:
    """For numbers of many kinds: no mean over them, only how many differ."""
    value, what = result.data[one.variable], literal(f"{one.words[:1].upper()}{one.words[1:]}")
    numbers: Json = {"cells": int(value.notnull().sum()), "kinds": len(slices(value))}
    if f"{one.variable}_q" not in result.data:
        return Finding(f"{what}: {{cells}} numbers of {{kinds}} kinds, without errors.", numbers)
    return Finding(
        f"{what}: {{count}} of {{cells}} numbers of {{kinds}} kinds differ significantly ({_how(value)}, false "
        "discovery rate 5 % within a kind; {uncorrected} without this correction, {chance:.1f} expected by chance).",
        numbers | counts(result.data, one.variable),
    )


def counts(data: xr.Dataset, name: str) -> Json:
    """Cells that differ significantly, with and without correction, and how many would by chance without it."""
    cells = int(data[f"{name}_q"].notnull().sum())
    return {
        "count": int((data[f"{name}_q"] < LEVEL).sum()),
        "cells": cells,
        "uncorrected": int(((data[f"{name}_low"] > 0) | (data[f"{name}_high"] < 0)).sum()),  # p < 5 %
        "chance": LEVEL * cells,
    }


def _largest(value: xr.DataArray) -> str:
    """The heads that differ most, where there is one number for each."""
    if set(value.dims) != {LAYER, HEAD}:
        return ""
    most = sorted(heads(value), key=lambda one: -abs(one.value))
    return ", ".join(f"{one.layer}.{one.head} ({written(one.value, '+.2f')})" for one in most[:NAMED])


def _how(value: xr.DataArray) -> str:
    """What the intervals rest on."""
    return "paired by text" if value.attrs.get(PAIRED) else "not paired"


def _unit(value: xr.DataArray) -> str:
    """What is counted."""
    return "heads" if HEAD in value.dims else "layers" if set(value.dims) <= {LAYER, STATE} else "numbers"


def figures(result: Result, variables: list[Compared], names: tuple[str, str]) -> list[Figure]:
    """Differences as heat maps around zero, by layer with their intervals."""
    states, out = states_as_layers(result), []
    for one in variables:
        source = result if one.variable in shown(result) else states
        if one.variable not in shown(source):
            continue
        title = f"{one.words[:1].upper()}{one.words[1:]}: {names[1]} minus {names[0]}"
        array = source.data[one.variable]
        # Kinds of token that neither model has are not drawn.
        pick = {axis: [label for label in array[axis].values.tolist() if bool(array.sel({axis: label}).notnull().any())]
                for axis in one.select}  # fmt: skip
        figure = variable_figure(source, one.variable, title, **pick)
        out.append(replace(figure, table=figure.data.dropna(subset=[one.variable]).round(5)))
    if not out:
        frame = result.to_dataframe()
        chart = alt.Chart(alt.Data(values=[{"text": "no difference"}])).mark_text().encode(text="text:N")
        out.append(Figure("same", "Nothing differs", "Every difference is zero.", chart, frame.head(1), frame))
    return out
