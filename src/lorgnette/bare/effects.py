"""The effect of an intervention on logits and loss: exact, or to first order for all heads at once."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor
from transformers.utils import ModelOutput

from lorgnette import axes
from lorgnette.attending import Call, Site, Tap
from lorgnette.bare.inputs import fresh, model_inputs, predictions, refuse_labelled_padding, running
from lorgnette.bare.interventions import Model, contexts_of, knockout, patching, scaling
from lorgnette.errors import UserError, listed, shown
from lorgnette.models.switching import evaluating
from lorgnette.models.tapping import tapped
from lorgnette.subject import Subject, subject_of
from lorgnette.subject.effect import Effect
from lorgnette.subject.knockout import Head
from lorgnette.subject.recorded import RecordedPass


def effect(
    model: Model,
    inputs: Mapping[str, object],
    *,
    without: Iterable[Head] = (),
    scaled: Mapping[Head, float] | None = None,
    patched: tuple[RecordedPass, Iterable[Head]] | None = None,
    positions: Sequence[int] | None = None,
) -> Effect:
    """Run the model twice, unchanged and with heads ablated, scaled or patched, and compare the outputs.

        >>> labelled = {**inputs, "labels": torch.tensor([0, 1])}
        >>> isinstance(lo.effect(model, labelled, scaled={"2.3": 0.5}).loss_change, float)
        True

    The loss is available if `inputs` include labels. What it does not tell you: what the model would do had it been
    trained without the head. Other heads may compensate within the same pass (self-repair). `without` sets heads to
    zero, constant part and all (docs/gauge.md). The model runs in evaluation mode, so that dropout is not taken for an
    effect.
    """
    subject = subject_of(model, inputs)
    inputs = model_inputs(subject, inputs)
    refuse_labelled_padding(subject, inputs)
    taps: list[Tap] = []
    if listed(without) is None:
        raise UserError(f"without must be a list of heads, such as ['1.2']. Got {shown(without)} instead.")
    if without := [without] if isinstance(without, str) else list(without):
        taps.append(knockout(model, without))
    if scaled is not None:
        taps.append(scaling(model, scaled))
    if patched is not None:
        if not isinstance(patched, tuple) or len(patched) != 2:
            raise UserError(f"patched must be (another pass, heads). Got {shown(patched)} instead.")
        taps.append(patching(model, patched[0], patched[1], positions))
    if not taps:
        raise UserError("Nothing to compare: name heads in without=, scaled= or patched=.")
    network = subject.model
    with torch.no_grad(), evaluating(network), running(subject, inputs):
        intact = network(**fresh(inputs))
        with tapped(subject, *taps):
            changed = network(**fresh(inputs))
    before, after = _logits(intact), _logits(changed)
    losses = (getattr(intact, "loss", None), getattr(changed, "loss", None))
    loss = None if losses[0] is None or losses[1] is None else (float(losses[0]), float(losses[1]))
    return Effect(before, after, loss, predictions(subject, inputs, intact))


def gradient_effects(
    model: Model,
    inputs: Mapping[str, object],
    from_: RecordedPass | None = None,
    *,
    metric: Callable[[ModelOutput], Tensor] | None = None,
) -> xr.DataArray:
    """First-order effect on the metric of patching (or, without `from_`, ablating) each head, in one pass.

        Σ (c' − c) · ∂metric/∂c        c the head's context, c' its context in the other pass, or zero

    (attribution patching; Syed et al. 2023.)

        >>> lo.gradient_effects(model, inputs).dims
        ('stack', 'layer', 'head')

    `metric` is a function of the model's output: by default, the loss if there are labels, else the sum of the largest
    logits, one for each text or token. Returns [stack layer head]. It is exact for a metric that is linear in the
    head's output, and inaccurate for a saturated softmax or a large change: compare with `effect`.
    """
    subject = subject_of(model, inputs)
    inputs = model_inputs(subject, inputs)
    if metric is not None and not _takes_one(metric):
        raise UserError(f"metric must be a function of the model's output. Got {shown(metric)} instead.")
    if metric is None:
        refuse_labelled_padding(subject, inputs)
    other = None if from_ is None else contexts_of(from_)
    leaves = _Leaves()
    with torch.enable_grad(), evaluating(subject.model), tapped(subject, leaves):
        with running(subject, inputs):
            output = subject.model(**fresh(inputs))
        value = _default_metric(subject, inputs, output) if metric is None else metric(output)
        _refuse_metric(value)
        gradients = torch.autograd.grad(value, list(leaves.contexts.values()), allow_unused=True)
    effects: dict[Site, Tensor] = {}
    for (site, context), gradient in zip(leaves.contexts.items(), gradients, strict=True):
        target = torch.zeros_like(context) if other is None else other[site].to(context).expand_as(context)
        slope = torch.zeros_like(context) if gradient is None else gradient
        effects[site] = ((target - context.detach()) * slope).double().sum((0, 2, 3))
    return _by_head(subject, effects)


class _Leaves(Tap):
    """Cuts the graph at every head's output, so that its gradient is that of the rest of the model."""

    def __init__(self) -> None:
        self.contexts: dict[Site, Tensor] = {}

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        if not context.requires_grad:
            context = context.detach().requires_grad_()
        self.contexts[call.site] = context
        return context


def _by_head(subject: Subject, effects: Mapping[Site, Tensor]) -> xr.DataArray:
    stacks = list(dict.fromkeys(site.name for site in subject.sites))
    layers = 1 + max(site.layer for site in subject.sites)
    out = torch.full((len(stacks), layers, subject.heads), torch.nan, dtype=torch.float64)
    for site, values in effects.items():
        out[stacks.index(site.name), site.layer, list(subject.anatomy[site].numbers)] = values.cpu()
    coordinates = {
        axes.STACK: stacks,
        axes.LAYER: list(range(1, layers + 1)),
        axes.HEAD: list(range(1, subject.heads + 1)),
    }
    return xr.DataArray(out.numpy(), dims=axes.PER_HEAD, coords=coordinates, name="effect")


def _logits(output: object) -> Tensor:
    logits = getattr(output, "logits", None)
    if logits is None:
        raise UserError(f"The model returns no logits ({type(output).__name__}): use a model with an output head.")
    return logits.detach()


def _takes_one(function: object) -> bool:
    """Whether something can be called with one argument; True where it does not say."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # some functions written in C have no signature
        return True
    return True


def _refuse_metric(value: object) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        said = f"{shown(value)}" if not isinstance(value, Tensor) else f"shape {list(value.shape)}"
        raise UserError(f"metric must return one number, a tensor that depends on the model's output. Got {said}.")


def _default_metric(subject: Subject, inputs: Mapping[str, object], output: ModelOutput) -> Tensor:
    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    logits = getattr(output, "logits", None)
    if logits is None:
        raise UserError("The model returns neither loss nor logits: pass metric=, a function of its output.")
    mask, largest = predictions(subject, inputs, output), logits.amax(-1)
    return largest.sum() if mask is None else largest[mask].sum()
