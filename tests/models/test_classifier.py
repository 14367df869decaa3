"""Laws of the classifier: padding, word order, precision, saving, and what it refuses."""

import math

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.models.classifier import SelfAttentionClassifier, SelfAttentionClassifierConfig
from lorgnette.models.classifier.layers import PureNorm
from lorgnette.models.classifier.positions import (
    sinusoidal_positions,
)
from lorgnette.models.classifier.presets import PRESETS, preset
from lorgnette.models.classifier.tokenizer import build_tokenizer
from lorgnette.models.families import anatomy_of
from lorgnette.models.tapping import tapped
from lorgnette.subject import Subject

KNOWS_ORDER = {name for name, each in PRESETS.items() if each.overrides.get("positions")} | {"bilstm-attention"}


def make(name, **overrides):
    torch.manual_seed(0)
    model = SelfAttentionClassifier(preset(name, **{"vocab_size": 30, "width": 8, **overrides})).eval()
    with torch.no_grad():
        for each, parameter in model.named_parameters():  # no zero start and no dead ReLU
            parameter += 0.3 * torch.randn_like(parameter) + each.endswith("transform.linear.bias")
        model.embeddings.words.weight[0] = 0
    return model


def text(model, *words):
    return torch.tensor([[2, *words] if model.config.uses_cls else [*words]])


def logits(model, ids, **keywords):
    with torch.no_grad():
        return model(ids, **keywords).logits


@pytest.mark.parametrize("name", PRESETS)
def test_more_padding_changes_nothing(name):
    model = make(name).double()
    ids = text(model, 4, 9, 5, 4, 17)
    longer = torch.cat((ids, torch.zeros(1, 7, dtype=torch.long)), dim=1)
    mask = (longer != 0).long()
    torch.testing.assert_close(logits(model, longer, attention_mask=mask), logits(model, ids), rtol=0, atol=1e-12)
    # Whatever stands under the padding is not read.
    junk = longer.masked_fill(mask == 0, 11)
    torch.testing.assert_close(logits(model, junk, attention_mask=mask), logits(model, ids), rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["learnt", "relative"])
@pytest.mark.parametrize("name", ["tp9-position", "tp9-residual-position-cls"])
def test_more_padding_changes_nothing_with_other_positions(name, positions):
    model = make(name, positions=positions, heads=2, max_offset=2).double()
    ids = text(model, 4, 9, 5, 4, 17)
    longer = torch.cat((ids, torch.zeros(1, 7, dtype=torch.long)), dim=1)
    torch.testing.assert_close(logits(model, longer), logits(model, ids), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(PRESETS) - KNOWS_ORDER))
def test_without_positions_word_order_is_nothing(name):
    model = make(name).double()
    words = [4, 9, 5, 4, 17, 21]
    expected = logits(model, text(model, *words))
    for seed in range(5):
        order = torch.randperm(len(words), generator=torch.Generator().manual_seed(seed)).tolist()
        shuffled = logits(model, text(model, *(words[i] for i in order)))
        torch.testing.assert_close(shuffled, expected, rtol=0, atol=1e-12)
    assert (logits(model, text(model, *words, 22)) - expected).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        *((name, {}) for name in sorted(KNOWS_ORDER)),
        ("tp9-base", {"positions": "learnt"}),
        ("tp9-base", {"positions": "relative"}),
    ],
    ids=str,
)
def test_with_positions_word_order_matters(name, overrides):
    model = make(name, **overrides).double()
    difference = logits(model, text(model, 4, 9, 5, 17)) - logits(model, text(model, 17, 4, 5, 9))
    assert difference.abs().max() > 1e-6


@pytest.mark.parametrize("name", PRESETS)
def test_one_token(name):
    model = make(name)
    alone = torch.tensor([[2]]) if model.config.uses_cls else torch.tensor([[4]])
    assert torch.isfinite(logits(model, alone)).all()


@pytest.mark.parametrize("name", PRESETS)
def test_unknown_words_count_and_padding_does_not(name):
    model = make(name)
    known = logits(model, text(model, 4, 9))
    assert not torch.allclose(logits(model, text(model, 4, 9, 1)), known)
    torch.testing.assert_close(logits(model, text(model, 4, 9, 0)), known)


@pytest.mark.parametrize("name", PRESETS)
def test_gradients_reach_every_trained_parameter(name):
    model = make(name, dropout=0.1, attention_dropout=0.1).train()
    ids = torch.cat((text(model, 4, 9, 5), text(model, 8, 0, 0)))
    loss = model(ids, labels=torch.tensor([0, 1])).loss
    loss.backward()
    for parameter_name, parameter in model.named_parameters():
        frozen = parameter_name == "embeddings.words.weight" and model.config.freeze_embeddings
        assert (parameter.grad is None) == frozen, parameter_name
        assert frozen or torch.isfinite(parameter.grad).all(), parameter_name


