"""Bare models: what is seen, heads off, scaled and patched, lenses in a loop of one's own, the Trainer's callback."""

import pytest
import torch
import transformers as hf
import xarray as xr
from tiny import BERT, examples, subject, tiny_model

import lorgnette as lo
from lorgnette.bare.attention import attention
from lorgnette.errors import UserError

FAMILIES = ["bert", "gpt2", "llama", "modernbert", "distilbert", "mpnet"]


def inputs_of(texts=3, length=7, padded=True):
    ids = torch.randint(7, 90, (texts, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    if padded:
        mask[0, -2:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_eager_attention(family):
    model, inputs = tiny_model(family), inputs_of(padded=family != "gpt2")
    seen = attention(model, **inputs)
    model.set_attn_implementation("eager") if family != "mpnet" else None
    eager = model(**inputs, output_attentions=True).attentions
    real = inputs["attention_mask"].bool()
    stack = next(iter(seen.records)).name
    for layer, weights in enumerate(eager):
        mine = seen[f"{stack}.{layer + 1}.weights"]
        torch.testing.assert_close(
            mine.transpose(1, 2)[real], weights.transpose(1, 2)[real].to(mine), rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("family", [*FAMILIES, "gemma2", "t5", "gpt-oss"])
def test_negative_rows_count_from_the_end(family):
    """On a decoder they gave zeros: the row was compared with the keys before it was looked up."""
    model, inputs = tiny_model(family), inputs_of(padded=False)
    if family == "t5":
        inputs["decoder_input_ids"] = inputs["input_ids"][:, :4]
    whole, some = (attention(model, rows=rows, **inputs) for rows in (None, [-1, 0, -3]))
    for site, parts in some.records.items():
        for name in ("query", "weights", "context"):
            expected = whole.records[site][name][:, :, [-1, 0, -3]]
            torch.testing.assert_close(parts[name], expected, rtol=1e-4, atol=1e-4)
        if family != "gpt-oss":
            torch.testing.assert_close(parts["weights"].sum(-1), torch.ones_like(parts["weights"][..., 0]))


def test_a_row_from_the_end_that_is_padding_is_refused():
    model, inputs = tiny_model("llama"), inputs_of()
    with pytest.raises(UserError, match="Row -1 is padding in text 1 of this batch"):
        attention(model, rows=[-1], **inputs)
    left = {name: tensor.flip(1) for name, tensor in inputs.items()}
    whole, last = attention(model, **left), attention(model, rows=[-1], **left)
    torch.testing.assert_close(last["decoder.2.weights"], whole["decoder.2.weights"][:, :, -1:])
    assert attention(model, rows=[6], **inputs)["decoder.2.weights"].shape[2] == 1


def test_some_layers_heads_and_rows_only():
    model, inputs = tiny_model("bert"), inputs_of()
    whole = attention(model, **inputs)
    some = attention(model, layers=[2], heads=[1, 3], rows=[0, 4], parts=["weights", "context"], **inputs)
    assert set(some.names()) == {"encoder.2.weights", "encoder.2.context"}
    expected = whole["encoder.2.weights"][:, [0, 2]][:, :, [0, 4]]
    torch.testing.assert_close(some["encoder.2.weights"], expected)
    assert some.data("encoder.2.weights").coords["head"].values.tolist() == [1, 3]


def test_norms_are_the_lengths_of_weighted_transformed_vectors():
    model, inputs = tiny_model("bert"), inputs_of()
    seen = attention(model, **inputs)
    dense = model.encoder.layer[0].attention.output.dense
    heads = seen["encoder.1.value"].shape[1]
    per_head = dense.weight.T.unflatten(0, (heads, -1))
    vectors = torch.einsum("bhkd,hdm->bhkm", seen["encoder.1.value"], per_head)
    expected = (seen["encoder.1.weights"][..., None] * vectors[:, :, None]).norm(dim=-1)
    torch.testing.assert_close(seen["encoder.1.norms"], expected)


def test_gradients_flow_unless_they_are_off():
    model, inputs = tiny_model("bert"), inputs_of()
    assert attention(model, **inputs)["encoder.1.weights"].requires_grad
    with torch.no_grad():
        assert not attention(model, **inputs)["encoder.1.weights"].requires_grad


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": [9]}, "no layer 9"),
        ({"heads": [0]}, "no head 0"),
        ({"parts": ["wieghts"]}, "Did you mean 'weights'"),
    ],
)
def test_wrong_choices_are_one_line(options, words):
    with pytest.raises(UserError, match=words):
        attention(tiny_model("bert"), **options, **inputs_of())
    with pytest.raises(UserError, match="has no"):
        attention(tiny_model("bert"), parts=["query"], **inputs_of())["encoder.1.weights"]


def classifier():
    torch.manual_seed(0)
    return hf.BertForSequenceClassification(hf.BertConfig(**BERT, num_labels=3)).double().eval()


def zeroed(model, layer, head):
    """The model with the output projection's columns of one head set to zero."""
    dense = model.bert.encoder.layer[layer - 1].attention.output.dense
    dim = dense.weight.shape[1] // model.config.num_attention_heads
    with torch.no_grad():
        dense.weight[:, (head - 1) * dim : head * dim] = 0
    return model


def test_a_head_off_is_a_head_with_zero_weights():
    model, inputs = classifier(), inputs_of()
    with lo.without(model, ["2.3"]), torch.no_grad():
        off = model(**inputs).logits
    again = model(**inputs).logits
    torch.testing.assert_close(off, zeroed(model, 2, 3)(**inputs).logits)
    assert not torch.allclose(off, again)


def test_scaling_by_zero_is_switching_off_and_by_one_is_nothing():
    model, inputs = tiny_model("bert"), inputs_of()
    with torch.no_grad():
        plain = model(**inputs).last_hidden_state
        with lo.without(model, [(1, 2)]):
            off = model(**inputs).last_hidden_state
        with lo.scaled(model, {"1.2": 0.0}):
            torch.testing.assert_close(model(**inputs).last_hidden_state, off)
        with lo.scaled(model, {"1.2": 1.0}):
            torch.testing.assert_close(model(**inputs).last_hidden_state, plain)


def test_patching_every_head_of_the_last_layer_gives_the_other_context():
    model, one, two = tiny_model("bert"), inputs_of(padded=False), inputs_of(padded=False)
    two["input_ids"] = two["input_ids"].flip(0)
    other = attention(model, parts=["context"], **two)
    with lo.patched(model, from_=other, heads=["1.1"]), torch.no_grad():
        seen = attention(model, parts=["context"], **one)
    own = attention(model, parts=["context"], **one)
    torch.testing.assert_close(seen["encoder.1.context"][:, 0], other["encoder.1.context"][:, 0])
    torch.testing.assert_close(seen["encoder.1.context"][:, 1:], own["encoder.1.context"][:, 1:])


def test_texts_of_other_lengths_cannot_be_patched():
    model = tiny_model("bert")
    other = attention(model, **inputs_of(length=5))
    with pytest.raises(UserError, match="5 positions"), lo.patched(model, from_=other, heads=["1.1"]):
        model(**inputs_of(length=7))


@pytest.mark.parametrize("name", ["weights", "norms", "distances"])
def test_watching_batches_gives_what_look_gives(name):
    whole, texts = subject("bert"), examples()
    looked = lo.look(whole, texts, [name], progress=False)[name]
    lens = lo.lens.get(name)
    for start in range(0, len(texts), 2):
        made = whole.encode(texts[start : start + 2])
        with lo.watch(whole.model, lens, batch=made), torch.no_grad():
            whole.model(**made.inputs)
    mine = lens.compute()
    for variable in looked.data.data_vars:
        if looked.data[variable].dtype.kind == "f":
            a, b = looked.data[variable].values, mine.data[variable].values
            torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", ["weights", "geometry"])
def test_watching_keeps_the_numbers_of_texts_that_look_keeps(name):
    watched, texts = subject("bert"), examples((5, 9, 3, 7))
    lens = lo.lens.get(name)
    for some in (texts[:2], texts[2:]):
        batch = watched.encode(some)
        with lo.watch(watched, lens, batch=batch, keep="texts"), torch.no_grad():
            watched.run(batch, output_hidden_states=True, return_dict=True)
    assert lens.text_numbers is None  # until the result is made
    lens.compute()
    looked = lo.look(watched, texts, name, progress=False, keep="texts")
    xr.testing.assert_allclose(lens.text_numbers, looked.text_numbers[name], rtol=1e-9)
    assert lens.text_numbers.sizes["text"] == 4


def test_a_batch_from_tensors_has_the_kinds_that_the_tokenizer_knows():
    whole, texts = subject("bert"), examples()
    made = whole.encode(texts)
    mine = lo.batch(made.inputs, whole.tokenizer)
    assert mine.source.pieces == made.source.pieces
    assert torch.equal(mine.source.special, made.source.special)
    for kind, flags in made.source.categories.items():
        assert torch.equal(mine.source.categories[kind], flags), kind


def test_a_batch_without_tokenizer_or_mask():
    mine = lo.batch({"input_ids": torch.tensor([[5, 6, 7]])})
    assert mine.source.mask.all()
    assert not mine.source.special.any()
    assert mine.source.pieces == (("5", "6", "7"),)
    with pytest.raises(UserError, match="give tokens="):
        lo.batch({"pixel_values": torch.zeros(2, 3, 8, 8)})
    assert lo.batch({"pixel_values": torch.zeros(2, 3, 8, 8)}, tokens=5).source.mask.shape == (2, 5)


def test_a_subject_without_tokenizer_says_so():
    with pytest.raises(UserError, match="no tokenizer"):
        lo.Subject(tiny_model("bert")).trace("a text")


def test_the_effect_of_a_head_is_the_difference_of_two_passes():
    model, inputs = classifier(), {**inputs_of(), "labels": torch.tensor([0, 1, 2])}
    with torch.no_grad():
        before = model(**inputs)
        with lo.without(model, ["1.2"]):
            after = model(**inputs)
    effect = lo.effect(model, inputs, without=["1.2"])
    torch.testing.assert_close(effect.logits, after.logits - before.logits)
    assert effect.loss_change == pytest.approx(float(after.loss - before.loss), abs=1e-12)
    assert effect.divergence > 0
    with pytest.raises(UserError, match="Nothing to compare"):
        lo.effect(model, inputs)


def test_effects_by_gradient_are_the_slope_of_the_exact_ones():
    model, inputs = classifier(), inputs_of()
    small = 1e-4
    slopes = lo.gradient_effects(model, inputs, metric=lambda output: output.logits[:, 0].sum())
    for layer, head in ((1, 1), (2, 3)):
        exact = float(lo.effect(model, inputs, scaled={(layer, head): 1 - small}).logits[:, 0].sum()) / small
        assert float(slopes.sel(stack="encoder", layer=layer, head=head)) == pytest.approx(exact, rel=1e-2, abs=1e-6)


def test_the_callback_sees_what_look_sees(tmp_path):
    from datasets import Dataset

    made = subject("bert")
    torch.manual_seed(0)
    model = hf.BertForSequenceClassification(hf.BertConfig(**BERT, num_labels=2))
    texts = [example.text for example in examples()]
    rows = made.tokenizer(texts, padding="max_length", max_length=16)
    data = Dataset.from_dict({**rows, "labels": [0, 1, 0, 1, 0]})
    arguments = hf.TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=2, report_to=[], use_cpu=True, save_strategy="no",
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = hf.Trainer(model, arguments, train_dataset=data, processing_class=made.tokenizer)
    callback = lo.LensCallback("weights", texts, every=2).attach(trainer)
    trainer.train()
    assert list(callback.results) == [0, 2, 4]
    looked = lo.look(lo.Subject(model, made.tokenizer), texts, ["weights"], progress=False)["weights"]
    by_step = callback.by_step("weights")
    assert by_step["entropy"].dims[0] == "step"
    assert by_step["entropy"].sel(step=4).values == pytest.approx(looked.data["entropy"].values, abs=1e-7)
    logged = [entry for entry in trainer.state.log_history if "lens/weights/entropy" in entry]
    assert [entry["step"] for entry in logged] == [0, 2, 4]
