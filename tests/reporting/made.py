"""Results with known numbers, and with text that would like to be HTML."""

import numpy as np
import xarray as xr

from lorgnette.results import Result, Results
from lorgnette.results.provenance import Provenance

CATEGORIES = ["cls", "sep", "punctuation", "period_comma", "other", "first", "last", "self", "previous", "next"]
SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(2)>'
TEMPLATE = "{{ 7 * 7 }} {count} ${x}"


def provenance(**changes):
    fields = {"model": "tiny", "corpus": "texts.txt", "texts": 5, "tokens": 60, "seed": 0, "created": "2026-01-01"}
    fields |= {"versions": {"python": "3"}, "command": "lorgnette look tiny -c texts.txt"}
    return Provenance(**{**fields, **changes})


def grid(layers=3, heads=4, stacks=("encoder",)):
    return {"stack": list(stacks), "layer": list(range(1, layers + 1)), "head": list(range(1, heads + 1))}


def weights(layers=3, heads=4, stacks=("encoder",), seed=0, **origin):
    """As the weights lens gives them, with random numbers; the first head of every stack is missing."""
    draw, axes = np.random.default_rng(seed), grid(layers, heads, stacks)
    shape = tuple(map(len, axes.values()))
    variables = {}
    for name in ("entropy", "entropy_normalised", "peak", "confidence", "sink"):
        variables[name] = (tuple(axes), draw.uniform(0, 1, shape))
    mass = draw.dirichlet([0.3, 0.3, 0.3, 0.3], shape)  # cls, sep, period_comma, other share out the whole
    whole = np.concatenate([mass[..., :2], mass[..., 2:3], mass[..., 2:], draw.uniform(0, 1, (*shape, 5))], -1)
    variables["mass"] = ((*axes, "category"), whole)
    for name, (dims, values) in list(variables.items()):
        values[:, 0, 0] = np.nan
        count = np.full(values.shape, 5)
        count[:, 0, 0] = 0
        variables |= {f"{name}_se": (dims, values / 10), f"{name}_count": (dims, count)}
    data = xr.Dataset(variables, {**axes, "category": CATEGORIES})
    data["confidence"].attrs["description"] = "largest weight on a word"
    return Result("weights", data, provenance(**origin))


def nothing():
    """Texts without a single word: no confidence anywhere."""
    data = weights().data.copy(deep=True)
    for name in ("confidence", "confidence_se"):
        data[name] = data[name] * np.nan
    data["confidence_count"] = data["confidence_count"] * 0
    return Result("weights", data, provenance())


def norms(layers=3, heads=4):
    draw, axes = np.random.default_rng(1), grid(layers, heads)
    shape, kinds = tuple(map(len, axes.values())), ["cls", "sep", "period_comma", "other"]
    norm = draw.uniform(0, 1, (*shape, 4))
    variables = {
        "weight": ((*axes, "category"), draw.dirichlet([2, 0.2, 0.2, 0.2], shape)),
        "norm": ((*axes, "category"), norm),
        "norm_share": ((*axes, "category"), norm / norm.sum(-1, keepdims=True)),
    }
    return Result("norms", xr.Dataset(variables, {**axes, "category": kinds}), provenance())


def plugin(lens="plug"):
    """A lens that nobody registered: something per head, per layer, between heads, and text."""
    axes = grid()
    draw, shape = np.random.default_rng(2), tuple(map(len, axes.values()))
    variables = {
        "score": (tuple(axes), draw.normal(size=shape)),
        "depth": (("layer",), np.arange(3.0)),
        "depth_se": (("layer",), np.full(3, 0.1)),
        "depth_count": (("layer",), np.full(3, 10)),
        "between": (("head", "other"), np.eye(4)),
        "kind": (tuple(axes), np.full(shape, "broad", dtype=object)),
    }
    return Result(lens, xr.Dataset(variables, {**axes, "other": [1, 2, 3, 4]}), provenance())


def hostile():
    """Every text that comes from outside is an attempt."""
    axes = grid()
    values = np.random.default_rng(3).uniform(0, 1, (1, 3, 4, 2))
    data = xr.Dataset({SCRIPT: ((*axes, IMAGE), values)}, {**axes, IMAGE: [SCRIPT, IMAGE]})
    data[SCRIPT].attrs["description"] = SCRIPT + IMAGE
    lens = Result(
        "plug" + SCRIPT + TEMPLATE,
        data.assign(score=(tuple(axes), values[..., 0])),
        provenance(
            model=SCRIPT, corpus=IMAGE, split=SCRIPT, command=IMAGE, notes=(SCRIPT, TEMPLATE), weights_hash=IMAGE
        ),
    )
    stacks = weights(stacks=(SCRIPT, IMAGE), model=SCRIPT)
    return Results({"a": lens, "b": stacks})
