"""What the paper says of syntax, each as a number with an interval."""

from collections.abc import Mapping
from typing import Any

from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.clark2019.syntax import Syntax
from reproductions.clark2019.syntax_reading import best, gain, next_word, uas
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.readings import claim
from reproductions.frame.record import Claim

SPECIAL = ("pobj", "det", "dobj", "poss", "auxpass", "ccomp", "mark")
"""Relations for which the paper's best head is far above the best offset."""
_OTHER = "Other models, another treebank and scheme: the finding can be compared, not the number."


def claims(found: Syntax, numbers: Mapping[str, Any]) -> list[Claim]:
    value = {name: entry["value"] for name, entry in numbers.items()}
    out = []
    for model, cells in found.get("relations", {}).items():
        if TRAINED in cells:
            out += [_no_parser(model, cells[TRAINED], value), *_relations(model, cells, value)]
    for model, cells in found.get("parser", {}).items():
        if TRAINED in cells:
            out += _parser(model, cells, value["parser"])
    for model, cells in found.get("antecedents", {}).items():
        if TRAINED in cells:
            out += _antecedents(model, cells, value["antecedents"])
    return out


def _no_parser(model: str, cell: Mapping[str, Any], value: Mapping[str, Any]) -> Claim:
    row = best(cell, "all")
    assert row is not None
    return claim(
        f"{model}: no single head is a parser: the best finds less than half of all pairs",
        (row["accuracy"], row["low"], row["high"]),
        0.5,
        above=False,
        published=value["relations"]["all"]["accuracy"],
        why=f"Head {row['layer']}-{row['head']}; the best offset ({row['offset']:+d}) finds {row['baseline']:.3f}. The "
        f"bound was set after a trial on 120 sentences. {_OTHER}",
    )


def _relations(model: str, cells: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    out = []
    for name in SPECIAL:
        row = best(cells[TRAINED], name)
        if row is None:
            continue
        printed = value["relations"][name]
        controls = [(c, best(cells[c], name)) for c in (RANDOM, SHUFFLED) if c in cells]
        said = "".join(f", {there['accuracy']:.3f} with {c}" for c, there in controls if there is not None)
        out.append(
            claim(
                f"{model}: a head finds {_named(name)} better than any fixed offset: gain > 0",
                gain(row),
                0.0,
                above=True,
                published=printed["accuracy"] - printed["baseline"],
                why=f"Head {row['layer']}-{row['head']}: {row['accuracy']:.3f} beside {row['baseline']:.3f}{said}.",
            )
        )
    return out


def _named(stanford: str) -> str:
    relation = STANFORD_TO_UD[stanford].relation
    return relation if relation == stanford else f"{relation} (the paper's {stanford})"


def _parser(model: str, cells: Mapping[str, Any], printed: Mapping[str, float]) -> list[Claim]:
    cell, out = cells[TRAINED], []
    alone, both, plain = (uas(cell, name) for name in ("attention", "attention_vectors", "vectors_distance"))
    if alone is not None:
        following = next_word(cell)
        text = f"{model}: all heads together parse better than “the head is the next word”: UAS gain > 0"
        less = tuple(part - following for part in alone)
        gain_ = printed["attention"] - printed["head_is_next"]
        why = f"{alone[0]:.3f} beside {following:.3f}, without punctuation; the error of the latter left out."
        out.append(claim(text, less, 0.0, above=True, published=gain_, why=why))
    for name, less_than, text in (
        ("attention_vectors", alone, "word vectors add to attention"),
        ("attention_vectors", plain, "attention adds to word vectors with distance"),
    ):
        if both is None or less_than is None:
            continue
        other = "attention" if less_than is alone else "vectors_distance"
        why = f"{both[0]:.3f} beside {less_than[0]:.3f}; errors added as if of different sentences."
        shown = printed[name] - printed[other]
        out.append(claim(f"{model}: {text}: UAS gain > 0", _less(both, less_than), 0.0, above=True,
                         published=shown, why=why))  # fmt: skip
    for control in (c for c in (RANDOM, SHUFFLED) if c in cells):
        there = uas(cells[control], "attention_vectors")
        if both is None or there is None:
            continue
        known = printed["attention_vectors"] - printed["random attention_vectors"] if control == RANDOM else None
        text = f"{model}: attention with word vectors parses better than with {control}: UAS gain > 0"
        why = f"{both[0]:.3f} beside {there[0]:.3f}."
        out.append(claim(text, _less(both, there), 0.0, above=True, published=known, why=why))
    return out


def _less(one: Any, other: Any) -> tuple[float, float, float]:
    mean = one[0] - other[0]
    width = ((one[2] - one[0]) ** 2 + (other[2] - other[0]) ** 2) ** 0.5
    return mean, mean - width, mean + width


def _antecedents(model: str, cells: Mapping[str, Any], printed: Mapping[str, Any]) -> list[Claim]:
    rows = [r for r in cells[TRAINED]["rows"] if r["kind"] == "all" and r["candidates"] == "mentions"]
    if not rows:
        return []
    row = rows[0]
    rest = [r for r in cells.get(RANDOM, {"rows": []})["rows"] if r["kind"] == "all" and r["candidates"] == "mentions"]
    said = f", with {RANDOM} {rest[0]['accuracy']:.3f}" if rest else ""
    rules = f"nearest mention {row['nearest']:.3f}, same word {row['head_match']:.3f}{said}"
    why = f"Head {row['layer']}-{row['head']}; {rules}."
    shown = (row["accuracy"], row["low"], row["high"])
    return [
        claim(f"{model}: a head finds antecedents better than “the nearest mention” does", shown, row["nearest"],
              above=True, published=printed["all"], why=why),
        claim(f"{model}: … and better than “the nearest with the same word”", shown, row["head_match"],
              above=True, published=printed["all"], why=why),
    ]  # fmt: skip
