"""The norms lens against the papers' definitions on every family; what went in is what came out."""

import copy
import pickle

import numpy as np
import pytest
import torch
from norms_oracle import SECOND, Cells, Terms, Watch, close, compare, compare_mean, next_norm, oracle
from tiny import FAMILIES, examples, subject

from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.lens.norms.lens import Norms
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from lorgnette.models.classifier.tokenizer import build_tokenizer
from lorgnette.models.norms import epsilon
from lorgnette.subject import Subject
from lorgnette.testing import check_lens, run_lens
from lorgnette.texts.token_kinds import CATEGORIES

LENGTHS = (5, 2, 1)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_went_in_is_what_came_out(family):
    """Σ_j of the parts, b_O, residual and norm give the real output of the modules around each attention."""
    watched = subject(family)
    batch = watched.encode(examples(LENGTHS))
    watch = Watch(watched)
    watch.run(batch)
    for around in watched.anatomy.sites:
        turn = watch.turn(around)
        for text in range(len(LENGTHS)):
            asked = int(batch.queries(around.site).mask[text].sum())
            terms = Terms(watch, around, text, asked, int(batch.keys(around.site).mask[text].sum()))
            output = watch.after[id(around.output)][turn][text, :asked]
            torch.testing.assert_close(terms.summed.sum(1) + terms.bias, output, atol=1e-10, rtol=1e-10)
            if terms.residual is None:
                continue
            whole = terms.residual.sum(1) + terms.bias
            if around.order == "post":
                bias = (
                    around.norm.weight
                    * (terms.bias - terms.bias.mean())
                    / (whole.var(-1, False, keepdim=True) + epsilon(around.norm)).sqrt()
                )
                given = watch.after[id(around.norm)][turn][text, :asked]
                whole = terms.normed.sum(1) + bias + around.norm.bias
            else:
                given = watch.before[id(next_norm(around))][turn]
                given = given.view(len(LENGTHS), -1, given.shape[-1])[text, :asked]  # OPT puts its texts in a row
            near = 1e-5 if family == "deberta" else 1e-10  # its norm is taken in float32, whatever the precision
            torch.testing.assert_close(whole, given, atol=near, rtol=near)


# One family of each kind of norm and projection shows what float32 costs.
IN_FLOAT32 = ("bert", "falcon", "gemma2", "gpt2", "llama", "marian", "modernbert", "t5")


@pytest.mark.parametrize(
    ("family", "dtype", "relative"),
    [(family, torch.float64, 1e-10) for family in sorted(FAMILIES)]
    + [(family, torch.float32, 1e-5) for family in IN_FLOAT32],
)
def test_it_is_the_papers_definition(family, dtype, relative):
    texts = examples(LENGTHS)
    watched = subject(family, dtype=dtype)
    # In float32 both read the same weights: how the scores are rounded is the model's affair (T5 does not scale them).
    data = run_lens(Norms(), watched, [watched.encode(texts)], matrix=dtype == torch.float32).compute().data
    compare(data, oracle(watched, texts), relative, pairs=dtype == torch.float64)


def test_what_is_missing():
    """A norm before attention: no AttnResLn-N; sandwich: nothing with the residual; cross-attention: no ratio."""
    texts = examples(LENGTHS)
    counts = {}
    for family in ("bert", "gpt2", "gemma2", "marian"):
        watched = subject(family)
        counts[family] = run_lens(Norms(), watched, [watched.encode(texts)]).compute().data.mixing_count
    there = {family: set(c.ratio.values[(c > 0).any(("stack", "layer")).values]) for family, c in counts.items()}
    assert there["bert"] == {"attn_w", "attn_n", "attn_res_w", "attn_res_n", "attn_res_ln_n"}
    assert there["gpt2"] == {"attn_w", "attn_n", "attn_res_w", "attn_res_n"}
    assert there["gemma2"] == {"attn_w", "attn_n"}
    assert (counts["marian"].sel(stack="cross") == 0).all()
    assert (counts["marian"].sel(stack="decoder") > 0).all()


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert", "mpnet", "gpt2", "llama"])
def test_alti_and_globenc(family):
    texts = examples(LENGTHS)
    watched = subject(family)
    batch = watched.encode(texts)
    data = run_lens(Norms(measures=("alti", "globenc")), watched, [batch]).compute().data
    watch = Watch(watched)
    seconds = {}
    path = SECOND.get(watched.anatomy.family)
    for around in watched.anatomy.sites:
        if path is not None:
            norm = around.layer.get_submodule(path)
            seconds[around.site] = norm
            watch.before.setdefault(id(norm), [])
            watch.after.setdefault(id(norm), [])
    handles = [norm.register_forward_hook(watch._keep) for norm in set(seconds.values())]
    watch.run(batch)
    for handle in handles:
        handle.remove()
    for around in watched.anatomy.sites:
        cell = {"stack": around.site.name, "layer": around.site.layer + 1}
        wanted = {"alti": [], "globenc": []}
        for text in range(len(texts)):
            n = int(batch.source.mask[text].sum())
            terms = Terms(watch, around, text, n, n)
            wanted["alti"].append(np.mean(terms.alti()))
            if path is not None:
                norm = seconds[around.site]
                whole = watch.before[id(norm)][watch.turn(around)][text, :n]
                wanted["globenc"].append(np.mean(terms.globenc(norm, whole)))
        for name, values in wanted.items():
            assert int(data.mixing_count.sel({**cell, "ratio": name})) == len(values)
            if values:
                close(float(data.mixing.sel({**cell, "ratio": name})), np.mean(values), 1e-10)


