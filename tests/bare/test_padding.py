"""The same texts padded on the left, on the right, or alone give the same numbers, wherever tensors go in."""

import numpy as np
import pytest
import torch
import transformers as hf
from tiny import BERT, LLAMA, MARIAN, TEXTS, loud, tiny_model, word_pieces

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.explaining import Next
from lorgnette.explaining.mixing import MEASURES
from lorgnette.texts.padding import first_positions, is_first, is_last, last_positions, positions_of, real_tokens

SIDES = ("left", "right")
MODELS = {
    "llama": lambda: loud(hf.LlamaForCausalLM, hf.LlamaConfig(**LLAMA)),
    "bert-mlm": lambda: loud(hf.BertForMaskedLM, hf.BertConfig(**BERT)),
}
SOME = [TEXTS[0], TEXTS[2], TEXTS[4]]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]().double()


@pytest.fixture(scope="module")
def llama():
    return MODELS["llama"]().double()


def padded(side, texts=SOME):
    """Inputs with padding on one side, with the positions that each token has in the text alone."""
    tokenizer = word_pieces()
    tokenizer.padding_side = side
    made = dict(tokenizer(list(texts), padding=True, return_tensors="pt", return_token_type_ids=False))
    made["position_ids"] = (made["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return made


def alone(texts=SOME):
    return [padded("right", [text]) for text in texts]


def batch_of(inputs, **more):
    count = len(inputs["input_ids"])
    return lo.batch(inputs, word_pieces(), labels=[0] * count, **more)


def or_refusal(make):
    """What is made, or else the one line that says why not."""
    try:
        return make(), None
    except UserError as error:
        return None, str(error)


def watched(model, name, batches, ids):
    lens = lo.lens.get(name)
    subject = lo.Subject(model, word_pieces())
    for inputs, names in zip(batches, ids, strict=True):
        with lo.watch(subject, lens, batch=batch_of(inputs, ids=names)), torch.no_grad():
            model(**inputs, output_hidden_states=True)
    return lens.compute().data


OPTIONS = {
    "gating": "gating:steps=2,seeds=0",
    "norms": "norms:sample=0",
    "synthetic": "synthetic:needles=1,lengths=20,sequences=2",
}


@pytest.mark.parametrize("name", sorted(lo.lenses()))
def test_every_lens_that_can_be_watched(model, name):
    ids = [f"text {number}" for number in range(len(SOME))]
    name = OPTIONS.get(name, name)
    expected, refusal = or_refusal(lambda: watched(model, name, alone(), [[each] for each in ids]))
    if refusal:  # a lens that cannot be watched says so for any padding
        assert or_refusal(lambda: watched(model, name, [padded("left")], [ids])) == (None, refusal)
        return
    for side in SIDES:
        found = watched(model, name, [padded(side)], [ids])
        assert set(found.variables) == set(expected.variables)
        for key, value in expected.variables.items():
            if value.dtype.kind in "fiub":
                np.testing.assert_allclose(
                    found[key].values, value.values, rtol=1e-6, atol=1e-7, err_msg=f"{key}, {side}"
                )
            else:
                assert (found[key].values == value.values).all(), f"{key}, {side}"


def test_left_padding_in_a_batch_is_the_text_itself():
    for side in SIDES:
        batch = batch_of(padded(side))
        for number, one in enumerate(alone()):
            text, real = batch_of(one).source, batch.source.mask[number]
            assert batch.source.pieces[number] == text.pieces[0]
            assert batch.source.words[number] == text.words[0]
            assert batch.source.units(number).labels == text.units().labels
            assert torch.equal(batch.source.units(number).number, text.units().number)
            assert batch.source.word[number][real].tolist() == text.word[0].tolist()
            for kind, where in text.categories.items():
                assert batch.source.categories[kind][number][real].tolist() == where[0].tolist(), kind
                assert not batch.source.categories[kind][number][~real].any()


def test_attention(model):
    with torch.no_grad():
        each = [lo.attention(model, **one)["weights"] for one in alone()]
        for side in SIDES:
            inputs = padded(side)
            seen = lo.attention(model, **inputs)["weights"]
            for number, one in enumerate(each):
                real = inputs["attention_mask"][number].bool()
                torch.testing.assert_close(seen[:, number][:, :, real][..., real], one[:, 0])


def test_effect_and_gradient_effects(model):
    tokens = [one["input_ids"].shape[1] for one in alone()]
    apart = [lo.effect(model, one, without=["1.2", "2.3"]).divergence for one in alone()]
    expected = np.average(apart, weights=tokens)
    slopes = sum(lo.gradient_effects(model, one).values for one in alone())
    for side in SIDES:
        inputs = padded(side)
        effect = lo.effect(model, inputs, without=["1.2", "2.3"])
        assert effect.divergence == pytest.approx(expected, rel=1e-9)
        assert not effect.logits[inputs["attention_mask"] == 0].any()
        np.testing.assert_allclose(lo.gradient_effects(model, inputs).values, slopes, rtol=1e-7, atol=1e-9)


def test_effect_of_a_translation_counts_its_tokens():
    model = loud(hf.MarianMTModel, hf.MarianConfig(**MARIAN)).double()
    source, target = (padded("right", texts) for texts in (SOME, SOME[::-1]))
    inputs = {
        "input_ids": source["input_ids"],
        "attention_mask": source["attention_mask"],
        "decoder_input_ids": target["input_ids"],
        "decoder_attention_mask": target["attention_mask"],
    }
    head = "decoder.1.2"
    each = []
    for number in range(3):
        lengths = [int(part["attention_mask"][number].sum()) for part in (source, target)]
        cut = [lengths[name.startswith("decoder")] for name in inputs]
        one = {name: tensor[number : number + 1, :n] for (name, tensor), n in zip(inputs.items(), cut, strict=True)}
        each.append((lo.effect(model, one, without=[head]).divergence, lengths[1]))
    found = lo.effect(model, inputs, without=[head]).divergence
    assert found == pytest.approx(np.average([d for d, _ in each], weights=[n for _, n in each]), rel=1e-9)
    labels = target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)
    short = {"input_ids": source["input_ids"], "attention_mask": source["attention_mask"], "labels": labels}
    assert torch.equal(lo.effect(model, short, without=[head]).mask, labels != -100)


def test_effects_of_a_model_in_training_mode_are_those_without_dropout(model):
    expected = lo.effect(model, padded("left"), without=["1.2"]).divergence
    slopes = lo.gradient_effects(model, padded("left"))
    model.train()
    try:
        assert lo.effect(model, padded("left"), scaled={"1.2": 1.0}).divergence == 0.0
        assert lo.effect(model, padded("left"), without=["1.2"]).divergence == expected
        np.testing.assert_array_equal(lo.gradient_effects(model, padded("left")).values, slopes.values)
        assert model.training
    finally:
        model.eval()


def test_labels_at_padding_are_refused(llama):
    inputs = padded("right")
    with pytest.raises(UserError, match="labels name tokens at padding"):
        lo.effect(llama, {**inputs, "labels": inputs["input_ids"]}, without=["1.2"])
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    assert lo.effect(llama, {**inputs, "labels": labels}, without=["1.2"]).loss is not None


@pytest.mark.parametrize("method", sorted(lo.explanations()))
def test_explain(model, method):
    if method == "integrated_gradients":
        options = {"steps": 4}
    else:
        options = {}
    subject = lo.Subject(model, word_pieces())
    causal = isinstance(model, hf.LlamaForCausalLM)
    for target in (None, Next(at=1)) if causal else (None,):
        some = [SOME[0], SOME[2]]
        explained = lambda inputs: lo.explain(subject, batch_of(inputs), method, target, **options)  # noqa: B023, E731
        each, refusal = or_refusal(lambda: [explained(one) for one in alone(some)])  # noqa: B023
        if refusal:
            assert or_refusal(lambda: explained(padded("left", some))) == (None, refusal)  # noqa: B023
            continue
        for side in SIDES:
            batch = batch_of(padded(side, some))
            made = lo.explain(subject, batch, method, target, **options)
            for number, one in enumerate(each):
                real = batch.source.mask[number]
                torch.testing.assert_close(made.tokens[number][real], one.tokens[0], rtol=1e-6, atol=1e-9)
                assert not made.tokens[number][~real].any()
                if method not in MEASURES:
                    torch.testing.assert_close(made.start[number], one.start[0])
                assert made.explained[number : number + 1] == one.explained


def test_explain_refuses_a_classifier_that_would_read_padding():
    """A classifier that reads position 0 reads padding there, and so do its logits."""
    subject = lo.Subject(loud(hf.BertForSequenceClassification, hf.BertConfig(**BERT)), word_pieces())
    lo.explain(subject, batch_of(padded("right")))
    with pytest.raises(UserError, match="reads the first position, which is padding in the text 'text 2'"):
        lo.explain(subject, batch_of(padded("left")))


def test_first_and_last():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1]]).bool()
    assert first_positions(mask).tolist() == [2, 0, 1, 0]
    assert last_positions(mask).tolist() == [3, 1, 3, 3]
    assert positions_of(mask, 1).tolist() == [3, 1, 3, 1]
    assert is_first(mask).nonzero()[:, 1].tolist() == [2, 0, 1, 0]
    assert is_last(mask).nonzero()[:, 1].tolist() == [3, 1, 3, 3]
    assert is_first(torch.zeros(1, 0, dtype=torch.bool)).shape == (1, 0)


