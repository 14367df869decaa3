"""`Comparison`: the page on what differs between two runs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import xarray as xr

from lorgnette.axes import CATEGORY, HEAD, LAYER, ROLE, STACK, STATE
from lorgnette.figures.cells import BESIDE, said, shown, titled
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.files import written_whole
from lorgnette.report.chapters import CHAPTERS, in_chapters
from lorgnette.report.compare import Differences, differences, surely
from lorgnette.report.heads import role_map
from lorgnette.report.page import ChapterPart, Section, SubjectPart, head_count, rendered, shown_figure
from lorgnette.report.sections import TITLES, states_as_layers, variable_figure
from lorgnette.results import Result, Results

WORDS = {
    "mass": "weight on a kind of token",
    "norm_share": "share of the norm by kind of token",
    "f_norm": "length of what a token would give, ‖f(x)‖",
    "entropy_normalised": "entropy, of what is possible",
    "state_sim": "mean cosine of the tokens of a text",
    "self_similarity": "mean cosine of the occurrences of a word",
    "state_isoscore": "IsoScore",
    "sim": "mean cosine of queries, keys and values of a text",
    "loss_change": "growth of the loss without the head",
}
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
        return [finding for _, found in self._found(self.differences()) for finding in found]

    def html(self) -> str:
        """The page as text."""
        found = self.differences()
        said_of = dict(self._found(found))
        sections = {lens: self._figures(lens, found) for lens in said_of}
        chapters = []
        for chapter, there in in_chapters({lens: self.after[_key(self.after, lens)] for lens in said_of}).items():
            here = f"s1-{chapter.name}"
            parts = []
            for place, lens in enumerate(there, 1):
                figures = [shown_figure(f"{here}-{place}-{k}", figure) for k, figure in enumerate(sections[lens], 1)]
                parts.append(Section(f"{here}-{place}", TITLES.get(lens, lens), lens, figures))
            chapters.append(ChapterPart(here, chapter.title, [one for lens in there for one in said_of[lens]], parts))
        origins = [next(iter(run.values())).provenance for run in (self.before, self.after)]
        origins[1] = replace(origins[1], notes=(*origins[1].notes, *found.notes))
        part = SubjectPart("s1", " and ".join(self.names), origins, chapters, head_count(self.after))
        return rendered("page.html", title=f"From {self.names[0]} to {self.names[1]}: what differs", subjects=[part])

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page, whole or not at all."""
        html = self.html()
        with written_whole(path) as partial:
            partial.write_text(html, encoding="utf-8")
        return Path(path)

    def _found(self, found: Differences) -> Iterator[tuple[str, list[Finding]]]:
        lenses = [*found.results]
        if all(_key(run, "roles") for run in (self.before, self.after)):
            lenses.append("roles")
        order = [lens for chapter in CHAPTERS for lens in chapter.lenses]
        for lens in sorted(lenses, key=lambda name: order.index(name) if name in order else len(order)):
            if lens == "roles":
                yield lens, [role_changes(*self._roles())]
            else:
                before, after = (run[_key(run, lens)] for run in (self.before, self.after))
                yield lens, list(sentences(found.results[lens], before, after, self.names))

    def _roles(self) -> tuple[Result, Result]:
        return self.before[_key(self.before, "roles")], self.after[_key(self.after, "roles")]

    def _figures(self, lens: str, found: Differences) -> list[Figure]:
        return role_figures(*self._roles(), self.names) if lens == "roles" else figures(found.results[lens], self.names)


def _key(run: Results, lens: str) -> str:
    """The name of a lens's result in a run; empty if it has none."""
    return next((name for name, result in run.items() if result.lens == lens), "")


def sentences(result: Result, before: Result, after: Result, names: tuple[str, str]) -> Iterator[Finding]:
    """For every variable: both means, for how many cells the difference is sure, and where it is largest."""
    for name in [str(name) for name in result.data.data_vars if not str(name).endswith(BESIDE)]:
        for label, pick in _slices(result.data[name]):
            value, old, new = (
                (run.data[name].sel(pick) if pick else run.data[name]) for run in (result, before, after)
            )
            if not bool(value.notnull().any()):
                continue
            what = f"{WORDS.get(name, titled(name))}{f', {label}' if label else ''}".replace("{", "{{").replace(
                "}", "}}"
            )
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
    states = Result(result.lens, states_as_layers(result.data), result.provenance)
    out = []
    for source in (result, states):
        for name in shown(source):
            pick = {}
            if CATEGORY in source.data[name].dims:
                part = source.data[name]
                there = [k for k in _KINDS if k in part[CATEGORY].values]
                pick = {CATEGORY: [k for k in there if bool(part.sel({CATEGORY: k}).notnull().any())]}
                if not pick[CATEGORY]:
                    continue
            words = WORDS.get(name, titled(name))
            figure = variable_figure(
                source, name, f"{words[:1].upper()}{words[1:]}: {names[1]} less {names[0]}", **pick
            )
            out.append(replace(figure, table=figure.data.dropna(subset=[name]).round(5)))
    if not out:
        frame = result.to_dataframe()
        chart = alt.Chart(alt.Data(values=[{"text": "no difference"}])).mark_text().encode(text="text:N")
        out.append(Figure("same", "Nothing differs", "Every difference is zero.", chart, frame.head(1), frame))
    return out


def role_changes(before: Result, after: Result) -> Finding:
    """How many heads have other labels than before."""
    table = changed_roles(before, after)
    total = int((after.data["confidence"].notnull().any("part")).sum())
    if not len(table):
        return Finding("No head of {heads} changed its role.", {"heads": total})
    named = "; ".join(f"{row.layer}.{row.head} ({row.before} → {row.after})" for row in table.head(_NAMED).itertuples())
    numbers = {"count": len(table), "heads": total, "named": named}
    return Finding(
        "{count} of {heads} heads changed their role: {named}" + (" …" if len(table) > _NAMED else "."), numbers
    )


def changed_roles(before: Result, after: Result) -> pd.DataFrame:
    """Heads whose labels differ, with both."""
    rows = []
    old, new = before.data["label"], after.data["label"]
    for stack in new[STACK].values.tolist():
        for layer in new[LAYER].values.tolist():
            for head in new[HEAD].values.tolist():
                cell = {STACK: stack, LAYER: layer, HEAD: head}
                said_of = [
                    ", ".join(str(role) for role in label[ROLE].values if bool(label.sel({**cell, ROLE: role})))
                    or "none"
                    for label in (old, new)
                ]
                if said_of[0] != said_of[1]:
                    rows.append({STACK: stack, LAYER: layer, HEAD: head, "before": said_of[0], "after": said_of[1]})
    return pd.DataFrame(rows, columns=[STACK, LAYER, HEAD, "before", "after"])


def role_figures(before: Result, after: Result, names: tuple[str, str]) -> list[Figure]:
    table = changed_roles(before, after)
    chart = alt.hconcat(
        *(role_map(one).properties(title=name) for one, name in zip((before, after), names, strict=True))
    )
    every = pd.DataFrame({"note": ["no head changed its role"]}) if not len(table) else table
    return [
        Figure("roles", "What heads are for, in both", "The table names those that changed.", chart, every, every, True)
    ]
