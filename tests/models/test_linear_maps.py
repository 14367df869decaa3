"""Adapters, quantised and sharded maps: right, or refused by name; never silently wrong."""

import copy
from importlib.util import find_spec

import pytest
import torch
from tiny import examples, subject
from torch import nn

from lorgnette import lens as lenses
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.errors import CaptureError
from lorgnette.models.linear import linear_state, linear_weights
from lorgnette.models.loading import tensors_hash
from lorgnette.subject import Subject
from lorgnette.subject.checks import check
from lorgnette.testing import run_lens


class Lora(nn.Module):
    """x W + b + s x A B, with the base map's weight under its own name, as PEFT answers."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base_layer = base
        self.in_features, self.out_features, self.enabled = base.in_features, base.out_features, True
        self.down = nn.Parameter(torch.randn(base.in_features, rank, dtype=base.weight.dtype))
        self.up = nn.Parameter(torch.randn(rank, base.out_features, dtype=base.weight.dtype))
        self.dropout = nn.Dropout(0.5)

    weight = property(lambda self: self.base_layer.weight)
    bias = property(lambda self: self.base_layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.base_layer(x)
        return out + self.dropout(x) @ self.down @ self.up if self.enabled else out


class Packed(nn.Module):
    """A linear map that keeps its weight as bytes, as the 4-bit layers of bitsandbytes and the like do."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = base.in_features, base.out_features, base.bias
        self.scale = base.weight.detach().abs().max() / 127
        packed = (base.weight.detach() / self.scale).round() + 128
        self.weight = nn.Parameter(packed.to(torch.uint8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, (self.weight.to(x.dtype) - 128) * self.scale, self.bias)


class Special(torch.Tensor):
    """A weight of a kind of its own, as torchao's are."""


def adapted(wrap, family="bert"):
    """A subject whose output projections are wrapped, and the same with the sums written out."""
    watched, merged = subject(family), subject(family)
    for one, other in zip(watched.anatomy.sites, merged.anatomy.sites, strict=True):
        torch.manual_seed(one.site.layer)
        wrapped = wrap(one.output)
        with torch.no_grad():
            other.output.weight += (wrapped.down @ wrapped.up).T
        one.layer.attention.output.dense = wrapped
    return Subject(watched.model.eval(), watched.tokenizer, name="adapted"), merged


def norms(watched):
    return run_lens(lenses.get("norms"), watched, [watched.encode(examples())]).compute().data


def test_an_adapter_on_the_output_projection_is_in_its_norms():
    watched, merged = adapted(Lora)
    assert all(one.ok for one in check(watched))
    left, right = norms(watched), norms(merged)
    for name in ("norm", "all_heads_norm"):
        if name in left:
            torch.testing.assert_close(
                torch.tensor(left[name].values), torch.tensor(right[name].values), equal_nan=True
            )
    weight, bias = linear_weights(watched.anatomy.sites[0].output)
    torch.testing.assert_close(weight, merged.anatomy.sites[0].output.weight.T)
    torch.testing.assert_close(bias, merged.anatomy.sites[0].output.bias)


def test_check_fails_where_the_weights_are_not_what_acts():
    """A weight that is only in the way: the forward multiplies by another one, and says so nowhere."""
    watched = subject("bert")
    output = watched.anatomy.sites[0].output
    hidden = copy.deepcopy(output)
    with torch.no_grad():
        hidden.weight *= 1.1
    output.register_forward_hook(lambda module, arguments, value: hidden(arguments[0]))
    failed = [one.name for one in check(watched) if not one.ok]
    assert failed == ["heads · W_O = output"]


def test_dropout_of_an_adapter_does_not_reach_its_weights():
    torch.manual_seed(0)
    lora = Lora(nn.Linear(8, 6)).train()
    weight, _ = linear_weights(lora)
    torch.testing.assert_close(weight, lora.base_layer.weight.T + lora.down @ lora.up)
    assert lora.training
    assert lora.dropout.training


def test_an_adapter_that_is_switched_off_is_noticed():
    watched, _ = adapted(Lora)
    projections = SiteWeights(watched, layer_norm=False)
    site = watched.sites[0]
    on = projections[site].output
    lora = watched.anatomy[site].output
    before = linear_state(lora)
    assert linear_state(lora) == before
    lora.enabled = False
    off = projections[site].output
    assert not torch.allclose(on, off)
    torch.testing.assert_close(off.flatten(0, 1), lora.base_layer.weight.T)


@pytest.mark.parametrize("kind", ["packed", "special"])
def test_quantised_maps_are_known_by_what_they_do(kind):
    watched = subject("bert", dtype=torch.float32)
    for site in watched.anatomy.sites:
        base = site.output
        if kind == "packed":
            site.layer.attention.output.dense = Packed(base)
        else:
            base.weight = nn.Parameter(base.weight.detach().as_subclass(Special))
    watched = Subject(watched.model, watched.tokenizer)
    lenses.get("norms").bind(watched)
    written = {one.name: one for one in check(watched)}
    assert all(one.ok for one in written.values())
    assert written["heads · W_O = output"].made
    assert "rounding explains" in written["quantised maps = x · W + b"].detail


def test_a_map_without_weights_is_refused_by_name():
    watched = subject("bert", dtype=torch.float32)
    for site in watched.anatomy.sites:
        site.layer.attention.output.dense = nn.Bilinear(1, 1, 1)
        site.layer.attention.output.dense.weight = None
    watched = Subject(watched.model, watched.tokenizer)
    with pytest.raises(CaptureError, match="W_O of encoder layer 1 is not known: the weights of its Bilinear"):
        lenses.get("norms").bind(watched)


def test_tensors_of_a_special_kind_have_a_hash():
    """As torchao's: two plain ones inside, both of which count."""
    from torch.testing._internal.two_tensor import TwoTensor

    one, other = torch.arange(3.0), torch.ones(3)
    assert tensors_hash({"w": TwoTensor(one, other)}) != tensors_hash({"w": TwoTensor(one, other * 2)})


def test_what_is_no_linear_map_is_refused():
    class Bent(nn.Linear):
        def forward(self, x):
            return super().forward(x).relu()

    with pytest.raises(CaptureError, match="A Bent is used as a linear map but is not one"):
        linear_weights(Bent(4, 3))


@pytest.mark.skipif(find_spec("peft") is None, reason="needs peft")
@pytest.mark.parametrize("dora", [False, True])
def test_peft_adapters_are_what_they_are_when_merged(dora):
    from peft import LoraConfig, get_peft_model

    watched = subject("bert-classifier", dtype=torch.float32)
    config = LoraConfig(r=2, target_modules=["attention.output.dense", "value"], use_dora=dora, init_lora_weights=False)
    torch.manual_seed(0)
    wrapped = get_peft_model(watched.model, config).eval()
    one = Subject(wrapped, watched.tokenizer, name="adapted")
    assert all(each.ok for each in check(one))
    left = norms(one)
    with wrapped.disable_adapter():
        without = norms(one)
    merged = Subject(copy.deepcopy(wrapped).merge_and_unload().eval(), watched.tokenizer, name="merged")
    right = norms(merged)
    for name in ("norm", "f_norm"):
        if name in left:
            a, b, c = (torch.tensor(data[name].values) for data in (left, right, without))
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
            assert not torch.allclose(a.nan_to_num(), c.nan_to_num(), rtol=1e-2)
