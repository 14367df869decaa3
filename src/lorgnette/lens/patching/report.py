"""What the pages show of patching: the heads that bring the text's answer back."""

from collections.abc import Iterator

import numpy as np

from lorgnette.axes import HEAD, LAYER
from lorgnette.figures.doubt import head_extreme
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, HeadValue, decimals, heads, written
from lorgnette.figures.lens_report import EXPLANATIONS, Compared, LensReport, Measure
from lorgnette.figures.sentences import NAMED
from lorgnette.figures.variables import titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate


def figures(result: Result) -> list[Figure]:
    return titled_figures(result, {"effect": "Effect of patching each head", "patched": "Logit difference, patched"})


def findings(result: Result) -> Iterator[Finding]:
    """How far the texts are apart, how many heads change that, and which do most."""
    data = result.data
    pairs = int(data.attrs.get("pairs", data["clean_count"]))
    ends = {name: float(data[name]) for name in ("clean", "corrupt")}
    of = "pair" if pairs == 1 else "pairs"
    words = f"Over {{pairs}} {of} the logit difference is {{clean:.2f}} for texts and {{corrupt:.2f}} for their "
    words += "counterparts"
    whole = Estimate(float(data["difference"]), float(data["difference_se"]), pairs)
    if pairs > 1 and not whole.p <= LEVEL:
        yield Finding(
            f"{words}: not significant, so there is nothing to restore.", {**ends, "pairs": pairs}, nothing=True
        )
        return
    sure = data["change_q"] < LEVEL
    numbers = {**ends, "pairs": pairs, "count": int(sure.sum()), "heads": int(data["effect"].notnull().sum())}
    if not numbers["count"]:
        yield Finding(f"{words}. Patching no single head changes it significantly.", numbers)
        return
    words += ". Patching changes it significantly for {count} of {heads} heads (false discovery rate 5 %)"
    back = heads(data["effect"].where(sure & (data["effect"] > 0)))[:NAMED]
    if not back:
        yield Finding(f"{words}, and none of them restores it.", numbers)
        return
    named = ", ".join(_share(result, one) for one in back)
    words += "; the largest shares that a single head restores are those of {named}"
    yield Finding(f"{words}{_first(result, back[0])}.", {**numbers, "named": named})


def _first(result: Result, first: HeadValue) -> str:
    """Whether the head that brings back most is beyond the others; each is a share of the same difference."""
    sign = np.sign(float(result.data["difference"]))
    best, names = head_extreme(result.data.assign(change=sign * result.data["change"]), "change")
    if names[best.place] != f"{first.layer}.{first.head}":
        return f"; the estimate for {_share(result, heads(result.data['effect'])[0])} is larger, but not significant"
    return f"; the first is{best.beside(names).removeprefix(',')}" if best.comparable else ""


def _share(result: Result, one: HeadValue) -> str:
    """The effect of a head with its interval, in words."""
    at = {LAYER: one.layer, HEAD: one.head}
    low, high = (float(result.data[f"effect_{end}"].sel(at)) for end in ("low", "high"))
    form = f".{decimals(50 * (high - low), least=0)}%"
    value, *ends = (written(number, form) for number in (one.value, low, high))
    return f"{one.layer}.{one.head} ({value}, 95 % CI {' to '.join(ends)})"


def cards(result: Result) -> Iterator[Measure]:
    yield Measure(
        "patching", "share of the difference between two texts that it restores", result.data["effect"], ".0%"
    )


REPORT = LensReport(
    title="Which heads tell a text from its counterpart",
    chapter=EXPLANATIONS,
    figures=figures,
    findings=findings,
    compared=(Compared("effect", "effect of patching"),),
    cards=cards,
)
