"""What the pages show of trees: how right the best tree of each head's attention is."""

from collections.abc import Iterator
from dataclasses import replace

from lorgnette.axes import BASELINE, WAY
from lorgnette.figures.doubt import difference, head_extreme
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport
from lorgnette.figures.variables import variable_figure
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery


def figures(result: Result) -> list[Figure]:
    scores = result.data.baseline_uas
    baselines = ", ".join(f"{name} {float(scores.sel({BASELINE: name})):.3f}" for name in scores[BASELINE].values)
    by_head = variable_figure(result, "uas", "Unlabelled attachment score of each head's best tree")
    by_layer = variable_figure(result, "layer_uas", "Unlabelled attachment score of the mean over heads, by layer")
    return [replace(by_head, caption=f"{by_head.caption} Baselines: {baselines}."), by_layer]


def findings(result: Result) -> Iterator[Finding]:
    """The heads with the best trees, beside the best positional baseline."""
    data = result.data
    uas = data["uas"].sel({WAY: "to_head"})
    ranked = heads(uas)
    if not ranked:
        return
    chain, random = (float(result.data.baseline_uas.sel({BASELINE: name})) for name in ("head_is_next", "random_tree"))
    uas_of, next_of = (
        Estimate.of(data, "uas", {WAY: "to_head"}),
        Estimate.of(data, "baseline_uas", {BASELINE: "head_is_next"}),
    )
    gain = difference(data, "uas_over_next", {}, uas_of, next_of)
    numbers = {
        "best": str(ranked[0]),
        "mean": float(uas.mean()),
        "next": chain,
        "random": random,
        "above": int((false_discovery(gain.p_above) < LEVEL).sum()),
        "heads": len(ranked),
    }
    best, names = head_extreme(data, "uas", {WAY: "to_head"})
    are = "is" if numbers["above"] == 1 else "are"
    doubt = f" It is{best.beside(names).removeprefix(',')}." if best.comparable and len(names) > 1 else ""
    yield Finding(
        f"Head {{best}} has the best tree (UAS, root given).{doubt} {{above}} of {{heads}} heads {are} significantly "
        "better than attaching every word to the next one ({next:.2f}; false discovery rate 5 %); the mean over heads "
        "is {mean:.2f}, random trees score {random:.2f}.",
        numbers,
    )


REPORT = LensReport(
    title="Do heads encode the syntax tree?",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(Compared("uas", "UAS of a head's tree"), Compared("layer_uas", "UAS of the tree of a layer's mean")),
    meaning=("scores", "root", "subtypes"),
)
