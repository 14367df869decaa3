"""`Comparison`: the page on what differs between two runs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import altair as alt
import xarray as xr

from lorgnette import errors
from lorgnette import lens as lenses
from lorgnette.axes import HEAD, LAYER, STATE
from lorgnette.constraints import checked
from lorgnette.figures.cells import said, shown
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals, heads, written
from lorgnette.figures.lens_report import Changes, Compared
from lorgnette.figures.sentences import NAMED, literal
from lorgnette.figures.variables import states_as_layers, variable_figure
from lorgnette.files import write_whole
from lorgnette.reporting.compare import PAIRED, Differences, compared, differences, slices
from lorgnette.reporting.contents import in_chapters, whole_model
from lorgnette.reporting.page import ChapterPart, Section, SubjectPart, head_count, rendered, shown_figure
from lorgnette.results import Result, Results
from lorgnette.statistics.estimate import LEVEL
from lorgnette.types import Json

MOST_SENTENCES = 3  # of one lens
_MOST_DECIMALS = 12
MOST_KINDS = 12  # of one variable; one with more kinds of numbers gets one sentence that counts


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
        for run in (before, after):
            if not isinstance(run, Results | str | os.PathLike):
                raise errors.UserError(f"A run is a folder, or the results of look. Got {errors.shown(run)} instead.")
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

    def method(self) -> Finding:
        """What the sentences rest on, said once: what is subtracted, how it is tested, and what is left out."""
        arrays = [(one.words, found.data[one.variable]) for lens, found in self._differences.results.items()
                  for one in compared(*self._pairs[lens]) if one.variable in found.data]  # fmt: skip
        tested = {words: bool(array.attrs[PAIRED]) for words, array in arrays if PAIRED in array.attrs}
        unpaired = [words for words, is_paired in tested.items() if not is_paired]
        how = "paired by text" if not unpaired else "not paired by text"
        if unpaired and len(unpaired) < len(tested):
            how = "paired by text (but not {unpaired})"
        if unpaired and self._differences.same_texts:
            how += ", so with the largest error that the same texts allow"
        words = "{first} → {second}: means over heads or layers"
        if tested:
            words += f", the difference with its 95 % interval, {how}; significant at a false discovery rate of 5 %"
            words += " (the order of the heads that are named is not tested)"
        numbers: Json = {"first": self.names[0], "second": self.names[1], "unpaired": ", ".join(unpaired)}
        numbers |= {"kinds": sum(kinds for _, kinds in self._sentences.values()), "most": MOST_SENTENCES}
        if any(kinds > MOST_SENTENCES for _, kinds in self._sentences.values()):
            words += (
                ". Up to {most} differences are shown per lens ({kinds} in all), ranked by how far heads move compared "
                "with how far apart they were"
            )
        return Finding(f"{words}.", numbers)

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
        origins[1] = replace(origins[1], notes=(*origins[1].notes, self.method().text, *self._differences.notes))
        heads, whole = head_count(self.after), self.whole_models()
        part = SubjectPart("s1", " and ".join(self.names), origins, chapters, heads, whole_model=whole)
        return rendered("page.html", title=f"What differs between {self.names[0]} and {self.names[1]}", subjects=[part])

    @checked
    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically."""
        return write_whole(path, self.html())

    @cached_property
    def _differences(self) -> Differences:
        return differences(self.before, self.after, self.names)

    @cached_property
    def _pairs(self) -> dict[str, tuple[Result, Result]]:
        """The pairs of results, one for every lens with something to show."""
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
            lens: self._own[lens].findings if lens in self._own else self._sentences[lens][0] for lens in self._pairs
        }

    @cached_property
    def _sentences(self) -> dict[str, tuple[list[Finding], int]]:
        found = self._differences
        return {lens: sentences(found.results[lens], found.means[lens], compared(*self._pairs[lens]))
                for lens in self._pairs if lens in found.results and lens not in self._own}  # fmt: skip

    @cached_property
    def _chapters(self) -> Mapping[Any, Mapping[str, Result]]:
        return in_chapters({lens: after for lens, (_, after) in self._pairs.items()})

    def _figures(self, lens: str) -> list[Figure]:
        if lens in self._own:
            return self._own[lens].figures
        return figures(self._differences.results[lens], compared(*self._pairs[lens]), self.names)


