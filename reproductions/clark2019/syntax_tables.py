"""Tables of the syntactic part: relations beside the published ones, UAS of the trained parsers, antecedents."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.clark2019.syntax import CONDITIONS, Syntax
from reproductions.clark2019.syntax_reading import best, next_word, ranged, uas
from reproductions.frame.conditions import PUBLISHED_MODEL, TRAINED
from reproductions.frame.record import Table

FEATURE_NAMES = {
    "attention": "attention",
    "attention_vectors": "attention and GloVe",
    "vectors_distance": "GloVe and distance",
}


def tables(found: Syntax, numbers: Mapping[str, Any]) -> list[Table]:
    value = {name: entry["value"] for name, entry in numbers.items()}
    out = [_mapping()] if found.get("relations") else []
    out += [_relations(model, cells, value) for model, cells in found.get("relations", {}).items() if TRAINED in cells]
    if found.get("parser"):
        out.append(_parser(found["parser"], value["parser"]))
    if found.get("antecedents"):
        out.append(_antecedents(found["antecedents"], value["antecedents"]))
    return out


def _mapping() -> Table:
    rows = [
        {"Stanford": name, "Universal": one.relation, "same pairs": "no" if not one.same else "yes, ends swapped"
         if one.swapped else "yes", "note": one.note}
        for name, one in STANFORD_TO_UD.items()
    ]  # fmt: skip
    return Table("From the paper's relations to those of UD_English-EWT", pd.DataFrame(rows))


def _relations(model: str, cells: Mapping[str, Any], value: Mapping[str, Any]) -> Table:
    rows = []
    for name, one in STANFORD_TO_UD.items():
        row = best(cells[TRAINED], name)
        printed = value["relations"].get(name, {})
        line: dict[str, Any] = {"Stanford": name, "Universal": one.relation}
        if row is not None:
            line |= {"pairs": int(row["pairs"]), "head": f"{row['layer']}-{row['head']}", "way": row["way"],
                     TRAINED: ranged(row), "offset": f"{row['baseline']:.3f} ({int(row['offset']):+d})"}  # fmt: skip
        for condition in CONDITIONS[1:]:
            if condition in cells:
                there = best(cells[condition], name)
                line[condition] = None if there is None else ranged(there)
        line["published"] = printed.get("accuracy")
        line["published offset"] = f"{printed['baseline']:.3f} ({printed['offset']:+d})" if printed else None
        rows.append(line)
    frame = pd.DataFrame(rows)
    frame["pairs"] = frame["pairs"].map(lambda n: "–" if n != n else f"{int(n):,}") if "pairs" in frame else "–"
    counts = ", ".join(f"{cell['sentences']:,} sentences ({condition})" for condition, cell in cells.items())
    return Table(
        f"The best head for each relation: {model} on UD_English-EWT",
        frame,
        f"{counts}. Heads, ways and offsets are chosen on one half of the sentences and told from the other, with "
        "Wilson's 95 % interval; controls choose their own head. Relations with fewer than ten pairs in a half are "
        f"left out. {value['auxpass'].capitalize()}.",
    )


def _parser(found: Mapping[str, Any], printed: Mapping[str, float]) -> Table:
    rows: list[dict[str, Any]] = [
        {"model": PUBLISHED_MODEL, "condition": "published", "next word": printed["head_is_next"]}
        | {FEATURE_NAMES[name]: f"{printed[name]:.2f}" for name in FEATURE_NAMES},
        {"model": PUBLISHED_MODEL, "condition": "published, random weights", "next word": printed["head_is_next"],
         FEATURE_NAMES["attention_vectors"]: f"{printed['random attention_vectors']:.2f}"},
    ]  # fmt: skip
    for model, cells in found.items():
        for condition, cell in cells.items():
            row: dict[str, Any] = {"model": model, "condition": condition, "sentences": str(cell["sentences"])}
            row["next word"] = next_word(cell)
            for name, title in FEATURE_NAMES.items():
                row[title] = _said(uas(cell, name))
            row["attention, best tree"] = _said(uas(cell, "attention", "tree"))
            rows.append(row)
    return Table(
        "Trained combinations of all heads: UAS without punctuation on held-out sentences",
        pd.DataFrame(rows),
        "Each word takes its most likely head, as published; in the last column, the best tree. Trained on four fifths "
        "of the sentences, so on a hundredth of what the paper had.",
    )


def _said(estimate: Any) -> str | None:
    return None if estimate is None else f"{estimate[0]:.3f} [{estimate[1]:.3f}, {estimate[2]:.3f}]"


def _antecedents(found: Mapping[str, Any], printed: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = []
    for kind in ("all", "pronoun", "proper", "nominal"):
        row: dict[str, Any] = {"model": PUBLISHED_MODEL, "condition": "published", "mention": kind}
        row |= {"head": printed["head"], "accuracy": f"{printed[kind]:.2f}"}
        if kind == "all":
            row |= {"nearest mention": printed["nearest"], "same word": printed["head_match"]}
        rows.append(row)
    for model, cells in found.items():
        for condition, cell in cells.items():
            for one in (r for r in cell["rows"] if r["candidates"] == "mentions"):
                row = {"model": model, "condition": condition, "mention": one["kind"], "pairs": str(one["pairs"])}
                row |= {"head": f"{one['layer']}-{one['head']}", "accuracy": ranged(one)}
                rows.append(row | {"nearest mention": one["nearest"], "same word": one["head_match"]})
    return Table(
        "Antecedents: the mention that a mention reads most, on passages of GUM",
        pd.DataFrame(rows),
        "The head is chosen on one half of the passages and told from the other. Shuffled passages have no mentions.",
    )
