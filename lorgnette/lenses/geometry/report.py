"""What the pages show of the geometry: how alike the vectors of a text are, and how evenly the space is used."""

from collections.abc import Iterator
from typing import Any

from lorgnette.axes import LAYER, STATE, VECTORS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import GEOMETRY, Compared, LensReport
from lorgnette.figures.variables import figure_per_variable, states_as_layers, titled_figures
from lorgnette.results import Result


def figures(result: Result) -> list[Figure]:
    """Hidden states layer by layer, then the vectors of the heads."""
    by_state = {
        "state_sim": "How alike the tokens of a text are (mean cosine)",
        "self_similarity": "How alike the occurrences of a word are (mean cosine)",
        "state_isoscore": "How evenly the space is used (IsoScore)",
        "state_effective_rank": "Effective rank",
    }
    by_head = {"sim": "Queries, keys and values of a text: mean cosine", "effective_rank": "Their effective rank"}
    drawn = titled_figures(states_as_layers(result), by_state) + titled_figures(result, by_head)
    return drawn or figure_per_variable(result)


def findings(result: Result) -> Iterator[Finding]:
    for variable, sentences in (("state_sim", _states), ("state_isoscore", _isoscore), ("sim_all", _vectors)):
        if variable in result.data:
            yield from sentences(result)


def _states(result: Result) -> Iterator[Finding]:
    """How alike the tokens of a text are, from the embeddings to the top."""
    sim = result.data["state_sim"].dropna(STATE)
    if sim.sizes[STATE] > 1:
        top = int(sim[STATE].values[-1])
        numbers: dict[str, Any] = {"first": float(sim[0]), "last": float(sim[-1]), "top": top}
        numbers |= {"most": float(sim.max()), "where": int(sim.idxmax(STATE))}
        yield Finding(
            "The tokens of a text have a mean cosine of {first:.2f} in the embeddings and {last:.2f} after layer "
            "{top}; it is highest after layer {where} ({most:.2f}).",
            numbers,
        )


def _isoscore(result: Result) -> Iterator[Finding]:
    """Where the space is used least evenly."""
    score = result.data["state_isoscore"].dropna(STATE)
    if score.sizes[STATE]:
        numbers = {"least": float(score.min()), "where": int(score.idxmin(STATE)), "most": float(score.max())}
        yield Finding(
            "The space is used least evenly after layer {where} (IsoScore {least:.2f}, of 1), and nowhere better "
            "than {most:.2f}.",
            numbers,
        )


def _vectors(result: Result) -> Iterator[Finding]:
    """Where queries, keys and values of a text are most alike."""
    sim = result.data["sim_all"]
    tops = {}
    for kind in sim[VECTORS].values.tolist():
        part = sim.sel({VECTORS: kind}).dropna(LAYER)
        if part.sizes[LAYER]:
            tops[str(kind)] = (float(part.mean()), float(part.max()), int(part.idxmax(LAYER)))
    if "key" not in tops or "value" not in tops:
        return
    numbers: dict[str, Any] = {}
    for kind, (mean, most, layer) in tops.items():
        numbers |= {f"{kind}_mean": mean, f"{kind}_most": most, f"{kind}_layer": layer}
    yield Finding(
        "Keys of a text have a mean cosine of {key_mean:.2f} (most in layer {key_layer}: {key_most:.2f}), values "
        "{value_mean:.2f} (layer {value_layer}: {value_most:.2f}).",
        numbers,
    )


REPORT = LensReport(
    title="The shape of the embeddings",
    chapter=GEOMETRY,
    figures=figures,
    findings=findings,
    compared=(
        Compared("state_sim", "mean cosine of the tokens of a text"),
        Compared("state_isoscore", "IsoScore"),
        Compared("self_similarity", "mean cosine of the occurrences of a word"),
        Compared("sim", "mean cosine of queries, keys and values of a text"),
    ),
)
