"""What the numbers of a pass prove about one attention call: its maps, and its residual and norms."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lorgnette.errors import CaptureError
from lorgnette.models.anatomy import ACTIVATIONS, Gate, NormGate, Projection
from lorgnette.models.discovery.events import Attended, Event, Ran
from lorgnette.models.linear import TOLERANCE, linear_weights
from lorgnette.models.norms import norm_form


@dataclass
class CallParts:
    """What is proved about one call, and why the rest is not."""

    groups: int
    query: Projection | None = None
    key: Projection | None = None
    value: Projection | None = None
    output: nn.Module | None = None
    gate: Gate | NormGate | None = None
    norm: nn.Module | None = None
    second_norm: nn.Module | None = None
    order: str = "none"
    unknown: dict[str, str] = field(default_factory=dict)


def proved(events: Sequence[Event], at: int, layer: nn.Module) -> CallParts:
    """Everything that can be proved about the call at this place in the pass."""
    call = events[at]
    assert isinstance(call, Attended)
    parts = CallParts(groups=_groups(call))
    before = [event for event in events[:at] if isinstance(event, Ran)][::-1]
    after = events[at + 1 :]
    reader = None
    for part in ("query", "key", "value"):
        event = _prove_input(parts, part, call, before)
        reader = event if part == "value" else reader
    inside = {id(module) for module in layer.modules()}
    own = [event for event in before if id(event.module) in inside]
    writer = _prove_output(parts, call, own, [event for event in after if isinstance(event, Ran)], inside)
    x = reader.given if call.given is None and reader is not None else call.given
    if writer is None or x is None:
        parts.unknown["order"] = f"it takes {'W_O' if writer is None else 'W_V'}, which is not known either"
    else:
        _prove_order(parts, x, writer, before, after[_place(writer, after) :], inside)
    return parts


def _groups(call: Attended) -> int:
    """How many keys and values there are: those of a group are equal, bit for bit."""
    heads = call.key.shape[1]
    for size in range(heads, 1, -1):
        if heads % size == 0:
            grouped = [tensor.unflatten(1, (-1, size)) for tensor in (call.key, call.value)]
            if all(torch.equal(tensor, tensor[:, :, :1].expand_as(tensor)) for tensor in grouped):
                return heads // size
    return heads


def _prove_input(parts: CallParts, part: str, call: Attended, before: Sequence[Ran]) -> Ran | None:
    """The linear map whose outputs, some or all of them, are the queries, keys or values that arrived."""
    states: Tensor = getattr(call, part)
    if part != "query":
        states = states[:, :: states.shape[1] // parts.groups]
    heads = states.transpose(1, 2)
    for event in before:
        if event.kind == "linear" and len(event.gave) == heads.shape[0] * heads.shape[1]:
            columns = matching_columns(event.gave, heads.flatten(2).flatten(0, 1))
            if columns is None and part != "value":
                columns = rotated_columns(event.gave, heads)
            if columns is not None:
                whole = len(columns) == event.gave.shape[1] and bool((columns.diff() == 1).all())
                setattr(parts, part, Projection(event.module, columns=None if whole else columns))
                reason = _not_linear(event)
                if reason is not None:
                    parts.unknown[part] = reason
                return event
    norm = next((event for event in before if event.kind == "norm" and _became(event.gave, heads)), None)
    if norm is not None and part != "value":
        parts.unknown[part] = (
            f"a {type(norm.module).__name__} comes behind the map, so that scores are not bilinear in it"
        )
    else:
        parts.unknown[part] = "what arrives is neither what a linear map gave nor a rotation of it"
    return None


def _became(gave: Tensor, heads: Float[Tensor, "batch token head dim"]) -> bool:
    """Whether the heads' vectors are what a norm gave, or rotations of it by position: see `rotated_columns`."""
    batch, tokens, count, dim = heads.shape
    if gave.numel() != heads.numel() or gave.shape[-1] not in (dim, count * dim):
        return False
    wide = gave.reshape(batch * tokens, count * dim)
    turned = gave.reshape(batch, count, tokens, dim).transpose(1, 2).reshape(wide.shape)
    return any(rotated_columns(one, heads) is not None for one in (wide, turned))


def matching_columns(
    wide: Float[Tensor, "token out"], narrow: Float[Tensor, "token some"]
) -> Int[Tensor, " some"] | None:
    """The position of each column of `narrow` in `wide`, equal to the last bit; None if one is missing."""
    if wide.shape == narrow.shape and torch.equal(wide, narrow):
        return torch.arange(wide.shape[1])
    if wide.shape[1] < narrow.shape[1] or wide.dtype != narrow.dtype:
        return None
    place = {column: number for number, column in reversed(list(enumerate(_as_bytes(wide))))}
    columns = [place.get(column, -1) for column in _as_bytes(narrow)]
    return None if -1 in columns else torch.tensor(columns)


