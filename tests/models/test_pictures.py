"""Models of pictures and text: every tower is captured exactly, against the model's own eager attention."""

import pytest
import torch
import transformers as hf
from tiny.architectures import model_of_type
from tiny.eager import first_states, own_weights
from tiny.models import peaked
from tiny.pictures import EXACT, REFUSED, UNSEEN, picture_model
from torch import Tensor, nn

import lorgnette as lo


@pytest.mark.parametrize("kind", [kind for kind in EXACT if kind != "blip"])  # it has no eager function: see below
def test_both_towers_are_captured_exactly(kind):
    model, inputs = picture_model(kind)
    with torch.no_grad():
        before = first_states(model(**inputs))
        seen = lo.attention(model, **inputs)
    expected, output = own_weights(model, inputs)
    sites = seen.subject.anatomy.sites
    assert len(expected) == len(sites) == len(seen.records)
    real = inputs["attention_mask"].bool()
    for site in sites:
        got, wanted = seen.records[site.site]["weights"], expected[site.module]
        if site.site.of_texts and site.site.stack == "decoder" and got.shape[2] == real.shape[1]:
            got, wanted = got.transpose(1, 2)[real], wanted.transpose(1, 2)[real]
        assert got.shape == wanted.shape
        assert torch.allclose(got, wanted, atol=2e-6), site.site
    after = first_states(seen.output)
    for one, other in ((before, after), (output, after)):
        if one.shape[:2] == real.shape:
            one, other = one[real], other[real]
        assert torch.allclose(one, other, atol=1e-4 * float(one.abs().max()))


def blip(kind):
    """BLIP as it is loaded for a task, and inputs; answers have ids of their own."""
    pair, inputs = picture_model("blip")
    torch.manual_seed(0)
    model = pair if kind == "BlipModel" else peaked(getattr(hf, kind)(pair.config).eval())
    answers = {"decoder_input_ids": torch.tensor([[2, 7, 8], [2, 9, 3]])}
    return model, inputs | (answers if kind == "BlipForQuestionAnswering" else {})


BLIPS = ("BlipModel", "BlipForConditionalGeneration", "BlipForQuestionAnswering", "BlipForImageTextRetrieval")


@pytest.mark.parametrize("kind", BLIPS)
def test_blip_against_its_own_weights(kind):
    model, inputs = blip(kind)
    own: dict[nn.Module, Tensor] = {}
    names = ("BlipAttention", "BlipTextSelfAttention")
    hooks = [
        module.register_forward_hook(lambda module, arguments, output: own.__setitem__(module, output[1]))
        for module in model.modules()
        if type(module).__name__ in names
    ]
    with torch.no_grad():
        model(**inputs)
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        seen = lo.attention(model, **inputs)
    crossing = {"BlipModel": 0, "BlipForQuestionAnswering": 4}.get(kind, 2)
    decoders = 2 if kind == "BlipForQuestionAnswering" else 0
    assert len(own) == len(seen.records) == 4 + crossing + decoders
    for site in seen.subject.anatomy.sites:
        # To the last digit on padding too, to which BLIP's answers attend: transformers drops the mask of a question.
        got, wanted = seen.records[site.site]["weights"], own[site.module]
        if site.site.stack == "encoder" or (kind != "BlipForQuestionAnswering" and site.site.of_texts):
            got, wanted = got[:, :, :5], wanted[:, :, :5]  # the second text has one token of padding
        assert torch.allclose(got, wanted, atol=2e-6), site.site


@pytest.mark.parametrize("kind", BLIPS)
def test_blip_is_proved_on_every_way_to_run_it(kind):
    model, inputs = blip(kind)
    if kind == "BlipForQuestionAnswering":
        inputs = {name: each[:1] for name, each in inputs.items()}  # without padding: see above
    checks = lo.Subject(model, inputs=inputs).check(inputs)
    assert [one for one in checks if not one.ok] == []


class Rows(lo.Tap):
    """The weights of the last query of each call of attention to a picture."""

    def __init__(self):
        self.rows = []

    def see(self, call):
        if call.site.kind == "cross":
            self.rows.append(call.weights[:, :, -1])


