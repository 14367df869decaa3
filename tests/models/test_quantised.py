"""Quantised models: what reads weights reads those that the packed ones stand for, proved; the rest works as it is.

GPTQ, AWQ and FP8 layers are packed here by hand, in the layout of those formats: their packages need a GPU.
"""

import copy
import warnings

import numpy as np
import pytest
import torch
import transformers as hf
from tiny import examples, subject
from tiny.blocks import gguf_kernel, with_gguf_blocks, write_gguf
from tiny.models import LLAMA, peaked
from tiny.packed import FORMATS, FP8, Int8, with_bitsandbytes
from tiny.subjects import tokenizer
from torch import nn
from transformers.integrations.gguf import kernels

import lorgnette as lo
from lorgnette.errors import CaptureError, UserError
from lorgnette.models.linear import linear_weights, refusal, rounds
from lorgnette.models.quantised import unexplained, unrounded


def quantised(family, kind):
    """A model with packed layers, and the same with the plain ones that they stand for."""
    if family == "stablelm":  # which has no record
        torch.manual_seed(0)
        model = peaked(hf.StableLmForCausalLM(hf.StableLmConfig(**LLAMA)).eval())
        own = lo.Subject(model, tokenizer("llama"))
    else:
        own = subject(family, dtype=torch.float32)
    plain = copy.deepcopy(own.model)
    for path, module in list(own.model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in path and min(module.weight.shape) % 8 == 0:
            layer = FORMATS[kind](module)
            own.model.set_submodule(path, layer)
            with torch.no_grad():
                plain.get_submodule(path).weight.copy_(layer.dequantised().T)
    return lo.Subject(own.model, own.tokenizer, name=kind), lo.Subject(plain, own.tokenizer, name="plain")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("family", ["llama", "bert", "stablelm"])
def test_check_proves_the_maps(family, kind):
    watched, _ = quantised(family, kind)
    checks = {one.name: one for one in watched.check()}
    assert all(one.ok and one.made for one in checks.values() if one.name != "every token has a vector"), checks
    assert "rounding" in checks["quantised maps = x · W + b"].detail
    assert ("inputs to 8 bits" in checks["quantised maps = x · W + b"].detail) == (kind in ("fp8", "int8"))


@pytest.mark.parametrize("kind", ["gptq", "awq"])
@pytest.mark.parametrize("family", ["llama", "bert"])
def test_results_are_those_of_dequantised_weights(family, kind):
    watched, plain = quantised(family, kind)
    names = "norms:sample=0,weights,circuits,rollout"
    found, expected = (lo.look(each, examples(), names, progress=False) for each in (watched, plain))
    for lens in ("norms", "weights", "circuits", "rollout"):
        for name, values in expected[lens].data.items():
            if values.dtype.kind == "f" and not name.endswith("_se"):
                np.testing.assert_allclose(found[lens].data[name], values, rtol=2e-3, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_norms_weigh_what_the_model_computed_by_the_dequantised_map(kind):
    """Inputs are rounded, so the model is not the plain one; its norms are those of its own weights and values."""
    watched, _ = quantised("llama", kind)
    batch = watched.encode(examples())
    with torch.no_grad():
        seen = lo.attention(watched, **batch.inputs)
    for site in watched.anatomy.sites:
        record = seen.records[site.site]
        output = site.output.dequantised().unflatten(0, (site.heads, -1))
        vectors = torch.einsum("bhkd,hdm->bhkm", record["value"], output)
        expected = record["weights"] * vectors.norm(dim=-1)[:, :, None]
        norms = seen[f"decoder.{site.site.layer + 1}.norms"]
        torch.testing.assert_close(norms, expected, rtol=1e-4, atol=1e-5)


def test_ablation_and_generation_work_as_they_are():
    watched, plain = quantised("llama", "gptq")
    batch = watched.encode(examples())
    for each in (lo.effect(one, batch.inputs, without=["1.2"]).divergence for one in (watched, plain)):
        assert float(torch.as_tensor(each).sum()) > 0
    one, other = (each.trace("w7 w8 w9", generate=4) for each in (watched, plain))
    assert one.generated is not None
    assert one.pieces() == other.pieces()


class Bent(FP8):
    """Packed, and not linear."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).tanh()


class Elsewhere(nn.Module):
    """Packed, and the package that could multiply by it is not there."""

    weight = None

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.in_features = base.in_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ImportError("no kernel for this machine")


@pytest.mark.parametrize(("layer", "why"), [(Bent, "is not one"), (Elsewhere, "no kernel for this machine")])
def test_what_cannot_be_proved_is_refused_by_name(layer, why):
    own = subject("bert", dtype=torch.float32)
    for site in own.anatomy.sites:
        site.layer.attention.output.dense = layer(site.output)
    watched = lo.Subject(own.model, own.tokenizer)
    name = f"W_O of encoder layer 1 is not known: the weights of its {layer.__name__} cannot be read.*{why}"
    with pytest.raises(CaptureError, match=name):
        lo.lens.get("norms").bind(watched)


@pytest.mark.parametrize("rounds_few", [False, True])
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_a_gguf_file_that_stays_packed_is_what_its_blocks_stand_for(tmp_path, kind, rounds_few):
    """Through all of transformers' reader, with a kernel of our own in place of the hub's."""
    pytest.importorskip("gguf", reason="gguf is not installed: pip install 'lorgnette[language]'")
    made = write_gguf(tmp_path / "tiny.gguf", kind)
    plain = lo.load(tmp_path / "tiny.gguf")
    with gguf_kernel(rounds_few):
        watched = lo.load(tmp_path / "tiny.gguf", packed=True)
        assert [one for one in watched.check() if not one.ok] == []
        site = watched.anatomy.sites[0]
        assert all(module.weight.dtype == torch.uint8 for module in site.maps.values())
        for module, name in ((site.value.module, "blk.1.attn_v"), (site.output, "blk.1.attn_output")):
            np.testing.assert_allclose(linear_weights(module)[0].T, made[name], atol=1e-7)
        assert rounds(site.output) == rounds_few
        texts = ["a bad cab", "a cab", "abba"]  # more rows than a kernel multiplies, which rounds only a few
        found, expected = (lo.look(each, texts, "norms", progress=False)["norms"].data for each in (watched, plain))
        for name, values in expected.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-6, err_msg=name)
        one, other = (each.trace("a bad cab", generate=3) for each in (watched, plain))
        assert one.pieces() == other.pieces()


def test_columns_in_another_order_are_put_back(tmp_path):
    """Where a file's columns cannot move within their blocks, transformers moves the inputs."""
    pytest.importorskip("gguf", reason="gguf is not installed: pip install 'lorgnette[language]'")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 48))
    with_gguf_blocks(model, "Q8_0")
    straight = linear_weights_of(model[0])
    model[0].input_permutation = torch.randperm(64)
    shuffled = linear_weights_of(model[0])
    torch.testing.assert_close(shuffled[model[0].input_permutation], straight)