@pytest.mark.parametrize("name", ["tp9-residual-position-cls", "pure-attention", "query-pooling"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 0.02), (torch.bfloat16, 0.15), (torch.float64, 1e-5)])
def test_other_precisions(name, dtype, tolerance):
    model = make(name)
    ids = torch.cat((text(model, 4, 9, 5), text(model, 8, 0, 0)))
    expected = logits(model, ids)
    found = logits(model.to(dtype), ids)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", PRESETS)
def test_saved_and_opened_with_the_auto_classes(name, tmp_path):
    tokenizer = build_tokenizer(["a good film", "not a good film"], cls=preset(name).uses_cls)
    model = make(name, vocab_size=len(tokenizer), id2label={0: "negative", 1: "positive"})
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    inputs = AutoTokenizer.from_pretrained(tmp_path)(["not a film", "good"], padding=True, return_tensors="pt")
    assert isinstance(again, SelfAttentionClassifier)
    assert isinstance(AutoModel.from_pretrained(tmp_path), SelfAttentionClassifier)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), SelfAttentionClassifierConfig)
    assert again.config.id2label == {0: "negative", 1: "positive"}
    assert again.embeddings.words.weight.requires_grad == (not model.config.freeze_embeddings)
    for (key, one), (other_key, other) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
        assert key == other_key
        assert torch.equal(one, other), key
    with torch.no_grad():
        torch.testing.assert_close(again(**inputs).logits, model(**inputs).logits, rtol=0, atol=1e-6)


def test_outputs():
    model = make("tp9-residual-position")
    ids, labels = torch.tensor([[4, 9, 5], [8, 3, 1]]), torch.tensor([1, 0])
    output = model(ids, labels=labels, output_hidden_states=True)
    assert len(output.hidden_states) == 4
    expected = sum(-output.logits[i].log_softmax(-1)[labels[i]] for i in range(2)) / 2
    torch.testing.assert_close(output.loss, expected)
    # State 0 enters the first layer, positions and all; the words alone are there too.
    words = model.embeddings.word_vectors(ids)
    torch.testing.assert_close(output.hidden_states[0], words + sinusoidal_positions(8, 3).float())
    torch.testing.assert_close(model(inputs_embeds=words).logits, output.logits)
    assert model(ids).hidden_states is None
    assert torch.equal(model(ids, return_dict=False)[0], model(ids).logits)


def test_cls_starts_small_or_at_zero_and_is_learnt_beside_a_frozen_table():
    torch.manual_seed(0)
    learnt = SelfAttentionClassifier(preset("tp9-cls", vocab_size=30))
    fosse = SelfAttentionClassifier(preset("pure-attention", vocab_size=30))
    assert 0 < learnt.embeddings.cls.abs().max() < 0.1
    assert torch.count_nonzero(fosse.embeddings.cls) == 0
    assert torch.count_nonzero(learnt.embeddings.words.weight[0]) == 0
    assert learnt.embeddings.cls.requires_grad
    assert not learnt.embeddings.words.weight.requires_grad


def test_relative_positions_start_as_none():
    torch.manual_seed(0)
    relative = SelfAttentionClassifier(preset("tp9-base", vocab_size=30, positions="relative")).eval()
    none = SelfAttentionClassifier(preset("tp9-base", vocab_size=30)).eval()
    none.load_state_dict(relative.state_dict(), strict=False)
    ids = torch.tensor([[4, 9, 5, 17]])
    torch.testing.assert_close(logits(relative, ids), logits(none, ids))


@pytest.mark.parametrize("vector", [[0.0] * 6, [0.1] * 6, [-3e7] * 6, [1e-30, 0, 0, 0, 0, 0]], ids=str)
def test_pure_norm_of_a_vector_without_direction_is_zero(vector):
    x = torch.tensor([vector, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], requires_grad=True)
    normed = PureNorm()(x)
    (normed * torch.arange(12.0).reshape(2, 6)).sum().backward()
    assert torch.equal(normed[0], torch.zeros(6))
    assert torch.equal(x.grad[0], torch.zeros(6))
    torch.testing.assert_close(normed[1], (torch.arange(6.0) - 2.5) / math.sqrt(3.5))
    assert torch.isfinite(x.grad).all()


def test_residual_model_takes_zero_vectors():
    model = make("tp9-residual")
    with torch.no_grad():
        model.embeddings.words.weight.zero_()
    model(torch.tensor([[1, 1, 1]]), labels=torch.tensor([0])).loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_sinusoidal_positions_survive_inference_and_a_change_of_precision():
    model = make("tp9-position")
    with torch.inference_mode():
        model(torch.tensor([[4, 9, 5]]))
    model(torch.tensor([[4, 9, 5]]), labels=torch.tensor([0])).loss.backward()
    exact = model.double()(torch.tensor([[4, 9]]), output_hidden_states=True).hidden_states[0][0, 1]
    expected = model.embeddings.words.weight[9] + sinusoidal_positions(8, 2)[1]
    torch.testing.assert_close(exact, expected, rtol=0, atol=1e-12)


class Seen(Tap):
    def __init__(self):
        self.calls = []

    def see(self, call):
        self.calls.append((call.site, call.weights.detach()))