@pytest.mark.parametrize("family", ["bert", "albert", "gpt2", "t5-encoder"])
def test_value_zeroing(family):
    """The value projection's own output is zeroed by a hook, layer by layer, in a full pass."""
    texts = examples((4, 2))
    watched = subject(family)
    batches = [watched.encode([text]) for text in texts]
    data = run_lens(Norms(measures=("value_zeroing",)), watched, [watched.encode(texts)]).compute().data
    for around in watched.anatomy.sites:
        if family == "albert" and around.site.layer > 0:
            continue  # one module for several layers: the hook below would act in all of them
        shares = []
        for batch in batches:
            n = batch.source.mask.shape[1]
            whole = layer_output(watched, around, batch, None)
            rows = [
                1 - torch.cosine_similarity(layer_output(watched, around, batch, j), whole, dim=-1) for j in range(n)
            ]
            c = torch.stack(rows, -1)[0]
            shares.append(float((1 - c.diagonal() / c.sum(-1)).nanmean()) if n > 1 else 0.0)
        found = data.mixing.sel(stack=around.site.name, layer=around.site.layer + 1, ratio="value_zeroing")
        close(float(found), np.mean(shares), 1e-6)


def layer_output(watched, around, batch, zeroed):
    kept = []

    def zero(module, arguments, output):
        which, parts = around.value.which, around.value.of
        size = output.shape[-1] // parts
        output[:, zeroed, which * size : (which + 1) * size] = 0.0
        return output

    handles = [around.layer.register_forward_hook(lambda m, a, o: kept.append(o[0] if isinstance(o, tuple) else o))]
    if zeroed is not None:
        handles.append(around.value.module.register_forward_hook(zero))
    with torch.no_grad():
        watched.run(batch)
    for handle in handles:
        handle.remove()
    return kept[0]


@pytest.mark.parametrize(
    ("family", "measures"),
    [
        ("bert", ("alti", "globenc", "value_zeroing")),
        ("modernbert", ("alti",)),
        ("gemma2", ()),
        ("marian", ("globenc",)),
    ],
)
def test_laws(family, measures):
    """With a sample smaller than the corpus, pooled over tokens, and with the measures that need more."""
    watched = subject(family)
    make = lambda: Norms("token", measures=measures, sample=50)  # noqa: E731
    result = check_lens(make, watched, examples((6, 4, 1, 5)), tolerance=1e-9)
    sampled = result.data.spearman_count.sel(category="other").values
    assert set(sampled.ravel()) <= {0, 50}
    assert 50 in sampled


@pytest.mark.parametrize("name", ["tp9-base", "tp9-residual", "pure-attention", "query-pooling", "bilstm-attention"])
def test_our_own_classifiers(name):
    """No norm, a norm before, one after without parameters; no output projection; a pooler with one query."""
    texts = examples((6, 4, 2, 5))
    tokenizer = build_tokenizer([text.text for text in texts], cls=preset(name).uses_cls)
    torch.manual_seed(0)
    settings = preset(name, vocab_size=len(tokenizer), width=8, layers=2, heads=2)
    model = SelfAttentionClassifier(settings).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    watched = Subject(model, tokenizer)
    data = check_lens(lambda: Norms(measures=("alti", "globenc")), watched, texts, tolerance=1e-9).data
    cells = Cells(data)
    found = {"tp9-base": (), "tp9-residual": ("attn_res_n",)}.get(name, ("attn_res_n", "attn_res_ln_n"))
    if name not in ("tp9-base", "tp9-residual", "pure-attention"):
        pooler = data.sel(stack="cross", layer=1)
        assert (pooler.mixing_count == 0).all()
        assert int(pooler.norm_count.sel(category="other", head=1)) == len(texts)
        assert int(pooler.norm_count.sel(category="other", head=2)) == 0  # a pooler has one head
        return
    there = set(data.ratio.values[(data.mixing_count > 0).any(("stack", "layer")).values])
    assert there >= {"attn_w", "attn_n", *found}
    assert ("attn_res_ln_n" in there) == (name == "pure-attention")
    for (variable, site, *rest), values in oracle(watched, texts).items():
        at = {"stack": site.name, "layer": site.layer + 1}
        if variable == "mixing":
            compare_mean(cells, "mixing", {**at, "ratio": rest[0]}, [np.mean(v) for v in values], 1e-9)
        elif variable == "all_heads_norm":
            compare_mean(cells, variable, {**at, "variant": rest[0], "category": rest[1]}, values, 1e-9)


