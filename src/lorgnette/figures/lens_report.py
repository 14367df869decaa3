"""What a lens tells the report, the comparison of runs and the head atlas: one declaration in the lens's own room."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import xarray as xr

from lorgnette.figures.cells import titled
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.sentences import about_first_variable
from lorgnette.figures.variables import figure_per_variable
from lorgnette.results import Result


@dataclass(frozen=True)
class Chapter:
    """Lenses that answer one question of the reader; `decides` where the question is about decisions of the model."""

    name: str
    title: str
    decides: bool = False


READING = Chapter("reading", "What heads attend to, and what it contributes")
FUNCTION = Chapter("function", "What heads are for")
GEOMETRY = Chapter("geometry", "Geometry by layer")
EXPLANATIONS = Chapter("explanations", "Explanations, and how far to trust them", decides=True)
PRUNING = Chapter("pruning", "What to prune", decides=True)
OTHER = Chapter("other", "Other lenses")
CHAPTERS = (READING, FUNCTION, GEOMETRY, EXPLANATIONS, PRUNING, OTHER)
"""In the order of the page."""

HeadPlace: TypeAlias = tuple[str, int, int]
"""Stack, layer and head, the numbers counted from 1."""


Selection: TypeAlias = Mapping[str, tuple[str, ...]]
"""Labels by axis."""


@dataclass(frozen=True)
class Compared:
    """A variable whose difference between two runs is shown, with its name in words.

    Figures and sentences are restricted to the labels of `select`, sentences further to those of `named`; labels that
    a run does not have are ignored.
    """

    variable: str
    name: str = ""
    select: Selection = field(default_factory=dict)
    named: Selection = field(default_factory=dict)

    @property
    def words(self) -> str:
        return self.name or titled(self.variable)


@dataclass(frozen=True)
class Measure:
    """A number of every head on the cards: the array, its name, what it means, and how it is written.

    Cards are first sorted by the measure with the highest `rank`; of two lenses with a measure of one name the first
    on the page gives it.
    """

    name: str
    about: str
    array: xr.DataArray
    form: str = ".2f"
    rank: int = 0


@dataclass(frozen=True)
class HeadRole:
    """What a head is for, in words, and the family that gives the colour."""

    words: str
    family: str


@dataclass(frozen=True)
class Changes:
    """The differences between two runs, for a lens with its own comparison."""

    findings: list[Finding]
    figures: list[Figure]


@dataclass(frozen=True)
class TextTable:
    """A small table for the terminal: titles, rows of text (the first column left, numbers right), lines below it."""

    titles: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()
    title: str = ""


def _no_measures(result: Result) -> Iterable[Measure]:
    return ()


@dataclass(frozen=True)
class LensReport:
    """All that pages need of a lens; what is left out gets the default that a lens of any kind can have.

    `findings` are asked for one stack at a time. `compared` are the variables that `compare` subtracts: None stands for
    all with a number for every layer, () for none. `changes` compares where a difference of numbers says nothing.
    `meaning` names the options that decide what a number means: runs that differ in one of them are not compared.
    `table` is what `look` prints of a lens whose numbers are not by head. A page opens with the first findings of the
    lenses with the highest `rank`, one for each chapter: above 0 is what the model decides by, below 0 what can be said
    of any model.
    """

    title: str
    chapter: Chapter = OTHER
    figures: Callable[[Result], list[Figure]] = figure_per_variable
    findings: Callable[[Result], Iterable[Finding]] = about_first_variable
    compared: tuple[Compared, ...] | None = None
    cards: Callable[[Result], Iterable[Measure]] = _no_measures
    roles: Callable[[Result], Mapping[HeadPlace, HeadRole]] | None = None
    changes: Callable[[Result, Result, tuple[str, str]], Changes] | None = None
    meaning: tuple[str, ...] = ()
    table: Callable[[Result], TextTable] | None = None
    rank: int = 0
