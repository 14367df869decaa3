"""Norms where a gate of the query multiplies the heads' outputs: against the definition in float64, and in blocks."""

import numpy as np
import pytest
import torch
from norms_oracle import GATES, NORMS, Terms, Watch, close, compare, oracle
from tiny import examples, tokenizer
from tiny.architectures import model_of_type, tiny_config
from tiny.models import peaked
from transformers import AutoModelForCausalLM

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.contributions import gated
from lorgnette.errors import CaptureError, UserError
from lorgnette.explaining import Next, explain
from lorgnette.explaining.stream import ResidualStream
from lorgnette.lens.norms.lens import PARTITION, Norms
from lorgnette.lens.roles.lens import Roles
from lorgnette.lens.rollout.lens import Rollout
from lorgnette.subject import Subject
from lorgnette.testing import check_lens, run_lens

LENGTHS = (5, 2, 1)
KINDS = {"qwen3_next": 8, "afmoe": 8, "laguna": 1, "bitnet": 8}
"""What has a gate for each channel, or one number for each head; in Qwen3-Next and AFMoE the map runs first.
BitNet has a norm there, which is a gate with the statistics of the pass."""


def language_model(kind):
    """In float64; experts are multiplied one by one, as torch's grouped product knows no float64."""
    torch.manual_seed(0)
    model = peaked(AutoModelForCausalLM.from_config(tiny_config(kind)))
    model.set_experts_implementation("eager")
    return Subject(model.double().eval(), tokenizer("gpt2"), name=kind)


@pytest.fixture(scope="module", params=KINDS)
def watched(request):
    return language_model(request.param)


@pytest.fixture
def terms(watched):
    batch = watched.encode(examples(LENGTHS))
    watch = Watch(watched)
    watch.run(batch)

    def of(around, text):
        asked = int(batch.queries(around.site).mask[text].sum())
        return Terms(watch, around, text, asked, asked)

    return batch, watch, of


def test_the_parts_add_up_to_what_the_heads_give(watched, terms):
    batch, watch, of = terms
    for around in watched.anatomy.sites:
        assert type(around.module).__name__ in {**GATES, **NORMS}
        for text in range(len(batch)):
            one = of(around, text)
            output = watch.after[id(around.output)][watch.turn(around)][text, : one.asked]
            # Laguna makes its gate in float32.
            torch.testing.assert_close(one.summed.sum(1) + one.bias, output, atol=1e-6, rtol=1e-6)
    assert {check.name: check.made for check in watched.check()}["heads · W_O = output"]


@pytest.mark.parametrize("block", [gated.BLOCK, 200])
def test_it_is_the_definition(watched, block, monkeypatch):
    monkeypatch.setattr(gated, "BLOCK", block)
    texts = examples(LENGTHS)
    data = run_lens(Norms(), watched, [watched.encode(texts)]).compute().data
    compare(data, oracle(watched, texts), 1e-10)
    assert int(data.expansion_count.max()) == 0  # a key has no vector of its own


@torch.no_grad()
def test_contributions_are_the_definition_and_add_up(watched, terms):
    batch, _, of = terms
    lens = Norms(all_heads=False, residual=False, sample=0, contribution=True)
    data = run_lens(lens, watched, [batch]).compute().data
    for around in watched.anatomy.sites:
        place = {"stack": around.site.name, "layer": around.site.layer + 1}
        for head in (*range(around.heads), None):
            lengths, shares = [], []
            for text in range(len(batch)):
                one = of(around, text)
                vectors = one.summed if head is None else one.parts[head]
                whole = vectors.sum(1)
                lengths.append(float(whole.norm(dim=-1).mean()))
                first = (vectors[:, 0] * whole).sum(-1) / whole.norm(dim=-1)
                shares.append(float(first.sum() / whole.norm(dim=-1).sum()))
            name = "all_heads_contribution" if head is None else "contribution"
            at = place if head is None else {**place, "head": head + 1}
            close(float(data[name].sel(at).sel(category=list(PARTITION)).sum()), np.mean(lengths), 1e-10)
            # The category of the first token holds it alone.
            close(float(data[f"{name}_share"].sel(at).sel(category="first")), np.mean(shares), 1e-9)


def test_alti_is_the_definition(watched, terms):
    batch, _, of = terms
    data = run_lens(Norms(measures=("alti",)), watched, [batch]).compute().data
    for around in watched.anatomy.sites:
        cell = {"stack": around.site.name, "layer": around.site.layer + 1, "ratio": "alti"}
        known = around.order == "pre"
        assert int(data.mixing_count.sel(cell)) == (len(batch) if known else 0)
        if known:
            wanted = [np.mean(of(around, text).alti()) for text in range(len(batch))]
            close(float(data.mixing.sel(cell)), np.mean(wanted), 1e-10)


