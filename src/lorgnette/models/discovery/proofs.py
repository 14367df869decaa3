"""What the numbers of a pass prove about one attention call: its maps, and its residual and norms."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lorgnette.errors import CaptureError
from lorgnette.models.anatomy import Projection
from lorgnette.models.discovery.events import Attended, Event, Ran
from lorgnette.models.linear import TOLERANCE, linear_weights


@dataclass
class CallParts:
    """What is proved about one call, and why the rest is not."""

    groups: int
    query: Projection | None = None
    key: Projection | None = None
    value: Projection | None = None
    output: nn.Module | None = None
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
    writer = _prove_output(parts, call, [event for event in after if isinstance(event, Ran)])
    x = reader.given if call.given is None and reader is not None else call.given
    if writer is None or x is None:
        parts.unknown["order"] = f"it takes {'W_O' if writer is None else 'W_V'}, which is not known either"
    else:
        inside = {id(module) for module in layer.modules()}
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
    parts.unknown[part] = "what arrives is neither what a linear map gave nor a rotation of it (a norm is between)"
    return None


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


def _prove_output(parts: CallParts, call: Attended, after: Sequence[Ran]) -> Ran | None:
    """The linear map that is given the heads' contexts side by side."""
    joined = call.context.transpose(1, 2).flatten(2).flatten(0, 1)
    for event in after:
        if event.kind == "linear" and event.given.shape == joined.shape and torch.equal(event.given, joined):
            parts.output = event.module
            reason = _not_linear(event)
            if reason is not None:
                parts.unknown["output"] = reason
            return event
    parts.unknown["output"] = (
        "no linear map is given the heads' contexts as they are (a gate, a norm or something else comes in between)"
    )
    return None


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
