"""What the pages show of the attention weights: sinks, neighbours, confidence, entropy."""

from collections.abc import Iterator
from dataclasses import replace

from lorgnette.axes import CATEGORY, LAYER
from lorgnette.figures import charts
from lorgnette.figures.cells import shown
from lorgnette.figures.doubt import extreme_of, head_extreme, layer_means
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import HALF, Finding, above, decimals, heads, named_above
from lorgnette.figures.lens_report import READING, Compared, LensReport, Measure
from lorgnette.figures.sentences import NAMED, SPECIAL, the_category, with_values
from lorgnette.figures.variables import (
    OF_HEADS,
    categories_present,
    figure_per_variable,
    figures_by_stack,
    share_figure,
    titled_figures,
)
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.texts.parts import SPEAKERS

NEIGHBOURS = {"previous": "the previous token", "next": "the next token", "self": "the token itself"}
_DRAWN = ("cls", "sep", "punctuation", "other", "previous", "self", "next")


def figures(result: Result) -> list[Figure]:
    if "mass" not in shown(result):
        return figure_per_variable(result)
    titles = {
        "entropy_normalised": "Normalised entropy (0: one token, 1: uniform)",
        "confidence": "Confidence (mean maximum weight on a word)",
    }
    drawn = titled_figures(result, titles)
    entropy = next((figure for figure in drawn if figure.name == "entropy_normalised"), None)
    title = "Share of attention by category of token"
    drawn += figures_by_stack(result, "mass", title, categories_present(result, "mass", (*_DRAWN, *SPEAKERS)))
    drawn.append(share_figure(result, "Share of attention by layer"))
    if entropy is not None:
        curves = charts.layer_curves(result, "entropy_normalised")
        title = "Normalised entropy by layer"
        drawn.append(replace(entropy, name="entropy_by_layer", title=title, caption=OF_HEADS, chart=curves))
    return drawn


def findings(result: Result) -> Iterator[Finding]:
    sentences = [
        sinks(result),
        on_special(result),
        *(neighbours(result, kind) for kind in NEIGHBOURS),
        most_confident(result),
        focus(result),
    ]
    return (finding for finding in sentences if finding is not None)


def sinks(result: Result) -> Finding | None:
    """How many heads put more than half of their weight on one kind of special token: the kind with the most."""
    mass = result.data["mass"]
    kinds = [kind for kind in SPECIAL if bool(mass.sel({CATEGORY: kind}).notnull().any())]
    if not kinds or (kinds == ["period_comma"] and not above(mass.sel({CATEGORY: "period_comma"}))):
        return None
    by_kind = {kind: mass.sel({CATEGORY: kind}) for kind in kinds}
    most = max(kinds, key=lambda kind: (len(above(by_kind[kind])), float(by_kind[kind].mean())))
    count, total = len(above(by_kind[most])), len(heads(by_kind[most]))
    numbers = {"count": count, "heads": total, "mean": float(by_kind[most].mean()), "kind": the_category(most)}
    if count == 0:
        return Finding(
            "No head puts more than half of its attention on {kind} (mean over heads: {mean:.0%}).",
            numbers,
            "mass",
            nothing=True,
        )
    verb = "puts more than half of its" if count == 1 else "put more than half of their"
    return Finding(
        f"{{count}} of {{heads}} heads {verb} attention on {{kind}} (mean over all heads: {{mean:.0%}}).",
        numbers,
        "mass",
    )


def on_special(result: Result) -> Finding | None:
    """Heads with more than half of their weight on special tokens, or what stands for them: the role `special`.

    None where they are the heads that `sinks` counts, with half of their weight on one kind.
    """
    if "special" not in result.data:
        return None
    special, mass = result.data["special"] > HALF, result.data["mass"] > HALF
    count, total = int(special.sum()), len(heads(result.data["special"]))
    by_kind = [mass.sel({CATEGORY: kind}, drop=True) for kind in SPECIAL if kind in mass[CATEGORY].values]
    said = any(special.equals(of_kind) for of_kind in by_kind) and not _without_specials(result)
    if not count or said:
        return None
    verb = "puts more than half of its" if count == 1 else "put more than half of their"
    return Finding(
        f"{{special}} of {{heads}} heads {verb} attention on {_specials(result)}.",
        {"special": count, "heads": total},
        "mass",
    )