def test_copied_pickled_and_kept():
    """The states travel, the model does not."""
    watched = subject("bert")
    lens = run_lens(Norms(sample=20), watched, [watched.encode(examples(LENGTHS))])
    result = lens.compute()
    assert copy.deepcopy(lens).projections.subject is watched
    again = pickle.loads(pickle.dumps(lens))
    assert again._projections is None
    assert again.compute() == result
    again.bind(watched)
    assert run_lens(again, watched, [watched.encode(examples((3, 2)))]).compute() != result
    fresh = Norms(sample=20)
    fresh.bind(watched)
    fresh.states.restore(lens.states.tensors())
    assert fresh.compute().data.identical(result.data)


def test_parts_can_be_had_alone():
    watched = subject("bert")
    batch = watched.encode(examples(LENGTHS))
    whole = run_lens(Norms(), watched, [batch]).compute().data
    cheap = run_lens(Norms(all_heads=False, residual=False, sample=0), watched, [batch]).compute().data
    assert "mixing" not in cheap
    assert "all_heads_norm" not in cheap
    assert "spearman" not in cheap
    for name in cheap.data_vars:
        np.testing.assert_allclose(cheap[name], whole[name], rtol=1e-9, atol=1e-9)
    plain = run_lens(Norms(layer_norm=False), watched, [batch]).compute().data
    assert (plain.mixing_count.sel(ratio="attn_res_ln_n") == 0).all()
    np.testing.assert_allclose(plain.mixing.sel(ratio="attn_res_n"), whole.mixing.sel(ratio="attn_res_n"))


def test_changed_weights_are_seen():
    """In a training loop the projections change under the lens."""
    watched = subject("bert")
    batch = watched.encode(examples(LENGTHS))
    lens = run_lens(Norms(), watched, [batch])
    first = lens.compute().data.f_mean
    lens.reset()
    with torch.no_grad():
        watched.anatomy.sites[0].output.weight.mul_(2)
    second = run_lens(lens, watched, [batch]).compute().data.f_mean
    np.testing.assert_allclose(second[0, 0], 2 * first[0, 0])


def test_half_precision_is_measured_in_float32():
    """‖f‖ from the model's own values, rounded nowhere else."""
    watched = subject("bert", dtype=torch.bfloat16)
    batch = watched.encode(examples(LENGTHS))
    data = run_lens(Norms(), watched, [batch]).compute().data
    kept = {}

    class Keep(Tap):
        def see(self, call):
            kept[call.site] = call.value.double()

    with torch.no_grad(), watched.tapped(Keep()):
        watched.run(batch)
    for around in watched.anatomy.sites:
        f = torch.einsum("bhkd,hdm->bhkm", kept[around.site], around.head_weights().output.double()).norm(dim=-1)
        real = batch.source.mask[:, None].expand(f.shape)
        mean = torch.stack([f[:, h][real[:, h]].mean() for h in range(f.shape[1])]).detach()
        np.testing.assert_allclose(data.f_mean[0, around.site.layer], mean, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "word"}, "'text' or 'token'"),
        ({"measures": ("alt",)}, "any of 'alti', 'globenc'"),
        ({"sample": -1}, "of at least 0"),
    ],
)
def test_wrong_options_get_one_line(options, words):
    with pytest.raises(UserError, match=words):
        Norms(**options)


def test_kinds_are_all_there():
    watched = subject("bert")
    data = run_lens(Norms(), watched, [watched.encode(examples(LENGTHS))]).compute().data
    assert tuple(data.category.values) == CATEGORIES
    total = data.weight.sel(category=["cls", "sep", "period_comma", "other"]).sum("category")
    np.testing.assert_allclose(total, 1.0, atol=1e-12)
