"""The option `centred`: numbers that a constant in all values leaves alone, as values are less their mean."""

import math

import numpy as np
import pytest
import torch
from gauge import grouped_llama, logits, shift_keys, shift_values
from tiny import EXAMPLES, bert, examples, marian, subject

import lorgnette as lo
from lorgnette.attending import Tap
from lorgnette.contributions.centred import centred
from lorgnette.errors import UserError
from lorgnette.lens import get
from lorgnette.lens.centring import VectorMeans
from lorgnette.reporting import findings
from lorgnette.testing import check_head_permutation, check_lens, run_lens

NUMBERED = examples((9, 4, 6, 12))
MODELS = {
    "bert": (bert, EXAMPLES, 1e-9),  # the norm after the sum
    "marian": (marian, EXAMPLES, 1e-9),  # cross-attention
    "llama": (grouped_llama, NUMBERED, 1e-5),  # before it, and grouped keys; norms and softmax are float32 in any case
}
VALUES = {
    "norms": ("sample=64,contribution=true,measures=alti+globenc", ("norm", "f_mean", "mixing")),
    "sinks": ("threshold=0.2", ("arrives", "value_ratio")),
    "rollout": ("", ("share",)),
    "convexity": ("", ("distance", "cone_widest")),
    "geometry": ("words=false", ("sim_centred",)),
}
WEIGHTS = {"weight", "rate", "activation_ratio"}
"""Numbers that have nothing to do with values, and are the same with the option and without it."""


def found(model, texts, name, options, **more):
    lens = get(":".join(filter(None, (name, options))), **more)
    return lo.look(model, list(texts), [lens], progress=False)[name].data


def all_of(model, texts, *, centred):
    lenses = [get(f"{name}:{options}", centred=centred) for name, (options, _) in VALUES.items()]
    return lo.look(model, list(texts), lenses, progress=False)


