"""Linear maps as they act: their weights with everything that an adapter adds, or a refusal by name.

A plain `nn.Linear` (or GPT-2's transposed one) shows its parameters. Any other module that is used as a linear map (an
adapter around one, one whose weights lie elsewhere until they are needed, a quantised one of whatever format) is known
by what it does to the unit vectors: W = f(I) − f(0), b = f(0), and random vectors prove that there is nothing else to
it. A weight that unpacks itself (`dequantize`) is asked first. Rounding to steps of the largest number leaves a unit
vector as it is, so W is what the quantised weights stand for even where inputs are quantised too; what is left between
x W + b and f(x) is then the rounding of x. Maps that are spread over several devices are refused, and so are those for
which the proof fails.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lorgnette.errors import CaptureError, reason

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}
"""Largest relative difference that is rounding, by precision."""

EXPLAINED = 1.5
"""The largest difference of a quantised map from x W + b that counts as rounding of x, as a multiple of it."""

CHUNK = 1024
"""Unit vectors that are sent through a map at a time."""
_SPLIT = "they are spread over several devices"
_VERDICTS: "WeakKeyDictionary[nn.Module, tuple[Hashable, str | None]]" = WeakKeyDictionary()
"""Of every quantised map that was tried, why its weights cannot be known, or None."""


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def is_quantised_map(module: nn.Module) -> bool:
    """A linear map whose weights are packed, of whatever class."""
    return hasattr(module, "in_features") and quantisation(module) is not None and not any(module.children())


def is_transposed(module: nn.Module) -> bool:
    """GPT-2 keeps the weights of its linear maps as [in, out]."""
    return isinstance(module, Conv1D)


def is_plain(module: nn.Module) -> bool:
    """x W + b with W and b as they are kept."""
    own = type(module).forward in (nn.Linear.forward, Conv1D.forward) and "forward" not in vars(module)
    return own and quantisation(module) is None and not module.weight.is_meta and not _is_split(module)


def linear_weights(module: nn.Module) -> tuple[Float[Tensor, "in out"], Float[Tensor, " out"] | None]:
    """Weight as [in, out] and bias, as the map acts now; views of the parameters where it is a plain one."""
    if _is_split(module):
        raise _unreadable(module, _SPLIT)
    if not is_plain(module):
        return _probed(module)
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    return weight if is_transposed(module) else weight.T, bias if isinstance(bias, Tensor) else None


def linear_state(module: nn.Module) -> Hashable:
    """Equal as long as the map is: which parameters it has, their versions, and what it does if that is not all."""
    parameters = _versions(module)
    if is_plain(module):
        return parameters
    with torch.no_grad(), _evaluated(module):  # an adapter may be switched off without any parameter changing
        output = module.forward(vectors(module, 1)).float().cpu()
    return (*parameters, output.numpy().tobytes())


def _versions(module: nn.Module) -> tuple[Hashable, ...]:
    return tuple((id(p), p.data_ptr(), version(p)) for p in module.parameters())


def version(parameter: Tensor) -> int:
    """Counts the changes in place; 0 where nobody counts."""
    return 0 if parameter.is_inference() else parameter._version


def refusal(module: Any) -> str | None:
    """Why the weights of a map are not known; None if they are, or if the proof of `_probed` holds."""
    if _is_split(module):
        return _SPLIT
    kind = quantisation(module)
    if kind is None:
        return None
    state = _versions(module)
    known = _VERDICTS.get(module)
    if known is None or known[0] != state:
        why = None
        try:
            _probed(module)
        except CaptureError as error:
            why = f"{kind}, and {str(error).rstrip('.')}"
        known = _VERDICTS[module] = state, why
    return known[1]


def quantisation(module: nn.Module) -> str | None:
    """How the weights are kept where a forward does not multiply by them as they are; None for ordinary numbers."""
    weight = getattr(module, "weight", None)
    if weight is None:
        return "it keeps none, or keeps them packed"
    if not isinstance(weight, Tensor):
        return f"they are a {type(weight).__name__}"
    if type(weight) not in (Tensor, nn.Parameter):
        return f"they are a {type(weight).__name__}, quantised or of another special kind"
    if not weight.is_floating_point() or weight.dtype.itemsize < 2:
        return f"they are quantised ({str(weight.dtype).removeprefix('torch.')})"
    return None


def rounds(module: nn.Module) -> bool:
    """Whether a quantised map rounds its inputs too: f(x + y) is not f(x) + f(y) − f(0).

    In half precision the rounding of the outputs hides that, so every quantised map counts as one that does.
    """
    if quantisation(module) is None or _is_split(module):
        return False
    with torch.no_grad(), _evaluated(module):
        x = vectors(module, 2)
        f = module.forward(torch.cat([x, x.sum(0, keepdim=True), torch.zeros_like(x[:1])]))
    difference = f[0] + f[1] - f[2] - f[3]
    exact = x.dtype in (torch.float32, torch.float64)
    return not exact or not float(difference.abs().max() / f.abs().max()) <= TOLERANCE[x.dtype]


def beyond_rounding(
    x: Float[Tensor, "row in"],
    weight: Float[Tensor, "in out"],
    bias: Float[Tensor, " out"] | None,
    output: Float[Tensor, "row out"],
) -> float:
    """How far x W + b is from what a map that rounds x gave, in units of what rounding explains.

    Rounding x to 127 steps of its largest number, or to FP8's three bits, changes x W by a random amount of variance
    Σ_i W_ij² ((max|x| / 127)² / 12 + x_i² 2⁻⁸ / 3); outliers in x make it large.
    """
    wide = torch.promote_types(weight.dtype, torch.float32)
    x, w, y = (tensor.to(weight.device, wide) for tensor in (x, weight, output))
    difference = x @ w - y if bias is None else x @ w + bias.to(w) - y
    squares, step = w.square(), x.abs().amax(-1, keepdim=True) / 127
    variance = squares.sum(0) * step.square() / 12 + x.square() @ squares * 2**-8 / 3
    precision = (TOLERANCE.get(output.dtype, 1e-4) * y).square().mean()
    return float((difference.square().mean() / (variance.mean() + precision).clamp(min=1e-60)).sqrt())


def _is_split(module: nn.Module) -> bool:
    return hasattr(getattr(module, "weight", None), "device_mesh")


def _unreadable(module: nn.Module, why: str) -> CaptureError:
    return CaptureError(
        f"The weights of a {type(module).__name__} cannot be read: {why}. Use a copy of the model with plain "
        "weights (dequantised, on one device), or lenses that do not need them."
    )


def _probed(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """W and b of a map: the weights that it unpacks itself, or what it makes of unit vectors."""
    try:
        with torch.no_grad(), _evaluated(module):
            x = vectors(module, 3)
            zero, expected = module.forward(torch.zeros_like(x[:1]))[0], module.forward(x)
            weight = _unpacked(module)
            if weight is None or not _acts(module, weight, zero, x, expected):
                unit = [
                    nn.functional.one_hot(some, x.shape[1])
                    for some in torch.arange(x.shape[1], device=x.device).split(CHUNK)
                ]
                weight = torch.cat([module.forward(some.to(x)) - zero for some in unit])
    except (torch.OutOfMemoryError, CaptureError):
        raise
    except Exception as error:  # a layer of another package may raise anything
        raise _unreadable(module, f"it does not take vectors by itself ({reason(error)})") from error
    if not _acts(module, weight, zero, x, expected):
        product = x.to(weight) @ weight + zero
        difference = float((product - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
        raise CaptureError(
            f"A {type(module).__name__} is used as a linear map but is not one: x W + b differs from what it gives by "
            f"{difference:.1e} of its size."
        )
    return weight, zero if bool(zero.any()) else None


def _unpacked(module: nn.Module) -> Float[Tensor, "in out"] | None:
    """The weight as its own class unpacks it (torchao's tensors do), or transformers (the blocks of a GGUF file)."""
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor) and hasattr(module, "ggml_type"):
        return _from_blocks(module, weight)
    if not isinstance(weight, Tensor) or type(weight) in (Tensor, nn.Parameter):
        return None
    try:
        made = weight.dequantize()
    except Exception:  # it has no such method, or is packed for another
        return None
    expected = (getattr(module, "out_features", None), getattr(module, "in_features", None))
    plain = type(made) is Tensor and made.is_floating_point() and tuple(made.shape) == expected
    return made.detach().T if plain else None


