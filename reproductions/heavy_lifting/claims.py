"""What we expected before the runs; every number is of a seed, and the interval says what other seeds would give."""

from collections.abc import Iterator

from reproductions.frame.claims import Bound, Claim, Published
from reproductions.frame.finished import Finished
from reproductions.frame.markdown import number
from reproductions.frame.statistics import mean_of
from reproductions.heavy_lifting.readings import ARMS, SHARES, Readings

WITHIN = 1.0
"""BLEU that may be lost."""
_LOST = {24: Published(-0.54, "table 2, WMT, 36 of 144 heads"), 12: Published(-0.70, "table 2, WMT, 26 of 144 heads")}
_GAPS = {24: Published(0.50, "table 2, WMT, 36 of 144 heads"), 12: Published(0.49, "table 2, WMT, 26 of 144 heads")}
_LIFT = Published("specialised heads do the heavy lifting and are pruned last", "title; section 6.3.2")
PAIRS = (("gates", "confidence"), ("gates", "gradient"), ("confidence", "random"), ("gradient", "random"))


def claims(cells: Finished) -> list[Claim]:
    readings = Readings(cells)
    return [*_lost(readings), *_chance(readings), *_signals(readings), *_scratch(readings), *_roles(readings)]


def _lost(readings: Readings) -> Iterator[Claim]:
    for name, left in (("third", 24), ("sixth", 12)):
        if values := readings.lost(left):
            yield Claim(
                id=f"{name}-loses-little",
                text=f"with {SHARES[left]} of the heads, chosen by gates, less than {WITHIN:g} BLEU is lost",
                estimate=mean_of(values),
                bound=Bound.above(-WITHIN),
                published=_LOST[left],
                note="against the whole model, trained as long; published: English-Russian, six layers",
            )


def _chance(readings: Readings) -> Iterator[Claim]:
    for left in readings.left:
        beaten, draws = readings.beaten(left)
        for metric, tail in (("bleu", ""), ("loss", "-loss")):
            yield Claim(
                id=f"chance-{left}{tail}",
                text=f"{SHARES[left]} of the heads: those that gates chose are better than random ones of the same "
                f"layers ({'BLEU' if metric == 'bleu' else 'loss'})",
                estimate=mean_of(readings.over("gates", "random", left, metric)),
                bound=Bound.above(0),
                note=f"cut out of one model and trained alike; better in BLEU than {beaten} of {draws} random sets",
                ours=True,
            )
        yield Claim(
            id=f"layers-{left}",
            text=f"{SHARES[left]} of the heads: random heads with the gates' number in every layer are better than "
            "heads drawn from all layers alike (loss)",
            estimate=mean_of(readings.layers(left)),
            bound=Bound.above(0),
            note="right after the cut; the same model",
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
                published=_GAPS.get(left),
                ours=left not in _GAPS,
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
            "one say nothing",
        )
