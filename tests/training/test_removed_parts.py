"""Removed feed-forward units and layers: the smaller model computes what the whole one did with them at zero."""

import copy
import json
from contextlib import ExitStack, contextmanager

import pytest
import torch
import transformers as hf
from test_removal import OWN, generated, logits, made
from tiny import inputs, subject, tokenizer
from tiny.models import peaked

import lorgnette as lo
from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.models.families import head_prunable_types, prunable_types
from lorgnette.models.families.layers import LAYER, UNITS, layers_of
from lorgnette.models.pruned.stock import cache_is_short, stock_model
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.pruning.removal import count_heads, remove_parts

WHOLE = ("falcon", "falcon-7b")
"""Their heads stay."""
HEADS = (
    "bert-classifier", "roberta", "electra", "albert", "albert-inner", "distilbert", "mpnet", "gpt2", "llama", "qwen3",
    "gemma3", "opt", "gpt-neox", "marian", "bart", "gpt-neo", "gptj", "roformer", "rembert", "megatron-bert",
    "big-bird", "modernbert", "t5", "t5-encoder", "deberta", "deberta-v2", "luke", "bloom", "xlm-roberta", "camembert",
    "qwen2", "mistral", "gemma", "gemma2", "gpt-oss", "ernie", "data2vec-text", "ministral", "ministral3", "helium",
    "seed-oss", "ernie4-5", "smollm3", "granite", "arcee", "starcoder2", "mt5",
)  # fmt: skip
OWN_UNITS = ("own residual",)
SINGLE = ("gemma2",)
"""transformers' own windows give NaN in float64."""
PRECISIONS = [
    (family, dtype)
    for family in (*HEADS, *WHOLE, *OWN_UNITS)
    for dtype in (torch.float32, torch.float64)
    if dtype == torch.float32 or family not in SINGLE
]


def test_no_prunable_family_is_missing_here():
    """Whoever writes a record that says what can go adds a tiny model to these lists."""
    kinds = {name: made(name).config.model_type for name in (*HEADS, *WHOLE, *OWN_UNITS)}
    assert set(prunable_types("texts")) == set(kinds.values())
    assert set(prunable_types()) - set(kinds.values()) == {"vit"}, "which has a test of its own"
    of_heads = {kinds[name] for name in (*HEADS, *OWN_UNITS)}
    assert set(head_prunable_types()) == of_heads | {"vit"}


@contextmanager
def at_zero(model, kept):
    """The whole model with what is not kept at zero, by hooks alone: the definition of removal."""
    with ExitStack() as undo:
        for layer in layers_of(model):
            if layer.units_site in kept:
                gate = torch.zeros(layer.feed_forward.units, dtype=model.dtype)
                gate[list(kept[layer.units_site])] = 1
                hook = layer.feed_forward.contract.register_forward_pre_hook(lambda _, x, g=gate: (x[0] * g,))
                undo.callback(hook.remove)
            if layer.site in kept:
                undo.callback(layer.module.register_forward_hook(passed_on).remove)
        yield


def passed_on(_, given, output):
    return (given[0], *output[1:]) if isinstance(output, tuple) else given[0]


def some(model):
    """A ragged choice of units: a third, none, all but one; and one layer less, where layers can go."""
    kept = {}
    for layer in layers_of(model):
        if layer.feed_forward is not None:
            units = layer.feed_forward.units
            kept[layer.units_site] = (range(0, units, 3), [], range(1, units))[layer.site.layer % 3]
    last = [layer.site for layer in layers_of(model) if layer.removable][-1:]
    return kept | {site: [] for site in last}