def linear_weights_of(module):
    with gguf_kernel():
        return linear_weights(module)[0]


def test_blocks_that_cannot_be_kept_are_one_line(tmp_path):
    pytest.importorskip("gguf", reason="gguf is not installed: pip install 'lorgnette[language]'")
    write_gguf(tmp_path / "tiny.gguf", "Q8_0")
    with gguf_kernel():
        kernels._gguf_kernel = False  # what transformers notes where the hub cannot be reached
        with pytest.raises(UserError, match=r"cannot keep the blocks of .*tiny\.gguf"):
            lo.load(tmp_path / "tiny.gguf", packed=True)
    with pytest.raises(UserError, match=r"packed keeps the blocks of a GGUF file, and .* is none"):
        lo.load(tmp_path, packed=True)


def test_a_wrong_weight_is_not_rounding():
    torch.manual_seed(0)
    map_, x = Int8(nn.Linear(64, 48)), torch.randn(200, 64)
    x[:, 3] *= 30  # an outlier, which makes the steps coarse
    assert rounds(map_)
    with torch.no_grad():
        assert 0.2 < unexplained(map_, x, map_(x)) < 1.5
        off = copy.deepcopy(map_)
        off.weight_scale_inv = map_.weight_scale_inv * 1.3
        assert unexplained(map_, x, off(x)) > 1.5
    assert refusal(map_) is None


def test_maps_that_round_are_exact_while_they_are_compared_and_restored():
    watched, plain = quantised("llama", "int8")
    batch = watched.encode(examples())
    with torch.no_grad():
        before, expected = (one.run(batch).logits for one in (watched, plain))
        with unrounded(watched.model):
            torch.testing.assert_close(watched.run(batch).logits, expected, rtol=1e-3, atol=1e-4)
        assert torch.equal(watched.run(batch).logits, before)
        assert not torch.allclose(before, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["int8 weights", "int4 weights", "FP8 weights", "int8 weights and inputs"])
