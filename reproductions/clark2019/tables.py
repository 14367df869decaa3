"""Tables of where the weight goes and of syntax, a row for each model and condition, the published numbers beside."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from reproductions.clark2019 import surface, syntax
from reproductions.clark2019.losses import COLUMNS, LOSSES
from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.clark2019.surface import NAMES
from reproductions.frame.claims import Estimate
from reproductions.frame.conditions import PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table, published
from reproductions.frame.statistics import mean_of, paired

Row = dict[str, Any]
Numbers = Mapping[str, Any]
_PRINTED = {"model": PUBLISHED_MODEL, "condition": "published"}


def tables(cells: Finished) -> Iterator[Table]:
    numbers = {name: entry["value"] for name, entry in published("clark2019")["numbers"].items()}
    if cells.of(kind="surface"):
        yield from _surface(cells, numbers)
    for cell in cells.of(kind="gradients"):
        yield _gradients(str(cell.labels["which"]), cell.result)
    if cells.of(kind="relations"):
        yield _mapping()
    for model, conditions in surface.models(cells, "relations").items():
        yield _relations(model, conditions, numbers)
    if cells.of(kind="parser"):
        yield _parser(cells, numbers["parser"])
    if cells.of(kind="antecedents"):
        yield _antecedents(cells, numbers["antecedents"])


def ranged(one: Estimate | None) -> str | None:
    """Value [low, high], three digits each."""
    if one is None or one.interval is None:
        return None if one is None else f"{one.value:.3f}"
    return f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"


def _layers(values: Any) -> Row:
    return {str(layer): float(value) for layer, value in enumerate(values, 1)}


def _surface(cells: Finished, numbers: Numbers) -> Iterator[Table]:
    every = list(surface.rows(cells))
    sizes = {"corpus": "corpus", "segments": "segments", "Σ n": "tokens", "Σ n²": "squared_tokens"}
    lines: list[Row] = [
        {**where, **{title: data.attrs[name] for title, name in sizes.items()}} for where, data in every
    ]
    printed = {title: {"corpus": "Wikipedia", **numbers["segments"]}[name] for title, name in sizes.items()}
    yield Table("segments", "Segments", pd.DataFrame([{**_PRINTED, **printed}, *lines]))
    lines = [
        {**where, "token": name, **_layers(surface.by_layer(data, kind))}
        for where, data in every
        for kind, name in NAMES.items()
    ]
    title = "Share of the weight by category of token and layer (mean over heads)"
    yield Table("mass", title, pd.DataFrame(lines), _MASS)
    yield _heads(every, numbers)
    yield _special_rows(every, numbers)
    lines = [{**where, **_layers(data["entropy"].mean("head").values)} for where, data in every]
    yield Table(
        "entropy", "Entropy in nats by layer (mean over queries, segments and heads)", pd.DataFrame(lines), _SMOOTH
    )
    lines = [{**where, **_apart(data)} for where, data in every if "within" in data]
    title = "Jensen–Shannon divergence in nats between two heads, mean over queries"
    yield Table("divergence", title, pd.DataFrame(lines))


_MASS = (
    "Published (read off a figure): [SEP] more than half in layers 6 to 10 of 12, [CLS] about .25 at layer 2, period "
    "and comma .5 to .57 at layers 11 and 12."
)
_SMOOTH = "Without the paper's smoothing (.9999 α + .0001/n), which changes it by about a thousandth."


def _heads(every: list[tuple[dict[str, str], xr.Dataset]], numbers: Numbers) -> Table:
    neighbours = {kind: str(numbers[f"{kind}_heads"]) for kind in ("previous", "next")}
    lines: list[Row] = [{**_PRINTED, "heads": numbers["heads"], **neighbours}]
    for where, data in every:
        kinds = ("previous", "next", "self", "cls", "sep", "period_comma")
        listed = {NAMES.get(kind, kind): _listed(surface.heads_of(data, kind)) for kind in kinds}
        lines.append({**where, "heads": data["entropy"].size, **listed})
    title = "Heads (layer-head) with more than half of their weight on one category of token"
    return Table("heads", title, pd.DataFrame(lines).fillna("–"))


def _listed(heads: list[str]) -> str:
    return f"{len(heads)}: {', '.join(heads[:8])}{' …' if len(heads) > 8 else ''}" if heads else "0"


def _special_rows(every: list[tuple[dict[str, str], xr.Dataset]], numbers: Numbers) -> Table:
    entropy, sep = "entropy of [CLS], last layer", "[SEP] → [SEP]"
    lines: list[Row] = [{**_PRINTED, entropy: f"{numbers['cls_entropy_last_layer']:.2f}", sep: "> .9"}]
    for where, data in every:
        row: Row = {**where, entropy: ranged(mean_of(data["last_cls_entropy"], "blocks"))}
        lines.append(row | ({sep: ranged(mean_of(data["sep_to_sep"], "blocks"))} if "sep_to_sep" in data else {}))
    note = (
        "Entropy in nats of the row of [CLS]; weight of [SEP] on [SEP] in the heads with more than half of their "
        f"weight on [SEP]. Uniform attention has about {numbers['uniform_entropy']} nats."
    )
    return Table("special-rows", "What special tokens attend to", pd.DataFrame(lines).fillna("no such head"), note)


def _apart(data: xr.Dataset) -> Row:
    return {
        "same layer": ranged(mean_of(data["within"], "blocks")),
        "other layer": ranged(mean_of(data["between"], "blocks")),
        "difference": ranged(paired(data["within"], data["between"])),
        "segments": int(data["compared_segments"]),
        "stress of the map": float(data["stress"]),
    }


def _gradients(which: str, data: xr.Dataset) -> Table:
    asked = LOSSES[which]
    names = {"period_comma": ". and ,", "other": "other", "all": "all", **asked.names}
    lines = []
    for stack, name in asked.stacks.items():
        for layer in data["layer"].values.tolist():
            row: Row = {"stack": name, "layer": layer}
            for kind in COLUMNS:
                where = {"stack": stack, "layer": layer, "category": kind}
                mean, error = (1000 * float(data[part].sel(where)) for part in ("gradient", "error"))
                if not np.isnan(mean):
                    row[names[kind]] = f"{mean:.3f} ± {np.nan_to_num(error):.3f}"
            lines.append(row)
    made = f" The classifier was made by `{asked.made}`." if asked.made else ""
    source = f"{asked.model} on {data.attrs['texts']} sentences of {asked.corpus}"
    title = f"|∂loss/∂α| × 1000 by category of token: {source}"
    note = (
        f"The loss is {asked.loss}; mean over pairs of a query and such a token, then over heads and sentences, ± a "
        f"standard error over sentences (an upper bound: the mean of the heads' own).{made} No model with a "
        "masked-language loss was available, so this is not the paper's quantity."
    )
    return Table(which, title, pd.DataFrame(lines), note)


def _mapping() -> Table:
    lines = [
        {
            "Stanford": name,
            "Universal": one.relation,
            "same pairs": "no" if not one.same else "yes, ends swapped" if one.swapped else "yes",
            "note": one.note,
        }
        for name, one in STANFORD_TO_UD.items()
    ]
    return Table("mapping", "From the paper's relations to those of UD_English-EWT", pd.DataFrame(lines))


def _relations(model: str, conditions: Mapping[str, xr.Dataset], numbers: Numbers) -> Table:
    lines = []
    for name, one in STANFORD_TO_UD.items():
        row = syntax.best(conditions[TRAINED], name)
        line: Row = {"Stanford": name, "Universal": one.relation, "pairs": "–"}
        if row is not None:
            line |= {"pairs": f"{row['pairs']:,}", "head": f"{row['layer']}-{row['head']}", "way": row["way"]}
            line |= {TRAINED: ranged(syntax.accuracy(row)), "offset": f"{row['baseline']:.3f} ({row['offset']:+d})"}
        for condition in (c for c in (RANDOM, SHUFFLED) if c in conditions):
            other = syntax.best(conditions[condition], name)
            line[condition] = None if other is None else ranged(syntax.accuracy(other))
        printed = numbers["relations"].get(name, {})
        line["published"] = printed.get("accuracy")
        line["published offset"] = f"{printed['baseline']:.3f} ({printed['offset']:+d})" if printed else None
        lines.append(line)
    counts = ", ".join(f"{data.attrs['sentences']:,} sentences ({c})" for c, data in conditions.items())
    note = (
        f"{counts}. Heads, ways and offsets are chosen on one half of the sentences and tested on the other, with "
        "Wilson's 95 % interval; controls choose their own head. Relations with fewer than ten pairs in a half are "
        f"left out. {numbers['auxpass'].capitalize()}."
    )
    return Table(
        f"relations-{model}", f"The best head for each relation: {model} on UD_English-EWT", pd.DataFrame(lines), note
    )


def _parser(cells: Finished, printed: Numbers) -> Table:
    shown = {title: f"{printed[name]:.2f}" for name, title in syntax.FEATURES.items()}
    random = {syntax.FEATURES["attention_vectors"]: f"{printed['random attention_vectors']:.2f}"}
    following = {"next word": printed["head_is_next"]}
    lines: list[Row] = [
        {**_PRINTED, **following, **shown},
        {**_PRINTED, "condition": "published, random weights", **following, **random},
    ]
    for where, data in surface.rows(cells, "parser"):
        line: Row = {**where, "sentences": str(data.attrs["sentences"]), "next word": syntax.next_word(data)}
        line |= {title: ranged(syntax.uas(data, name)) for name, title in syntax.FEATURES.items()}
        lines.append(line | {"attention, best tree": ranged(syntax.uas(data, "attention", "tree"))})
    note = (
        "Each word takes its most likely head, as published; in the last column, the best tree. Trained on four fifths "
        "of the sentences, so on a hundredth of what the paper had."
    )
    title = "Trained combinations of all heads: UAS without punctuation on held-out sentences"
    return Table("parser", title, pd.DataFrame(lines), note)


def _antecedents(cells: Finished, printed: Numbers) -> Table:
    kinds = ("all", "pronoun", "proper", "nominal")
    lines: list[Row] = [
        {**_PRINTED, "mention": kind, "head": printed["head"], "accuracy": f"{printed[kind]:.2f}"} for kind in kinds
    ]
    lines[0] |= {"nearest mention": printed["nearest"], "same word": printed["head_match"]}
    for where, data in surface.rows(cells, "antecedents"):
        for kind in data["kind"].values.tolist():
            row = syntax.row(data, kind=kind, candidates="mentions")
            assert row is not None  # the label is there
            line: Row = {**where, "mention": kind, "head": f"{row['layer']}-{row['head']}"}
            line |= {"accuracy": ranged(syntax.accuracy(row)), "nearest mention": row["nearest"]}
            lines.append(line | {"same word": row["head_match"], "pairs": str(row["pairs"])})
    note = "The head is chosen on one half of the passages and tested on the other. Shuffled passages have no mentions."
    title = "Antecedents: the mention that a mention reads most, on passages of GUM"
    return Table("antecedents", title, pd.DataFrame(lines), note)