def near(found, expected, model, batch, tolerance):
    if found.dim() == 3 and found.shape[:2] == batch["attention_mask"].shape:
        real = batch["attention_mask"].bool()
        found, expected = found[real], expected[real]
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize(("family", "dtype"), PRECISIONS)
def test_removed_parts_are_parts_at_zero(family, dtype):
    model = made(family, dtype)
    batch = inputs(model)
    kept = some(model)
    before = copy.deepcopy(model.state_dict())
    with at_zero(model, kept):
        expected = logits(model, batch)
    assert not torch.allclose(expected, logits(model, batch), atol=1e-3)
    small = remove_parts(model, kept)
    # Some families take a softmax in float32 whatever their precision.
    near(logits(small, batch), expected, model, batch, 1e-5 if dtype == torch.float32 else 1e-7)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items()), "it was changed itself"
    parts = {layer.units_site: layer.feed_forward for layer in layers_of(small)}
    counts = {site: part.units for site, part in parts.items() if part is not None}
    assert counts == {site: len(units) for site, units in kept.items() if site in counts}
    assert [layer.site for layer in layers_of(small)] == [x.site for x in layers_of(model) if x.site not in kept]


@pytest.mark.parametrize("family", [*HEADS, *WHOLE, *OWN_UNITS])
def test_a_checkpoint_without_some_parts_opens_again(family, tmp_path):
    model = made(family, torch.float32)
    small = remove_parts(model, some(model))
    small.save_pretrained(tmp_path)
    tokenizer("bert" if family in OWN else family).save_pretrained(tmp_path)
    batch = inputs(model)
    opened = lo.load(str(tmp_path)).model
    assert type(opened) is type(small)
    torch.testing.assert_close(logits(opened, batch), logits(small, batch), rtol=0, atol=0)
    assert opened.config.kept_units == small.config.kept_units
    assert [layer.site for layer in layers_of(opened)] == [layer.site for layer in layers_of(small)]


@pytest.mark.parametrize("family", [*HEADS, *OWN_UNITS])
def test_heads_units_and_layers_go_together(family):
    """And in two steps: what went first does not come back."""
    model = made(family, torch.float32 if family in SINGLE else torch.float64)
    batch = inputs(model)
    kept = some(model)
    heads = {site: [0, 1, 3] for site in HeadGates.of(model).heads}
    gone = {(site.stack, site.layer) for site in kept if site.kind == LAYER}
    heads = {site: numbers for site, numbers in heads.items() if (site.stack, site.layer) not in gone}
    once = remove_parts(model, kept | heads)
    twice = remove_parts(remove_parts(model, kept), heads)
    near(logits(twice, batch), logits(once, batch), model, batch, 1e-5 if family in SINGLE else 1e-12)
    assert twice.config.kept_heads == once.config.kept_heads
    zero = HeadGates(heads | dict.fromkeys(heads, (0, 1, 2, 3))).to(model.dtype).eval()
    with torch.no_grad():
        zero.log_alpha.view(-1, 4)[:, 2] = -5.0
    with at_zero(model, kept):
        expected = logits(model, batch, zero)
    near(logits(once, batch), expected, model, batch, 1e-5 if family in SINGLE else 1e-7)
    assert {len(layer) for layers in once.config.kept_heads.values() for layer in layers} <= {0, 3}


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("family", ["gpt2", "marian", "llama", "gpt-neox", "opt", "gemma3", "falcon", "gpt-neo"])
def test_generation_without_a_layer_of_the_decoder(family, layer):
    """The cache of a layer that is gone still counts the tokens."""
    model = made(family)
    batch = inputs(model, (7, 4) if family == "marian" else (7,))
    batch.pop("decoder_input_ids", None)
    small = remove_parts(model, {Site("decoder", LAYER, layer): []})
    cached = generated(small, batch)
    assert torch.equal(cached, generated(small, batch, use_cache=False))
    with at_zero(model, {Site("decoder", LAYER, layer): []}):
        assert torch.equal(cached, generated(model, batch))


@pytest.mark.parametrize("family", [*HEADS, *WHOLE])
def test_an_ordinary_checkpoint_is_as_small_as_its_family_allows(family, tmp_path):
    """Layers are gone, and units are as many as in the largest feed-forward part: transformers alone opens it."""
    model = made(family, torch.float32)
    small = remove_parts(model, some(model))
    batch = inputs(model)
    stock = stock_model(small)
    near(logits(stock, batch), logits(small, batch), model, batch, 1e-5)
    stock.save_pretrained(tmp_path)
    assert not {"kept_heads", "kept_units", "kept_layers"} & json.loads((tmp_path / "config.json").read_text()).keys()
    opened = type(model).from_pretrained(tmp_path).eval()
    near(logits(opened, batch), logits(small, batch), model, batch, 1e-5)
    if "bloom" not in family:  # whose config cannot say how many units
        assert stock.num_parameters() < model.num_parameters()


