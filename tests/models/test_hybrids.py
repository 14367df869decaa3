"""Hybrids: some layers have attention, and everything says which; a model without any says that."""

import pytest
from tiny import examples, tokenizer
from tiny.architectures import model_of_type

import lorgnette as lo
from lorgnette.cli.trace_output import about
from lorgnette.errors import CaptureError
from lorgnette.reporting.views.pack import pack
from lorgnette.reporting.views.page import page_html

HYBRIDS = [
    "jamba",
    "bamba",
    "granitemoehybrid",
    "lfm2",
    "qwen3_next",
    "kimi_linear",
    "recurrent_gemma",
    "bailing_hybrid",
]


@pytest.mark.parametrize("kind", HYBRIDS)
def test_everything_says_which_layers_have_attention(kind):
    subject = lo.Subject(model_of_type(kind), tokenizer("gpt2"), name=kind)
    assert [site.layer for site in subject.sites] == [1]
    said = "attention in 1 of the 2 decoder layers: 2"
    assert "1 of 2 decoder layers of 4 heads" in repr(subject)
    assert subject.facts()["attention"] == said
    assert said in {one.name: one.detail for one in subject.check()}["every site seen once"]
    result = lo.look(subject, examples(), "weights", progress=False)["weights"]
    assert said in result.provenance.notes
    assert result.data["entropy_count"].sel(layer=1).max() == 0  # layers have the numbers of the model
    assert result.data["entropy_count"].sel(layer=2).min() > 0


def test_a_trace_and_its_page_say_it_too():
    subject = lo.Subject(model_of_type("lfm2"), tokenizer("gpt2"), name="lfm2")
    said, trace = "attention in 1 of the 2 decoder layers: 2", subject.trace("w5 w6 w7")
    document = pack(trace)
    assert document["attending"] == said
    assert f'<p class="lv-foot">{said}</p>' in page_html(document)
    assert next(about(trace, "decoder")) == said
    whole = pack(lo.Subject(model_of_type("llama"), tokenizer("gpt2")).trace("w5 w6 w7"))
    assert whole["attending"] is None
    assert "attention in" not in page_html(whole)


def test_where_every_layer_has_attention_nothing_is_said():
    subject = lo.Subject(model_of_type("llama"), tokenizer("gpt2"))
    assert subject.attending is None
    assert subject.facts()["attention"] is None


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        ("qwen3_next", {"layer_types": ["linear_attention"] * 2}, "linear_attention"),
        ("recurrent_gemma", {"block_types": ["recurrent"]}, "recurrent"),
    ],
)
def test_a_model_without_an_attention_layer_says_so(kind, options, named):
    with pytest.raises(CaptureError, match=rf"none of its 2 layers has attention weights .*{named}"):
        lo.Subject(model_of_type(kind, **options), tokenizer("gpt2"))
