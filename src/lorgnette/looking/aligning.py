"""Align words: choose heads of the cross-attention on some texts, test them on others, write the links."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Float

from lorgnette import axes
from lorgnette.constraints import Share, check
from lorgnette.display import Facts
from lorgnette.errors import UserError, whole_number
from lorgnette.files import write_whole
from lorgnette.lens.alignment.lens import MEASURES, READINGS, Alignment, gold_links
from lorgnette.lens.alignment.linking import Counts, Linker, Pairs, WordLinks, counted, error_difference, error_rate
from lorgnette.looking.look import look
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.texts import Texts, same_id
from lorgnette.progress import tell_cost
from lorgnette.results import Result
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.texts import as_examples, texts_of
from lorgnette.texts.alignments import Links, given_alignments
from lorgnette.texts.annotated import share
from lorgnette.texts.example import Example
from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.figures.plot import Plot

Gold = str | Path | Mapping[str, object]


@dataclass(frozen=True, repr=False)
class Aligner(Facts):
    """Heads that link words as people do, chosen on some texts and tested on others.

    >>> aligner.to_dataframe().columns.tolist()[:4]
    ['heads', 'measure', 'row', 'development']
    """

    subject: Subject
    chosen: Linker
    """the linker with the lowest error on the development texts"""
    rates: tuple["Rate", ...]
    development: int
    """texts it was chosen on"""
    test: int
    """texts it was tested on"""

    def facts(self) -> dict[str, object]:
        best = next(rate for rate in self.rates if rate.linker == self.chosen)
        return {
            "chosen": str(self.chosen),
            "development": f"{best.development:.3f} ({self.development:,} texts)",
            "test": f"{best.error:.3f} [{best.low:.3f}, {best.high:.3f}] ({self.test:,} texts)",
        }

    def __repr__(self) -> str:
        return f"Aligner({'; '.join(f'{name} {value}' for name, value in self.facts().items())})"

    def to_dataframe(self) -> "pd.DataFrame":
        """The best head and the best layer by each measure, and the best set of heads: error rates, with intervals.

        `development` is the error that each was chosen by; `error`, `precision` and `recall` are those of the test
        texts. `difference` is the test error minus that of the chosen linker, paired by text.
        """
        import pandas as pd

        return pd.DataFrame([rate.row() for rate in self.rates])

    def plot(self) -> "Plot":
        """The error rates on the test texts with their intervals, and those on the development texts."""
        import altair as alt

        from lorgnette.figures.charts import COLOURS
        from lorgnette.figures.plot import Plot

        values: list[Json] = [
            {"linker": str(rate.linker), "texts": texts, "error": error, "low": low, "high": high}
            for rate in self.rates
            for texts, error, low, high in (
                ("test", rate.error, rate.low, rate.high), ("development", rate.development, None, None),
            )
        ]  # fmt: skip
        down = alt.Y(field="linker", type="nominal", sort=None, title=None, axis=alt.Axis(labelLimit=420))
        base = alt.Chart(alt.Data(values=values), width=340, height=alt.Step(22))
        points = base.mark_point(filled=True, size=60, opacity=0.9).encode(
            x=alt.X(field="error", type="quantitative", title="alignment error rate", scale=alt.Scale(zero=False)),
            y=down,
            color=alt.Color(
                field="texts", type="nominal", legend=alt.Legend(title=None, orient="top"),
                scale=alt.Scale(domain=["test", "development"], range=[COLOURS[0], COLOURS[-1]]),
            ),
        )  # fmt: skip
        lines = base.transform_filter("datum.texts == 'test'").mark_rule().encode(
            x=alt.X(field="low", type="quantitative"), x2=alt.X2(field="high"), y=down
        )  # fmt: skip
        return Plot(lines + points, f"Word alignment by cross-attention: {self.chosen} was chosen")

    def page(self, path: "str | PathLike[str]") -> Path:
        """The answer, the figure and the table as one page that needs no network."""
        from lorgnette.figures.plain_page import write_answer

        said = "; ".join(f"{name}: {value}" for name, value in self.facts().items())
        tables = {"Alignment error rates (intervals: 95 %, over texts)": self.to_dataframe()}
        return write_answer(path, f"Which heads of {self.subject.name} align words?", said, self.plot(), tables)

    def links(self, corpus: Texts, *, progress: bool = True) -> dict[str, Pairs]:
        """The links of each text by its id, in the order of the corpus: (source word, target word) from 0."""
        examples = _with_targets(corpus)
        lens = WordLinks([self.chosen])
        look(self.subject, examples, [lens], progress=progress)
        return {example.id: lens.found.get(example.id, (frozenset(),))[0] for example in examples}

    def save(self, path: "str | PathLike[str]", corpus: Texts, *, progress: bool = True) -> Path:
        """Write the links in Pharaoh's format: a text on each line, `0-0 1-2` for source-target words, from 0."""
        lines = [pharaoh_line(pairs) for pairs in self.links(corpus, progress=progress).values()]
        return write_whole(path, "".join(f"{line}\n" for line in lines))


@dataclass(frozen=True)
class Rate:
    """The error of one linker on the development texts and on the test texts."""

    linker: Linker
    development: float
    error: float
    low: float
    high: float
    precision: float
    recall: float
    difference: float
    difference_low: float
    difference_high: float

    def row(self) -> dict[str, object]:
        where, numbers = self.linker, dict(vars(self))
        del numbers["linker"]
        heads = " + ".join(f"{layer}.{head}" for layer, head in where.heads) or f"layer {where.layer}"
        return {"heads": heads, "measure": where.measure, "row": where.reading, **numbers}


