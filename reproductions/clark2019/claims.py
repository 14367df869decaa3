"""What the paper says of heads, each as a number with an interval; bounds are the paper's own."""

from collections.abc import Iterator, Mapping
from typing import Any

import xarray as xr

from reproductions.clark2019 import surface, syntax
from reproductions.clark2019.losses import LOSSES
from reproductions.clark2019.measure import FAR
from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.conditions import PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.statistics import mean_of, paired

Conditions = Mapping[str, xr.Dataset]
SPECIAL = ("pobj", "det", "dobj", "poss", "auxpass", "cop", "ccomp", "mark")
"""Relations for which the best head is far above the best offset, in the paper or its notebook."""
SHORT = {RANDOM: "random", SHUFFLED: "shuffled"}
_OTHER_MODEL = "The published number is BERT's: the finding can be compared, not the number."
_OTHER_TREEBANK = "Other models, another treebank and scheme: the finding can be compared, not the number."


def claims(cells: Finished) -> Iterator[Claim]:
    numbers = published("clark2019")["numbers"]
    for model, conditions in surface.models(cells).items():
        yield from _sinks(model, conditions, numbers)
        yield from _neighbours(model, conditions, numbers)
        yield from _rows(model, conditions[TRAINED], numbers)
        yield from _families(model, conditions, numbers)
    for cell in cells.of(kind="gradients"):
        yield _gradient(str(cell.labels["which"]), cell.result, numbers["gradient"])
    for model, conditions in surface.models(cells, "relations").items():
        yield from _relations(model, conditions, numbers)
    for model, conditions in surface.models(cells, "parser").items():
        yield from _parser(model, conditions, numbers["parser"])
    for model, conditions in surface.models(cells, "antecedents").items():
        yield from _antecedents(model, conditions, numbers["antecedents"])


def _printed(entry: Mapping[str, Any], value: Any = None) -> Published:
    return Published(entry["value"] if value is None else value, entry["source"])


def _other(model: str) -> str:
    return "" if model == PUBLISHED_MODEL else _OTHER_MODEL


def _sinks(model: str, conditions: Conditions, numbers: Mapping[str, Any]) -> Iterator[Claim]:
    trained = conditions[TRAINED]
    own = surface.sink(trained)
    least = {"sep": (FAR, "more than half"), "cls": (numbers["cls_peak"]["value"]["share"], "more than a quarter")}
    values = {"sep": ("sep_share", "text"), "cls": ("cls_peak", "share")}
    for kind in dict.fromkeys(("sep", own)):
        layer = surface.peak_layer(trained, kind)
        share = {c: data["share"].sel(special=kind).isel(layer=layer) for c, data in conditions.items()}
        entry, name = values[kind]
        yield Claim(
            id=f"{model}-{kind}-share",
            text=f"{model}: [{kind.upper()}] receives {least[kind][1]} of the weight in some layers (here most in "
            f"layer {layer + 1})",
            estimate=mean_of(share[TRAINED], "blocks"),
            bound=Bound.above(least[kind][0]),
            published=_printed(numbers[entry], numbers[entry]["value"][name]),
            note=_other(model),
        )
        for control in (c for c in SHORT if c in conditions and kind == own):
            yield Claim(
                id=f"{model}-{kind}-share-over-{SHORT[control]}",
                text=f"{model}: … and more than with {control}, in that layer: difference > 0",
                estimate=paired(share[TRAINED], share[control]),
                bound=Bound.above(0),
                note=f"{float(share[TRAINED].mean()):.3f} against {float(share[control].mean()):.3f}.",
                ours=True,
            )