@torch.no_grad()
def test_rollouts_mix_by_the_norms_behind_the_gate():
    """M_ij = ‖term_ij‖ / Σ_j ‖term_ij‖ of every layer, multiplied: by the lens and by the explanation."""
    watched = language_model("laguna")
    (text,) = examples((5,))
    batch = watched.encode([text])
    watch = Watch(watched)
    watch.run(batch)
    product = torch.eye(batch.source.mask.shape[1], dtype=torch.float64)
    for around in watched.anatomy.sites:
        norms = Terms(watch, around, 0, len(product), len(product)).residual.norm(dim=-1)
        product = norms / norms.sum(-1, keepdim=True) @ product
    data = run_lens(Rollout(), watched, [batch]).compute().data
    found = data["share"].sel(layer=len(watched.anatomy.sites), measure="norms", category="self")
    close(float(found.squeeze()), float(product.diagonal().mean()), 1e-10)
    explained = explain(watched, [text], "norm_rollout", Next())
    torch.testing.assert_close(explained.tokens[0], product[-1], rtol=1e-9, atol=1e-12)


def test_laws():
    """Up to the rounding of its norms, which are taken in float32."""
    make = lambda: Norms("token", contribution=True, sample=50)  # noqa: E731
    check_lens(make, language_model("qwen3_next"), examples((6, 4, 1, 5)), tolerance=1e-5)


def test_the_gate_can_be_had_of_a_call(watched):
    """Also of a pass that generates, and of one token with a cache."""
    for trace in (watched.trace("w5 w6 w7"), watched.trace("w5 w6 w7", generate=2)):
        for call in trace:
            assert call.gate.shape == (*call.query.shape[:3], KINDS[watched.name])
    plain = watched.trace("w5 w6 w7")
    whole = {call.site: call.gate for call in watched.trace("w5 w6 w7", generate=2)}
    for call in plain:
        torch.testing.assert_close(whole[call.site][:, :, :3], call.gate[:, :, :3])


@torch.no_grad()
def test_what_sinks_send_is_the_definition(watched, terms):
    """Σ_i ‖α_ij (g_i ⊙ v_j) W_O‖ by key; per unit of weight it is how long a value is."""
    batch, _, of = terms
    lens = lenses.get("sinks", thresholds=(0.3,), threshold=0.3)
    data = run_lens(lens, watched, [batch]).compute().data
    for around in watched.anatomy.sites:
        for head in range(around.heads):
            arrives, ratios = [], []
            for text in range(len(batch)):
                one = of(around, text)
                sent, received = one.parts[head].norm(dim=-1).sum(0), one.alpha[head].sum(0)
                top, lengths = int(received.argmax()), sent / received
                if received[top] / one.asked > 0.3:
                    arrives.append(float(sent[top] / sent.sum()))
                    others = [float(each) for key, each in enumerate(lengths) if key != top]
                    ratios += [float(lengths[top]) / np.mean(others)] if others else []
            at = {"stack": around.site.name, "layer": around.site.layer + 1, "head": head + 1}
            assert int(data.arrives_count.sel(at)) == len(arrives) > 0
            close(float(data.arrives.sel(at)), np.mean(arrives), 1e-6)
            assert int(data.value_ratio_count.sel(at)) == len(ratios)
            if ratios:
                close(float(data.value_ratio.sel(at)), np.mean(ratios), 1e-6)


@torch.no_grad()
def test_a_head_is_dead_if_little_arrives(watched):
    """Compared with the other heads of its layer."""
    (text,) = examples((5,))
    batch = watched.encode([text])
    watch = Watch(watched)
    watch.run(batch)
    data = run_lens(Roles(development=0.999), watched, [batch]).compute().data
    words = batch.source.ordinary[0]
    for around in watched.anatomy.sites:
        one = Terms(watch, around, 0, len(words), len(words))
        arrives = one.parts.norm(dim=-1).sum(-1)[:, words].mean(-1)
        found = data.number.sel(role="dead", part="development", stack="decoder", layer=around.site.layer + 1)
        np.testing.assert_allclose(found, arrives / arrives.mean(), rtol=1e-6)


