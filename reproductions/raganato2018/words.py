"""What a run of this reproduction found, in sentences made from its numbers."""

import numpy as np

from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.raganato2018.claims import TASK_NAMES
from reproductions.raganato2018.grid import CONDITIONS, TASKS, TREEBANKS
from reproductions.raganato2018.reading import (
    PATTERNS,
    Outcome,
    average_head,
    baseline,
    best_head,
    best_state,
    followers,
    small_followers,
    uas,
)

QUESTION = (
    "What does the encoder of a translation model know of its sentence: do its heads hold dependency trees, do they "
    "follow a few patterns, and which layer knows parts of speech, chunks, entities, meaning?"
)


def setup(found: Outcome) -> list[str]:
    out = [
        "Encoders of 6 layers and 8 heads, as the paper's: opus-mt-en-fr on English PUD, opus-mt-fr-en on the test "
        "part of UD_French-Sequoia. The paper's own models (English to seven languages) are not to be had. Trees: "
        "maximum spanning arborescence of a head's weights between words (to a word: sum over its pieces, from: "
        "mean), gold segmentation and gold root, punctuation kept; the given root counts as right, as published. "
        "Controls: the same architecture with random weights, and the trained model on sentences with their words "
        "shuffled (each word keeps its head), both on every fourth sentence.",
        "Intervals are 95 %: trees and patterns are computed in blocks of consecutive sentences, and blocks are the "
        "sample (t distribution); a best head is chosen on the even blocks and told from the odd ones. Those of probes "
        "are over test sentences. “Similar” means: within five points. That was set after a "
        "trial on 60 sentences of PUD had been seen, not before: read the difference itself. That a head follows a "
        "pattern if more than half of its rows do is the bound of clark2019.",
    ]
    if found.probes:
        words = max(cell["train_items"] for cells in found.probes.values() for cell in cells.values())
        out.append(
            f"Probes: linear, on each word's mean vector, trained on at most {words:,} words and tested on as many "
            "(the paper trains on whole training parts): parts of speech from UD_English-EWT, chunks from CoNLL-2000, "
            "entities (named or not, IOB2) from GUM. The paper's semantic tags are not to be had; in their stead stand "
            "the entity type and the information status of the mention that a word heads, from GUM, which are not the "
            "same thing. Sentences are seen one at a time, so what was given before cannot be known."
        )
    return out


def summary(found: Outcome) -> list[str]:
    out = [_trees(model, found) for model in found.trees]
    out += [_patterns(model, found) for model in found.patterns]
    out.append(_across(found))
    out.append(_probes(found))
    out += _missing(found)
    out.append(
        "**Not measured here.** BLEU after moving an encoder to another target language is a part of voita2019 "
        "(`transfer`). Trees and probes of the paper's own seven encoders."
    )
    return [paragraph for paragraph in out if paragraph]


def _missing(found: Outcome) -> list[str]:
    """Conditions that were not run, so that nobody looks for them."""
    parts = []
    for kind, there, names in (("trees", found.trees, TREEBANKS), ("patterns", found.patterns, TREEBANKS),
                               ("probes", found.probes, TASKS)):  # fmt: skip
        for name in names:
            lacking = [condition for condition in CONDITIONS if condition not in there.get(name, {})]
            said = TASK_NAMES.get(name, name)
            if lacking:
                whole = len(lacking) == len(CONDITIONS)
                parts.append(f"{kind} of {said}" + ("" if whole else f" ({', '.join(lacking)})"))
    return [f"**Not run.** {'; '.join(parts)}."] if parts else []


def _trees(model: str, found: Outcome) -> str:
    cells = found.trees[model]
    cell = cells[TRAINED]
    best, other = best_head(cell), best_head(cell, "read_by_head")
    layers = uas(cell).mean((0, 2))
    text = (
        f"**{model}, trees.** On {TREEBANKS[model]} the average head has UAS {average_head(cell).mean():.3f}, between "
        f"“the head is the previous word” ({baseline(cell, 'head_is_previous').mean():.3f}) and “the next word” "
        f"({baseline(cell, 'head_is_next').mean():.3f}). "
    )
    previous, following = (baseline(cell, f"head_is_{where}").mean() for where in ("previous", "next"))
    if not previous < average_head(cell).mean() < following:
        text = text.replace("between", "beside")
    text += (
        f"The best head, {best.name}, has {best.told.mean():.3f}; with the matrix transposed, {other.name}, "
        f"{other.told.mean():.3f}. By layer the mean over heads runs from {layers.min():.3f} (layer "
        f"{int(layers.argmin()) + 1}) to {layers.max():.3f} (layer {int(layers.argmax()) + 1})."
    )
    for condition in (c for c in (RANDOM, SHUFFLED) if c in cells):
        there = best_head(cells[condition])
        text += f" With {condition}: average {average_head(cells[condition]).mean():.3f}, best {there.told.mean():.3f}."
    return text


def _patterns(model: str, found: Outcome) -> str:
    cells = found.patterns[model]
    parts = [f"{_name(p)} {len(followers(cells[TRAINED], p)[0])}" for p in PATTERNS]
    every = set().union(*(followers(cells[TRAINED], p)[0] for p in PATTERNS))
    total = int(np.size(cells[TRAINED]["by_block"]["confidence"][0]))
    text = f"**{model}, patterns.** {len(every)} of {total} heads follow one of the four: {', '.join(parts)}."
    for condition in (c for c in (RANDOM, SHUFFLED) if c in cells):
        counts = ", ".join(f"{_name(p)} {len(followers(cells[condition], p)[0])}" for p in PATTERNS)
        text += f" With {condition}: {counts}."
    return text


def _name(pattern: str) -> str:
    return {"self": "the word itself", "last": "last token"}.get(pattern, pattern)


def _across(found: Outcome) -> str:
    if not found.small:
        return "**Across languages.** The small translation models have not been trained (voita2019): not run."
    said = "; ".join(
        f"{languages}: " + ", ".join(f"{_name(p)} {len(small_followers(looked, p))}" for p in PATTERNS)
        for languages, looked in found.small.items()
    )
    start = "**Across languages.** Heads of small encoders (3 × 8, trained on Multi30k alone) that follow a pattern"
    return f"{start}: {said}."


def _probes(found: Outcome) -> str:
    said = []
    for task, cells in found.probes.items():
        cell = cells[TRAINED]
        at, accuracy, _ = best_state(cell, range(1, len(cell["accuracy"])))
        rest = ", ".join(
            f"{condition} {best_state(cells[condition], range(1, len(cell['accuracy'])))[1]:.3f}"
            for condition in (RANDOM, SHUFFLED)
            if condition in cells
        )
        known = f"each word's most frequent label {cell['type_majority']:.3f}"
        said.append(f"{TASK_NAMES[task]} in layer {at} ({accuracy:.3f}; {known}{', ' + rest if rest else ''})")
    return f"**Probes.** Best layers: {'; '.join(said)}." if said else ""