def _neighbours(model: str, conditions: Conditions, numbers: Mapping[str, Any]) -> Iterator[Claim]:
    for kind in ("previous", "next"):
        sure, perhaps = surface.sure_heads(conditions[TRAINED], kind)
        counts = (f"{surface.sure_heads(conditions[c], kind)[0]} with {c}" for c in SHORT if c in conditions)
        heads = conditions[TRAINED]["entropy"].size
        entry = numbers[f"{kind}_heads"]
        yield Claim(
            id=f"{model}-{kind}-heads",
            text=f"{model}: some heads put more than half of their weight on the {kind} token",
            estimate=Estimate(
                value=sure, low=float(sure), high=float(perhaps), n=heads, over="heads", method="counted"
            ),
            bound=Bound.above(0.5),  # at least one head
            published=_printed(entry, f"{entry['value']} of {numbers['heads']['value']}"),
            note=f"Of {heads} heads; the interval counts those whose own interval is above ½, and reaches ½. Controls: "
            f"{', '.join(counts)}.",
        )


def _rows(model: str, data: xr.Dataset, numbers: Mapping[str, Any]) -> Iterator[Claim]:
    if "sep_to_sep" in data:
        heads = len(surface.heads_of(data, "sep"))
        yield Claim(
            id=f"{model}-sep-to-sep",
            text=f"{model}: [SEP] attends to [SEP] (> .9) in heads with more than half of it on [SEP] ({heads})",
            estimate=mean_of(data["sep_to_sep"], "blocks"),
            bound=Bound.above(numbers["sep_from_sep"]["value"]),
            published=_printed(numbers["sep_from_sep"], "> .9"),
            note=_other(model),
        )
    entry, uniform = numbers["cls_entropy_last_layer"], numbers["uniform_entropy"]["value"]
    cls, rest = data["last_cls_entropy"], data["last_entropy"]
    yield Claim(
        id=f"{model}-cls-broad",
        text=f"{model}: in the last layer [CLS] attends broadly: the entropy of its row exceeds the mean of all rows",
        estimate=paired(cls, rest),
        bound=Bound.above(0),
        published=_printed(entry, f"{entry['value']} nats (uniform {uniform})"),
        note=f"{float(cls.mean()):.2f} nats against {float(rest.mean()):.2f}. {_other(model)}".strip(),
    )


def _families(model: str, conditions: Conditions, numbers: Mapping[str, Any]) -> Iterator[Claim]:
    nearer = {c: conditions[c]["within"] - conditions[c]["between"] for c in (TRAINED, RANDOM) if c in conditions}
    yield Claim(
        id=f"{model}-families",
        text=f"{model}: heads of one layer are closer to each other than to other layers' (difference in nats < 0)",
        estimate=mean_of(nearer[TRAINED], "blocks"),
        bound=Bound.below(0),
        published=_printed(numbers["families"]),
    )
    if RANDOM in nearer:
        yield Claim(
            id=f"{model}-families-learnt",
            text=f"{model}: … and that is learnt: more so than with random weights",
            estimate=paired(nearer[TRAINED], nearer[RANDOM]),
            bound=Bound.below(0),
            ours=True,
        )


def _gradient(which: str, data: xr.Dataset, entry: Mapping[str, Any]) -> Claim:
    """§3.3 on what is at hand: another quantity, shown and never decided."""
    asked = LOSSES[which]
    return Claim(
        id=f"{asked.model}-gradient",
        text=f"{asked.model}: the loss hardly depends on the weight on the sink in the upper layers",
        estimate=Estimate(value=float(data["sink_ratio"])),
        bound=None,
        published=_printed(entry),
        note=f"|∂loss/∂α| for {asked.names[asked.sink]} over other tokens, upper half of the encoder, on {asked.loss}.",
    )