@pytest.mark.parametrize(("kept", "short"), [({}, True), ({Site("decoder", LAYER, 2): []}, False)])
def test_an_ordinary_t5_generates_whatever_layers_are_left(kept, short, tmp_path):
    """transformers makes the decoder's cache for as many layers as the encoder has: the checkpoint goes without it."""
    model = made("t5", torch.float32)  # two layers, and three
    assert cache_is_short(model)
    stock = stock_model(remove_parts(model, kept))
    assert cache_is_short(stock) == short
    stock.save_pretrained(tmp_path)
    opened = hf.T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    assert opened.generation_config.use_cache is not short
    batch = inputs(model, (7, 4))
    batch.pop("decoder_input_ids")
    assert torch.equal(generated(opened, batch), generated(stock, batch, use_cache=False))


@pytest.mark.parametrize("family", ["marian", "bart", "gpt2", "t5-encoder", "bert"])
def test_other_families_have_a_cache_for_every_layer(family):
    assert not cache_is_short(made(family))


def test_a_model_of_pictures_loses_heads_units_and_layers(tmp_path):
    """Whole, pruned, opened again and as an ordinary checkpoint of equal sizes: the same labels for pictures."""
    torch.manual_seed(0)
    config = hf.ViTConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40, image_size=12, patch_size=4,
        num_labels=3,
    )  # fmt: skip
    model = peaked(hf.ViTForImageClassification(config).eval()).double()
    batch = {"pixel_values": torch.randn(2, 3, 12, 12, dtype=torch.float64)}
    last = Site("encoder", LAYER, 2)
    for equal in (True, False):
        kept = {Site("encoder", "self", n): [n, 2 + n] if equal or n else [] for n in (0, 1)}
        kept |= {Site("encoder", UNITS, n): range(n, 40, 2 if equal else 2 + n) for n in (0, 1)} | {last: []}
        zero = HeadGates({site: (0, 1, 2, 3) for site in kept if site.kind == "self"}).double().eval()
        with torch.no_grad():
            for site, place in zero.place.items():
                zero.log_alpha[place] = torch.tensor([5.0 if n in kept[site] else -5.0 for n in range(4)])
        with at_zero(model, kept):
            expected = logits(model, batch, zero)
        assert (logits(model, batch) - expected).abs().max() > 0.01
        small = remove_parts(model, kept)
        torch.testing.assert_close(logits(small, batch), expected, rtol=0, atol=1e-10)
        small.save_pretrained(tmp_path / f"pruned-{equal}")
        opened = hf.AutoModelForImageClassification.from_pretrained(tmp_path / f"pruned-{equal}", dtype=torch.float64)
        assert type(opened) is type(small)
        torch.testing.assert_close(logits(opened, batch), expected, rtol=0, atol=1e-10)
        stock = stock_model(small)
        assert (stock.num_parameters() == small.num_parameters()) == equal
        stock.save_pretrained(tmp_path / f"stock-{equal}")
        plain = hf.ViTForImageClassification.from_pretrained(tmp_path / f"stock-{equal}", dtype=torch.float64)
        torch.testing.assert_close(logits(plain, batch), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["bert-classifier", "llama", "marian", "t5", "gpt2"])
def test_equal_sizes_need_no_zeros(family):
    """Then the ordinary checkpoint is as small as the pruned one."""
    model = made(family, torch.float32)
    kept = {site: range(0, 40, 2) for site in some(model) if site.kind == UNITS}
    small = remove_parts(model, kept | {site: [] for site in some(model) if site.kind == LAYER})
    assert stock_model(small).num_parameters() == small.num_parameters() < model.num_parameters()