def test_blip_writes_what_it_writes_unwatched():
    """From a cache, which keeps the picture's keys and values of the first pass."""
    model, inputs = blip("BlipForConditionalGeneration")
    subject, given = lo.Subject(model, inputs=inputs), {name: each[:1] for name, each in inputs.items()}
    stepwise, whole = Rows(), Rows()
    before = model.generate(**given, max_new_tokens=5)
    with subject.tapped(stepwise):
        after = model.generate(**given, max_new_tokens=5)
    assert torch.equal(before, after)
    # generate leaves the last token of the prompt out, and returns the last token that it did not read
    ids = after[:, :-1]
    with torch.no_grad(), subject.tapped(whole):
        model(pixel_values=given["pixel_values"], input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    for mine, wanted in zip(stepwise.rows[-2:], whole.rows, strict=True):
        torch.testing.assert_close(mine, wanted, atol=1e-5, rtol=1e-4)


def test_blips_towers_by_themselves():
    model, inputs = picture_model("blip")
    with torch.no_grad():
        vision = lo.attention(model.vision_model, pixel_values=inputs["pixel_values"])
        text = lo.attention(model.text_model, input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
    assert vision["weights"].shape == (2, 2, 4, 17, 17)
    assert text["weights"].shape == (2, 2, 4, 6, 6)


@pytest.mark.parametrize("kind", EXACT)
def test_the_proof_holds_on_every_way_to_run_it(kind):
    model, inputs = picture_model(kind)
    subject = lo.Subject(model, inputs=inputs)
    checks = subject.check(inputs)
    assert [one.name for one in checks if not one.ok] == []
    assert "vision" in subject.layers or "its tower" in UNSEEN[kind]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refusal_names_the_real_reason(kind):
    model, inputs = picture_model(kind)
    with pytest.raises(lo.CaptureError, match=REFUSED[kind]):
        lo.attention(model, **inputs)


def test_packed_pictures_do_not_see_each_other():
    model, inputs = picture_model("qwen2_vl")
    with torch.no_grad():
        weights = lo.attention(model, **inputs)["vision.1.weights"]
    assert weights.shape == (1, 4, 32, 32)
    assert float(weights[..., :16, 16:].abs().max()) == float(weights[..., 16:, :16].abs().max()) == 0.0
    assert torch.allclose(weights.sum(-1), torch.ones(1, 4, 32))


def test_texts_first_and_pictures_afterwards():
    """What was found on texts is not taken for the whole model, nor the other way round."""
    model, inputs = picture_model("llava")
    words = {"input_ids": inputs["input_ids"] % 80, "attention_mask": inputs["attention_mask"]}
    with torch.no_grad():
        assert lo.attention(model, **words).stacks == ("decoder",)
        assert lo.attention(model, **inputs).stacks == ("vision", "decoder")
        assert lo.attention(model, **words).stacks == ("decoder",)


def test_a_picture_that_nobody_announced_gets_one_clear_line():
    model, inputs = picture_model("llava")
    subject = lo.Subject(model)
    with pytest.raises(lo.CaptureError, match="Show it an example first"), torch.no_grad(), subject.tapped(lo.Tap()):
        model(**inputs)


def test_layers_that_attend_to_a_picture_are_left_out_without_one():
    model, inputs = picture_model("mllama")
    words = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        whole = lo.attention(model, **inputs)
        alone = lo.attention(whole.subject, **words)
    assert "cross.2.weights" in whole.names()
    assert alone.stacks == ("decoder",)


@pytest.mark.parametrize(("kind", "own"), [("vilt", "Vilt"), ("layoutlmv3", "LayoutLMv3Self"), ("lxmert", "Lxmert")])
def test_nobody_is_asked_for_a_picture_that_would_be_refused_too(kind, own):
    with pytest.raises(lo.CaptureError, match=rf"does not go through .* \(a softmax of its own: {own}\w*Attention"):
        lo.Subject(model_of_type(kind))


@pytest.mark.parametrize("kind", ["blip", "blip-2", "clip"])
def test_a_model_that_needs_a_picture_says_so(kind):
    model, _ = picture_model(kind)
    with pytest.raises(lo.CaptureError, match="sees pictures beside texts and does not run on texts alone"):
        lo.Subject(model)


def test_inputs_that_do_not_fit_are_not_called_token_ids_alone():
    model, inputs = picture_model("llava")
    with pytest.raises(lo.CaptureError, match="does not run on these inputs"), torch.no_grad():
        lo.attention(model, **{**inputs, "pixel_values": torch.zeros(2, 3, 8, 8)})


def test_a_classifier_of_pictures_is_its_tower():
    """Its config is that of the pair of towers, of which it has one."""
    pair, inputs = picture_model("clip")
    model = hf.CLIPForImageClassification(pair.config).eval()
    with torch.no_grad():
        seen = lo.attention(model, pixel_values=inputs["pixel_values"])
    assert seen["encoder.1.weights"].shape == (2, 4, 17, 17)
