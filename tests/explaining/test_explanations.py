"""Relevance of whole models: against rules gone through by hand, what is conserved, and that nothing stays behind."""

import threading
from dataclasses import dataclass, replace

import pytest
import torch
from explicit import explicit
from headed import HEADED, HEADLESS, examples, headed
from tiny import BERT, EXAMPLES, own_classifier, subject
from transformers import BertConfig, BertForSequenceClassification

from lorgnette.attending import Call, Tap
from lorgnette.contributions.value_zeroing import value_zeroing
from lorgnette.errors import UserError
from lorgnette.explaining import explain
from lorgnette.explaining.target import positions
from lorgnette.lens.norms.lens import Norms
from lorgnette.lens.rollout.lens import rollout
from lorgnette.models.classifier.presets import PRESETS
from lorgnette.subject import Subject
from lorgnette.testing import padded, run_lens
from lorgnette.texts.batch import Batch

PROPAGATION = ("ah", "attnlrp", "voita2019", "voita2021", "gradient_x_input")


def one_layer(biased: bool = True) -> Subject:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**{**BERT, "num_hidden_layers": 1}, num_labels=3))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() > 1 else 0.2 * biased
            parameter.copy_(torch.randn_like(parameter) * spread + ("LayerNorm.weight" in name))
    return Subject(model.eval().double(), subject("bert").tokenizer, name="one layer")


