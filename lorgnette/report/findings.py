"""What a reader wants to know first: sentences whose numbers are computed from the results.

Each finding carries its numbers beside its words, so that a test (or a reader's script) can compare them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import xarray as xr

from lorgnette.axes import CATEGORY, HEAD, LAYER, STACK
from lorgnette.figures.cells import PARTITION, said, shown, titled
from lorgnette.figures.finding import HALF, Finding, above, heads
from lorgnette.results import Result, Results

SPECIAL = ("cls", "sep", "period_comma")
NEIGHBOURS = {"previous": "the previous token", "next": "the next token", "self": "the token itself"}
_NAMED = 3  # heads that are named one by one
CLEAR = 0.1
"""A rank correlation no further from zero is not worth a claim."""
_SOME = -0.2  # one above it is not worth a conclusion


Speaker = Callable[[Result], Iterator[Finding]]


def findings(results: Results | Mapping[str, Result]) -> list[Finding]:
    """The sentences for these results, lens by lens; a lens that is not known gets one about its first variable."""
    out = []
    for result in results.values():
        speak = _SPEAKERS.get(result.lens, _of_any)
        for words, data in _stacks(result.data):
            for finding in speak(Result(result.lens, data, result.provenance)):
                out.append(Finding(words + finding.template, finding.numbers))
    return out


def findings_for(lens: str) -> Callable[[Speaker], Speaker]:
    """Register the sentences of a lens: `@findings_for("mylens") def speak(result) -> Iterator[Finding]`, by stack."""

    def register(speaker: Speaker) -> Speaker:
        _SPEAKERS[lens] = speaker
        return speaker

    return register


def _stacks(data: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """One stack after another, with the words that say which if there are several."""
    if STACK not in data.dims:
        yield "", data
        return
    for stack in data[STACK].values.tolist():
        named = {"encoder": "Encoder: ", "decoder": "Decoder: ", "cross": "Decoder reading the encoder: "}
        words = named.get(stack, f"{_literal(stack)}: ") if data.sizes[STACK] > 1 else ""
        yield words, data.sel({STACK: stack}, drop=True)


def _literal(text: Any) -> str:
    """Text from outside, as it is: braces in it are no field of a template."""
    return str(text).replace("{", "{{").replace("}", "}}")


def sinks(result: Result) -> Finding | None:
    """How many heads put more than half of their weight on one kind of special token: the kind with the most."""
    mass = result.data["mass"]
    kinds = [kind for kind in SPECIAL if bool(mass.sel({CATEGORY: kind}).notnull().any())]
    if not kinds or (kinds == ["period_comma"] and not above(mass.sel({CATEGORY: "period_comma"}))):
        return None
    found = {kind: mass.sel({CATEGORY: kind}) for kind in kinds}
    most = max(kinds, key=lambda kind: (len(above(found[kind])), float(found[kind].mean())))
    count, total = len(above(found[most])), len(heads(found[most]))
    numbers = {"count": count, "heads": total, "mean": float(found[most].mean()), "kind": _the(most)}
    if count == 0:
        return Finding(
            "No head puts more than half of its weight on {kind}; the mean over heads is {mean:.2f}.", numbers
        )
    verb = "puts more than half of its" if count == 1 else "put more than half of their"
    return Finding(
        f"{{count}} of {{heads}} heads {verb} weight on {{kind}}; the mean over heads is {{mean:.2f}}.", numbers
    )


def _the(kind: str) -> str:
    return {"period_comma": "periods and commas"}.get(kind, f"the {said(kind)}")


def neighbours(result: Result, kind: str) -> Finding | None:
    """The heads that read mostly the previous token, the next one, or the token itself."""
    mass = result.data["mass"].sel({CATEGORY: kind})
    found = above(mass)
    if not found:
        return None
    named = ", ".join(map(str, found[:_NAMED])) + (" …" if len(found) > _NAMED else "")
    numbers = {"count": len(found), "named": named, "what": NEIGHBOURS[kind]}
    verb = "head reads" if len(found) == 1 else "heads read"
    return Finding(f"{{count}} {verb} mostly {{what}} (mean weight above .5): {{named}}.", numbers)


def surest(result: Result) -> Finding | None:
    """The heads with the highest confidence; None if no text had a word to be sure about."""
    top = heads(result.data["confidence"])[:_NAMED]
    if not top:
        return None
    numbers = {"first": str(top[0]), "named": ", ".join(map(str, top)), "confidence": top[0].value}
    return Finding("The surest heads, by their largest weight on a word (confidence): {named}.", numbers)


def focus(result: Result) -> Finding | None:
    """The layers where attention is broadest and most focused, by normalised entropy."""
    mean = result.data["entropy_normalised"].mean(HEAD).dropna(LAYER)
    if mean.sizes[LAYER] < 2:
        return None
    broad, narrow = mean.idxmax(LAYER).item(), mean.idxmin(LAYER).item()
    numbers = {"broad": int(broad), "most": float(mean.max()), "narrow": int(narrow), "least": float(mean.min())}
    return Finding(
        "Attention is broadest in layer {broad} (entropy {most:.2f} of what is possible) "
        "and most focused in layer {narrow} ({least:.2f}).",
        numbers,
    )


def arriving(result: Result) -> Finding | None:
    """What the most read kind of special token gets of the weight, and what of it arrives as norm."""
    weight, norm = result.data["weight"], result.data["norm"]
    kinds = [kind for kind in SPECIAL if bool(weight.sel({CATEGORY: kind}).notnull().any())]
    if not kinds:
        return None
    most = max(kinds, key=lambda kind: len(above(weight.sel({CATEGORY: kind}))))
    sure = weight.sel({CATEGORY: most}) > HALF
    if not bool(sure.any()):
        return None
    parts = norm.sel({CATEGORY: [kind for kind in PARTITION if kind in norm[CATEGORY].values]}).where(sure)
    share = float(parts.sel({CATEGORY: most}).sum() / parts.sum())
    read = float(weight.sel({CATEGORY: most}).where(sure).mean())
    numbers = {"count": int(sure.sum()), "kind": _the(most), "weight": read, "norm": share}
    which = "The head that gives" if numbers["count"] == 1 else "The {count} heads that give"
    return Finding(
        f"{which} {{kind}} more than half of the weight ({{weight:.0%}} on average) "
        "take {norm:.0%} of what they move from there, by norm.",
        numbers,
    )


def cancelling(result: Result) -> Finding | None:
    """Whether what is read much is short: ρ of α with ‖f(x)‖ over all pairs, for the most read special token."""
    if "spearman_all" not in result.data:
        return None
    rho = result.data["spearman_all"]
    found = {str(kind): float(rho.sel({CATEGORY: kind})) for kind in rho[CATEGORY].values}
    there = {kind: found[kind] for kind in SPECIAL if kind in found and found[kind] == found[kind]}
    if not there:
        return None
    kind = min(there, key=lambda name: there[name])
    numbers = {"kind": _the(kind), "rho": there[kind]}
    if there[kind] >= -CLEAR:
        return Finding("A larger weight on {kind} does not come with a shorter vector (ρ {rho:+.2f}).", numbers)
    end = ": the norm takes back what the weight gives." if there[kind] < _SOME else "."
    return Finding(
        "The larger the weight on {kind}, the shorter the vector that is sent from there "
        f"(ρ {{rho:+.2f}} over all pairs){end}",
        numbers,
    )


def kinds_of_heads(result: Result) -> Finding | None:
    """How many heads are of each kind on the map of heads."""
    cells = [kind for kind in result.data["kind"].values.ravel().tolist() if isinstance(kind, str) and kind != "other"]
    if not cells:
        return None
    counts = {kind: cells.count(kind) for kind in sorted(set(cells), key=lambda kind: (-cells.count(kind), kind))}
    words = ", ".join(f"{{{kind}}} {_literal(said(kind))}" for kind in counts)
    return Finding(f"Heads by what they attend to most: {words}.", dict(counts))


def _of_weights(result: Result) -> Iterator[Finding]:
    there = [sinks(result), *(neighbours(result, kind) for kind in NEIGHBOURS), surest(result), focus(result)]
    return (finding for finding in there if finding is not None)


def _of_norms(result: Result) -> Iterator[Finding]:
    return (finding for finding in [arriving(result), cancelling(result)] if finding is not None)


def _of_distances(result: Result) -> Iterator[Finding]:
    return (finding for finding in [kinds_of_heads(result)] if finding is not None)


def _of_any(result: Result) -> Iterator[Finding]:
    """The mean and both ends of the first variable that has a number for every head."""
    for name in shown(result):
        array = result.data[name]
        if set(array.dims) != {LAYER, HEAD}:
            continue
        found = heads(array)
        if not found:
            continue
        mean = float(array.mean())
        numbers = {"mean": mean, "low": str(found[-1]), "high": str(found[0]), "variable": titled(name)}
        yield Finding(
            f"{_literal(result.lens)}: {{variable}} is {{mean:.3g}} on average, from {{low}} to {{high}}.", numbers
        )
        return


_SPEAKERS: dict[str, Speaker] = {
    "weights": _of_weights,
    "norms": _of_norms,
    "distances": _of_distances,
}
