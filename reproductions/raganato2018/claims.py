"""What the paper and the slides say, each as a number with an interval."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.readings import array, claim, interval
from reproductions.frame.record import Claim
from reproductions.raganato2018.grid import ENGLISH, TREEBANKS
from reproductions.raganato2018.reading import (
    PATTERNS,
    Estimate,
    Outcome,
    average_head,
    baseline,
    best_head,
    best_state,
    followers,
    inside_less_outside,
    small_followers,
    within,
)

SIMILAR = 0.05
"""Five points of UAS: what is nearer is similar. Set after a trial on 60 sentences of PUD, which the page says."""
TASK_NAMES = {
    "upos": "parts of speech",
    "chunk": "chunks",
    "entity": "entities",
    "sem": "semantic tags",
    "etype": "entity types (for semantic tags)",
    "infstat": "information status (for semantic tags)",
}
PUBLISHED_TASK = {"etype": "sem", "infstat": "sem"}
_OTHER = "Another model, so the finding can be compared, not the number."


def claims(found: Outcome, numbers: Mapping[str, Any]) -> list[Claim]:
    value = {name: entry["value"] for name, entry in numbers.items()}
    out = []
    for model, cells in found.trees.items():
        out += [*_trees(model, cells, value), *_controls(model, cells)]
    for model, cells in found.patterns.items():
        out += _patterns(model, cells, value)
    out += [*_shared(found, value), *_probes(found, value)]
    return out


def _similar(text: str, estimate: Estimate, published: Any, why: str) -> Claim:
    mean, low, high = estimate
    return Claim(
        text=text,
        ours=mean,
        interval=None if low != low else (low, high),
        published=published,
        verdict=within(estimate, SIMILAR),
        why=why,
    )


def _trees(model: str, cells: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    cell, where = cells[TRAINED], TREEBANKS[model]
    average, previous, following = (
        average_head(cell),
        baseline(cell, "head_is_previous"),
        baseline(cell, "head_is_next"),
    )
    best = best_head(cell)
    half = len(cell["by_block"]["uas"][0]) // 2
    early, late = best_head(cell, layers=slice(0, half)), best_head(cell, layers=slice(half, None))
    told = model == ENGLISH
    return [
        _similar(
            f"{model} on {where}: the average head is like “the head is the previous word”: UAS differs by less than "
            f"{100 * SIMILAR:.0f} points",
            interval(average - previous),
            value["average_head"] if told else None,
            f"{average.mean():.3f} against {previous.mean():.3f}. {_OTHER}",
        ),
        _similar(
            f"{model} on {where}: the best head is like “the head is the next word”: UAS differs by less than "
            f"{100 * SIMILAR:.0f} points",
            interval(best.told - following[1::2]),
            value["best_head"] if told else None,
            f"Head {best.name}, chosen on the other half of the text: {best.told.mean():.3f} against "
            f"{following[1::2].mean():.3f}. {_OTHER}",
        ),
        claim(
            f"{model} on {where}: the best head of the first {half} layers is better than that of the others",
            interval(early.told - late.told),
            0.0,
            above=True,
            published=value["best_layers"] if told else None,
            why=f"Head {early.name}: {early.told.mean():.3f}, head {late.name}: {late.told.mean():.3f}; chosen on the "
            "other half.",
        ),
        claim(
            f"{model} on {where}: the average head is better than trees of random scores",
            interval(average - baseline(cell, "random_tree")),
            0.0,
            above=True,
            why=f"{average.mean():.3f} against {baseline(cell, 'random_tree').mean():.3f}.",
        ),
    ]


def _controls(model: str, cells: Mapping[str, Any]) -> list[Claim]:
    out = []
    best = best_head(cells[TRAINED])
    for condition in (c for c in (RANDOM, SHUFFLED) if c in cells):
        other = best_head(cells[condition])
        # Other sentences, so the blocks are no pairs: errors are added.
        mean, low, high = _apart(best.told, other.told)
        out.append(
            claim(
                f"{model} on {TREEBANKS[model]}: the best head is better than the best with {condition}",
                (mean, low, high),
                0.0,
                above=True,
                why=f"{best.told.mean():.3f} against {other.told.mean():.3f} (head {other.name}).",
            )
        )
    return out


def _apart(one: np.ndarray, other: np.ndarray) -> Estimate:
    """Difference of two means over different blocks, 95 % (Welch 1947)."""
    from scipy.stats import t

    less = float(one.mean() - other.mean())
    sizes = np.array([len(one), len(other)])
    if sizes.min() < 2:
        return less, float("nan"), float("nan")
    errors = np.array([one.var(ddof=1), other.var(ddof=1)]) / sizes
    if not errors.sum() > 0:
        return less, less, less
    freedom = errors.sum() ** 2 / (errors**2 / (sizes - 1)).sum()
    width = float(t.ppf(0.975, freedom) * np.sqrt(errors.sum()))
    return less, less - width, less + width


def _patterns(model: str, cells: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    out = []
    for pattern in PATTERNS:
        named, sure, perhaps = followers(cells[TRAINED], pattern)
        rest = ", ".join(f"{followers(cells[c], pattern)[1]} with {c}" for c in (RANDOM, SHUFFLED) if c in cells)
        listed = f" ({', '.join(named)})" if 0 < len(named) < 9 else ""
        heads = np.prod(array(cells[TRAINED]["by_block"]["confidence"]).shape[1:])
        out.append(
            Claim(
                text=f"{model}: there are heads whose largest weight is mostly on {_said(pattern)}",
                ours=sure,
                interval=(float(sure), float(perhaps)),
                published=value["patterns"] if model == ENGLISH else None,
                verdict="holds" if sure else "cannot tell" if perhaps else "does not hold",
                why=f"Of {heads} heads{listed}, for more than half of the rows of words; the interval counts heads "
                f"whose own interval is above ½, and reaches ½. Controls: {rest or 'not run'}.",
            )
        )
    return out


def _said(pattern: str) -> str:
    return {"self": "the word itself", "last": "the last token"}.get(pattern, f"the {pattern} token")


def _shared(found: Outcome, value: Mapping[str, Any]) -> list[Claim]:
    if len(found.small) < 2:
        text = "the four patterns are shared across target languages"
        why = "The small translation models have not been trained (voita2019)."
        return [Claim(text=text, ours=None, published=value["patterns"], verdict="cannot tell", why=why)]
    out = []
    for pattern in PATTERNS:
        counts = {languages: len(small_followers(looked, pattern)) for languages, looked in found.small.items()}
        having = sum(count > 0 for count in counts.values())
        out.append(
            Claim(
                text=f"small translation models: a head mostly on {_said(pattern)} is there for every target language",
                ours=f"{having} of {len(counts)}",
                published=value["patterns"],
                verdict="holds" if having == len(counts) else "does not hold",
                why=", ".join(f"{languages} {count}" for languages, count in counts.items())
                + " of 24 heads. Three layers, 29,000 sentences, one run each: much smaller than the paper's.",
            )
        )
    return out


def _probes(found: Outcome, value: Mapping[str, Any]) -> list[Claim]:
    out = []
    for task, cells in found.probes.items():
        cell, told = cells[TRAINED], value[PUBLISHED_TASK.get(task, task)]
        last = len(cell["accuracy"]) - 1
        layers = [layer for layer in told["layers"] if layer <= last]
        at, accuracy, _ = best_state(cell, range(1, last + 1))
        if 0 < len(layers) < last:
            out.append(
                claim(
                    f"{TASK_NAMES[task]}: best in {told['text']}: best accuracy there less the best elsewhere",
                    inside_less_outside(cell, layers),
                    0.0,
                    above=True,
                    published=told["text"],
                    why=f"Best in layer {at}: {accuracy:.3f}; by layer "
                    + ", ".join(f"{one:.3f}" for one in cell["accuracy"][1:])
                    + ".",
                )
            )
        out += [_beyond(task, cells, control) for control in (RANDOM, SHUFFLED) if control in cells]
    return out


def _beyond(task: str, cells: Mapping[str, Any], control: str) -> Claim:
    states = range(1, len(cells[TRAINED]["accuracy"]))
    at, here, error = best_state(cells[TRAINED], states)
    there, other, noise = best_state(cells[control], states)
    width = 1.96 * float(np.hypot(error, noise))
    return claim(
        f"{TASK_NAMES[task]}: the best layer knows more than the best with {control}",
        (here - other, here - other - width, here - other + width),
        0.0,
        above=True,
        why=f"Layer {at}: {here:.3f}, against layer {there}: {other:.3f}.",
    )
