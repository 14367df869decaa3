"""What we expected before the runs; every number is of a seed, and the interval says what other seeds would give."""

from collections.abc import Iterator

from reproductions.frame.claims import Bound, Claim, Published
from reproductions.frame.finished import Finished
from reproductions.frame.markdown import number
from reproductions.frame.statistics import mean_of
from reproductions.heavy_lifting.grid import FULL, QUICK, TRAINING
from reproductions.heavy_lifting.readings import ARMS, SHARES, Readings

WITHIN = 1.0
"""BLEU that may be lost."""
LOST = {24: Published(-0.54, "table 2, WMT, 36 of 144 heads"), 12: Published(-0.70, "table 2, WMT, 26 of 144 heads")}
SCRATCH = Published("28.95 with 58 of 144 heads, 28.56 with 36; whole 29.6", "table 2, WMT, from scratch")
GAPS = {24: Published(0.50, "table 2, WMT, 36 of 144 heads"), 12: Published(0.49, "table 2, WMT, 26 of 144 heads")}
_LIFT = Published("specialised heads do the heavy lifting and are pruned last", "title; section 6.3.2")
UNLIKE = {
    "own": "unequal adaptation: heads that close while the model learns have {pruned} steps to be done without, heads "
    "cut at once {tuning}",
    "scratch": "unequal adaptation: heads from scratch have all {all} steps, most of them large, pruned ones {pruned}",
}
PAIRS = (("gates", "confidence"), ("gates", "gradient"), ("confidence", "random"), ("gradient", "random"))


def claims(cells: Finished) -> list[Claim]:
    readings = Readings(cells)
    parts = (_lost, _chance, _places, _after, _signals, _scratch, _roles)
    return [claim for part in parts for claim in part(readings)]


def _lost(readings: Readings) -> Iterator[Claim]:
    for name, left in (("third", 24), ("sixth", 12)):
        if values := readings.lost(left):
            yield Claim(
                id=f"{name}-loses-little",
                text=f"with {SHARES[left]} of the heads, chosen by gates, less than {WITHIN:g} BLEU is lost",
                estimate=mean_of(values),
                bound=Bound.above(-WITHIN),
                published=LOST[left],
                note="against the whole model, trained as long; published: English-Russian, six layers",
            )
        if name == "third" and (values := readings.lost(left, "scratch")):
            yield Claim(
                id=f"{name}-from-scratch-loses-little",
                text=f"with {SHARES[left]} of the heads, from scratch, less than {WITHIN:g} BLEU is lost",
                estimate=mean_of(values),
                bound=Bound.above(-WITHIN),
                published=SCRATCH,
                note="against the whole model, trained as long; added when the numbers were known",
            )


def _chance(readings: Readings) -> Iterator[Claim]:
    for left in readings.left:
        for name, id in (("own", "as-trained"), ("gates", "chance")):
            beaten, draws = readings.beaten(name, left)
            for metric, tail in (("bleu", ""), ("loss", "-loss")):
                if not (values := readings.over(name, "random", left, metric)):
                    continue
                yield Claim(
                    id=f"{id}-{left}{tail}",
                    text=f"{SHARES[left]} of the heads: {ARMS[name]} are better than random ones of the same layers "
                    f"({'BLEU' if metric == 'bleu' else 'loss'}, equal steps)",
                    estimate=mean_of(values),
                    bound=Bound.above(0),
                    note=f"better in BLEU than {beaten} of {draws} random sets",
                    undecided=UNLIKE["own"].format(**steps(readings)) if name == "own" else "",
                    ours=True,
                )


def _places(readings: Readings) -> Iterator[Claim]:
    """Within the seeds that were run, random sets are the sample, and there are ten or more of each."""
    for left in readings.left:
        place = readings.place(left)
        if place.value is not None:
            yield Claim(
                id=f"place-{left}",
                text=f"{SHARES[left]} of the heads: {ARMS['gates']}, cut at once, beat more than half of the random "
                "sets of the same layers (BLEU, as many steps; share beaten − one half)",
                estimate=place,
                bound=Bound.above(0),
                note="in these seeds; added when the numbers were known",
                ours=True,
            )