def _relations(model: str, conditions: Conditions, numbers: Mapping[str, Any]) -> Iterator[Claim]:
    entry, trained = numbers["relations"], conditions[TRAINED]
    whole = syntax.best(trained, "all")
    assert whole is not None  # of all pairs there are always enough
    yield Claim(
        id=f"{model}-no-parser",
        text=f"{model}: no single head is a parser: the best finds less than half of all pairs",
        estimate=syntax.accuracy(whole),
        bound=Bound.below(0.5),
        published=_printed(entry, entry["value"]["all"]["accuracy"]),
        note=f"Head {whole['layer']}-{whole['head']}; the best offset ({whole['offset']:+d}) finds "
        f"{whole['baseline']:.3f}. The bound was set after a trial on 120 sentences. {_OTHER_TREEBANK}",
    )
    for name in SPECIAL:
        row = syntax.best(trained, name)
        if row is None:
            continue
        relation, source = STANFORD_TO_UD[name].relation, numbers["notebook"]
        source = source if name in source["value"] else entry
        printed = source["value"][name]
        controls = ((c, syntax.best(conditions[c], name)) for c in SHORT if c in conditions)
        said = "".join(f", {other['accuracy']:.3f} with {c}" for c, other in controls if other is not None)
        known = relation if relation == name else f"{relation} (the paper's {name})"
        yield Claim(
            id=f"{model}-head-for-{name}",
            text=f"{model}: a head finds {known} better than any fixed offset: gain > 0",
            estimate=syntax.gain(row),
            bound=Bound.above(0),
            published=_printed(source, printed["accuracy"] - printed["baseline"]),
            note=f"Head {row['layer']}-{row['head']}: {row['accuracy']:.3f} against {row['baseline']:.3f}{said}.",
        )


def _parser(model: str, conditions: Conditions, entry: Mapping[str, Any]) -> Iterator[Claim]:
    printed, trained = entry["value"], conditions[TRAINED]
    alone, both, plain = (syntax.uas(trained, name) for name in syntax.FEATURES)
    following = syntax.next_word(trained)
    if alone is not None:
        yield Claim(
            id=f"{model}-parser-over-next-word",
            text=f"{model}: all heads together parse better than “the head is the next word”: UAS gain > 0",
            estimate=syntax.minus(alone, following),
            bound=Bound.above(0),
            published=_printed(entry, printed["attention"] - printed["head_is_next"]),
            note=f"{alone.value:.3f} against {following:.3f}, without punctuation; the error of the latter is ignored.",
        )
    if both is None:
        return
    for other, name, id, said in (
        (alone, "attention", "vectors-add", "word vectors add to attention"),
        (plain, "vectors_distance", "attention-adds", "attention adds to word vectors with distance"),
    ):
        if other is not None:
            yield Claim(
                id=f"{model}-{id}",
                text=f"{model}: {said}: UAS gain > 0",
                estimate=syntax.less(both, other),
                bound=Bound.above(0),
                published=_printed(entry, printed["attention_vectors"] - printed[name]),
                note=f"{both.value:.3f} against {other.value:.3f}; errors are treated as independent.",
            )
    known = _printed(entry, printed["attention_vectors"] - printed["random attention_vectors"])
    for control in (c for c in SHORT if c in conditions):
        other = syntax.uas(conditions[control], "attention_vectors")
        if other is not None:
            yield Claim(
                id=f"{model}-parser-over-{SHORT[control]}",
                text=f"{model}: attention with word vectors parses better than with {control}: UAS gain > 0",
                estimate=syntax.less(both, other),
                bound=Bound.above(0),
                published=known if control == RANDOM else None,
                note=f"{both.value:.3f} against {other.value:.3f}.",
                ours=control != RANDOM,
            )


def _antecedents(model: str, conditions: Conditions, entry: Mapping[str, Any]) -> Iterator[Claim]:
    row = syntax.row(conditions[TRAINED], kind="all", candidates="mentions")
    if row is None:
        return
    random = syntax.row(conditions[RANDOM], kind="all", candidates="mentions") if RANDOM in conditions else None
    rules = f"nearest mention {row['nearest']:.3f}, same word {row['head_match']:.3f}"
    rules += f", with {RANDOM} {random['accuracy']:.3f}" if random else ""
    for rule, id, said in (
        ("nearest", "nearest", "a head finds antecedents better than “the nearest mention” does"),
        ("head_match", "same-word", "… and better than “the nearest with the same word”"),
    ):
        yield Claim(
            id=f"{model}-antecedents-over-{id}",
            text=f"{model}: {said}",
            estimate=syntax.accuracy(row, "mentions"),
            bound=Bound.above(row[rule]),
            published=_printed(entry, entry["value"]["all"]),
            note=f"Head {row['layer']}-{row['head']}; {rules}.",
        )