def unlike(one, other, name):
    """The largest difference of a variable, over its largest size."""
    a, b = one[name].values, other[name].values
    assert (np.isnan(a) == np.isnan(b)).all(), name
    return np.nanmax(np.abs(a - b), initial=0.0) / max(np.nanmax(np.abs(a), initial=0.0), 1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_a_constant_in_values_and_keys_changes_nothing_but_without_the_option(kind):
    make, texts, tolerance = MODELS[kind]
    before, after = make(), make()
    shift_values(after)
    if kind != "llama":  # no bias shifts keys that are rotated
        shift_keys(after)
    batch = before.encode(list(texts))
    here = (batch.source if batch.target is None else batch.target).mask
    torch.testing.assert_close(logits(before, texts)[here], logits(after, texts)[here], rtol=0, atol=tolerance)
    fixed_looks, raw_looks = ([all_of(model, texts, centred=on) for model in (before, after)] for on in (True, False))
    for name, (_, changed) in VALUES.items():
        one, other, raw, moved = (each[name].data for each in (*fixed_looks, *raw_looks))
        fixed = [each for each in one if one[each].dtype.kind == "f" and (name != "geometry" or "centred" in each)]
        for each in fixed:
            if "spearman" in each:
                continue  # of a sample of ranks: rounding may swap neighbours
            assert unlike(one, other, each) < tolerance * 100, (name, each)
        for each in changed:
            assert unlike(raw, moved, each.removesuffix("_centred")) > 0.01, (name, each)
        for each in WEIGHTS & set(one):
            assert unlike(one, raw, each) < 1e-12, (name, each)


def test_value_zeroing_puts_the_mean_in_the_place_of_a_value():
    before, after = bert(), bert()
    shift_values(after)
    options, few = "sample=0,measures=value_zeroing", EXAMPLES[:2]
    one, other, raw, moved = (
        found(model, few, "norms", options, centred=on)["mixing"].sel(ratio=["value_zeroing"])
        for on in (True, False)
        for model in (before, after)
    )
    np.testing.assert_allclose(one, other, atol=1e-9)
    assert np.abs(raw - moved).max() > 1e-3


class Calls(Tap):
    """Everything of one text, in float64."""

    wants_residual = True

    def __init__(self):
        self.calls = {}

    def see(self, call):
        tensors = (call.query, call.key, call.value, call.weights, call.residual)
        self.calls[call.site] = tuple(tensor[0].double() for tensor in tensors)


def traced(model, texts):
    out = []
    for example in texts:
        calls = Calls()
        with torch.no_grad(), model.tapped(calls):
            model.run(model.encode([example]), return_dict=True)
        out.append(calls.calls)
    return out


def means_of(runs, part):
    """Token by token, over all texts together."""
    return {site: torch.cat([run[site][part] for run in runs], 1).mean(1) for site in runs[0]}


@pytest.mark.parametrize("kind", ["marian", "llama"])
def test_means_are_over_all_tokens_of_the_corpus(kind):
    make, texts, tolerance = MODELS[kind]
    model = make()
    data, runs = lo.look(model, list(texts), [VectorMeans()], progress=False)["vector_means"].data, traced(model, texts)
    for part, name in enumerate(("query", "key", "value")):
        for site, mean in means_of(runs, part).items():
            cell = data[f"mean_{name}"].sel(stack=site.name, layer=site.layer + 1).values
            np.testing.assert_allclose(cell, mean.numpy(), atol=tolerance)


@pytest.mark.parametrize("kind", ["marian", "llama"])
def test_numbers_are_those_of_the_definitions_on_centred_values(kind):
    """Per head ‖α (f(x) − mean f)‖, what arrives of a sink, the cone, and all pairs of cosines, with loops."""
    make, texts, tolerance = MODELS[kind]
    model = make()
    runs = traced(model, texts)
    keys, values = means_of(runs, 1), means_of(runs, 2)
    norms = found(model, texts, "norms", "sample=0", centred=True)
    sinks = found(model, texts, "sinks", "threshold=0.2", centred=True)
    cones = found(model, texts, "convexity", "", centred=True)
    clouds = found(model, texts, "geometry", "words=false", centred=True)
    for site in runs[0]:
        maps = model.anatomy[site].output_weights()[0].detach().double()
        for head in range(model.heads):
            lists = {"norm": [], "arrives": [], "distance": [], "key": [], "value": []}
            for run in runs:
                _, key, value, weights, _ = run[site]
                alpha, v = weights[head], value[head] - values[site][head]
                f = (v @ maps[head]).norm(dim=-1)
                lists["norm"].append(float((alpha * f).sum(-1).mean()))
                share = alpha.mean(0)
                if share.max() > 0.2:
                    lists["arrives"].append(float((share * f)[share.argmax()] / (share * f).sum()))
                lists["distance"].append(_distance(alpha, v, causal=site.name == "decoder"))
                for name, each in (("key", key[head] - keys[site][head]), ("value", v)):
                    if len(each) > 1:
                        lists[name].append(_sim(each))
            cell = {"stack": site.name, "layer": site.layer + 1, "head": head + 1}
            kinds = norms["norm"].sel(cell | {"category": ["cls", "sep", "period_comma", "other"]})
            got = {
                "norm": float(kinds.sum()),
                "arrives": float(sinks["arrives"].sel(cell)),
                "distance": float(cones["distance"].sel(cell)),
                **{name: float(clouds["sim_centred"].sel(cell | {"vectors": name})) for name in ("key", "value")},
            }
            for name, wanted in lists.items():
                expected = np.mean(wanted) if wanted else math.nan
                assert got[name] == pytest.approx(expected, rel=1e-6, abs=tolerance * 10, nan_ok=True), (site, name)


def _sim(vectors):
    unit = vectors / vectors.norm(dim=-1, keepdim=True)
    pairs = [float(unit[i] @ unit[j]) for i in range(len(unit)) for j in range(i)]
    return sum(pairs) / len(pairs)


def _distance(alpha, value, *, causal):
    """‖y − v̄‖ / ‖v̄‖, mean over queries."""
    out = []
    for i in range(len(alpha)):
        mean = (value[: i + 1] if causal else value).mean(0)
        out.append(float((alpha[i] @ value - mean).norm() / mean.norm()))
    return sum(out) / len(out)


@pytest.mark.parametrize("name", sorted(VALUES))
def test_laws(name):
    options = {"norms": "sample=0", "geometry": "words=false"}.get(name, "")
    check_lens(lambda: get(f"{name}:{options}", centred=True), marian(), EXAMPLES[1:], tolerance=1e-8)


@pytest.mark.parametrize("name", sorted(VALUES))
def test_permuting_heads_permutes_the_result(name):
    options = {"norms": "sample=0", "geometry": "words=false"}.get(name, "")
    check_head_permutation(lambda: get(f"{name}:{options}", centred=True), bert(), EXAMPLES, tolerance=1e-8)


def test_planted_values_that_share_one_constant_have_no_sim_left():
    """A large constant plus noise has SIM near 1, the noise alone, in the control, does not; centred, they are one."""
    texts, each = examples((40,) * 6), []
    for constant in (20.0, 0.0):
        model = subject("bert")
        with torch.no_grad():
            model.anatomy.sites[0].module.value.bias.fill_(constant)
        data = found(model, texts, "geometry", "words=false", centred=True)
        each.append(data.sel(stack="encoder", layer=1, vectors="value"))
    planted, control = each
    assert float(planted["sim"].min()) > 0.95
    assert float(control["sim"].max()) < 0.8
    for name in ("sim_centred", "sim_corpus_centred"):
        np.testing.assert_allclose(planted[name], control[name], atol=1e-9)
        assert float(abs(planted[name]).max()) < 0.2


def test_values_that_are_their_mean_are_zero_and_not_noise():
    model = bert()
    with torch.no_grad():
        for site in model.anatomy.sites:
            site.module.value.weight.zero_()
    norms = found(model, EXAMPLES, "norms", "sample=0", centred=True)
    assert float(norms["norm"].max()) == 0.0
    assert int(norms["norm_share_count"].max()) == 0
    clouds = found(model, EXAMPLES, "geometry", "words=false", centred=True).sel(vectors="value")
    assert clouds["sim_centred"].isnull().all()
    assert float(clouds["sim"].min()) > 0.99
    one = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 1e-15]], dtype=torch.float64)
    assert (centred(one, one[:1]) == 0).all()