def steps(readings: Readings) -> dict[str, str]:
    """Steps of all training, of those since gates begin to close, and of those after a cut."""
    size = QUICK if readings.cells.settings.quick else FULL
    epoch = -(-TRAINING // size.batch)
    pruned = epoch * size.gates + size.tuning
    counts = {"pruned": pruned, "all": epoch * size.small + pruned, "tuning": size.tuning}
    return {name: f"{count:,}" for name, count in counts.items()}


def _after(readings: Readings) -> Iterator[Claim]:
    """Right after the cut, before any step without the heads: all sets are cut out of one model."""
    for left in readings.left:
        beaten, draws = readings.beaten_after(left)
        yield Claim(
            id=f"cut-{left}",
            text=f"{SHARES[left]} of the heads, right after the cut: {ARMS['gates']} have a lower loss than "
            f"{ARMS['random']}",
            estimate=mean_of(readings.cut_over("gates", "random", left)),
            bound=Bound.above(0),
            note=f"lower than {beaten} of {draws} random sets",
            ours=True,
        )
        yield Claim(
            id=f"layers-{left}",
            text=f"{SHARES[left]} of the heads, right after the cut: random heads with the gates' number in every "
            "layer have a lower loss than heads drawn from all layers alike",
            estimate=mean_of(readings.cut_over("random", "free", left)),
            bound=Bound.above(0),
            ours=True,
        )
    for first, second in PAIRS:
        each = ", ".join(
            f"{left}: {number(sum(gap) / len(gap), 2)}"
            for left in readings.left
            if (gap := readings.cut_over(first, second, left))
        )
        yield Claim(
            id=f"cut-{first}-over-{second.replace('random', 'chance')}",
            text=f"right after the cut, {ARMS[first]} have a lower loss than {ARMS[second]} (mean over numbers of "
            "heads)",
            estimate=mean_of(readings.cut_over(first, second)),
            bound=Bound.above(0),
            note=f"as many heads in every layer; by heads left: {each}",
            ours=True,
        )


def _signals(readings: Readings) -> Iterator[Claim]:
    for first, second in PAIRS:
        each = ", ".join(
            f"{left}: {number(sum(gap) / len(gap), 2)}"
            for left in readings.left
            if (gap := readings.over(first, second, left))
        )
        if values := readings.mean_over(first, second):
            yield Claim(
                id=f"{first}-over-{second.replace('random', 'chance')}",
                text=f"{ARMS[first]} are better than {ARMS[second]} (BLEU, mean over numbers of heads)",
                estimate=mean_of(values),
                bound=Bound.above(0),
                note=f"as many heads in every layer; by heads left: {each}",
                ours=True,
            )


def _scratch(readings: Readings) -> Iterator[Claim]:
    for left in readings.left:
        if values := readings.over("own", "scratch", left):
            by_loss = readings.over("own", "scratch", left, "loss")
            yield Claim(
                id=f"trained-over-scratch-{left}",
                text=f"{SHARES[left]} of the heads: pruning a trained model is better than training these heads from "
                "scratch (BLEU, equal steps)",
                estimate=mean_of(values),
                bound=Bound.above(0),
                published=GAPS.get(left),
                ours=left not in GAPS,
                undecided=UNLIKE["scratch"].format(**steps(readings)),
                note=f"loss lower by {number(sum(by_loss) / len(by_loss))}; step sizes are the same, stage by stage",
            )


def _roles(readings: Readings) -> Iterator[Claim]:
    for what, text in (
        ("remain", "encoder heads with a role remain more often than the others of their layer when gates prune"),
        ("needed", "encoder heads with a role are needed more than the others of their layer (loss without the head)"),
    ):
        yield Claim(
            id=f"roles-{what}",
            text=text,
            estimate=mean_of(readings.role_gaps(what)),
            bound=Bound.above(0),
            published=_LIFT,
            note="role: positional, syntactic or rare words, above its control; layers in which all or no heads have "
            f"one say nothing; encoder heads with one, by seed: {', '.join(map(str, readings.roles)) or '–'}",
        )