@pytest.mark.parametrize("family", [
    "llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "gpt-oss", "ministral", "ministral3", "seed-oss",
    "ernie4-5", "smollm3", "granite", "arcee", "starcoder2",
])  # fmt: skip
def test_equal_heads_need_no_zeros_where_the_config_has_their_size(family, tmp_path):
    """Whole groups, another one in each layer, and a layer less: an ordinary checkpoint that is as small."""
    model = made(family, torch.float32)
    kept = {Site("decoder", "self", 0): [0, 1], Site("decoder", "self", 1): [2, 3], Site("decoder", LAYER, 2): []}
    small = remove_parts(model, kept)
    stock = stock_model(small)
    assert stock.num_parameters() == small.num_parameters() < model.num_parameters()
    assert (stock.config.num_attention_heads, stock.config.num_key_value_heads) == (2, 1)
    stock.save_pretrained(tmp_path)
    opened = type(model).from_pretrained(tmp_path).eval()
    batch = inputs(model)
    near(logits(opened, batch), logits(small, batch), model, batch, 1e-5)
    assert torch.equal(generated(opened, inputs(model, (7,))), generated(small, inputs(model, (7,))))
    uneven = stock_model(remove_parts(model, {**kept, Site("decoder", "self", 0): [0, 2, 3]}))
    assert uneven.config.num_attention_heads == 4, "with zeros"
    near(logits(uneven, batch), logits(remove_parts(model, {**kept, Site("decoder", "self", 0): [0, 2, 3]}), batch),
         model, batch, 1e-5)  # fmt: skip


def test_lenses_and_checks_see_what_is_left():
    whole = subject("bert")
    small = lo.Subject(remove_parts(whole.model, {Site("encoder", LAYER, 1): []}), whole.tokenizer)
    assert [site.layer for site in small.sites] == [0, 2], "layers keep their numbers"
    assert all(check.ok for check in small.check())
    assert count_heads(small.model) == {"encoder": [4, 0, 4]}


def test_albert_loses_a_head_in_every_pass():
    """One module runs as several layers: naming one of them is enough."""
    model = made("albert")
    batch = inputs(model)
    small = remove_parts(model, {Site("encoder", "self", 0): [0, 3], Site("encoder", "self", 2): []})
    assert small.config.kept_heads["encoder"] == [[0, 3], [0, 3], [], []]
    gates = HeadGates({Site("encoder", "self", n): (0, 1, 2, 3) for n in range(4)}).to(torch.float64).eval()
    with torch.no_grad():
        gates.log_alpha.view(4, 4)[:2, 1:3] = -5.0
        gates.log_alpha.view(4, 4)[2:] = -5.0
    near(logits(small, batch), logits(model, batch, gates), model, batch, 1e-12)


def test_a_whole_classifier_of_transformers_has_fewer_parameters(tmp_path):
    model = made("bert-classifier", torch.float32)
    small = remove_parts(model, some(model))
    small.save_pretrained(tmp_path)
    auto = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert auto.num_parameters() == small.num_parameters()


@pytest.mark.parametrize(
    ("family", "kept", "said"),
    [
        ("t5", {Site("encoder", LAYER, 0): []}, "encoder layer 1 cannot be removed: other layers need what it"),
        ("albert", {Site("encoder", LAYER, 1): []}, "encoder layer 2 cannot be removed"),
        ("bert-classifier", {Site("encoder", LAYER, 7): []}, "the model has no such layer"),
        ("bert-classifier", {Site("encoder", UNITS, 0): [40]}, "from 0 to 39"),
        ("bert-classifier", {Site("encoder", UNITS, 0): [3, 1]}, "different numbers in order"),
        ("gpt-oss", {Site("decoder", UNITS, 0): [1]}, "decoder layer 1 has no feed-forward part"),
    ],
)
def test_parts_that_cannot_go(family, kept, said):
    with pytest.raises(UserError, match=said) as refused:
        remove_parts(made(family), kept)
    assert "\n" not in str(refused.value)