def _from_blocks(module: Any, blocks: Tensor) -> Float[Tensor, "in out"]:
    from transformers.integrations.gguf.dequant import dequantize

    rows = dequantize(blocks.detach(), module.ggml_type, torch.float32).reshape(module.out_features, module.in_features)
    order = getattr(module, "input_permutation", None)  # which input each column multiplies
    if order is None:
        return rows.T
    return torch.zeros_like(rows).index_copy(1, order, rows).T


def _acts(module: nn.Module, weight: Tensor, bias: Tensor, x: Tensor, output: Tensor) -> bool:
    """Whether x W + b is what the map gives, up to rounding."""
    product = x.to(weight.device, weight.dtype) @ weight + bias  # a map kept on the CPU may work on a GPU
    difference = float((product - output).abs().max() / output.abs().max().clamp(min=1e-30))
    if difference <= TOLERANCE.get(output.dtype, 1e-4):
        return True
    return rounds(module) and beyond_rounding(x, weight, bias, output) <= EXPLAINED


def vectors(module: Any, count: int) -> Float[Tensor, "count in"]:
    """Random vectors, always the same ones, that the map takes."""
    generator = torch.Generator().manual_seed(0)
    kept = [*module.parameters(), *module.buffers()]
    device = next((tensor.device for tensor in kept if not tensor.is_meta), torch.device("cpu"))
    return torch.randn(count, _width(module), generator=generator).to(device, _precision(module, kept))


def _width(module: Any) -> int:
    """How many numbers the map takes."""
    for name in ("in_features", "infeatures"):
        if isinstance(getattr(module, name, None), int):
            return int(getattr(module, name))
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise _unreadable(module, "it does not say how many numbers it takes (in_features)")
    return int(weight.shape[0 if is_transposed(module) else 1])


def _precision(module: Any, kept: list[Tensor]) -> torch.dtype:
    """The precision that a map works in: said outright, or that of its numbers, of which packed ones say nothing."""
    said = getattr(module, "compute_dtype", None)
    if isinstance(said, torch.dtype) and said in TOLERANCE:
        return said
    weight = getattr(module, "weight", None)
    numbers = [weight] if isinstance(weight, Tensor) else []
    return next((tensor.dtype for tensor in (*numbers, *kept) if tensor.dtype in TOLERANCE), torch.float32)


@contextmanager
def _evaluated(module: nn.Module) -> Iterator[None]:
    """Run without an adapter's dropout."""
    training = [each for each in module.modules() if each.training]
    for each in training:
        each.training = False
    try:
        yield
    finally:
        for each in training:
            each.training = True
