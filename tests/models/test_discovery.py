"""Models without a record: what running shows is what the records say, and what it cannot show is refused."""

import pytest
import torch
from tiny import FAMILIES, SINKS, examples, inputs, tiny_model, tokenizer
from tiny.architectures import model_of_type

from lorgnette import lens as lenses
from lorgnette.attending import Recorder
from lorgnette.errors import CaptureError
from lorgnette.looking.choosing import every_lens
from lorgnette.looking.texts import TokenizedTexts
from lorgnette.models.discovery import discovered
from lorgnette.models.discovery.events import Attended, Ran
from lorgnette.models.discovery.proofs import _gate
from lorgnette.models.families import anatomy_of, record_of
from lorgnette.models.tapping import tapped
from lorgnette.subject import Subject
from lorgnette.testing import run_lens

SHIMMED = ("mpnet", "deberta", "deberta-v2", "gpt-neo", "gptj", "bloom", "roformer", "falcon", "luke", "big-bird")
NORMALISED = ("qwen3", "gemma3", "gpt-oss")  # queries and keys go through a norm, or are scaled (YaRN)
UNPROVED = {**{name: {"query", "key"} for name in NORMALISED}, "opt": {"query"}, "gpt-neox": {"order"}}
"""What running cannot show: OPT's queries are scaled before they arrive, GPT-NeoX's halves of a layer are parallel."""


@pytest.mark.parametrize("family", [name for name in (*FAMILIES, *SINKS) if name not in SHIMMED])
def test_running_shows_what_the_record_says(family):
    model = tiny_model(family)
    written, shown = anatomy_of(model), discovered(model)
    assert [(stack.name, stack.module) for stack in written.stacks] == [
        (stack.name, stack.module) for stack in shown.stacks
    ]
    for one, other in zip(written.sites, shown.sites, strict=True):
        assert one.site == other.site
        assert one.module is other.module
        assert one.output is other.output
        assert (one.heads, one.groups, one.order) == (other.heads, other.groups, other.order)
        assert set(other.unknown) == UNPROVED.get(family, set())
        for part, heads in (("query", one.heads), ("key", one.groups)):
            if part not in other.unknown:
                assert torch.equal(getattr(one, part).weights(heads)[0], getattr(other, part).weights(heads)[0])
        if (
            not isinstance(one.norm, torch.nn.Identity) and "order" not in other.unknown
        ):  # ModernBERT has none before its first layer
            assert one.norm is other.norm
        if one.second_norm is not None:
            assert one.second_norm is other.second_norm
        for mine, theirs in zip(vars(one.head_weights()).values(), vars(other.head_weights()).values(), strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("kind", "stacks", "order", "groups"),
    [
        ("biogpt", {"decoder": 2}, "pre", 4),
        ("plbart", {"encoder": 2, "decoder": 2, "cross": 2}, "post", 4),
        ("cohere", {"decoder": 2}, "none", 2),  # the two halves of a layer are parallel
        ("phi3", {"decoder": 2}, "pre", 2),  # one map for grouped queries, keys and values
        ("stablelm", {"decoder": 2}, "pre", 2),
        ("mbart", {"encoder": 2, "decoder": 2, "cross": 2}, "pre", 4),
        ("nomic_bert", {"encoder": 2}, "post", 4),
    ],
)
def test_a_model_without_a_record_opens(kind, stacks, order, groups):
    model = model_of_type(kind)
    assert record_of(model.config) is None
    anatomy = anatomy_of(model)
    count: dict[str, int] = {}
    for site in anatomy.sites:
        count[site.site.name] = count.get(site.site.name, 0) + 1
        assert (site.order, site.groups, site.heads) == (order, groups, 4)
    assert count == stacks
    keep = Recorder(lambda call: (call.value, call.context))
    given: dict[int, torch.Tensor] = {}
    gave: dict[int, torch.Tensor] = {}

    def note(module, arguments, output):
        given[id(module)], gave[id(module)] = arguments[0], output

    for site in anatomy.sites:
        for module in (site.value.module, site.output):
            module.register_forward_hook(note)
    with torch.no_grad(), tapped(model, keep):
        model(**inputs(model), **({"decoder_input_ids": torch.tensor([[5, 6, 7]] * 3)} if "cross" in stacks else {}))
    for site in anatomy.sites:
        heads, (value, context) = site.head_weights(), keep[site.site]
        own = torch.einsum("bnm,hmd->bhnd", given[id(site.value.module)], heads.value)
        own = own if heads.value_bias is None else own + heads.value_bias[:, None]
        torch.testing.assert_close(own, value, rtol=1e-4, atol=1e-5)
        rebuilt = torch.einsum("bhnd,hdm->bnm", context, heads.output)
        rebuilt = rebuilt if heads.output_bias is None else rebuilt + heads.output_bias
        torch.testing.assert_close(rebuilt, gave[id(site.output)], rtol=1e-4, atol=1e-5)


