"""GPTQ, AWQ, FP8 and int8 layers, packed by hand in the layout of those formats: their packages need a GPU."""

from functools import partial

import torch
from torch import nn

from tiny.blocks import with_gguf_blocks

GROUP = 8
NIBBLES = torch.arange(8) * 4


class GPTQ(nn.Module):
    """4 bits, eight inputs in an int32; a scale and a zero point for each output and group of inputs."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = base.in_features, base.out_features
        numbers, self.scales, zeros = four_bits(base.weight.detach().T)
        self.register_buffer("qweight", packed(numbers.mT).mT.contiguous())  # [in / 8, out]
        self.register_buffer("qzeros", packed(zeros - 1))  # [group, out / 8]
        self.register_buffer("g_idx", torch.arange(self.in_features) // GROUP)
        self.bias = base.bias

    def dequantised(self) -> torch.Tensor:
        zeros = unpacked(self.qzeros) + 1
        return (unpacked(self.qweight.mT).mT - zeros[self.g_idx]) * self.scales[self.g_idx]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x @ self.dequantised().to(x)
        return out if self.bias is None else out + self.bias


class AWQ(GPTQ):
    """4 bits, eight outputs in an int32, in an order of their own."""

    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base)
        numbers, self.scales, zeros = four_bits(base.weight.detach().T)
        self.qweight, self.qzeros = (packed(self.shuffled(each)) for each in (numbers, zeros))

    def shuffled(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers.unflatten(-1, (-1, 8))[..., self.order].flatten(-2)

    def dequantised(self) -> torch.Tensor:
        numbers, zeros = (
            unpacked(each).unflatten(-1, (-1, 8))[..., self.order.argsort()].flatten(-2)
            for each in (self.qweight, self.qzeros)
        )
        return (numbers - zeros[self.g_idx]) * self.scales[self.g_idx]


class FP8(nn.Module):
    """8-bit floats with a scale for each block, and inputs that are rounded to 8-bit floats too."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = base.in_features, base.out_features, base.bias
        blocks = base.weight.detach().unflatten(1, (-1, GROUP))
        self.register_buffer("weight_scale_inv", blocks.abs().amax(-1, keepdim=True) / 448)
        whole = (blocks / self.weight_scale_inv).flatten(1)
        self.weight = nn.Parameter(whole.to(torch.float8_e4m3fn), requires_grad=False)

    def dequantised(self) -> torch.Tensor:
        return (self.weight.float().unflatten(1, (-1, GROUP)) * self.weight_scale_inv).flatten(1).T

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = (x.abs().amax(-1, keepdim=True) / 448).clamp(min=1e-12)
        out = (x / scale).to(torch.float8_e4m3fn).to(x) * scale @ self.dequantised().to(x)
        return out if self.bias is None else out + self.bias


class Int8(FP8):
    """8-bit weights, and inputs that are rounded to 127 steps of the largest number of each token."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base)
        self.weight_scale_inv = base.weight.detach().abs().amax() / 127
        self.weight = nn.Parameter((base.weight.detach() / self.weight_scale_inv).round().to(torch.int8), False)

    def dequantised(self) -> torch.Tensor:
        return (self.weight.float() * self.weight_scale_inv).T

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = (x.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-12)
        out = (x / step).round() * step @ self.dequantised().to(x)
        return out if self.bias is None else out + self.bias


def four_bits(weight):
    """[in out] as numbers from 0 to 15, with the scales and zero points of groups of inputs."""
    groups = weight.unflatten(0, (-1, GROUP))
    low, high = groups.amin(1), groups.amax(1)
    scales = (high - low).clamp(min=1e-6) / 15
    zeros = (-low / scales).round().clamp(1, 15)
    numbers = (groups / scales[:, None] + zeros[:, None]).round().clamp(0, 15).flatten(0, 1)
    return numbers.to(torch.int64), scales, zeros.to(torch.int64)


def packed(numbers):
    """Eight numbers of 4 bits side by side in an int32."""
    return (numbers.unflatten(-1, (-1, 8)) << NIBBLES).sum(-1).to(torch.int32)


def unpacked(table):
    return ((table.to(torch.int64)[..., None] >> NIBBLES) & 15).flatten(-2)


FORMATS = {"gptq": GPTQ, "awq": AWQ, "fp8": FP8, "int8": Int8}


def pack_by_hand(model: nn.Module, kind: str) -> None:
    """The linear maps of a model in this format, but for its output head."""
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in path and min(module.weight.shape) % 8 == 0:
            model.set_submodule(path, FORMATS[kind](module))


def with_torchao(model: nn.Module, kind: str) -> None:
    from torchao import quantization
    from torchao.quantization.granularity import PerGroup

    config = {
        "int8 weights": quantization.Int8WeightOnlyConfig,
        "int4 weights": lambda: quantization.IntxWeightOnlyConfig(torch.int4, PerGroup(8)),
        "FP8 weights": quantization.Float8WeightOnlyConfig,
        "int8 weights and inputs": quantization.Int8DynamicActivationInt8WeightConfig,
    }[kind]()
    quantization.quantize_(model, config)


def with_bitsandbytes(model: nn.Module, kind: str) -> None:
    from bitsandbytes.nn import Linear4bit, Linear8bitLt

    for path, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear) or "head" in path:
            continue
        shape, bias = (module.in_features, module.out_features), module.bias is not None
        if kind == "8 bits":
            layer = Linear8bitLt(*shape, bias=bias, has_fp16_weights=False, threshold=6.0)
        else:
            layer = Linear4bit(*shape, bias=bias, quant_type=kind, compute_dtype=torch.float32)
        layer.load_state_dict(module.state_dict())
        model.set_submodule(path, layer.to("cpu").eval())


PACKINGS = {
    **{f"{name} (by hand)": partial(pack_by_hand, kind=kind) for name, kind in
       (("GPTQ, 4 bits", "gptq"), ("AWQ, 4 bits", "awq"), ("FP8 with inputs in FP8", "fp8"),
        ("int8 with inputs in int8", "int8"))},
    **{f"torchao {kind}": partial(with_torchao, kind=kind) for kind in
       ("int8 weights", "int4 weights", "FP8 weights", "int8 weights and inputs")},
    **{f"GGUF {kind} (kernel by hand)": partial(with_gguf_blocks, kind=kind) for kind in ("Q8_0", "Q4_0")},
    **{f"bitsandbytes {kind}": partial(with_bitsandbytes, kind=kind) for kind in ("nf4", "fp4", "8 bits")},
}  # fmt: skip
"""What packs the maps of a model, by format."""
