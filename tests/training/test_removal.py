"""Removed heads: the smaller model computes what the whole one did with those heads at zero, and opens again."""

import copy
import subprocess
import sys

import pytest
import torch
import transformers as hf
from processes import run
from tiny import BERT, inputs, subject, tiny_model, tokenizer
from tiny.models import peaked

import lorgnette as lo
from lorgnette.attending import Site
from lorgnette.errors import CaptureError, UserError
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from lorgnette.models.families import anatomy_of
from lorgnette.models.pruned import slicing
from lorgnette.models.pruned.stock import stock_model
from lorgnette.models.tapping import tapped
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.pruning.removal import count_heads, prune_by_gates, remove_heads

GROUPED = ("llama", "qwen2", "qwen3", "mistral", "gemma", "gemma3")
"""Two query heads read the same keys and values."""
FAMILIES = (
    "bert-classifier",
    "roberta",
    "xlm-roberta",
    "camembert",
    "distilbert",
    "mpnet",
    "gpt2",
    "marian",
    "electra",
    "bert-mlm",
    "opt",
    "gpt-neox",
    "gpt-neo",
    "gptj",
    "roformer",
    "rembert",
    "megatron-bert",
    "big-bird",
    "modernbert",
    "t5",
    "deberta",
    "deberta-v2",
    "luke",
    "bloom",
    *GROUPED,
)
FLOAT32_SCORES = {"gpt-neo", "gptj", "bloom"}
"""They compute the products of queries and keys, or their softmax, in float32, whatever their precision."""
OWN = {
    "own bare": {"block": "bare", "transform": "relu-linear"},
    "own post-norm": {"block": "post-norm", "transform": "none", "positions": "relative"},
    "own residual": {"block": "residual", "transform": "feed-forward", "pooling": "query"},
}


def made(family, dtype=torch.float64):
    if family not in OWN:
        model = tiny_model(family, dtype=dtype)
        if hasattr(model.config, "num_local_experts"):  # grouped products have no float64
            model.set_experts_implementation("eager")
        return model
    torch.manual_seed(0)
    settings = {"layers": 3, "width": 32, "heads": 4, "vocab_size": 97, "freeze_embeddings": False, **OWN[family]}
    model = SelfAttentionClassifier(preset("tp9-residual", **settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attention" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.5)
    return model.eval().to(dtype)


def logits(model, batch, *taps):
    with torch.no_grad():
        if taps:
            with tapped(model, *taps):
                output = model(**batch)
        else:
            output = model(**batch)
    return output["logits"] if "logits" in output else output[0]


def closed(model, **options):
    """Gates that leave a ragged choice of heads: some layers whole, some thinned, one without any."""
    gates = HeadGates.of(model, **options).eval()
    choice = ([0, 2], [], [1, 2, 3], [3])
    with torch.no_grad():
        for site, place in gates.place.items():
            keep = [n in choice[(site.layer + (site.kind == "cross")) % 4] for n in gates.heads[site]]
            gates.log_alpha[place] = torch.where(torch.tensor(keep), 5.0, -5.0)
    return gates


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", [*FAMILIES, *OWN])
def test_removed_heads_are_heads_at_zero(family, dtype):
    model = made(family, dtype)
    batch = inputs(model)
    gates = closed(model)
    expected = logits(model, batch, gates)
    before = copy.deepcopy(model.state_dict())
    small = remove_heads(model, gates.remaining_heads())
    assert not torch.allclose(expected, logits(model, batch), atol=1e-3)
    scale = expected.abs().max()
    found = logits(small, batch)
    if found.dim() == 3 and family not in ("marian", "t5"):  # what a padded query reads is nobody's business
        real = batch["attention_mask"].bool()
        found, expected = found[real], expected[real]
    double = 1e-7 if family in FLOAT32_SCORES else 1e-10
    assert (found - expected).abs().max() <= scale * (double if dtype == torch.float64 else 1e-5)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())
    after = model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before), "the model itself was changed"
    # And the same when watched: through attend, with what each family needs of shims.
    seen = logits(small, batch, HeadGates.of(small).eval())
    seen = seen if seen.shape == expected.shape else seen[batch["attention_mask"].bool()]
    assert (seen - expected).abs().max() <= scale * (double if dtype == torch.float64 else 1e-5)


def test_maps_of_positions_are_cut_like_those_of_words():
    """DeBERTa v2 where they are not the same maps."""
    torch.manual_seed(0)
    options = {"relative_attention": True, "pos_att_type": "c2p|p2c", "share_att_key": False}
    model = peaked(hf.DebertaV2Model(hf.DebertaV2Config(**BERT, **options)).eval().double())
    gates, batch = closed(model), inputs(model)
    small = remove_heads(model, gates.remaining_heads())
    real = batch["attention_mask"].bool()
    expected = logits(model, batch, gates)[real]
    assert (logits(small, batch)[real] - expected).abs().max() <= 1e-10 * expected.abs().max()
    assert len(small.encoder.layer[0].attention.self.pos_key_proj.weight) == 16