def wide(mask, causal, additive):
    """The same mask with four dimensions."""
    n = mask.shape[1]
    visible = mask[:, None, None].bool().expand(-1, 1, n, -1)
    if causal:
        visible = visible & torch.ones(n, n, dtype=torch.bool).tril()
    return torch.where(visible, 0.0, torch.finfo(torch.float32).min) if additive else visible


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", SIDES)
def test_masks_of_more_dimensions_say_what_is_padding(side, causal, additive):
    mask = padded(side)["attention_mask"]
    shape = tuple(mask.shape)
    assert torch.equal(real_tokens(wide(mask, causal, additive), shape), mask.bool())
    assert torch.equal(real_tokens(mask[:, None].expand(-1, shape[1], -1), shape), mask.bool())
    assert torch.equal(real_tokens(mask[:, None, None], shape), mask.bool())
    batch = lo.batch({**padded(side), "attention_mask": wide(mask, causal, additive)})
    assert torch.equal(batch.lengths, mask.sum(-1))


def test_masks_that_do_not_say_it_are_refused():
    mask = padded("left")["attention_mask"]
    shape = tuple(mask.shape)
    open_rows = wide(mask, True, False) | (mask[:, None, :, None] == 0)  # as transformers fills rows that see nothing
    for wrong, said in (
        (open_rows, "does not tell which positions are padding"),
        (torch.where(mask == 1, 0.0, -1e9), "values other than 0 and 1"),
        (mask * 2, "values other than 0 and 1"),
        (wide(mask, False, False).double(), "added to scores"),
        (mask[:, :-1], "is for"),
        (mask[0], "1 dimensions"),
        (torch.zeros_like(mask), "hides all tokens of text 1"),
    ):
        with pytest.raises(UserError, match=said):
            real_tokens(wrong, shape)