def align(
    subject: Subject,
    corpus: Texts,
    test: Texts | None = None,
    *,
    gold: Gold | None = None,
    test_gold: Gold | None = None,
    first: int = 0,
    development: float = 0.5,
    most: int = 8,
    progress: bool = True,
) -> Aligner:
    """Choose the cross-attention heads that align words best, on texts with gold links: `lorgnette align`.

        >>> aligner = lo.align(translator, aligned)
        >>> aligner.save("links.txt", aligned).name
        'links.txt'

    Every head, every layer (its heads together), and the best 2 to `most` heads together (the mean of their scores) are
    compared by alignment error rate on the development texts, by weights and by norms, by the row that predicts a word
    and by the row that reads it. Without `test`, a hash of its id puts a share `development` of the texts among these,
    and the others are the test. `gold` (of `corpus`), `test_gold` and `first` are as in the lens `alignment`.

    What it does not tell you: how well the model would align by itself, as its decoder is fed the reference.
    """
    refuse_no_subject(subject, "align")
    whole_number(most, "most", at_least=2)
    check(development, Share, "development")
    examples = _with_targets(corpus)
    early = examples if test is not None else [each for each in examples if _early(each, development)]
    late = _with_targets(test) if test is not None else [each for each in examples if not _early(each, development)]
    if min(len(early), len(late)) < 2:
        raise UserError(
            f"{len(early)} texts to choose heads on and {len(late)} to test them on: two of each are needed. Give more "
            "texts, or a corpus for the test."
        )
    if progress and ProcessRank.join().first:
        tell_cost(
            "align", f"two passes over {len(early):,} texts to choose heads on, one over {len(late):,} to test them"
        )
    right = _gold(early, gold, first)
    right_late = _gold(late, gold if test is None else test_gold, first)
    result = look(subject, early, [Alignment(right)], progress=progress)
    best = _singles(result["alignment"])
    sets = _sets(result["alignment"], [linker for linker in best if linker.heads], most)
    on_early = _counts(subject, early, [*best, *sets], right, progress)
    errors = {linker: error_rate(counts).value for linker, counts in on_early.items()}
    rows = [*best, *([min(sets, key=lambda each: errors[each])] if sets else [])]
    chosen = min(rows, key=lambda each: errors[each])
    on_late = _counts(subject, late, rows, right_late, progress)
    rates = []
    for linker in rows:
        counts, found = on_late[linker], error_rate(on_late[linker])
        apart = error_difference(counts, on_late[chosen])
        shares = _share(counts[:, 1], counts[:, 2]), _share(counts[:, 0], counts[:, 3])
        rates.append(Rate(linker, errors[linker], found.value, *found.interval, *shares, apart.value, *apart.interval))
    return Aligner(subject, chosen, tuple(rates), len(early), len(late))


def pharaoh_line(pairs: Pairs) -> str:
    """`0-0 1-2`, ordered by source word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def _gold(examples: list[Example], gold: Gold | None, first: int) -> dict[str, Links]:
    links = None if gold is None else given_alignments(gold, first=first)
    return {example.id: gold_links(example, links) for example in examples}


def _early(example: Example, development: float) -> bool:
    return share(f"part/{example.id}") < development


def _with_targets(corpus: Texts) -> list[Example]:
    examples, known = as_examples(texts_of(corpus)), set()
    for example in examples:
        if example.target is None:
            raise UserError(f"The text {example.id!r} has no translation to align. Give a corpus with targets.")
        if example.id in known:
            raise same_id(example.id)
        known.add(example.id)
    return examples


def _singles(result: Result) -> list[Linker]:
    """The best head and the best layer by each measure, whichever row it is read by."""
    found = []
    for variable in ("aer", "layer_aer"):
        for measure in MEASURES:
            cells = result.data[variable].sel({axes.STACK: "cross", axes.MEASURE: measure})
            found.append(_linkers(cells, measure)[0])
    return found


def _linkers(cells: xr.DataArray, measure: str, reading: str | None = None) -> list[Linker]:
    """Heads or layers in the order of their errors."""
    ranked: list[tuple[float, Linker]] = []
    for row in READINGS if reading is None else (reading,):
        errors = cells.sel({axes.READING: row}).to_series().dropna()
        for label, error in errors.items():
            heads = ((int(label[0]), int(label[1])),) if isinstance(label, tuple) else ()
            layer = None if heads else int(label)
            ranked.append((float(error), Linker(measure, row, heads, layer)))
    return [linker for _, linker in sorted(ranked, key=lambda pair: pair[0])]


def _sets(result: Result, heads: Iterable[Linker], most: int) -> list[Linker]:
    """For each measure the best 2, 3 … `most` heads, by the row that its best head is read by."""
    out = []
    for best in heads:
        cells = result.data["aer"].sel({axes.STACK: "cross", axes.MEASURE: best.measure})
        ranked = [linker.heads[0] for linker in _linkers(cells, best.measure, best.reading)]
        sizes = range(2, min(most, len(ranked)) + 1)
        out += [Linker(best.measure, best.reading, tuple(ranked[:size])) for size in sizes]
    return out


def _counts(
    subject: Subject, examples: list[Example], linkers: list[Linker], gold: Mapping[str, Links], progress: bool
) -> dict[Linker, Counts]:
    lens = WordLinks(linkers)
    look(subject, examples, [lens], progress=progress)
    by_linker = [{id: each[number] for id, each in lens.found.items()} for number in range(len(linkers))]
    return {linker: counted(found, gold) for linker, found in zip(linkers, by_linker, strict=True)}


def _share(hits: Float[np.ndarray, " text"], total: Float[np.ndarray, " text"]) -> float:
    return float(hits.sum() / total.sum()) if total.sum() else 0.0