def test_heads_that_entities_share_with_words():
    """LUKE with entities, which other queries ask about; one layer has no head left."""
    model = made("luke")
    batch = inputs(model, (7, 7))
    spans = torch.tensor([[[1, 2, -1], [3, 4, 5]]]).expand(2, -1, -1)
    batch |= {"entity_ids": torch.tensor([[1, 2], [3, 4]]), "entity_position_ids": spans}
    batch |= {"entity_attention_mask": torch.ones(2, 2, dtype=torch.long)}
    kept = {Site("encoder", "self", 0): [0, 2], Site("encoder", "self", 1): []}
    small = remove_heads(model, kept)
    zeroed = copy.deepcopy(model)
    for site, heads in kept.items():
        output = zeroed.encoder.layer[site.layer].attention.output.dense
        with torch.no_grad():
            output.weight.view(32, 4, 8)[:, [n for n in range(4) if n not in heads]] = 0
    with torch.no_grad():
        found, expected = small(**batch), zeroed(**batch)
    for name in ("last_hidden_state", "entity_last_hidden_state"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", [*FAMILIES, *OWN])
def test_a_pruned_checkpoint_opens_again(family, tmp_path):
    model = made(family, torch.float32)
    small = remove_heads(model, closed(model).remaining_heads())
    small.save_pretrained(tmp_path)
    tokenizer(family).save_pretrained(tmp_path)
    batch = inputs(model)
    expected = logits(small, batch)
    opened = lo.load(str(tmp_path))
    assert type(opened.model) is type(small)
    assert not opened.missing or family == "mpnet"
    assert torch.equal(logits(opened.model, batch), expected)
    assert count_heads(opened.model) == count_heads(small)
    base = hf.AutoModel.from_pretrained(tmp_path)
    assert count_heads(base) == count_heads(small)
    if "classif" in type(model).__name__.lower():
        auto = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path)
        assert torch.equal(logits(auto, batch), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stock_checkpoint_has_zeros_for_the_heads_that_went(family, tmp_path):
    model = made(family)
    small = remove_heads(model, closed(model).remaining_heads())
    batch = inputs(model)
    expected = logits(small, batch)
    stock = stock_model(small)
    assert type(stock) is type(model)
    assert {name: tensor.shape for name, tensor in stock.state_dict().items()} == {
        name: tensor.shape for name, tensor in model.state_dict().items()
    }
    torch.testing.assert_close(logits(stock, batch), expected, rtol=1e-10, atol=1e-10)
    stock.save_pretrained(tmp_path)
    opened = type(model).from_pretrained(tmp_path, dtype=torch.float64)
    assert not hasattr(opened.config, "kept_heads")
    assert opened.config.model_type == model.config.model_type
    # Gemma's scale of the embeddings, and two biases of DeBERTa v1, have the precision that a model is made in.
    tolerance = 1e-6 if family.startswith("gemma") or family == "deberta" else 1e-10
    torch.testing.assert_close(logits(opened.eval(), batch), expected, rtol=1e-10, atol=tolerance)


def test_a_stock_checkpoint_opens_without_us(tmp_path):
    model = made("bert-classifier", torch.float32)
    small = remove_heads(model, closed(model).remaining_heads())
    stock_model(small).save_pretrained(tmp_path)
    batch = inputs(model)
    torch.save({"batch": batch, "logits": logits(small, batch)}, tmp_path / "expected.pt")
    code = (
        "import sys, torch, transformers as hf\n"
        "given = torch.load(sys.argv[1] + '/expected.pt')\n"
        "model = hf.AutoModelForSequenceClassification.from_pretrained(sys.argv[1])\n"
        "with torch.no_grad(): found = model(**given['batch']).logits\n"
        "print(type(model).__name__, torch.allclose(found, given['logits'], atol=1e-5), 'lorgnette' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["BertForSequenceClassification", "True", "False"], done.stderr


def test_a_fresh_process_opens_it(tmp_path):
    model = made("bert-classifier", torch.float32)
    small = remove_heads(model, closed(model).remaining_heads())
    small.save_pretrained(tmp_path)
    batch = inputs(model)
    torch.save({"batch": batch, "logits": logits(small, batch)}, tmp_path / "expected.pt")
    code = (
        "import sys, torch, lorgnette.models, transformers as hf\n"
        "given = torch.load(sys.argv[1] + '/expected.pt')\n"
        "model = hf.AutoModelForSequenceClassification.from_pretrained(sys.argv[1])\n"
        "with torch.no_grad(): found = model(**given['batch']).logits\n"
        "print(type(model).__name__, torch.equal(found, given['logits']))"
    )
    done = run("-c", code, str(tmp_path))
    assert done.stdout.split() == ["PrunedBertForSequenceClassification", "True"], done.stderr


@pytest.mark.parametrize("family", [*FAMILIES, "own post-norm", "own bare"])
def test_heads_can_be_removed_in_two_steps(family):
    model = made(family)
    batch = inputs(model)
    first = {site: [0, 1, 3] for site in HeadGates.of(model).heads}
    second = closed(model).remaining_heads()
    second = {site: [n for n in numbers if n != 2] for site, numbers in second.items()}
    twice = remove_heads(remove_heads(model, first), second)
    once = remove_heads(model, second)
    assert torch.equal(logits(twice, batch), logits(once, batch))
    assert twice.config.kept_heads == once.config.kept_heads
    assert all(set(numbers) <= {0, 1, 3} for numbers in HeadGates.of(twice).heads.values())


@pytest.mark.parametrize("family", ["bert-classifier", "gpt2", "own bare", "mpnet", "llama", "gpt-neox"])
def test_half_open_gates_go_into_the_weights(family):
    model = made(family)
    batch = inputs(model)
    gates = closed(model)
    with torch.no_grad():
        gates.log_alpha[0] = 0.3
    small = prune_by_gates(model, gates)
    assert torch.allclose(logits(small, batch), logits(model, batch, gates), rtol=0, atol=1e-9)


def generated(model, batch, **options):
    fixed = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "num_beams": 2}
    with torch.no_grad():
        return model.generate(**batch, **fixed, eos_token_id=None, forced_eos_token_id=None, **options)


def without_layer(family, empty):
    """A model, gates that close one self-attention of its decoder, and the model without it."""
    model = made(family)
    if family == "t5":
        model.config.num_layers = 3  # transformers makes the decoder's cache for as many layers as the encoder has
    batch = inputs(model, (7, 4) if family in ("marian", "t5") else (7,))
    batch.pop("decoder_input_ids", None)
    gates = HeadGates.of(model, ("decoder",)).eval()
    gates.log_alpha.data[gates.place[Site("decoder", "self", empty)]] = -5.0
    return model, batch, gates, remove_heads(model, gates.remaining_heads())


@pytest.mark.parametrize("empty", [0, 1, 2])
@pytest.mark.parametrize("family", ["gpt2", "marian", "llama", "mistral", "gpt-neox", "opt", "t5", "gptj", "bloom"])
def test_generation_with_an_emptied_decoder_layer(family, empty):
    """Tokens come out as without a cache, and as with the gates of that layer at zero."""
    model, batch, gates, small = without_layer(family, empty)
    cached = generated(small, batch)
    assert torch.equal(cached, generated(small, batch, use_cache=False))
    with tapped(model, gates):
        assert torch.equal(cached, generated(model, batch))


def stepwise(model, batch):
    """Logits of the decoder's tokens, one token at a time with a cache; and all at once."""
    name = "decoder_input_ids" if "decoder_input_ids" in batch else "input_ids"
    cache, rows = None, []
    with torch.no_grad():
        for column in batch[name].split(1, dim=1):
            output = model(**{**batch, name: column, "attention_mask": None}, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            rows.append(output.logits)
        whole = model(**{**batch, "attention_mask": None}).logits
    return torch.cat(rows, dim=1), whole


@pytest.mark.parametrize("fed", [True, False])
@pytest.mark.parametrize("family", ["gpt2", "marian"])
def test_an_emptied_first_layer_feeds_the_cache(family, fed, monkeypatch):
    """Positions come from the cache of layer 0: without an entry there every token would be the first."""
    _, _, _, small = without_layer(family, 0)
    if not fed:
        monkeypatch.setattr(slicing, "feed_cache", lambda *_: None)
    steps, whole = stepwise(small, inputs(small, (7,)))
    assert ((steps - whole).abs().max() < 1e-10) == fed


def test_generation_with_every_head_gone():
    model = made("marian")
    small = remove_heads(model, {site: [] for site in HeadGates.of(model).heads})
    batch = inputs(model, (7, 4))
    batch.pop("decoder_input_ids")
    assert torch.equal(generated(small, batch), generated(small, batch, use_cache=False))
    assert not anatomy_of(small).sites


def test_a_subject_in_a_subject_out():
    whole = subject("bert")
    small = remove_heads(whole, {Site("encoder", "self", 1): [2]})
    assert count_heads(small.model) == {"encoder": [4, 1, 4]}
    assert small.anatomy[Site("encoder", "self", 1)].numbers == (2,)
    assert all(check.ok for check in small.check())


@pytest.mark.parametrize("family", GROUPED)
def test_groups_of_query_heads(family):
    """A whole group takes its keys and values along; half a group leaves them, and what is read stays exact."""
    model = made(family)
    whole = model.model.layers[0].self_attn
    half = Site("decoder", "self", 0), [0, 1]  # the first of two groups
    ragged = Site("decoder", "self", 1), [0, 2, 3]
    small = remove_heads(subject(family), dict([half, ragged]))
    first, second = (layer.self_attn for layer in small.model.model.layers[:2])
    assert len(first.k_proj.weight) == len(first.v_proj.weight) == len(whole.k_proj.weight) // 2
    assert len(second.k_proj.weight) == len(whole.k_proj.weight)
    assert (first.num_key_value_groups, second.num_key_value_groups) == (2, 1)
    anatomy = small.anatomy
    assert [(anatomy[site].heads, anatomy[site].groups) for site, _ in (half, ragged)] == [(2, 1), (3, 3)]
    assert all(check.ok for check in small.check())
    intact = subject(family).anatomy[ragged[0]].head_weights()
    left = anatomy[ragged[0]].head_weights()
    torch.testing.assert_close(left.value, intact.value[ragged[1]])
    torch.testing.assert_close(left.output, intact.output[ragged[1]])


def test_wrong_heads_are_told():
    model = made("bert-classifier")
    with pytest.raises(UserError, match="encoder layer 1 has no head 9: its heads are 1, 2, 3, 4"):
        remove_heads(model, {Site("encoder", "self", 0): [8]})
    with pytest.raises(UserError, match="given a head twice"):
        remove_heads(model, {Site("encoder", "self", 0): [1, 1]})
    with pytest.raises(UserError, match="no heads there"):
        remove_heads(model, {Site("decoder", "self", 0): [1]})
    with pytest.raises(CaptureError, match="heads cannot be removed from its family"):
        remove_heads(tiny_model("falcon"), {Site("decoder", "self", 0): [1]})


def test_a_wrapped_forward_does_not_run_the_original():
    """What training in half precision leaves on a model: a forward of the instance, bound to its own weights."""
    model = made("bert-classifier")
    batch = inputs(model)
    gates = closed(model)
    expected = logits(prune_by_gates(model, gates), batch)
    model._original_forward = own = model.forward
    model.forward = lambda **given: own(**given)  # as accelerate's, a closure: a copy of the model keeps this very one
    torch.testing.assert_close(logits(prune_by_gates(model, gates), batch), expected)
    assert not torch.allclose(logits(model, batch), expected)


def test_heads_are_removed_by_the_names_that_results_give_them():
    whole = subject("bert")
    sites = [site for site in whole.sites if site.stack != "pooler"]
    heads = whole.anatomy[sites[1]].heads
    named = remove_heads(whole, ["2.1", ("encoder", 2, 3)])
    kept = remove_heads(whole, {sites[1]: [number for number in range(heads) if number not in (0, 2)]})
    assert count_heads(named.model) == count_heads(kept.model)
    assert named.anatomy[sites[1]].numbers == kept.anatomy[sites[1]].numbers
    again = remove_heads(named, ["2.2"])  # numbered as before any was removed
    assert 1 not in again.anatomy[sites[1]].numbers


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ([3, 7], "3 is not the name of a head"),
        (["2.99"], "no head 2.99"),
        (["0.1"], "no head 0.1"),
        (["7"], "expected LAYER.HEAD"),
        ({"2.1": [0]}, "is not a site"),
    ],
)
def test_what_does_not_name_a_head_is_refused(heads, said):
    with pytest.raises(UserError, match=said) as refused:
        remove_heads(subject("bert"), heads)
    assert "\n" not in str(refused.value)


def test_a_subject_counts_the_heads_that_are_there():
    whole = subject("bert")
    assert repr(whole).endswith("3 encoder layers of 4 heads)")
    uneven = lo.remove_heads(whole, ["1.2", "1.3"])
    assert repr(uneven).endswith("3 encoder layers of 2 to 4 heads (2 heads removed))")
    even = lo.remove_heads(whole, ["1.1", "2.1", "3.4"])
    assert repr(even).endswith("3 encoder layers of 3 heads (3 heads removed))")
    assert even.facts()["stacks"] == "encoder: 3 layers of 3 heads (3 heads removed)"
    two = subject("marian")
    assert repr(two).count("heads") == len(two.layers)