def test_padding_without_a_mask(llama):
    inputs = padded("right")
    del inputs["attention_mask"]
    for call in (
        lambda: lo.attention(llama, **inputs),
        lambda: lo.effect(llama, inputs, without=["1.2"]),
        lambda: lo.gradient_effects(llama, inputs),
        lambda: lo.batch(inputs, word_pieces()),
    ):
        with pytest.raises(UserError, match=r"input_ids contain padding \(id 0\) but there is no attention_mask"):
            call()
    assert tiny_model("bert").config.pad_token_id == 0


def test_logits_of_the_last_positions_only(llama):
    """`logits_to_keep` cuts the logits, and with them what is padding."""
    for keep in (1, 3, torch.tensor([-1, -3])):
        apart = [lo.effect(llama, {**one, "logits_to_keep": keep}, without=["1.2"]).divergence for one in alone()]
        slopes = sum(lo.gradient_effects(llama, {**one, "logits_to_keep": keep}).values for one in alone())
        inputs = {**padded("left"), "logits_to_keep": keep}
        assert lo.effect(llama, inputs, without=["1.2"]).divergence == pytest.approx(np.mean(apart), rel=1e-9)
        np.testing.assert_allclose(lo.gradient_effects(llama, inputs).values, slopes, rtol=1e-7, atol=1e-9)
    right = padded("right")
    for call in (
        lambda: lo.effect(llama, {**right, "logits_to_keep": 1}, without=["1.2"]),
        lambda: lo.gradient_effects(llama, {**right, "logits_to_keep": 1}),
    ):
        with pytest.raises(UserError, match="logits_to_keep keeps only padding of text"):
            call()
    some = lo.effect(llama, {**right, "logits_to_keep": 9}, without=["1.2"])
    whole = lo.effect(llama, right, without=["1.2"])
    assert torch.equal(some.mask, right["attention_mask"][:, -9:].bool())
    torch.testing.assert_close(some.logits, whole.logits[:, -9:])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("ends", [2, [7, 2]])
@pytest.mark.parametrize("named", [True, False])
def test_padding_with_the_id_that_ends_texts(side, ends, named):
    """As the recipe for GPT-2 and Llama pads: one such id at an edge may be the end of the text, two are padding."""
    model = MODELS["llama"]()
    model.config.eos_token_id, model.config.pad_token_id = ends, 2 if named else None
    two, one = torch.tensor([[5, 6, 7, 8], [5, 6, 2, 2]]), torch.tensor([[5, 6, 7, 8], [5, 6, 7, 2]])
    two, one = (ids.flip(1) if side == "left" else ids for ids in (two, one))
    tokenizer = word_pieces()
    tokenizer.pad_token = tokenizer.eos_token = tokenizer.convert_ids_to_tokens(2)
    for call in (
        lambda ids: lo.attention(model, input_ids=ids),
        lambda ids: lo.effect(model, {"input_ids": ids}, without=["1.2"]),
        lambda ids: lo.gradient_effects(model, {"input_ids": ids}),
        lambda ids: lo.batch({"input_ids": ids}, tokenizer),
        lambda ids: lo.batch({"input_ids": ids}, config=model.config),
    ):
        with pytest.raises(UserError, match=r"input_ids contain padding \(id 2, which also ends a text\) but"):
            call(two)
        call(one)
        call(torch.tensor([[5], [2]]))
    lo.attention(model, input_ids=two, attention_mask=torch.ones_like(two))