@pytest.mark.parametrize("name", ["tp9-base", "tp9-residual-cls", "pure-attention"])
def test_taps_see_every_layer_and_padding_receives_nothing(name):
    model = make(name, layers=2, heads=2)
    ids = torch.cat((text(model, 4, 9, 5), text(model, 8, 0, 0)))
    seen = Seen()
    with tapped(model, seen):
        watched = logits(model, ids)
    torch.testing.assert_close(watched, logits(model, ids))
    assert [site.layer for site, _ in seen.calls] == [0, 1]
    for _, weights in seen.calls:
        assert weights.shape == (2, 2, ids.shape[1], ids.shape[1])
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert (weights[1, :, :, -2:] == 0).all()


@pytest.mark.parametrize("name", ["attention-pooling", "query-pooling", "bilstm-attention"])
def test_taps_see_the_one_query_of_an_attention_pooler(name):
    model = make(name, layers=2, heads=2)
    ids = torch.tensor([[4, 9, 5], [8, 0, 0]])
    seen = Seen()
    with tapped(model, seen):
        watched = logits(model, ids)
    torch.testing.assert_close(watched, logits(model, ids))
    assert [(site.stack, site.kind, site.layer) for site, _ in seen.calls] == [
        ("encoder", "self", 0),
        ("encoder", "self", 1),
        ("pooler", "cross", 0),
    ]
    weights = seen.calls[-1][1]
    assert weights.shape == (2, 1, 1, 3)
    torch.testing.assert_close(weights[1, 0, 0], torch.tensor([1.0, 0.0, 0.0]))


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"mean"}))
def test_what_is_seen_is_what_the_model_does(name):
    texts = ["The cat sat on the mat, and nobody minded.", "Two short sentences."]
    tokenizer = build_tokenizer(texts, cls=preset(name).uses_cls)
    model = make(name, vocab_size=len(tokenizer), layers=1, width=8, heads=2)
    failed = [each for each in Subject(model, tokenizer).check() if not each.ok]
    assert not failed


@pytest.mark.parametrize("name", ["tp9-base", "pure-attention", "attention-pooling", "query-pooling"])
def test_per_head_maps_give_back_what_attention_returns(name):
    """Σ_h Σ_j α^h_j (x_j W_V^h + b_V^h) W_O^h + b_O, where a missing W_O is a slice of the identity."""
    model = make(name, layers=0 if "pooling" in name else 1, heads=1 if "pooling" in name else 2).double()
    site, kept = anatomy_of(model).sites[0], {}
    site.module.register_forward_hook(lambda module, inputs, output: kept.update(inputs=inputs, output=output))
    seen = Seen()
    with tapped(model, seen):
        logits(model, text(model, 4, 9, 5))
    states, maps, weights = kept["inputs"][-2], site.head_weights(), seen.calls[0][1]
    values = torch.einsum("bkm,hmd->bhkd", states, maps.value)
    values = values if maps.value_bias is None else values + maps.value_bias[:, None]
    heads = torch.einsum("bhqk,bhkd,hdm->bqm", weights, values, maps.output)
    heads = heads if maps.output_bias is None else heads + maps.output_bias
    torch.testing.assert_close(heads.reshape(kept["output"].shape), kept["output"], rtol=0, atol=1e-12)


def test_a_mask_with_holes_hides_words_from_attention_only():
    model = make("bilstm-attention").double()
    ids, holes = torch.tensor([[4, 9, 5, 7]]), torch.tensor([[1, 0, 0, 1]])
    assert not torch.allclose(logits(model, ids, attention_mask=holes), logits(model, torch.tensor([[4, 7]])))


@pytest.mark.parametrize(
    ("ids", "keywords", "message"),
    [
        ([[4, 5], [0, 0]], {}, "text 1 of the batch has no token"),
        ([[], []], {}, "every text of the batch is empty"),
        ([[4, 5]], {"labels": torch.tensor([2])}, "label 2 of text 0 is not in the config, which has 2 labels"),
        ([[4, 5]], {"labels": torch.tensor([-1])}, "label -1"),
        ([[4, 5]], {"output_attentions": True}, "lorgnette.tapped"),
        ([[4, 5]], {"inputs_embeds": torch.zeros(1, 2, 8)}, "either input_ids or inputs_embeds"),
    ],
)
def test_wrong_batches_are_refused(ids, keywords, message):
    with pytest.raises(UserError, match=message):
        make("tp9-base")(torch.tensor(ids, dtype=torch.long), **keywords)


def test_a_cls_model_refuses_a_text_without_cls():
    with pytest.raises(UserError, match=r"text 1 of the batch does not begin with <cls> \(id 2\)"):
        make("tp9-cls")(torch.tensor([[2, 4], [4, 5]]))


def test_learnt_positions_refuse_a_longer_text():
    model = make("tp9-position", positions="learnt", max_position_embeddings=4)
    assert torch.isfinite(logits(model, torch.tensor([[4] * 4]))).all()
    with pytest.raises(UserError, match="5 tokens is longer than the 4 learnt positions"):
        model(torch.tensor([[4] * 5]))
