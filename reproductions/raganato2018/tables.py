"""Tables: UAS by head and layer beside the baselines, patterns by encoder, probes by layer."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lorgnette.looking.controls import TRAINED
from reproductions.frame import markdown
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table, published
from reproductions.frame.statistics import mean_of
from reproductions.raganato2018.claims import TASK_NAMES
from reproductions.raganato2018.grid import ENGLISH, MULTI30K
from reproductions.raganato2018.readings import (
    PATTERNS,
    average_head,
    baseline,
    best_head,
    conditions,
    followers,
    models,
    patterns,
    probe,
    small_patterns,
    tasks,
    trees,
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
    "head_is_next": "head is the next word",
    "head_is_previous": "head is the previous word",
    "random_word": "a random other word",
    "random_tree": "tree of random scores",
    "star": "all on the root",
}
WAY_NAMES = {"to_head": "its own row", "read_by_head": "transposed"}


CONTEXTS = {
    "same_word": "one word, two sentences",
    "same_sentence": "two words, one sentence",
    "other": "two words, two sentences",
    "order": "a word, its sentence shuffled",
    "alone": "a word, without anything around it",
}


def tables(cells: Finished) -> Iterator[Table]:
    for model in models(cells, "trees"):
        yield _baselines(cells, model)
        yield _heads(cells, model)
    if models(cells, "trees"):
        yield _layers(cells)
        yield _beside_controls(cells)
    yield _patterns(cells)
    if cells.of(kind="contexts"):
        yield _contexts(cells)
    if tasks(cells):
        yield from (_probes(cells), _probed(cells))


def _baselines(cells: Finished, model: str) -> Table:
    data = trees(cells, model)
    printed = published("raganato2018")["numbers"]["uas"]["value"] if model == ENGLISH else {}
    rows = []
    for name, title in BASELINE_NAMES.items():
        scores = data["whole_baseline_scores"].sel(baseline=name)
        row: dict[str, Any] = {"baseline": title}
        row |= {SCORE_NAMES[str(score)]: float(scores.sel(score=score)) for score in data["score"].values}
        if printed:
            row["published"] = printed.get("random" if name == "random_tree" else name)
        rows.append(row)
    title = (
        f"Baselines on {data.attrs['corpus']} ({data.attrs['sentences']:,} sentences, {data.attrs['words']:,} words)"
    )
    note = (
        "All are given the gold root. The paper calls the first right-branching and the second left-branching, the "
        "reverse of the usual names."
    )
    return Table(f"baselines-{model}", title, pd.DataFrame(rows), note)


def _heads(cells: Finished, model: str) -> Table:
    data, rows = trees(cells, model), []
    whole, of_mean = (data[f"whole_{name}_scores"].sel(score="uas") for name in ("head", "layer"))
    for way, title in WAY_NAMES.items():
        for layer in data["layer"].values:
            heads = whole.sel(way=way, layer=layer)
            row: dict[str, Any] = {"edges from": title, "layer": int(layer)}
            row |= {str(int(head)): float(value) for head, value in zip(data["head"].values, heads.values, strict=True)}
            row |= {"mean of heads": float(heads.mean()), "tree of the mean": float(of_mean.sel(way=way, layer=layer))}
            rows.append(row)
    note = (
        "Columns are heads. Its own row: a dependent's weights score its heads; transposed: a head's weights score its "
        "dependents."
    )
    return Table(f"heads-{model}", f"UAS of every head: {model} on {data.attrs['corpus']}", pd.DataFrame(rows), note)


def _conditions(cells: Finished) -> Iterator[tuple[dict[str, Any], xr.Dataset]]:
    for model in models(cells, "trees"):
        for condition in conditions(cells, kind="trees", model=model):
            yield {"model": model, "condition": condition}, trees(cells, model, condition)


def _layers(cells: Finished) -> Table:
    rows = []
    for row, data in _conditions(cells):
        uas = data["uas"].sel(way="to_head")
        for name, by_block in (("mean", uas.mean("head")), ("best", uas.max("head"))):
            layers = by_block.mean("block").to_series()
            rows.append({**row, "of heads": name} | {str(layer): value for layer, value in layers.items()})
    note = "Mean over blocks of text; best: of the layer's heads in each block, so chosen and tested on the same text."
    return Table("layers", "UAS by layer (own rows)", pd.DataFrame(rows), note)


def _beside_controls(cells: Finished) -> Table:
    rows = []
    for row, data in _conditions(cells):
        row["sentences"] = data.attrs["sentences"]
        for way, title in WAY_NAMES.items():
            best = best_head(data, way)
            row[f"average head, {title}"] = _ranged(average_head(data, way))
            row[f"best head, {title}"] = f"{best.name}: {_ranged(best.uas)}"
        for name in ("head_is_next", "head_is_previous"):
            row[BASELINE_NAMES[name]] = float(baseline(data, name).mean())
        rows.append(row)
    note = "Best heads are chosen on the even blocks of the text and tested on the odd ones. Intervals are over blocks."
    return Table("controls", "Average and best heads beside their controls (UAS)", pd.DataFrame(rows), note)


def _ranged(blocks: np.ndarray) -> str:
    return markdown.estimate(mean_of(blocks, "blocks"))


def _patterns(cells: Finished) -> Table:
    shown = [
        ({"encoder": model, "condition": condition}, patterns(cells, model, condition))
        for model in models(cells, "patterns")
        for condition in conditions(cells, kind="patterns", model=model)
    ]
    if cells.of(kind="patterns", text=MULTI30K):
        shown.append(({"encoder": ENGLISH, "condition": TRAINED}, patterns(cells, ENGLISH, text=MULTI30K)))
    for pair in cells.labels("languages"):
        shown.append(({"encoder": f"marian-small {pair}", "condition": TRAINED}, small_patterns(cells, pair)))
    rows = []
    for row, shares in shown:
        mean = shares.mean("block") if "block" in shares.dims else shares
        row |= {"text": shares.attrs["corpus"], "heads": mean.sizes["layer"] * mean.sizes["head"]}
        rows.append(
            row | {name: _counted(followers(shares, name), float(mean.sel(pattern=name).max())) for name in PATTERNS}
        )
    return Table(
        "patterns",
        "The four patterns: heads that follow them, and the largest share of any head",
        pd.DataFrame(rows).rename(columns={"self": "the word itself", "last": "last token"}),
        "A head follows a pattern if the largest weight is there in more than half of the rows of words (pieces, the "
        "end of the sentence is no row but may be looked at). The last word's next token is the last token.",
    )


def _counted(heads: list[str], most: float) -> str:
    listed = f" ({', '.join(heads[:6])}{' …' if len(heads) > 6 else ''})" if heads else ""
    return f"{len(heads)}{listed}; {most:.2f}"


def _probe_rows(cells: Finished) -> Iterator[tuple[dict[str, Any], xr.Dataset]]:
    for task in tasks(cells):
        for condition in conditions(cells, kind="probe", task=task):
            yield {"label": TASK_NAMES[task], "condition": condition}, probe(cells, task, condition)


def _probes(cells: Finished) -> Table:
    rows = [
        {**row, "": name, **{str(layer): value for layer, value in data[name].to_series().items()}}
        for row, data in _probe_rows(cells)
        for name in ("accuracy", "selectivity")
    ]
    note = (
        "Selectivity: accuracy less that of the same probe on a random label for every word type. One training each. "
        "Standard errors over sentences are about a point."
    )
    return Table("probes", "Linear probes by layer (0: the embeddings with positions)", pd.DataFrame(rows), note)


def _probed(cells: Finished) -> Table:
    names = ("labels", "train_items", "test_items", "converged", "majority", "type_majority", "embedding_accuracy")
    rows = []
    for row, data in _probe_rows(cells):
        row |= {"trained on": data.attrs["trained_on"], "tested on": data.attrs["corpus"]}
        rows.append(row | {name.replace("_", " "): data.attrs[name] for name in names})
    title = "What the probes were trained and tested on, and what knows nothing of the sentence"
    note = (
        "Converged: layers whose probe is at its minimum. Majority: always the most frequent label; type majority: "
        "each word's most frequent label; embedding: a probe on the input embeddings alone."
    )
    return Table("probed", title, pd.DataFrame(rows), note)


def _contexts(cells: Finished) -> Table:
    rows = []
    for cell in cells.of(kind="contexts"):
        values = {name: np.array(cell.result["by_block"][name], dtype=float).mean(0) for name in CONTEXTS}
        for layer in range(len(values["alone"])):
            row = {"model": cell.labels["model"], "layer": layer}
            rows.append(row | {said: float(values[name][layer]) for name, said in CONTEXTS.items()})
    note = "Layer 0: embeddings. Content words of PUD, means over blocks of sentences."
    return Table("contexts", "Cosines of words in sentences and alone", pd.DataFrame(rows), note)