def test_what_cannot_be_centred_gets_one_line():
    model = bert()
    with pytest.raises(UserError, match="which have not been measured"):
        run_lens(get("norms", centred=True), model, [model.encode(list(EXAMPLES))])
    with pytest.raises(UserError, match="reads the corpus twice"):
        lo.look(model, iter(EXAMPLES), "convexity:centred=true", progress=False)
    with pytest.raises(UserError, match="a learnt sink takes a part of every row"):
        lo.look(subject("gpt-oss", dtype=torch.float32), NUMBERED, "norms:centred=true", progress=False)


def test_sentences_say_that_values_were_centred():
    model, note = bert(), "its mean over the corpus, is left out"
    results = all_of(model, EXAMPLES, centred=True)
    for name in ("norms", "sinks", "rollout", "convexity"):
        assert sum(note in one.text for one in findings({name: results[name]})) == 1, name
    (sim,) = (one for one in findings({"geometry": results["geometry"]}) if "After subtracting their mean" in one.text)
    assert sim.numbers["key"] == pytest.approx(
        float(results["geometry"].data["sim_centred_all"].sel(vectors="key").mean())
    )
    raw = all_of(model, EXAMPLES, centred=False)
    assert not any("their mean over the corpus" in one.text for one in findings(raw))


def test_each_text_keeps_its_own_centred_sim():
    model = bert()
    kept = lo.look(model, list(EXAMPLES), "geometry:words=false,centred=true", progress=False, keep="texts")
    texts = kept.text_numbers["geometry"]
    mean = texts["sim_centred"].where(texts["sim_centred_weight"] > 0).mean("text")
    np.testing.assert_allclose(mean.values, kept["geometry"].data["sim_centred"].values, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "t5", "modernbert"])
def test_models_without_a_bias_have_their_numbers_too(family):
    model = subject(family, dtype=torch.float32)
    data = found(model, NUMBERED, "norms", "sample=0", centred=True)
    raw = found(model, NUMBERED, "norms", "sample=0")
    assert (np.isfinite(data["norm"].values) == np.isfinite(raw["norm"].values)).all()
    assert not np.allclose(data["norm"], raw["norm"], equal_nan=True)
    np.testing.assert_allclose(data["weight"], raw["weight"], atol=1e-6)