@torch.no_grad()
def test_frequency_takes_a_token_as_long_as_it_arrives(watched, terms):
    batch, _, of = terms
    lens = run_lens(lenses.get("frequency"), watched, [batch])
    norms = lens.sample.rows(0)["norms"]  # [occurrence layer]
    for around in watched.anatomy.sites:
        wanted = []
        for text in range(len(batch)):
            one = of(around, text)
            wanted += (one.parts.norm(dim=-1).sum(1) / one.alpha.sum(1)).mean(0).tolist()
        np.testing.assert_allclose(np.sort(norms[:, around.site.layer]), np.sort(wanted), rtol=1e-6)


@torch.no_grad()
def test_norms_of_a_pass_and_of_parts(watched, terms):
    batch, _, of = terms
    seen = lo.attention(watched, **batch.inputs)
    some = lo.attention(watched, **batch.inputs, heads=[2], rows=[0, 3])
    for around in watched.anatomy.sites:
        name, one = f"decoder.{around.site.layer + 1}.norms", of(around, 0)
        wanted = one.parts.norm(dim=-1)
        torch.testing.assert_close(seen[name][0, :, : one.asked, : one.read], wanted, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(some[name][0], seen[name][0][1:2, [0, 3]])
    trace = watched.trace(examples((5,))[0])
    whole = lo.attention(watched, **trace.batch.inputs)
    by_part = trace.by_part("norms")
    for layer in {site.layer + 1 for site in watched.sites}:
        wanted = whole[f"decoder.{layer}.norms"][0].sum(-1)
        found = by_part.sel(layer=layer).sum("key_part")
        np.testing.assert_allclose(found.mean("query_part"), wanted.mean(-1), rtol=1e-5)


def test_heads_write_what_is_behind_the_gate():
    """Which is what composition takes from them; that the rest of the stream adds up is checked on every text."""
    watched = Subject(model_of_type("muse_glimmer_text").double(), tokenizer("gpt2"), name="muse")
    batch = watched.encode(examples(LENGTHS))
    watch = Watch(watched)
    watch.run(batch)
    stream = ResidualStream(watched, batch)
    amounts = {piece.writers[0]: piece.amount for piece in stream.pieces if piece.writers[0].kind == "heads"}
    for around in watched.anatomy.sites:
        written = next(each for writer, each in amounts.items() if writer.layer == around.site.layer)
        for text in range(len(batch)):
            asked = int(batch.source.mask[text].sum())
            one = Terms(watch, around, text, asked, asked)
            torch.testing.assert_close(written[:, text, :asked], one.parts.sum(2), rtol=1e-6, atol=1e-9)
    data = lo.look(watched, examples(LENGTHS), "composition", progress=False)["composition"].data
    assert bool(np.isfinite(data["composition"]).any())


@torch.no_grad()
def test_one_positive_number_for_each_head_leaves_its_circuit():
    watched = language_model("laguna")
    data = lo.look(watched, examples((2,)), "circuits", progress=False)["circuits"].data
    for around in watched.anatomy.sites:
        maps, at = around.head_weights(gated=True), {"layer": around.site.layer + 1, "circuit": "ov"}
        for head in range(around.heads):
            sizes = torch.linalg.svdvals(2.5 * maps.value[head] @ maps.output[head])
            shares = sizes / sizes.sum()
            rank = float(torch.exp(-(shares * shares.clamp(min=1e-300).log()).sum()))
            close(float(data.effective_rank.sel(at).sel(stack="decoder", head=head + 1)), rank, 1e-6)


def test_what_needs_one_vector_of_a_key_is_refused(watched):
    if watched.name != "laguna":
        with pytest.raises(CaptureError, match="a gate of the query, or a norm, multiplies the heads"):
            lenses.get("circuits").bind(watched)
    with pytest.raises(UserError, match="cannot be centred: a gate of the query"):
        lo.look(watched, examples(LENGTHS), [Norms(centred=True)], progress=False)
    with pytest.raises(UserError, match="cannot be centred: a gate of the query"):
        lo.look(watched, examples(LENGTHS), lenses.get("sinks", centred=True), progress=False)


def test_an_edge_into_a_gate_would_be_missed():
    with pytest.raises(CaptureError, match="the gate behind the heads of decoder layer 1 reads the stream too"):
        lo.look(language_model("laguna"), examples(LENGTHS), "edges", progress=False)


def test_a_stream_through_other_mixers_names_them():
    watched = language_model("qwen3_next")
    with pytest.raises(CaptureError, match="Qwen3NextGatedDeltaNet mixes tokens beside attention"):
        lo.look(watched, examples(LENGTHS), "composition", progress=False)
