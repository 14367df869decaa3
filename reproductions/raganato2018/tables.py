"""Tables: UAS by head and layer beside the baselines, patterns by encoder, probes by layer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lorgnette.lenses.trees.lens import WAYS
from lorgnette.syntax.attachment import BASELINES, SCORES
from reproductions.frame.conditions import TRAINED
from reproductions.frame.readings import array, interval
from reproductions.frame.record import Table
from reproductions.raganato2018.claims import TASK_NAMES
from reproductions.raganato2018.grid import TREEBANKS
from reproductions.raganato2018.reading import (
    PATTERNS,
    SMALL,
    Outcome,
    average_head,
    best_head,
    followers,
    peaks,
    small_followers,
    uas,
)

SCORE_NAMES = {
    "uas": "UAS, the given root counted",
    "uas_nonroot": "without the root",
    "uas_words": "without punctuation",
    "uas_words_nonroot": "without both",
    "undirected": "undirected",
    "undirected_words": "undirected, without punctuation",
}
BASELINE_NAMES = {
    "head_is_next": "head is the next word (“right-branching”)",
    "head_is_previous": "head is the previous word (“left-branching”)",
    "random_word": "a random other word",
    "random_tree": "tree of random scores",
    "star": "all on the root",
}
WAY_NAMES = {"to_head": "its own row", "read_by_head": "transposed"}


def tables(found: Outcome, numbers: Mapping[str, Any]) -> list[Table]:
    out = []
    for model, cells in found.trees.items():
        out += [_baselines(model, cells[TRAINED], numbers), _heads(model, cells[TRAINED])]
    if found.trees:
        out += [_layers(found), _summary(found)]
    out.append(_patterns(found))
    return [*out, *_probes(found)]


def _baselines(model: str, cell: Mapping[str, Any], numbers: Mapping[str, Any]) -> Table:
    printed = numbers["uas"]["value"] if TREEBANKS[model] == "ud_en_pud" else {}
    rows = []
    for number, name in enumerate(BASELINES):
        row: dict[str, Any] = {"baseline": BASELINE_NAMES[name]}
        row |= {SCORE_NAMES[score]: float(array(cell["whole"][f"baseline_{score}"])[number]) for score in SCORES}
        if printed:
            row["published"] = printed.get("random" if name == "random_tree" else name)
        rows.append(row)
    return Table(
        f"Baselines on {cell['corpus']} ({cell['sentences']:,} sentences, {cell['words']:,} words)",
        pd.DataFrame(rows),
        "All are given the gold root. The paper's names for the first two are the reverse of the usual ones.",
    )


def _heads(model: str, cell: Mapping[str, Any]) -> Table:
    rows = []
    for way_number, way in enumerate(WAYS):
        for layer, heads in enumerate(array(cell["whole"]["uas"])[..., way_number], 1):
            row: dict[str, Any] = {"edges from": WAY_NAMES[way], "layer": layer}
            row |= {str(head): float(value) for head, value in enumerate(heads, 1)}
            row["mean of heads"] = float(heads.mean())
            row["tree of the mean"] = float(array(cell["whole"]["layer_uas"])[layer - 1, way_number])
            rows.append(row)
    return Table(
        f"UAS of every head: {model} on {cell['corpus']}",
        pd.DataFrame(rows),
        "Columns are heads. Its own row: a dependent's weights score its heads; transposed: a head's weights score its "
        "dependents.",
    )


def _layers(found: Outcome) -> Table:
    rows = []
    for model, cells in found.trees.items():
        for condition, cell in cells.items():
            values = uas(cell)
            for what, blocks in (("mean", values.mean(2)), ("best", values.max(2))):
                row: dict[str, Any] = {"model": model, "condition": condition, "of heads": what}
                rows.append(row | {str(k): float(v) for k, v in enumerate(blocks.mean(0), 1)})
    note = "Mean over blocks of text; best: of the layer's heads in each block, so chosen and told on the same text."
    return Table("UAS by layer (own rows)", pd.DataFrame(rows), note)


def _summary(found: Outcome) -> Table:
    rows = []
    for model, cells in found.trees.items():
        for condition, cell in cells.items():
            row: dict[str, Any] = {"model": model, "condition": condition, "sentences": cell["sentences"]}
            for way in WAYS:
                best = best_head(cell, way)
                row[f"average head, {WAY_NAMES[way]}"] = _ranged(average_head(cell, way))
                row[f"best head, {WAY_NAMES[way]}"] = f"{best.name}: {_ranged(best.told)}"
            scores = array(cell["by_block"]["baseline_uas"]).mean(0)
            row |= {BASELINE_NAMES[n].split(" (")[0]: float(scores[k]) for k, n in enumerate(BASELINES) if k < 2}
            rows.append(row)
    note = "Best heads are chosen on the even blocks of the text and told from the odd ones. Intervals are over blocks."
    return Table("Average and best heads beside their controls (UAS, the given root counted)", pd.DataFrame(rows), note)


def _ranged(blocks: np.ndarray) -> str:
    mean, low, high = interval(blocks)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]" if low == low else f"{mean:.3f}"


def _patterns(found: Outcome) -> Table:
    rows = []
    shown = [(model, condition, cell) for model, cells in found.patterns.items() for condition, cell in cells.items()]
    if found.multi30k is not None:
        shown.append(("opus-mt-en-fr", TRAINED, found.multi30k))
    for model, condition, cell in shown:
        shares = {p: peaks(cell, p).mean(0) for p in PATTERNS}
        row = {"encoder": model, "text": cell["corpus"], "condition": condition, "heads": shares["self"].size}
        rows.append(row | {p: _counted(followers(cell, p)[0], float(shares[p].max())) for p in PATTERNS})
    for languages in SMALL:
        row = {"encoder": f"marian-small {languages}", "text": "multi30k:val", "condition": TRAINED}
        if languages not in found.small:
            rows.append({**row, "heads": None} | dict.fromkeys(PATTERNS, "not run"))
            continue
        looked = found.small[languages]
        row["heads"] = np.size(looked["confidence"])
        best = {p: float(np.max(looked[f"peak_{p}"])) for p in PATTERNS}
        rows.append(row | {p: _counted(small_followers(looked, p), best[p]) for p in PATTERNS})
    return Table(
        "The four patterns: heads that follow them, and the largest share of any head",
        pd.DataFrame(rows).rename(columns={"self": "the word itself", "last": "last token"}),
        "A head follows a pattern if the largest weight is there in more than half of the rows of words (pieces, the "
        "end of the sentence is no row but may be looked at). The last word's next token is the last token.",
    )


def _counted(heads: list[str], most: float) -> str:
    shown = f" ({', '.join(heads[:6])}{' …' if len(heads) > 6 else ''})" if heads else ""
    return f"{len(heads)}{shown}; {most:.2f}"


def _probes(found: Outcome) -> list[Table]:
    rows, marks = [], []
    for task, cells in found.probes.items():
        for condition, cell in cells.items():
            where = {"label": TASK_NAMES[task], "condition": condition}
            for what in ("accuracy", "selectivity"):
                layers = {str(layer): float(value) for layer, value in enumerate(cell[what])}
                rows.append({**where, "": what, **layers})
            named = ("labels", "train_items", "test_items", "majority", "type_majority", "embedding_accuracy")
            marks.append({**where, "trained on": cell["trained_on"], "tested on": cell["corpus"],
                          **{name.replace("_", " "): cell[name] for name in named}})  # fmt: skip
    if not rows:
        return []
    return [
        Table(
            "Linear probes by layer (0: the embeddings with positions)",
            pd.DataFrame(rows),
            "Selectivity: accuracy less that of the same probe on a random label for every word type. One "
            "training each. Standard errors over sentences are about a point.",
        ),
        Table(
            "What the probes were trained and tested on, and what knows nothing of the sentence",
            pd.DataFrame(marks),
            "Majority: always the most frequent label; type majority: each word's most frequent label; embedding: a "
            "probe on the input embeddings alone.",
        ),
    ]