def sentences(
    result: Result, means: Mapping[str, xr.Dataset], variables: Sequence[Compared]
) -> tuple[list[Finding], int]:
    """The largest differences of a lens, by their effect, and how many kinds of numbers were compared."""
    found: list[tuple[tuple[bool, float], Finding]] = []
    kinds = 0
    for one in (one for one in variables if one.variable in means):
        value, mean = result.data[one.variable], means[one.variable]
        picks = [pick for pick in slices(value) if _is_named(one, pick) and int(mean["cells"].sel(pick)) > 0]
        kinds += len(picks)
        if len(picks) > MOST_KINDS:
            found.append(((False, 0.0), _counted_only(one, mean)))
            continue
        for pick in picks:
            several = {axis: label for axis, label in pick.items() if value.sizes[axis] > 1 or axis in one.named}
            words = ", ".join([one.words, *(said(label) for label in several.values())])
            there = mean.sel(pick)
            differs = "differing" not in there or int(there["differing"]) > 0
            order = (differs, float(there["effect"].fillna(0.0)))
            found.append((order, _sentence(words, result.data.sel(pick), one.variable, there)))
    found.sort(key=lambda each: each[0], reverse=True)
    return [finding for _, finding in found[:MOST_SENTENCES]], kinds


def _is_named(one: Compared, pick: Mapping[str, str]) -> bool:
    return all(pick[axis] in labels for axis, labels in one.named.items() if axis in pick)


def _sentence(words: str, data: xr.Dataset, name: str, mean: xr.Dataset) -> Finding:
    """ "Confidence: 0.18 → 0.203, +0.023 (+0.011 to +0.035); 61 of 72 heads differ significantly, most 3.2 (+0.2)." """
    value = data[name]
    numbers: Json = {part: float(mean[part]) for part in ("before", "after", "difference", "effect")}
    numbers["cells"] = int(mean["cells"])
    text = f"{literal(words[:1].upper() + words[1:])}: {{before:.3g}} → {{after:.3g}}"
    if "se" not in mean or bool(mean["se"].isnull()):
        if named := _largest(value):
            numbers["named"] = named
            text += "; largest differences: {named}"
        return Finding(f"{text} (no interval).", numbers)
    numbers |= {"low": float(mean["low"]), "high": float(mean["high"]), "count": int(mean["differing"])}
    digits = min(_MOST_DECIMALS, decimals(numbers["high"] - numbers["difference"], least=0, digits=2))
    text += ", " + "{difference:+.Df} ({low:+.Df} to {high:+.Df})".replace("D", str(digits))
    if numbers["cells"] > 1:
        unit = _unit(value)
        if not numbers["count"]:
            text += f"; none of {{cells}} {unit} differs significantly"
        else:
            text += f"; {{count}} of {{cells}} {unit} {'differs' if numbers['count'] == 1 else 'differ'} significantly"
            if named := _largest(value.where(data[f"{name}_q"] < LEVEL)):
                numbers["named"] = named
                text += ", most {named}"
    elif not numbers["count"]:
        text += "; not significant"
    return Finding(f"{text}.", numbers)


def _counted_only(one: Compared, mean: xr.Dataset) -> Finding:
    """For numbers of many kinds: no mean over them, only how many differ."""
    what = literal(f"{one.words[:1].upper()}{one.words[1:]}")
    numbers: Json = {"cells": int(mean["cells"].sum()), "kinds": int(mean["cells"].size)}
    if "differing" not in mean:
        return Finding(f"{what}: {{cells}} numbers of {{kinds}} kinds, without errors.", numbers)
    numbers["count"] = int(mean["differing"].sum())
    return Finding(f"{what}: {{count}} of {{cells}} numbers of {{kinds}} kinds differ significantly.", numbers)


def _largest(value: xr.DataArray) -> str:
    """The heads that differ most, where there is one number for each."""
    if set(value.dims) != {LAYER, HEAD}:
        return ""
    most = sorted(heads(value), key=lambda one: -abs(one.value))
    return ", ".join(f"{one.layer}.{one.head} ({written(one.value, '+.2g')})" for one in most[:NAMED])


def _unit(value: xr.DataArray) -> str:
    """The unit that is counted: heads, layers, …"""
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