def test_torchao(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
        from torchao.quantization.granularity import PerGroup

        config = {
            "int8 weights": quantization.Int8WeightOnlyConfig,
            "int4 weights": lambda: quantization.IntxWeightOnlyConfig(torch.int4, PerGroup(8)),
            "FP8 weights": quantization.Float8WeightOnlyConfig,
            "int8 weights and inputs": quantization.Int8DynamicActivationInt8WeightConfig,
        }[kind]()
        own = subject("llama", dtype=torch.float32)
        quantization.quantize_(own.model, config)
        watched = lo.Subject(own.model, own.tokenizer, name=kind)
        assert all(one.ok for one in watched.check()), watched.check()
        assert len(watched.weights_hash) == 64
        for site in watched.anatomy.sites:
            for module in site.maps.values():
                assert type(module.weight) is not nn.Parameter
                torch.testing.assert_close(
                    linear_weights(module)[0], module.weight.dequantize().T, rtol=1e-5, atol=1e-6
                )
        lo.look(watched, examples(), "norms:sample=0", progress=False)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_bitsandbytes(kind, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bnb = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: pip install bitsandbytes")
        base = nn.Linear(64, 64)
        made = {
            "nf4": lambda: bnb.nn.Linear4bit(64, 64, quant_type="nf4", compute_dtype=torch.float32),
            "int8": lambda: bnb.nn.Linear8bitLt(64, 64, has_fp16_weights=False, threshold=6.0),
        }[kind]()
        made.load_state_dict(base.state_dict())
        made = made.to(device).eval()
        if kind == "nf4":  # before the CPU packs it anew
            expected = bnb.functional.dequantize_4bit(made.weight.data, made.weight.quant_state)
        else:
            made(torch.zeros(1, 64, device=device))  # which moves the scales to where they are used
            expected = made.state.CB.float() * made.state.SCB[:, None] / 127
        assert refusal(made) is None
        weight, bias = linear_weights(made)
        torch.testing.assert_close(weight.T.float(), expected.float(), rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(bias.float().cpu(), base.bias.detach(), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("kind", ["nf4", "8 bits"])
def test_bitsandbytes_models_on_a_gpu(kind):
    """With its own kernels there: every line of check, and norms as those of the dequantised weights."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: pip install bitsandbytes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        wide = LLAMA | {"hidden_size": 64, "head_dim": 16, "intermediate_size": 128}  # as the blocks of bitsandbytes
        model = peaked(hf.LlamaForCausalLM(hf.LlamaConfig(**wide)).eval())
        with_bitsandbytes(model, kind)
        watched = lo.Subject(model.to("cuda"), tokenizer("llama"), name=kind)
        assert [one for one in watched.check() if not one.ok] == []
        plain = copy.deepcopy(watched.model)
        for path, module in list(watched.model.named_modules()):
            if hasattr(module, "in_features") and "head" not in path:
                weight, bias = linear_weights(module)
                linear = nn.Linear(*weight.shape, bias=bias is not None, device="cuda")
                linear.weight = nn.Parameter(weight.float().T.contiguous())
                plain.set_submodule(path, linear)
        found, expected = (
            lo.look(each, examples(), "norms:sample=0", progress=False)["norms"].data["norm"]
            for each in (watched, lo.Subject(plain, tokenizer("llama"), name="plain"))
        )
        np.testing.assert_allclose(found, expected, rtol=0.2 if kind == "8 bits" else 2e-2, atol=1e-3)


def test_a_checkpoint_whose_package_is_missing_is_one_line(tmp_path):
    own = subject("bert", dtype=torch.float32)
    own.model.config.quantization_config = {"quant_method": "gptq", "bits": 4, "group_size": 8}
    own.model.save_pretrained(tmp_path)
    own.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="cannot be opened"):
        lo.load(tmp_path)


@pytest.mark.parametrize("method", ["attnlrp", "voita2019", "voita2021"])
def test_relevance_of_quantised_weights_is_that_of_the_dequantised(method):
    watched, plain = quantised("bert", "gptq")
    found, expected = (lo.explain(each, ["w7 w8 w9"], method).tokens for each in masked_models(watched, plain))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def masked_models(*subjects):
    """With a head for classes, of which the relevance is asked."""
    for each in subjects:
        torch.manual_seed(0)
        model = hf.BertForSequenceClassification(each.model.config).eval()
        model.bert = each.model
        yield lo.Subject(model, each.tokenizer)


def test_gradients_through_inputs_that_are_rounded_are_refused():
    watched, _ = quantised("llama", "int8")
    for ask in (
        lambda: lo.explain(watched, ["w7 w8 w9"], "attnlrp", lo.Next()),
        lambda: lo.look(watched, examples(), "importance", progress=False),
    ):
        with pytest.raises(UserError, match="Gradients do not pass through 'int8': its Int8 rounds inputs"):
            ask()
