"""What the pages show of trees: how right the best tree of each head's attention is."""

from collections.abc import Iterator
from dataclasses import replace

from lorgnette.axes import BASELINE, WAY
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, above, heads
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport
from lorgnette.figures.variables import variable_figure
from lorgnette.results import Result


def figures(result: Result) -> list[Figure]:
    scores = result.data.baseline_uas
    baselines = ", ".join(f"{name} {float(scores.sel({BASELINE: name})):.3f}" for name in scores[BASELINE].values)
    by_head = variable_figure(result, "uas", "Heads that are right in each head's best tree (UAS)")
    by_layer = variable_figure(result, "layer_uas", "The tree of the mean over heads, by layer")
    return [replace(by_head, caption=f"{by_head.caption} Without looking: {baselines}."), by_layer]


def findings(result: Result) -> Iterator[Finding]:
    """The heads with the best trees, beside the best positional baseline."""
    uas = result.data["uas"].sel({WAY: "to_head"})
    ranked = heads(uas)
    if not ranked:
        return
    chain, random = (float(result.data.baseline_uas.sel({BASELINE: name})) for name in ("head_is_next", "random_tree"))
    numbers = {
        "best": str(ranked[0]),
        "mean": float(uas.mean()),
        "next": chain,
        "random": random,
        "above": len(above(uas, chain)),
        "heads": len(ranked),
    }
    yield Finding(
        "The best tree is that of head {best}; {above} of {heads} heads do better than hanging every word on the next "
        "one ({next:.2f}), the mean is {mean:.2f}, and random trees get {random:.2f} (UAS, root given).",
        numbers,
    )


REPORT = LensReport(
    title="Does a head's attention hold the tree?",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(Compared("uas", "UAS of a head's tree"), Compared("layer_uas", "UAS of the tree of a layer's mean")),
)