def test_layers_without_attention_are_counted():
    """Every other layer of this hybrid attends; layers keep their numbers, and nothing is rolled out over them."""
    anatomy = anatomy_of(model_of_type("minimax", num_hidden_layers=4))
    assert [site.site.layer for site in anatomy.sites] == [0, 2]
    assert not anatomy.knows("mixing")
    with pytest.raises(CaptureError, match="its layers 2, 4 mix tokens without attention"):
        anatomy.require("mixing")


@pytest.mark.parametrize(
    ("kind", "module", "activation", "numbers", "first"),
    [
        ("qwen3_5_text", "q_proj", "sigmoid", 8, True),  # the map makes the queries too
        ("axk2", "q_gate_proj", "sigmoid", 8, True),
        ("afmoe", "gate_proj", "sigmoid", 8, True),
        ("beam", "gate_proj", "sigmoid", 8, False),  # and a bias for each head
        ("bailing_hybrid", "g_proj", "sigmoid", 1, False),
        ("laguna", "g_proj", "softplus", 1, False),
    ],
)
def test_a_gate_before_w_o_is_found_and_proved(kind, module, activation, numbers, first):
    model = model_of_type(kind)
    anatomy = anatomy_of(model)
    assert not anatomy.knows("output")
    assert anatomy.knows("output", gated=True)
    keep = Recorder(lambda call: (call.gate, call.context))
    given: dict[int, torch.Tensor] = {}
    for site in anatomy.sites:
        assert site.gate.module is site.module.get_submodule(module)
        assert (site.gate.activation, site.gate.first) == (activation, first)
        assert (site.gate.bias is None) == (kind != "beam")
        site.output.register_forward_hook(lambda module, arguments, _: given.update({id(module): arguments[0]}))
    with torch.no_grad(), tapped(model, keep):
        model(**inputs(model))
    for site in anatomy.sites:
        gate, context = keep[site.site]
        assert gate.shape == (*context.shape[:3], numbers)
        torch.testing.assert_close((gate * context).transpose(1, 2).flatten(2), given[id(site.output)])


@pytest.mark.parametrize(("factor", "found"), [(1.0, True), (1.00001, False)])
def test_only_the_gate_itself_passes(factor, found):
    """Of planted events: what W_O is given is context ⊙ sigmoid(x W), or differs from it in the fifth digit."""
    draw = torch.Generator().manual_seed(0)
    module = torch.nn.Linear(8, 8)
    context, x = torch.randn(2, 2, 3, 4, generator=draw), torch.randn(6, 8, generator=draw)
    call = Attended(module, context, context, context, context, causal=False, given=x)
    joined = context.transpose(1, 2).flatten(2).flatten(0, 1)
    ran = Ran(module, "linear", x, torch.randn(6, 8, generator=draw))
    gate = _gate(call, joined, joined * ran.gave.sigmoid() * factor, [], [ran])
    assert (gate is not None) == found
    assert gate is None or (gate.activation, gate.first) == ("sigmoid", False)


def test_a_lens_says_what_it_lacks_and_the_others_work():
    """W_O is one of several experts for each token: the norms of what arrives are not known, the weights are."""
    watched = Subject(model_of_type("jetmoe"), tokenizer("gpt2"), name="experts")
    assert all(check.ok for check in watched.check())
    with pytest.raises(CaptureError, match="W_O of decoder layer 1 is not known: no linear map is given the heads'"):
        lenses.get("norms").bind(watched)
    result = run_lens(lenses.get("weights"), watched, [watched.encode(examples())]).compute()
    assert float(result.data["entropy"].min()) >= 0
    fit, left_out = every_lens(TokenizedTexts(watched, examples()), None, lambda *_: None)
    assert "circuits" not in fit
    assert "is not known" in left_out["circuits"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("bigbird_pegasus", "some of its attention does not go through transformers' attention interface"),
        ("nystromformer", "does not go through transformers' attention interface"),
        ("falcon_mamba", "recurrent model: it has no attention"),
        ("xlnet", "its projections are plain tensors"),
        ("blip_2_qformer", "does not run on a batch of token ids alone"),
        ("led", "its windowed attention is custom code"),
        ("mvp", "does not run with a different attention function"),
    ],
)
def test_what_cannot_be_watched_exactly_is_refused(kind, reason):
    model = model_of_type(kind)
    with pytest.raises(CaptureError, match=reason):
        anatomy_of(model)
    assert model.config._attn_implementation != "lorgnette"


def test_a_changed_model_is_looked_at_again():
    model = model_of_type("biogpt")
    before = anatomy_of(model)
    assert anatomy_of(model) is before
    first = before.sites[0]
    new = torch.nn.Linear(first.output.in_features, first.output.out_features)
    first.module.out_proj = new
    assert anatomy_of(model).sites[0].output is new
