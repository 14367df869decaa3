"""What the labelling task adds to the page: a cone for every part of speech?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import pandas as pd

from reproductions.fosse2023.pretrained_reading import (
    ORTHOGONAL,
    all_above,
    all_within,
    at,
    average,
    furthest,
    mean_of,
    off_diagonal,
    over_seeds,
)
from reproductions.fosse2023.tagging import STARTS, key
from reproductions.frame.estimates import Estimate, verdict_above
from reproductions.frame.parts import Part
from reproductions.frame.record import Claim, Figure, Table

if TYPE_CHECKING:
    from reproductions.frame.record import Settings

CONE = 0.9
"""AUROC above which a tag is said to have a cone; fixed beforehand, as is how many test words a tag must have."""
WORDS = 50
_TITLES = {"pretrained": "minilm from its checkpoint", "random": "minilm from random weights"}


def page_part(settings: "Settings", done: Mapping[str, Any]) -> Part:
    """Everything that the finished cells say."""
    found = {start: [done[key(start, s)] for s in settings.seeds if key(start, s) in done] for start in STARTS}
    found = {start: results for start, results in found.items() if results}
    return Part(
        title="A labelling task",
        setup=[_setup(next(iter(found.values()))[0])],
        summary=[" ".join(["**Parts of speech.**", *(_said(start, some) for start, some in found.items())])],
        claims=[claim for start, some in found.items() if len(some) > 1 for claim in _claims(start, some)],
        tables=[_table(start, some) for start, some in found.items()],
        figures=[_figure(found)],
        provenance={
            "tagging": {
                key: {n: one.get(n) for n in ("weights_hash", "device", "versions")} for key, one in done.items()
            }
        },
    )


def _setup(one: Any) -> str:
    counts, left_out = one["sentences"], sum(one["left_out"].values())
    return (
        f"Tagging: the {len(one['tags'])} UPOS tags of UD_English-EWT ({counts['train']:,} sentences to train, "
        f"{counts['test']:,} to test; {left_out} left out because they have more than 150 pieces or an unseen tag) "
        "with a linear layer on the last state of each word's first piece (transformers' token classification head), "
        "minilm from its checkpoint (Adam, 5e-5) and from random weights (2e-4), rates falling to zero, best of eight "
        "checks by validation loss. What was a text before is a word here: 20 representatives of each tag, drawn among "
        f"the words that are tagged right and left out. Fixed beforehand: a tag of at least {WORDS} test words has a "
        f"cone if its AUROC is above {CONE}."
    )


def _frequent(results: Sequence[Any]) -> list[int]:
    items = results[0]["after"]["items"]
    return [c for c in range(len(items)) if items[c] >= WORDS]


def _areas(results: Sequence[Any], when: str) -> dict[int, Estimate]:
    found = {c: over_seeds(results, at(when, "auroc", c)) for c in _frequent(results)}
    return {c: area for c, area in found.items() if area is not None}


def _pairs(results: Sequence[Any]) -> dict[tuple[int, int], Estimate]:
    there = set(_frequent(results))
    found = off_diagonal(results, lambda one: one["after"]["cosine"])
    return {pair: value for pair, value in found.items() if there.issuperset(pair)}


def _claims(start: str, results: Sequence[Any]) -> Iterator[Claim]:
    tags, name = results[0]["tags"], f"EWT, {_TITLES[start]}"
    areas, before = _areas(results, "after"), _areas(results, "before")
    if areas:
        least = min(areas, key=lambda c: areas[c].mean)
        yield Claim(
            text=f"{name}: every part of speech has a cone (AUROC of every tag above {CONE})",
            ours=areas[least].mean,
            interval=areas[least].interval,
            verdict=all_above(list(areas.values()), CONE),
            why=f"least: {tags[least]}; mean of tags {average([a.mean for a in areas.values()]):.3f}, before training "
            f"{average([a.mean for a in before.values()]):.3f}",
        )
    pairs = _pairs(results)
    if pairs:
        (first, second), value = furthest(pairs)
        yield Claim(
            text=f"{name}: the cones of tags are orthogonal (every mean cosine in ±{ORTHOGONAL})",
            ours=value.mean,
            interval=value.interval,
            verdict=all_within(pairs.values()),
            why=f"furthest from 0: {tags[second]} words with {tags[first]} representatives; "
            f"{_within(pairs)} of {len(pairs)} ordered pairs lie within",
        )
    ranked = over_seeds(results, lambda one: one["after"]["spearman"])
    if ranked is not None:
        yield Claim(
            text=f"{name}: tags whose words lie closer together are tagged better (Spearman over tags)",
            ours=ranked.mean,
            interval=ranked.interval,
            verdict=verdict_above(ranked),
        )


def _within(pairs: dict[tuple[int, int], Estimate]) -> int:
    return sum(abs(value.mean) <= ORTHOGONAL for value in pairs.values())


def _said(start: str, results: Sequence[Any]) -> str:
    areas, before, pairs = _areas(results, "after"), _areas(results, "before"), _pairs(results)
    right = mean_of(results, lambda one: one["after"]["tag_accuracy"])
    said = f"With {_TITLES[start]}, {right:.3f} of the test words are tagged right."
    if not areas or not pairs:
        return said + f" Too few words are tagged right for cones of tags with {WORDS} test words."
    own = [mean_of(results, at("after", "cosine", c, c)) for c in areas]
    values = [value.mean for value in pairs.values()]
    return (
        f"{said} The mean AUROC of a tag is {average([a.mean for a in before.values()]):.3f} before and "
        f"{average([a.mean for a in areas.values()]):.3f} after training "
        f"(least {min(a.mean for a in areas.values()):.3f}); "
        f"the mean cosine with the own tag is {average(own):.2f}, with other tags {average(values):.2f} "
        f"({min(values):.2f} to {max(values):.2f}); {_within(pairs)} of {len(pairs)} pairs are within ±{ORTHOGONAL}."
    )


def _table(start: str, results: Sequence[Any]) -> Table:
    rows = []
    tags = results[0]["tags"]
    for c, tag in enumerate(tags):
        others = {j: mean_of(results, at("after", "cosine", c, j)) for j in range(len(tags)) if j != c}
        there = {j: value for j, value in others.items() if value is not None}
        nearest = max(there, key=lambda j: there[j]) if there else None
        row = {"tag": tag, "test words": results[0]["after"]["items"][c]}
        row |= {"accuracy": mean_of(results, at("after", "accuracy", c))}
        row |= {f"AUROC {w}": mean_of(results, at(w, "auroc", c)) for w in ("before", "after")}
        row |= {"own tag": mean_of(results, at("after", "cosine", c, c))}
        row |= {"nearest other": "–" if nearest is None else tags[nearest]}
        row |= {"its cosine": None if nearest is None else there[nearest], "other tags": average(list(there.values()))}
        row |= {"own tag, tagged wrong": mean_of(results, at("after", "own_wrong", c))}
        rows.append(row)
    note = "Cosines: means over words with representatives of the tag. A tag without test words has none."
    return Table(f"Cones of parts of speech, {_TITLES[start]}", pd.DataFrame(rows), note)


def _figure(found: Mapping[str, Sequence[Any]]) -> Figure:
    results = next(iter(found.values()))
    tags, rows = results[0]["tags"], []
    for when in ("before", "after"):
        for i, first in enumerate(tags):
            for j, second in enumerate(tags):
                value = mean_of(results, at(when, "cosine", i, j))
                if value is not None:
                    rows.append({"when": f"{when} training", "direction": first, "tag": second, "cosine": value})
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(17), height=alt.Step(17)).mark_rect()
    chart = chart.encode(
        x=alt.X("tag:N", title="tag of the word", sort=tags),
        y=alt.Y("direction:N", title="representative", sort=tags),
        color=alt.Color("cosine:Q", scale=alt.Scale(scheme="blueorange", domain=[-1, 1], domainMid=0)),
        column=alt.Column("when:N", sort=["before training", "after training"], title=None),
    )
    return Figure(
        "tags",
        chart,
        f"Mean cosine of the test words of each tag with representatives of each tag, {_TITLES[next(iter(found))]}; "
        "mean over seeds.",
    )
