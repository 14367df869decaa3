"""What the pages show of the geometry: how alike the vectors of a text are, and how evenly the space is used."""

from collections.abc import Iterator

from lorgnette.axes import LAYER, STATE, VECTORS
from lorgnette.figures.doubt import extreme_of
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals
from lorgnette.figures.lens_report import GEOMETRY, Compared, LensReport
from lorgnette.figures.sentences import at_state
from lorgnette.figures.variables import figure_per_variable, states_as_layers, titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.types import Json


def figures(result: Result) -> list[Figure]:
    """Hidden states layer by layer, then the vectors of the heads."""
    by_state = {
        "state_sim": "Similarity of the tokens of a text (mean cosine)",
        "self_similarity": "Self-similarity: occurrences of a word (mean cosine)",
        "state_isoscore": "Isotropy (IsoScore; 1: isotropic, 0: all variance in one direction)",
        "state_effective_rank": "Effective rank of the states",
    }
    by_head = {
        "sim": "Queries, keys and values of a text (mean cosine)",
        "sim_centred": "The same minus their mean over the corpus",
        "effective_rank": "Effective rank of queries, keys and values",
    }
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
        bottom, top = (int(sim[STATE].values[end]) for end in (0, -1))
        numbers: Json = {"first": float(sim[0]), "last": float(sim[-1]), "bottom": bottom, "top": top}
        best = extreme_of(result.data.dropna(STATE, subset=["state_sim"]), "state_sim", STATE)
        numbers |= {"most": best.value, "where": int(sim[STATE].values[best.place])}
        names = [f"layer {state}" if state else "the embeddings" for state in sim[STATE].values.tolist()]
        halves = Estimate.of(result.data, "state_sim").half.sel({STATE: sim[STATE].values[[0, best.place, -1]]})
        form = f".{decimals(*halves.values.tolist())}f"
        yield Finding(
            f"Tokens of a text have a mean cosine similarity of {{first:{form}}} "
            f"{at_state(numbers['bottom'], 'bottom')} and {{last:{form}}} after layer {{top}}; the maximum is "
            f"{{most:{form}}}, {at_state(numbers['where'])}{best.beside(names)}.",
            numbers,
        )


def _isoscore(result: Result) -> Iterator[Finding]:
    """Say where vectors use the space least evenly."""
    score = result.data["state_isoscore"].dropna(STATE)
    if score.sizes[STATE]:
        numbers: Json = {"least": float(score.min()), "most": float(score.max())}
        numbers["where"] = int(score.idxmin(STATE))
        yield Finding(
            f"Isotropy is lowest {at_state(numbers['where'])} (IsoScore {{least:.2f}}); the maximum is {{most:.2f}}. "
            "IsoScore is of all texts together and has no standard error.",
            numbers,
        )


def _vectors(result: Result) -> Iterator[Finding]:
    """Say where the queries, keys and values of a text are most alike."""
    sim = result.data["sim_all"]
    tops: dict[str, tuple[float, float, int]] = {}
    doubts: dict[str, str] = {}
    for kind in sim[VECTORS].values.tolist():
        part = sim.sel({VECTORS: kind}).dropna(LAYER)
        if part.sizes[LAYER]:
            best = extreme_of(result.data.sel({VECTORS: kind}).dropna(LAYER, subset=["sim_all"]), "sim_all", LAYER)
            layers = [int(layer) for layer in part[LAYER].values]
            tops[str(kind)] = (float(part.mean()), best.value, layers[best.place])
            doubts[str(kind)] = best.beside([f"layer {layer}" for layer in layers])
    if "key" not in tops or "value" not in tops:
        return
    numbers: Json = {}
    for kind, (mean, most, layer) in tops.items():
        numbers |= {f"{kind}_mean": mean, f"{kind}_most": most, f"{kind}_layer": layer}
    yield Finding(
        "Mean cosine similarity within a text: keys {key_mean:.2f} (maximum {key_most:.2f} in layer {key_layer}"
        f"{doubts['key']}), values {{value_mean:.2f}} (maximum {{value_most:.2f}} in layer {{value_layer}}"
        f"{doubts['value']}).",
        numbers,
    )
    if "sim_centred_all" in result.data:
        means = {kind: float(result.data["sim_centred_all"].sel({VECTORS: kind}).mean()) for kind in ("key", "value")}
        yield Finding(
            "After subtracting their mean over the corpus, a constant that no output depends on, it is {key:.2f} for "
            "keys and {value:.2f} for values.",
            means,
        )


REPORT = LensReport(
    title="Geometry of the representations",
    chapter=GEOMETRY,
    figures=figures,
    findings=findings,
    compared=(
        Compared("state_sim", "similarity of the tokens of a text"),
        Compared("state_isoscore", "IsoScore"),
        Compared("self_similarity", "self-similarity of words"),
        Compared("sim", "similarity within a text"),
    ),
    meaning=("specials", "least"),
    rank=-3,
)