def _without_specials(result: Result) -> bool:
    """Whether no text has a special token, so that `special` is the weight on the first token."""
    return not bool(result.data["mass"].sel({CATEGORY: ["cls", "sep"]}).notnull().any())


def _specials(result: Result) -> str:
    """What `special` is the weight on, in these texts."""
    if _without_specials(result):
        return "the first token, an ordinary word here: these texts have no special token"
    if "mass_count" in result.data and "special_count" in result.data:
        texts = result.data["mass_count"].sel({CATEGORY: ["cls", "sep"]}).max(CATEGORY)
        if bool((texts < result.data["special_count"]).any()):
            return "special tokens (in texts without any, on the first token)"
    return "special tokens"


def neighbours(result: Result, kind: str) -> Finding | None:
    """The heads that read mostly the previous token, the next one, or the token itself."""
    readers = above(result.data["mass"].sel({CATEGORY: kind}))
    if not readers:
        return None
    more = len(readers) - NAMED
    named = named_above(readers[:NAMED]) + (f" and {more} more" if more > 0 else "")
    numbers = {"count": len(readers), "named": named, "what": NEIGHBOURS[kind]}
    verb = "head attends" if len(readers) == 1 else "heads attend"
    return Finding(f"{{count}} {verb} mostly to {{what}} (mean weight above 0.5): {{named}}.", numbers, "mass")


def most_confident(result: Result) -> Finding | None:
    """The heads with the highest confidence; None if no text had a word to be sure about.

    In texts without special tokens the first word can take their part as the sink. A head that puts most of its weight
    there is not called confident.
    """
    data, words = result.data, "Most confident heads (mean maximum weight on a word): {named}."
    if "special" in data and _without_specials(result) and bool((on_first := data["special"] > HALF).any()):
        data = data.assign(confidence=data["confidence"].where(~on_first))
        words = (
            "Most confident heads (mean maximum weight on a word), without those that put more than half of their "
            "attention on the first token: {named}."
        )
    top = heads(data["confidence"])[:NAMED]
    if not top:
        return None
    best, names = head_extreme(data, "confidence")
    named = with_values(Estimate.of(data, "confidence"), top, data["confidence"], sign="")
    numbers = {"named": named, "confidence": top[0].value, "name": names[best.place], "half": best.half}
    if best.comparable and len(names) > 1:
        words += f" Head {{name}} (± {{half:.{decimals(best.half)}f}}) is{best.beside(names).removeprefix(',')}."
    return Finding(words, numbers, "confidence")


def focus(result: Result) -> Finding | None:
    """The layers where attention is broadest and most focused, by normalised entropy."""
    mean = layer_means(result.data, "entropy_normalised")
    if mean.sizes[LAYER] < 2:
        return None
    layers = [int(layer) for layer in mean[LAYER].values]
    broad, narrow = (extreme_of(mean, "value", LAYER, largest=largest) for largest in (True, False))
    numbers = {"broad": layers[broad.place], "most": broad.value, "narrow": layers[narrow.place], "least": narrow.value}
    names, form = [f"layer {layer}" for layer in layers], f".{decimals(broad.half, narrow.half)}f"
    return Finding(
        f"Attention is broadest in layer {{broad}} (normalised entropy {{most:{form}}}{broad.beside(names)}) and most "
        f"focused in layer {{narrow}} ({{least:{form}}}{narrow.beside(names, 'below')}).",
        numbers,
        "entropy_by_layer",
    )


def cards(result: Result) -> Iterator[Measure]:
    yield Measure("confidence", "mean maximum weight on a word", result.data["confidence"], rank=1)
    yield Measure("entropy", "normalised entropy of a row", result.data["entropy_normalised"])


REPORT = LensReport(
    title="Where attention goes",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(
        Compared("confidence", "confidence"),
        Compared("entropy_normalised", "normalised entropy"),
        Compared("mass", "share of attention", select={CATEGORY: _DRAWN}, named={CATEGORY: ("cls", "sep")}),
    ),
    cards=cards,
    meaning=("by",),
    rank=-2,
)