def rotated_columns(
    wide: Float[Tensor, "row out"], heads: Float[Tensor, "batch token head dim"]
) -> Int[Tensor, " some"] | None:
    """The columns of `wide` that were rotated by position into the heads' vectors; None if there are none.

    The first position is not rotated, so that its numbers are equal to the last bit; and no rotation changes a length.
    """
    batch, tokens = heads.shape[:2]
    gave = wide.unflatten(0, (batch, tokens))
    columns = matching_columns(gave[:, 0], heads[:, 0].flatten(1))
    if columns is None:
        return None
    before = gave[..., columns.to(gave.device)].unflatten(-1, heads.shape[2:]).float().norm(dim=-1)
    return columns if close(before, heads.float().norm(dim=-1)) else None


def _as_bytes(table: Float[Tensor, "token column"]) -> list[bytes]:
    # A column of one token counts as contiguous whatever its stride, which bytes do not forgive: hence the copy.
    raw = table.T.clone(memory_format=torch.contiguous_format).view(torch.uint8).cpu().numpy()
    return [row.tobytes() for row in raw]


def _not_linear(event: Ran) -> str | None:
    """Why W and b of this map do not reproduce its output; None if they do."""
    try:
        weight, bias = linear_weights(event.module)
    except CaptureError as error:
        return str(error).rstrip(".")
    with torch.no_grad():
        expected = event.given @ weight.to(event.given.dtype)
        expected = expected if bias is None else expected + bias.to(expected.dtype)
    if close(expected, event.gave):
        return None
    return f"x W + b of {type(event.module).__name__} is not what it gives"


def close(one: Tensor, other: Tensor) -> bool:
    """Equal up to rounding, relative to the largest number."""
    if one.shape != other.shape:
        return False
    scale = float(other.abs().max())
    return float((one - other).abs().max()) <= TOLERANCE.get(other.dtype, 1e-4) * max(scale, 1e-30)


def _prove_output(
    parts: CallParts, call: Attended, before: Sequence[Ran], after: Sequence[Ran], inside: set[int]
) -> Ran | None:
    """The linear map that is given the heads' contexts side by side, as they are, times a gate, or behind a norm."""
    joined = call.context.transpose(1, 2).flatten(2).flatten(0, 1)
    writers = [event for event in after if event.kind == "linear" and event.given.shape == joined.shape]
    writer = next((event for event in writers if torch.equal(event.given, joined)), None)
    if writer is None:
        for event in (event for event in writers if id(event.module) in inside):
            between = after[: _place(event, after)]
            parts.gate = _gate(
                call, joined, event.given, before, [each for each in between if id(each.module) in inside]
            )
            if parts.gate is not None:
                writer = event
                break
    if writer is None:
        for norm in (event for event in after if event.kind == "norm" and id(event.module) in inside):
            writer = next((event for event in writers if torch.equal(event.given, norm.gave)), None)
            if writer is not None and _scales(norm, call, joined):
                parts.gate = NormGate(norm.module)
                break
            writer = None
    if writer is None:
        parts.unknown["output"] = (
            "no linear map is given the heads' contexts, as they are or times a gate that a linear map makes (a norm "
            "or something else comes in between)"
        )
        return None
    parts.output = writer.module
    reason = _not_linear(writer)
    if reason is not None:
        parts.unknown["output"] = reason
    return writer


def _scales(norm: Ran, call: Attended, joined: Tensor) -> bool:
    """Whether a norm multiplies the heads' contexts, side by side, by γ / s and does nothing else."""
    form = norm_form(norm.module)
    if form is None or form.centred or not torch.equal(norm.given, joined):
        return False
    gain = NormGate(norm.module).of(call.context).transpose(1, 2).flatten(2).flatten(0, 1)
    return _equals(joined * gain.to(joined.dtype), norm.gave)