@pytest.mark.parametrize("method", ["ah", "attnlrp", "voita2019"])
def test_the_engine_is_the_rules_gone_through_by_hand(method):
    watched = one_layer()
    batch = watched.encode(examples())
    found = explain(watched, batch, method, target=1)
    (heads,) = found.heads.values()
    for text, length in enumerate(batch.lengths.tolist()):
        slow = explicit(watched.model, batch.source.ids[text, :length], 1, method)
        torch.testing.assert_close(found.tokens[text, :length], slow["words"], rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(found.positions[text, :length], slow["positions"], rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(heads[text], slow["heads"], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("family", ["roberta", "marian"])
def test_ah_without_biases_is_all_in_words_and_positions(family):
    watched = headed(family, biased=False)
    found = explain(watched, watched.encode(examples()), "ah")
    torch.testing.assert_close(found.total, found.start, rtol=1e-11, atol=1e-11)
    assert found.positions is None or bool((found.positions.abs().sum(-1) > 0).all())


@pytest.mark.parametrize("name", PRESETS)
def test_ah_on_our_own_classifiers(name):
    watched = own_classifier(name, [example.text for example in EXAMPLES])
    found = explain(watched, watched.encode(EXAMPLES), "ah", biases=True)
    if name == "bilstm-attention":  # an LSTM's gates keep their true gradient
        assert torch.isfinite(found.total).all()
        return
    torch.testing.assert_close(found.total, found.start, rtol=1e-11, atol=1e-11)


class _Keep(Tap):
    def see(self, call: Call) -> None:
        self.call, self.alpha = call, call.weights.detach()


def test_an_attnlrp_head_returns_half_its_relevance_and_half_its_covariance():
    """ΣR(x) = ½ ΣR(y) + ½ Σ_i Cov_{α_i}(s_i·, c_i·v): one bias-free head layer under a mean and a linear map."""
    watched = own_classifier("tp9-base", [example.text for example in EXAMPLES])
    del watched.model.encoder.layers[1:]
    watched = Subject(watched.model, watched.tokenizer, name="one layer")
    with torch.no_grad():
        for name, parameter in watched.model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "attention" in name:
                parameter.mul_(5.0)
        watched.model.encoder.layers[0].transform = torch.nn.Identity()
    batch = watched.encode(EXAMPLES)
    keep = _Keep()
    with watched.tapped(keep):
        watched.run(batch)
    call, mask = keep.call, batch.source.mask.double()
    plain, rule = (explain(watched, batch, method, target=0) for method in ("gradient_x_input", "attnlrp"))
    (head,) = rule.layers.values()
    torch.testing.assert_close(head, rule.start)
    # c = ∂out/∂y: the classifier's row, over the number of tokens; heads side by side.
    row = watched.model.classifier.weight[0].detach().unflatten(0, (call.query.shape[1], -1))
    c = row[None, :, None] * (mask / mask.sum(-1, keepdim=True))[:, None, :, None]
    scores = call.query @ call.key.transpose(-1, -2) * call.scores.scale
    scores = scores.masked_fill(~batch.source.mask[:, None, None], 0.0).detach()
    along = (c @ call.value.transpose(-1, -2)).detach()
    mean = lambda of: (keep.alpha * of).sum(-1)  # noqa: E731
    covariance = (mean(scores * along) - mean(scores) * mean(along)).sum((1, 2))
    torch.testing.assert_close(rule.total, head / 2 + covariance / 2)
    torch.testing.assert_close(plain.total, head + 2 * covariance)
    assert (covariance.abs() > 1e-3).any()


def test_gradient_x_input_is_just_that_and_a_post_norm_model_loses_all_of_it():
    watched = headed("bert-classifier")
    batch = watched.encode(examples())
    table = watched.model.get_input_embeddings()
    vectors = table(batch.inputs["input_ids"]).detach().requires_grad_()
    rest = {name: tensor for name, tensor in batch.inputs.items() if name != "input_ids"}
    watched.model(inputs_embeds=vectors, **rest).logits[:, 2].sum().backward()
    found = explain(watched, batch, "gradient_x_input", target=2)
    expected = (vectors.grad * vectors).sum(-1) * batch.source.mask
    torch.testing.assert_close(found.tokens, expected)
    assert found.total.abs().max() < 1e-6 * found.start.abs().min()


def test_integrated_gradients_add_up_to_the_difference():
    """Between the text and one of nothing but mask tokens (padding where a tokenizer has none)."""
    for watched, texts, tolerance in (
        (own_classifier("tp9-base", [example.text for example in EXAMPLES]), EXAMPLES, 1e-3),
        (headed("bert-classifier"), examples((7, 3)), 1e-6),
    ):
        batch = watched.encode(texts)
        found = explain(watched, batch, "integrated_gradients", target=1, steps=16)
        nothing = watched.tokenizer.mask_token_id or watched.tokenizer.pad_token_id
        inner = batch.source.mask & ~batch.source.special
        ids = batch.inputs["input_ids"].masked_fill(inner, nothing)
        with torch.no_grad(), watched.tapped(Tap()):
            before = watched.run(replace(batch, inputs={**batch.inputs, "input_ids": ids})).logits[:, 1]
        torch.testing.assert_close(found.total, found.start - before, rtol=tolerance, atol=tolerance)
        assert not found.tokens[batch.source.special].any()


@pytest.mark.parametrize("family", HEADED)
def test_every_family(family):
    """`ah` hands out exactly what there is, biases included; all rules give finite numbers, none at padding, and leave
    the model as it was."""
    watched = headed(family)
    batch = watched.encode(examples((7, 1)))
    with torch.no_grad(), watched.tapped(Tap()):
        before = watched.run(batch).logits
    hooks = _hooks(watched)
    kinds = {type(module).__name__ for module in watched.model.modules()}
    single = any(kind.endswith(("RMSNorm", "T5LayerNorm")) for kind in kinds)
    tolerance = 1e-6 if single else 1e-11  # these work in float32 whatever they are given
    for method in PROPAGATION:
        found = explain(watched, batch, method, biases=method == "ah")
        if method == "ah":
            torch.testing.assert_close(found.total, found.start, rtol=tolerance, atol=tolerance)
        assert torch.isfinite(found.tokens).all(), method
        assert not found.tokens[~batch.source.mask].any(), method
        assert tuple(found.heads) == watched.sites
        assert all(torch.isfinite(heads).all() for heads in found.heads.values())
        assert (found.target_tokens is None) == (batch.target is None)
    with torch.no_grad(), watched.tapped(Tap()):
        assert torch.equal(watched.run(batch).logits, before)
    assert _hooks(watched) == hooks
    assert all("forward" not in vars(module) for module in watched.model.modules())


MIXING = ("attention", "rollout", "attention_flow", "norm_rollout", "globenc", "alti", "value_zeroing")
NONE = {"gemma2": {"norm_rollout", "globenc", "alti"}, "gpt2": {"globenc"}, "t5": {"globenc"}}


@pytest.mark.parametrize("family", ["bert-classifier", "marian", *NONE])
def test_what_only_follows_the_mixing_is_shares(family):
    watched = headed(family)
    batch = watched.encode(examples((7, 1)))
    for method in MIXING:
        if method in NONE.get(family, ()):
            with pytest.raises(UserError, match="has no terms there"):
                explain(watched, batch, method)
            continue
        found = explain(watched, batch, method)
        assert found.tokens.min() >= 0
        assert not found.tokens[~batch.source.mask].any()
        torch.testing.assert_close(found.total, torch.ones(2, dtype=torch.float64))


def test_shares_come_from_where_the_prediction_is_made():
    """[CLS] of a classifier, the last token of a decoder, the target's pieces through cross-attention, the pooler."""
    texts = examples((7,))
    watched = headed("bert-classifier")
    seen = watched.trace(texts[0])
    layer = seen["encoder.weights"]
    torch.testing.assert_close(explain(watched, seen.batch, "attention").tokens[0], layer[-1].mean(0)[0])
    torch.testing.assert_close(explain(watched, seen.batch, "rollout").tokens[0], rollout(seen)[-1, 0])
    decoder = headed("gpt2")
    seen = decoder.trace(texts[0])
    torch.testing.assert_close(explain(decoder, seen.batch, "rollout").tokens[0], rollout(seen)[-1, -1])
    marian = headed("marian")
    seen = marian.trace(texts[0])
    cross = seen["cross.weights"][-1].mean((0, 1))
    torch.testing.assert_close(explain(marian, seen.batch, "attention").tokens[0], cross)
    torch.testing.assert_close(explain(marian, seen.batch, "rollout").tokens[0], cross @ rollout(seen, "encoder")[-1])
    own = own_classifier("query-pooling", [example.text for example in EXAMPLES])
    batch = own.encode(EXAMPLES[:1])
    keep = _Keep()
    with torch.no_grad(), own.tapped(keep):
        own.run(batch)
    torch.testing.assert_close(explain(own, batch, "attention").tokens, keep.alpha[:, 0, 0])
    mean = own_classifier("tp9-base", [example.text for example in EXAMPLES])
    with torch.no_grad(), mean.tapped(keep):
        mean.run(mean.encode(EXAMPLES[:1]))
    found = explain(mean, mean.encode(EXAMPLES[:1]), "attention").tokens
    torch.testing.assert_close(found, keep.alpha.mean((1, 2)))


@pytest.mark.parametrize("method", ["alti", "globenc", "value_zeroing"])
def test_mixing_is_that_of_the_norms_lens(method):
    """Of one layer, 1 − the share of [CLS] itself is the mixing ratio of that token."""
    watched = one_layer()
    batch = watched.encode(examples((7,)))
    found = explain(watched, batch, method).tokens[0]
    if method == "value_zeroing":
        ((_, shares),) = value_zeroing(watched, batch)
        assert 1 - found[0].item() == pytest.approx(shares[0, 0].item(), rel=1e-6)
        return
    lens = run_lens(Norms(measures=[method], sample=0), watched, [only_first(batch)])
    ratio = lens.compute().data["mixing"].sel(ratio=method).values.item()
    assert 1 - found[0].item() == pytest.approx(ratio, rel=1e-6)


def only_first(batch):
    """The same text, of whose tokens only the first asks."""
    first = batch.source.mask & (torch.arange(batch.source.mask.shape[1]) == 0)
    return _FirstAsks(batch.inputs, batch.source, batch.target, batch.examples, first)


@dataclass(eq=False)
class _FirstAsks(Batch):
    first: torch.Tensor

    def queries(self, site):
        return self.source.replaced(mask=self.first)

    def keys(self, site):
        return self.source


def _hooks(watched: Subject) -> list[int]:
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in watched.model.modules()]


@pytest.mark.parametrize("method", ["attnlrp", "decompx", "voita2021", "rollout", "attention_flow"])
@pytest.mark.parametrize("family", ["bert-classifier", "marian"])
def test_a_text_is_explained_alike_alone_and_in_a_padded_batch(family, method):
    watched = headed(family)
    texts = examples((7, 2))
    whole = explain(watched, padded(watched.encode(texts), 3, watched.encoder.padding), method)
    alone = explain(watched, watched.encode(texts[1:]), method)
    torch.testing.assert_close(whole.tokens[1, : alone.tokens.shape[1]], alone.tokens[0], rtol=1e-6, atol=1e-9)
    for site, heads in alone.heads.items():
        torch.testing.assert_close(whole.heads[site][1], heads[0], rtol=1e-6, atol=1e-9)


def test_rules_are_undone_when_a_pass_breaks():
    watched = headed("bert-classifier")
    before = _hooks(watched)
    with pytest.raises(UserError):
        explain(watched, watched.encode(examples()), "attnlrp", target=7)
    assert _hooks(watched) == before
    assert torch.tanh(torch.ones(1, requires_grad=True)).grad_fn.name() == "TanhBackward0"


def test_another_thread_does_not_see_the_rules():
    watched = headed("bert-classifier")
    batch = watched.encode(examples())
    found = {}

    class Meanwhile(Tap):
        def see(self, call: Call) -> None:
            if call.site.layer == 0:
                thread = threading.Thread(target=plain)
                thread.start(), thread.join()

    def plain() -> None:
        vectors = watched.model.get_input_embeddings().weight[batch.source.ids].detach().requires_grad_()
        with torch.enable_grad():
            out = watched.model(inputs_embeds=vectors, attention_mask=batch.inputs["attention_mask"]).logits[:, 0].sum()
        (found["gradient"],) = torch.autograd.grad(out, vectors)

    with watched.tapped(Meanwhile()):
        explain(watched, batch, "ah")
    inside = found["gradient"]
    plain()
    torch.testing.assert_close(inside, found["gradient"])


def test_a_difference_of_logits_is_the_difference_of_their_relevance():
    watched = headed("bert-classifier")
    batch = watched.encode(examples())
    for method in ("ah", "attnlrp", "gradient_x_input"):
        a, b, both = (explain(watched, batch, method, target) for target in (0, 2, (0, 2)))
        torch.testing.assert_close(both.tokens, a.tokens - b.tokens)
        torch.testing.assert_close(both.start, a.start - b.start)
    top = explain(watched, batch, "ah")
    with torch.no_grad():
        logits = watched.run(batch).logits
    chosen = explain(watched, batch, "ah", logits.argmax(-1))
    torch.testing.assert_close(top.start, logits.amax(-1))
    torch.testing.assert_close(top.tokens, chosen.tokens)


def test_what_is_explained_where_every_token_predicts():
    marian, causal, masked = headed("marian"), headed("gpt2"), headed("bert-mlm")
    texts = examples()
    batch = marian.encode(texts)
    assert torch.equal(positions(marian, batch), batch.target.mask)
    found = explain(marian, batch, "ah")
    with torch.no_grad(), marian.tapped(Tap()):
        logits = marian.run(batch).logits
    torch.testing.assert_close(found.start, (logits.amax(-1) * batch.target.mask).sum(-1))
    assert found.target_tokens.shape == batch.target.ids.shape
    batch = causal.encode(texts)
    assert positions(causal, batch).nonzero().tolist() == [[n, length - 1] for n, length in enumerate(batch.lengths)]
    hidden = masked.encode(["w8 [MASK] w9", "w8 w9"])
    assert positions(masked, hidden).long().tolist() == [[0, 0, 1, 0, 0], [0, 1, 1, 0, 0]]


def test_voita_2021_starts_with_one_and_keeps_it():
    for family in ("bert-classifier", "t5-gated", "modernbert-mlm"):
        watched = headed(family)
        batch = watched.encode(examples())
        found = explain(watched, batch, "voita2021")
        steps = torch.ones(len(batch)) if found.start.shape == () else positions(watched, batch).sum(-1)
        expected = steps if watched.labels is None else torch.ones(len(batch))
        torch.testing.assert_close(found.total, expected.double(), rtol=1e-5, atol=1e-5)
        assert found.tokens.min() >= 0


def test_words_are_the_sums_of_their_pieces():
    watched = headed("bert-classifier")
    batch = watched.encode(examples())
    found = explain(watched, batch, "ah")
    for text, words in enumerate(found.words(batch.source)):
        assert len(words) == len(batch.source.words[text])
        inner = batch.source.word[text] >= 0
        torch.testing.assert_close(words.sum(), found.tokens[text, inner].sum())


@pytest.mark.parametrize("family", HEADLESS[:2])
def test_a_model_without_a_head_is_refused(family):
    watched = headed(family)
    with pytest.raises(UserError, match="no output head"):
        explain(watched, watched.encode(examples()), "attnlrp")


def test_bad_input_gets_one_clear_line():
    watched = headed("bert-classifier")
    batch = watched.encode(examples())
    for target, message in (
        (3, r"There is no class 3: 'tiny bert-classifier' has 3 .*, numbered from 0 to 2"),
        (-1, "There is no class -1"),
        ((0, 9), "There is no class 9"),
        ((0, 1, 2), "target=\\(a, b\\)"),
        (torch.tensor([0, 1]), "one for each of the 5 texts"),
    ):
        with pytest.raises(UserError, match=message):
            explain(watched, batch, "ah", target)
    with pytest.raises(UserError, match="Did you mean 'attnlrp'"):
        explain(watched, batch, "attnlpr")
    with pytest.raises(UserError, match="at least one step"):
        explain(watched, batch, "integrated_gradients", steps=0)
    translator = headed("marian")
    with pytest.raises(UserError, match="no translation"):
        explain(translator, translator.encode(["w8 w9"]), "ah")
