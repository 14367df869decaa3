"""What the pages show of circuits: ranks, copying and composition."""

from collections.abc import Iterator

from lorgnette.axes import CIRCUIT, HEAD, LAYER
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, above, heads
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport
from lorgnette.figures.sentences import has
from lorgnette.figures.variables import figure_per_variable, titled_figures
from lorgnette.results import Result
from lorgnette.types import Json


def figures(result: Result) -> list[Figure]:
    titles = {
        "effective_rank": "Effective rank of W_QK and W_OV",
        "positive": "Copying: positive eigenvalue share of W_OV",
        "copied": "Tokens that the OV circuit copies",
    }
    return titled_figures(result, titles) or figure_per_variable(result)


def findings(result: Result) -> Iterator[Finding]:
    """The heads whose OV circuit copies most, and the layers with the lowest ranks."""
    ranked = heads(result.data["positive"]) if "positive" in result.data else []
    if ranked:
        numbers: Json = {"count": len(above(result.data["positive"])), "heads": len(ranked), "most": str(ranked[0])}
        yield Finding(
            f"{{count}} of {{heads}} heads {has(numbers['count'])} an OV circuit that mostly keeps directions "
            "(positive eigenvalue share above 0.5); the highest is {most}. The numbers are read off the weights: they "
            "have no sampling error.",
            numbers,
        )
    rank = result.data["effective_rank"].mean(HEAD)
    for circuit in rank[CIRCUIT].values.tolist():
        by_layer = rank.sel({CIRCUIT: circuit}).dropna(LAYER)
        if by_layer.sizes[LAYER] > 1:
            numbers = {
                "layer": int(by_layer.idxmin(LAYER)),
                "least": float(by_layer.min()),
                "most": float(by_layer.max()),
            }
            yield Finding(
                f"The effective rank of W_{circuit.upper()} is lowest in layer {{layer}} ({{least:.1f}}; highest "
                "{most:.1f}).",
                numbers,
            )


REPORT = LensReport(
    title="What the weights of a head could do",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(Compared("effective_rank"), Compared("positive")),
)
