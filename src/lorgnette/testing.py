"""The laws that every lens must obey, for ours and for plug-ins: `check_lens(lambda: MyLens())`.

Many batches, in another order = one batch; merge = union; padding changes nothing, on either side; permuting heads
permutes the result; swept = matrix; the JSON round trip is exact; the call is not modified.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
import xarray as xr
from jaxtyping import Bool, Shaped
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Tap
from lorgnette.errors import UserError
from lorgnette.lens import get
from lorgnette.lens.base import Lens
from lorgnette.looking.driver import Driver, looks
from lorgnette.models.linear import linear_weights
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens, TokenTexts
from lorgnette.texts.example import Example
from lorgnette.types import ModelOutput

Side = Literal["left", "right"]
"""Where padding stands: before the texts or behind them."""


class _Guard(Tap):
    """Sees each call before the lens does, and after the pass compares it with what it was."""

    def __init__(self, *, matrix: bool) -> None:
        self.matrix = matrix
        self.seen: list[tuple[Tensor, Tensor]] = []

    def see(self, call: Call) -> None:
        if self.matrix:
            _ = call.weights
        self.seen += [(tensor, tensor.clone()) for tensor in (call.query, call.scores.key, call.grouped_value)]


def run_lens(
    lens: Lens,
    subject: Subject,
    batches: Sequence[Batch],
    *,
    matrix: bool = False,
    given: Mapping[str, Result] | None = None,
) -> Lens:
    """Run batches through a lens with the code that `look` uses, and return the lens, ready to `compute`.

    >>> from lorgnette.testing import run_lens
    >>> lens = run_lens(lo.lens.get("weights"), subject, [subject.encode(texts)])
    >>> lens.compute()["entropy"].data.sizes["layer"] == len(subject.layers["encoder"])
    True

    `given` holds the results of other lenses that this one needs (`Lens.needs`). With `matrix=True`, each call computes
    its weights before the lens sees it, so the lens reads them instead of the sweep. A lens that modifies the queries,
    keys or values of a call fails.
    """
    lens.bind(subject)
    if given:
        lens.take(given)
    for batch in batches:
        guard = _Guard(matrix=matrix)
        Driver(subject, [lens], [guard]).take(batch)
        assert all(torch.equal(now, before) for now, before in guard.seen), f"{lens.name} modified the call"
    return lens


def needed_before(lens: Lens, subject: Subject, batches: Sequence[Batch]) -> dict[str, Result]:
    """What a lens must know of the whole corpus before its first batch, as `look` measures it."""
    needs = [get(need) if isinstance(need, str) else need for need in lens.needs()] if looks(lens) else []
    given = {need.name: needed_before(need, subject, batches) for need in needs}
    return {need.name: run_lens(need, subject, batches, given=given[need.name]).compute() for need in needs}


def check_lens(
    make: Callable[[], Lens], subject: Subject, examples: Sequence[Example], *, tolerance: float = 1e-6
) -> Result:
    """Assert all laws of this module for one lens on one subject, and return the lens's result on all examples.

    >>> from lorgnette.testing import check_lens
    >>> examples = [lo.Example(str(n), text) for n, text in enumerate(texts * 2)]
    >>> check_lens(lambda: lo.lens.get("weights"), subject, examples, tolerance=1e-5).lens
    'weights'

    `make` returns a new lens each time. The laws need four texts or more. With a float64 subject, the tolerance, which
    is relative to the largest number of each variable, can be 1e-9.
    """
    examples = list(examples)
    assert len(examples) >= 4, "the laws need at least four texts"
    whole = subject.encode(examples)
    given = needed_before(make(), subject, [whole])

    def run(batches: Sequence[Batch], *, matrix: bool = False) -> Lens:
        return run_lens(make(), subject, batches, matrix=matrix, given=given)

    result = run([whole]).compute()

    def same(other: Any, law: str) -> None:
        assert_close(result.data, other.compute().data, law, tolerance)

    singles = [subject.encode([example]) for example in examples]
    same(run(singles[::-1]), "many batches, in another order = one batch")
    same(run([padded(whole, 5, subject.encoder.padding)]), "more padding changes nothing")
    left = left_padded(subject, whole)
    if left is not None:
        same(run([left]), "padding on the left changes nothing")
    same(run([whole], matrix=True), "swept = matrix")
    first, second = run(singles[:2]), run(singles[2:])
    first.compute()  # a merge after compute must not return what was computed before
    first.merge_state(second)
    same(first, "merge = union")
    again = Result.from_json(result.to_json())
    assert again == result, "JSON round trip"
    return result


def check_head_permutation(
    make: Callable[[], Lens], subject: Subject, examples: Sequence[Example], *, tolerance: float = 1e-6
) -> None:
    """Assert that permuting the heads of every layer permutes the result, for a BERT-like subject.

    >>> from lorgnette.testing import check_head_permutation
    >>> check_head_permutation(lambda: lo.lens.get("weights"), subject, [lo.Example("0", texts[0])], tolerance=1e-5)

    The heads of the subject's model are reordered in place, and put back afterwards.
    """
    order = torch.randperm(subject.heads, generator=torch.Generator().manual_seed(0))
    batch = subject.encode(list(examples))
    before = run_lens(make(), subject, [batch], given=needed_before(make(), subject, [batch])).compute().data
    permute_heads(subject, order)
    try:
        after = run_lens(make(), subject, [batch], given=needed_before(make(), subject, [batch])).compute().data
    finally:
        permute_heads(subject, torch.argsort(order))
    if axes.HEAD in before.dims:
        before = before.isel({axes.HEAD: order.numpy()}).assign_coords({axes.HEAD: before[axes.HEAD].values})
    for axis in {axes.HEAD_A, axes.HEAD_B} & set(before.dims):  # heads of all layers in a row
        layers = before.sizes[axis] // len(order)
        everywhere = (torch.arange(layers)[:, None] * len(order) + order).flatten().numpy()
        before = before.isel({axis: everywhere}).assign_coords({axis: before[axis].values})
    assert_close(before, after, "permuting heads permutes the result", tolerance)


def permute_heads(subject: Subject, order: Tensor) -> None:
    """Reorder the heads of every site of a BERT-like subject in place; its output does not change."""
    for site in subject.anatomy.sites:
        module: Any = site.module
        with torch.no_grad():
            for projection in (module.query, module.key, module.value):
                weight = projection.weight.unflatten(0, (site.heads, -1))[order].flatten(0, 1)
                projection.weight.copy_(weight)
                projection.bias.copy_(projection.bias.unflatten(0, (site.heads, -1))[order].flatten())
            if site.output is not None:
                weight, _ = linear_weights(site.output)
                weight.copy_(weight.unflatten(0, (site.heads, -1))[order].flatten(0, 1))


def padded(batch: Batch, by: int, padding: int, side: Side = "right") -> Batch:
    """The same batch with more padding: all of it behind the texts, or all of it in front of them."""

    def moved(tokens: Tokens) -> Tokens:
        place = partial(_placed, mask=tokens.mask, by=by, side=side)
        return tokens.replaced(
            ids=place(tokens.ids, fill=padding),
            mask=place(tokens.mask, fill=False),
            special=place(tokens.special, fill=False),
            categories={name: place(where, fill=False) for name, where in tokens.categories.items()},
            text=TokenTexts.of(place(tokens.word, fill=-1), tokens.pieces, tokens.words),
        )

    inputs = {}
    for name, tensor in batch.inputs.items():
        own = batch.target if name.startswith("decoder") and batch.target is not None else batch.source
        inputs[name] = _placed(tensor, own.mask, by, side, fill=padding if name.endswith("input_ids") else 0)
    target = None if batch.target is None else moved(batch.target)
    return replace(batch, inputs=inputs, source=moved(batch.source), target=target)


def _placed(
    tensor: Shaped[Tensor, "batch token"], mask: Bool[Tensor, "batch token"], by: int, side: Side, *, fill: int
) -> Shaped[Tensor, "batch wider"]:
    """Each row with `by` more positions, and all its padding on one side."""
    wider = F.pad(tensor, (0, by), value=fill)
    if side == "right":
        return wider
    shift = wider.shape[1] - mask.sum(-1, keepdim=True)
    return wider.gather(1, (torch.arange(wider.shape[1], device=tensor.device) - shift) % wider.shape[1])


def left_padded(subject: Subject, batch: Batch) -> Batch | None:
    """The batch with its padding in front, if the model computes the same on it; else None.

    A model that counts padding as positions, and lets nobody say otherwise by `position_ids`, computes something else,
    and so does a classifier that reads position 0, if it does not refuse.
    """
    left = padded(batch, 5, subject.encoder.padding, "left")
    if "position_ids" in signature(subject.model.forward).parameters:
        left.inputs["position_ids"] = (left.source.mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        before = _output(subject.run(batch), batch)
        try:
            after = _output(subject.run(left), left)
        except UserError:
            return None
    return left if torch.allclose(before, after, rtol=1e-4, atol=1e-5) else None


def _output(outputs: ModelOutput, batch: Batch) -> Tensor:
    """What the model computes, at real tokens if it computes something at each."""
    made = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    return made if made.dim() == 2 else made[(batch.source if batch.target is None else batch.target).mask]


def assert_close(one: xr.Dataset, other: xr.Dataset, law: str, tolerance: float) -> None:
    """Equal within a relative tolerance, missing where missing."""
    assert set(one.data_vars) == set(other.data_vars), law
    for name in one.data_vars:
        a, b = one[name].values, other[name].values
        if a.dtype.kind != "f":
            assert (a == b).all(), f"{law}: {name}"
            continue
        scale = np.abs(a[~np.isnan(a)]).max(initial=1.0)
        np.testing.assert_allclose(b, a, atol=tolerance * scale, rtol=tolerance, err_msg=f"{law}: {name}")
