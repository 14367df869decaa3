"""The syntactic part in sentences made from its numbers."""

from collections.abc import Mapping
from typing import Any

from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.clark2019.syntax import KINDS, MORE_MODELS, Syntax
from reproductions.clark2019.syntax_reading import best, gain, next_word, uas
from reproductions.clark2019.syntax_tables import FEATURE_NAMES
from reproductions.frame.conditions import MODELS, PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED

_NAMES = {"relations": "relations", "parser": "trained parsers", "antecedents": "antecedents"}


def setup(found: Syntax) -> list[str]:
    if not found:
        return []
    return [
        "Syntax (§4.2, §5) is asked of single sentences of UD_English-EWT, spread evenly over its development and "
        "test parts, with the treebank's words: attention to a word is the sum over its pieces, from a word the mean; "
        "the word itself and special tokens are no candidates. The paper has the Penn Treebank with Stanford "
        "Dependencies; which relation stands for which is in a table below. A head is chosen on one half of the "
        "sentences and told from the other, and so is the best fixed offset; intervals are over sentences. Parsers "
        "are trained combinations of all heads, with and without GloVe, scored without punctuation. Antecedents "
        "(§4.3) are asked of passages of GUM. Shuffled words keep their heads and relations.",
    ]


def summary(found: Syntax) -> list[str]:
    out = [_relations(m, cells) for m, cells in found.get("relations", {}).items() if TRAINED in cells]
    out += [_parser(m, cells) for m, cells in found.get("parser", {}).items() if TRAINED in cells]
    return [*out, *_missing(found)]


def _relations(model: str, cells: Mapping[str, Any]) -> str:
    rows = {name: row for name in STANFORD_TO_UD if (row := best(cells[TRAINED], name)) is not None}
    sure = [name for name, row in rows.items() if gain(row)[1] > 0]
    shown = sorted(sure, key=lambda name: -gain(rows[name])[0])[:5]
    listed = ", ".join(
        f"{STANFORD_TO_UD[name].relation} {rows[name]['accuracy']:.2f} (offset {rows[name]['baseline']:.2f}, head "
        f"{rows[name]['layer']}-{rows[name]['head']})"
        for name in shown
    )
    text = (
        f"**{model}, relations.** For {len(sure)} of {len(rows)} relations some head beats the best fixed offset "
        f"(whole interval)" + (f", most of all {listed}." if shown else ".")
    )
    text += f" Mean over relations of what the best heads find: {_mean(list(rows.values())):.2f}."
    for condition in (c for c in (RANDOM, SHUFFLED) if c in cells):
        there = [row for name in STANFORD_TO_UD if (row := best(cells[condition], name)) is not None]
        beaten = sum(gain(row)[1] > 0 for row in there)
        text += (
            f" With {condition}: {beaten} of {len(there)} beat the offsets of that text; they find {_mean(there):.2f}."
        )
    return text


def _mean(rows: list[Any]) -> float:
    return sum(row["accuracy"] for row in rows) / max(len(rows), 1)


def _parser(model: str, cells: Mapping[str, Any]) -> str:
    said = []
    for condition, cell in cells.items():
        parts = [f"{title} {found[0]:.2f}" for name, title in FEATURE_NAMES.items() if (found := uas(cell, name))]
        said.append(f"{condition}: {', '.join(parts)}, next word {next_word(cell):.2f}")
    return f"**{model}, all heads together.** UAS, {'; '.join(said)}."


def _missing(found: Syntax) -> list[str]:
    """What was not measured, so that nobody looks for it."""
    wanted = [name for name in (*MODELS, *MORE_MODELS) if name != PUBLISHED_MODEL]
    parts = []
    for kind in KINDS:
        conditions = (TRAINED, RANDOM) if kind == "antecedents" else (TRAINED, RANDOM, SHUFFLED)
        for model in wanted:
            lacking = [c for c in conditions if c not in found.get(kind, {}).get(model, {})]
            if lacking:
                whole = len(lacking) == len(conditions)
                parts.append(f"{_NAMES[kind]} of {model}" + ("" if whole else f" ({', '.join(lacking)})"))
    return [f"**Not run (syntax).** {'; '.join(parts)}."] if parts else []
