"""Which figures a result has: a registry by lens, and a default for a lens that nobody registered."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lorgnette.axes import CATEGORY, DIRECTION, DIRECTION_B, HEAD, LABEL, LAYER, STACK, STATE
from lorgnette.figures import charts
from lorgnette.figures.cells import beside, chosen, partition, shown, table, titled
from lorgnette.figures.figure import Figure
from lorgnette.results import Result

if TYPE_CHECKING:
    import xarray as xr

TITLES = {
    "weights": "Where the weight goes",
    "norms": "How much of it arrives",
    "distances": "Which heads look alike",
    "geometry": "The shape of the embeddings",
    "cones": "A direction for each class",
    "importance": "Does the head matter?",
    "roles": "What each head is for",
    "agreement": "Which signal ranks the heads as taking them away does",
    "frequency": "Are frequent words discounted?",
    "rollout": "What reaches the top",
    "gradients": "Would the loss notice?",
    "relevance": "What the prediction goes through",
    "rationales": "Do explanations point to the right words?",
    "convexity": "How much of the values' cone attention uses",
    "probes": "What each layer knows",
    "relations": "Which head finds which dependency relation",
    "trees": "Does a head's attention hold the tree?",
    "attention-probe": "How much of the tree all heads hold together",
    "coreference": "Which head looks back to who is meant",
    "alignment": "Does cross-attention translate word by word?",
}
_MOST_PANELS = 12  # a variable with more is drawn by layer, not by head


Maker = Callable[[Result], list[Figure]]
_MAKERS: dict[str, Maker] = {}


def figures_for(lens: str) -> Callable[[Maker], Maker]:
    """Register the figures of a lens: `@figures_for("mylens") def figures(result) -> list[Figure]`."""

    def register(maker: Maker) -> Maker:
        _MAKERS[lens] = maker
        return maker

    return register


def figures_of(result: Result) -> list[Figure]:
    """The figures of a result: those of its lens, or a layer × head heat map for every variable that has one."""
    return _MAKERS.get(result.lens, by_default)(result)


def variable_figure(result: Result, variable: str, title: str | None = None, **selection: Any) -> Figure:
    """A heat map for a variable with heads, curves for one with layers only."""
    array = chosen(result, variable, selection)
    count = array.size // max(1, array.sizes["layer"] * array.sizes.get(HEAD, 1))
    is_map = HEAD in array.dims and count <= _MOST_PANELS
    chart = (charts.heat_map if is_map else charts.layer_curves)(result, variable, **selection)
    about = str(array.attrs.get("description", "")).strip()
    caption = f"{about[:1].upper()}{about[1:]}." if about else ""
    if is_map and count > 1:
        caption += " One colour scale for all."
    if not is_map:
        caption += _INTERVAL if HEAD in array.dims else ""
        caption += _ERRORS if HEAD not in array.dims and beside(result, array, "_se") is not None else ""
    data = result.to_dataframe(variable)
    return Figure(variable, title or titled(variable), caption.strip(), chart, table(array), data, count > 1)


_ERRORS = " The band is ± 1.96 standard errors over texts."
_INTERVAL = " A dot is a head; the band is the 95 % interval of their mean."


def by_default(result: Result) -> list[Figure]:
    return [variable_figure(result, name) for name in shown(result)]


def kinds_there(result: Result, variable: str, kinds: tuple[str, ...]) -> list[str]:
    """Those kinds of token that the texts of this model have."""
    array = result.data[variable]
    known = [kind for kind in kinds if kind in array[CATEGORY].values]
    return [kind for kind in known if bool(array.sel({CATEGORY: kind}).notnull().any())]


def by_stack(result: Result, variable: str, title: str, kinds: list[str]) -> list[Figure]:
    """Heat maps by kind of token, a figure for each stack with the kinds that it has."""
    stacks = result.data[variable][STACK].values.tolist() if STACK in result.data[variable].dims else []
    if len(stacks) < 2:
        return [variable_figure(result, variable, title, category=kinds)]
    figures = []
    for stack in stacks:
        part = Result(result.lens, result.data.sel({STACK: [stack]}), result.provenance)
        if there := kinds_there(part, variable, tuple(kinds)):
            figure = variable_figure(part, variable, f"{title}: {stack}", category=there)
            figures.append(replace(figure, name=f"{variable}-{stack}"))
    return figures


@figures_for("weights")
def of_weights(result: Result) -> list[Figure]:
    there = shown(result)
    if "mass" not in there:
        return by_default(result)
    titles = {
        "entropy_normalised": "Entropy: 0 one token, 1 all tokens alike",
        "confidence": "Confidence: the largest weight on a word",
    }
    figures = [variable_figure(result, name, title) for name, title in titles.items() if name in there]
    masses = kinds_there(result, "mass", ("cls", "sep", "punctuation", "other", "previous", "self", "next"))
    title = "What is read: the share of the weight by kind of token"
    figures += by_stack(result, "mass", title, masses)
    figures.append(shared(result, "By layer: what the weight is spent on"))
    if "entropy_normalised" in there:
        curves, heads = charts.layer_curves(result, "entropy_normalised"), figures[0]
        figures.append(
            replace(heads, name="entropy_by_layer", title="By layer: entropy", caption=_INTERVAL.strip(), chart=curves)
        )
    return figures


@figures_for("norms")
def of_norms(result: Result) -> list[Figure]:
    if not {"weight", "norm_share"} <= set(shown(result)):
        return by_default(result)
    figures = [shared(result, "Weight beside norm: what is read, and what of it arrives")]
    kinds = kinds_there(result, "norm_share", ("cls", "sep", "punctuation", "other"))
    figures += by_stack(result, "norm_share", "Share of the norm by kind of token", kinds)
    for name, title in (("f_norm", "Length of what a token would give, ‖f(x)‖"), ("f_cv", "How much ‖f(x)‖ varies")):
        if name in shown(result):
            selection = {"category": kinds} if CATEGORY in result.data[name].dims else {}
            figures.append(variable_figure(result, name, title, **selection))
    layers = (
        ("expansion", "How much longer f makes a vector"),
        ("mixing", "Mixing: what a token gets from the others"),
    )
    return figures + [variable_figure(result, name, title) for name, title in layers if name in shown(result)]


@figures_for("distances")
def of_distances(result: Result) -> list[Figure]:
    if "kind" not in result.data or not {"x", "y"} <= set(shown(result)):
        return by_default(result)
    frame = result.data[["x", "y", "kind"]].to_dataframe().dropna().reset_index()
    caption = "Heads whose rows are alike (Jensen–Shannon divergence) lie near each other; the axes have no unit."
    return [Figure("head_map", "Map of the heads", caption, charts.head_map(result), frame, frame, True)]


@figures_for("geometry")
def of_geometry(result: Result) -> list[Figure]:
    """Hidden states layer by layer, then the vectors of the heads."""
    states = Result(result.lens, states_as_layers(result.data), result.provenance)
    by_state = {
        "state_sim": "How alike the tokens of a text are (mean cosine)",
        "self_similarity": "How alike the occurrences of a word are (mean cosine)",
        "state_isoscore": "How evenly the space is used (IsoScore)",
        "state_effective_rank": "Effective rank",
    }
    by_head = {"sim": "Queries, keys and values of a text: mean cosine", "effective_rank": "Their effective rank"}
    drawn = [(states, name, title) for name, title in by_state.items() if name in shown(states)]
    drawn += [(result, name, title) for name, title in by_head.items() if name in shown(result)]
    return [variable_figure(*one) for one in drawn] or by_default(result)


@figures_for("cones")
def of_cones(result: Result) -> list[Figure]:
    """The angles between the classes, and the texts of each class in the cone of each."""
    matrices = (
        ("class_cosine", DIRECTION_B, "Cosine between the classes' mean directions"),
        ("cosine", LABEL, "Mean cosine of a class's texts with a representative of each class"),
    )
    figures = []
    for name, across, title in matrices:
        rows = result.to_dataframe(name).dropna(subset=[name])
        if len(rows):
            caption = "1 is the same direction, 0 a right angle, −1 the opposite direction."
            chart = charts.class_matrix(rows, DIRECTION, across, name)
            figures.append(Figure(name, title, caption, chart, rows, rows))
    return figures


def states_as_layers(data: "xr.Dataset") -> "xr.Dataset":
    """What is known of hidden states, with layer 0 for the embeddings."""
    names = [name for name, array in data.data_vars.items() if STATE in array.dims and LAYER not in array.dims]
    return data[names].drop_vars(LAYER, errors="ignore").rename({STATE: LAYER}) if names else data[names]


def shared(result: Result, title: str) -> Figure:
    """Shares of a whole by layer, as a figure."""
    import pandas as pd

    names = charts.shares(result)
    means = {}
    for name in names:
        array = partition(chosen(result, name, {}))
        means[name] = array.mean(HEAD) if HEAD in array.dims else array
    tables = [
        table(mean.rename(name)).assign(of=names[name].removeprefix("share of the ")) for name, mean in means.items()
    ]
    data = pd.concat([result.to_dataframe(name).assign(of=name) for name in names], ignore_index=True)
    caption = "Mean over heads; these kinds of token share out all tokens."
    chart = charts.categories_by_layer(result)
    whole = pd.concat(tables, ignore_index=True)
    if len(names) == 1:
        whole = whole.drop(columns="of")
    return Figure(
        "categories", title, caption, chart, whole, data, wide=len(names) * result.data.sizes.get(STACK, 1) > 1
    )