def _gate(call: Attended, joined: Tensor, given: Tensor, before: Sequence[Ran], between: Sequence[Ran]) -> Gate | None:
    """The gate g for which `given` is context ⊙ g: a function of a linear map's output, for each channel or head.

    The map runs before the attention function, or after it on what the attention module was given.
    """
    batch, heads, _, dim = call.context.shape
    later = [event for event in between if call.given is not None and torch.equal(event.given, call.given)]
    for event in (*before, *later):
        size, rest = divmod(event.gave.shape[-1], heads)
        if event.kind != "linear" or rest or len(event.gave) != len(joined):
            continue
        for columns in _columns(size, dim):
            for bias in (None, *_biases(call.module, heads, dim)):
                for activation in ACTIVATIONS:
                    gate = Gate(event.module, columns, activation, bias, first=event not in later)
                    factor = gate.of(event.gave, batch, heads).transpose(1, 2)
                    gated = joined.unflatten(-1, (heads, dim)).unflatten(0, (batch, -1)) * factor.to(joined.dtype)
                    if _equals(gated.flatten(2).flatten(0, 1), given):
                        return gate
    return None


def _columns(size: int, dim: int) -> tuple[slice, ...]:
    """Which outputs of each head may be a gate, of a map with so many for each: one, all, the last or the first."""
    if size in (1, dim):
        return (slice(None),)
    return (slice(size - dim, None), slice(0, dim)) if size > dim else ()


def _biases(module: nn.Module, heads: int, dim: int) -> Iterator[Tensor]:
    """What the attention module keeps beside its maps that may be added before the activation."""
    for parameter in module.parameters(recurse=False):
        if parameter.numel() in (heads, heads * dim):
            yield parameter.detach()


def _equals(one: Tensor, other: Tensor) -> bool:
    """Equal but for the last digits of each number, so that no other gate passes for this one.

    Some models make their gate in float32, whatever their precision.
    """
    digits = max(torch.finfo(dtype).eps for dtype in (other.dtype, torch.float32))
    return bool(((one - other).abs() <= 4 * digits * other.abs()).all())


def _prove_order(
    parts: CallParts,
    x: Float[Tensor, "token model"],
    writer: Ran,
    before: Sequence[Ran],
    after: Sequence[Event],
    inside: set[int],
) -> None:
    """Which norm comes before the heads, and which is given x + attention; each sum is checked in numbers.

    `x` is what goes into the heads' module: the residual itself (post), or what a norm made of it (pre, sandwich).
    """
    attention = writer.gave
    later = [e for e in after if isinstance(e, Ran) and e.kind == "norm" and e.given.shape == attention.shape]
    if x.shape == attention.shape:
        first = next((e for e in before if _is_norm_before(e, x, inside)), None)
        if first is not None and _sum_in(first.given + attention, later):
            parts.norm, parts.order = first.module, "pre"
            return
        if first is not None:
            for event in later:
                if close(event.given, attention) and _sum_in(first.given + event.gave, later):
                    parts.norm, parts.order = first.module, "sandwich"
                    return
        summed = _sum_in(x + attention, later)
        if summed is not None:
            following = _second(summed, after)
            if following is None:  # nothing is added to what that norm gave: it begins the layer's second half
                parts.order = "pre"
            elif id(summed.module) in inside:
                parts.norm, parts.order = summed.module, "post"
                parts.second_norm = following.module if _ends(summed, following, after, inside) else None
            if parts.order != "none":
                return
    parts.unknown["order"] = "no norm is given x + attention (parallel halves, a scaled or a normalised residual)"


def _is_norm_before(event: Ran, x: Tensor, inside: set[int]) -> bool:
    if event.kind != "norm" or id(event.module) not in inside or event.gave.shape != x.shape:
        return False
    return torch.equal(event.gave, x)


def _sum_in(states: Tensor, norms: Sequence[Ran]) -> Ran | None:
    """The first of these norms that is given this sum."""
    return next((event for event in norms if close(states, event.given)), None)


def _second(first: Ran, after: Sequence[Event]) -> Ran | None:
    """The norm that is given y + f(y), y what the first norm gave and f(y) what a linear map gave in between."""
    rest = [e for e in after[_place(first, after) + 1 :] if isinstance(e, Ran)]
    for number, event in enumerate(rest):
        if event.kind == "norm" and event.given.shape == first.gave.shape:
            added = event.given - first.gave
            if any(e.kind == "linear" and e.gave.shape == added.shape and close(e.gave, added) for e in rest[:number]):
                return event
    return None


def _ends(first: Ran, second: Ran, after: Sequence[Event], inside: set[int]) -> bool:
    """Whether the second norm ends the layer: it is inside it, and no other attention comes first."""
    between = after[_place(first, after) : _place(second, after)]
    return id(second.module) in inside and not any(isinstance(event, Attended) for event in between)


def _place(event: Event, events: Sequence[Event]) -> int:
    return next(number for number, other in enumerate(events) if other is event)
