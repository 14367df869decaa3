"""`lo.watch`: lenses on passes that you run yourself."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from torch import Tensor, nn

from lorgnette.bare.inputs import cached, model_inputs, refuse_elsewhere
from lorgnette.bare.interventions import Model
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.driver import Driver, looks, refuse_odd_keep
from lorgnette.models.text_states import text_states
from lorgnette.subject import subject_of
from lorgnette.texts.batch import Batch
from lorgnette.texts.padding import SIDES, real_tokens
from lorgnette.types import ModelOutput


@contextmanager
def watch(model: Model, *lenses: Lens, batch: Batch, keep: str | None = None) -> Iterator[None]:
    """Feed the forward pass that you run in this context, on this batch, to lenses.

        >>> lens, loader = lo.lens.get("weights"), [inputs]
        >>> for inputs in loader:
        ...     with lo.watch(model, lens, batch=lo.batch(inputs, tokenizer)), torch.no_grad():
        ...         output = model(**inputs)
        >>> lens.compute()["entropy"].data.dims
        ('stack', 'layer', 'head')

    A lens is a torchmetrics metric: it accumulates over batches, resets, merges and syncs like any other. Run one pass
    per context, on the inputs of the batch: any other is refused. Lenses on hidden states need `model(**inputs,
    output_hidden_states=True)`. If the pass fails, none of it stays in the lenses. `keep="texts"` also keeps the
    numbers of each text: `lens.text_numbers` after `compute`.
    """
    refuse_odd_keep(keep)
    _refuse(lenses, batch)
    subject = subject_of(model, batch.inputs)
    refuse_elsewhere(subject, {"the batch": batch.source.mask})
    model_inputs(subject, batch.inputs)
    for lens in lenses:
        lens.bind(subject, keep_texts=keep == "texts")
    driver = Driver(subject, lenses)
    with driver.whole():
        driver.begin(batch)
        with (
            one_pass(subject.model, batch) as outputs,
            driver.tapped(batch),
            text_states(subject.model, subject.anatomy) as states,
        ):
            yield
        driver.finish(batch, states.placed(outputs[0]))


def _refuse(lenses: tuple[Lens, ...], batch: object) -> None:
    if not isinstance(batch, Batch):
        raise UserError(f"batch must be a Batch: lo.batch(inputs, tokenizer). Got a {type(batch).__name__} instead.")
    for lens in lenses:
        if not isinstance(lens, Lens):
            raise UserError(f"lo.watch takes lenses, such as lo.lens.get('weights'). Got {type(lens).__name__}.")
        if "gradients" in lens.reads or lens.needs() or not looks(lens):
            raise UserError(
                f"The lens {lens.name!r} needs extra passes or results of other lenses: use lo.look for it, not "
                "lo.watch."
            )


_WATCHING: ContextVar[tuple[object, ...]] = ContextVar("lorgnette_own_passes", default=())
"""The watches of this thread: another thread may run the same model meanwhile."""


@contextmanager
def one_pass(model: nn.Module, batch: Batch) -> Iterator[list[ModelOutput]]:
    """Collect the output of the one pass of this context; a second pass, or one on other texts, is refused."""
    outputs, begun, this = list[ModelOutput](), 0, object()

    def before(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        nonlocal begun
        if this not in _WATCHING.get():
            return
        begun += 1
        if begun > 1:
            raise UserError(
                "lo.watch is for one pass of the model, and a second one began: give each its own context. For a text "
                "that is generated: subject.trace(prompt, generate=40)."
            )
        refuse_other_texts(_given(module, arguments, keywords), batch)

    def after(module: nn.Module, arguments: object, output: ModelOutput) -> None:
        if this in _WATCHING.get():
            outputs.append(output)

    with ExitStack() as undo:
        _WATCHING.set((*_WATCHING.get(), this))
        undo.callback(lambda: _WATCHING.set(tuple(each for each in _WATCHING.get() if each is not this)))
        undo.callback(model.register_forward_pre_hook(before, with_kwargs=True).remove)
        undo.callback(model.register_forward_hook(after).remove)
        yield outputs
        if len(outputs) != 1:
            raise UserError(f"lo.watch is for one pass of the model; {len(outputs)} ran in its context.")


def _given(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object]) -> Mapping[str, object]:
    """The arguments of a pass by name."""
    try:
        return inspect.signature(module.forward).bind_partial(*arguments, **keywords).arguments
    except (TypeError, ValueError):  # the model will say itself what it cannot take
        return keywords


def refuse_other_texts(given: Mapping[str, object], batch: Batch) -> None:
    """UserError if a pass is not on the texts of this batch, padded as it is."""
    if cached(given, "input_ids") or cached(given, "decoder_input_ids"):
        raise UserError("lo.watch needs a pass over whole texts; this one goes on from past_key_values.")
    for name, side in (("input_ids", batch.source), ("decoder_input_ids", batch.target)):
        ids, known = given.get(name), batch.inputs.get(name)
        if side is None or known is None:
            continue
        like = given.get("inputs_embeds") if ids is None and name == "input_ids" else ids
        if isinstance(like, Tensor) and like.shape[:2] != known.shape[:2]:
            raise UserError(f"{name} of the pass are {_by(like)}, and those of the batch {_by(known)}: {_ADVICE}")
        if isinstance(ids, Tensor):
            others = (ids != known.to(ids.device)).any(-1).nonzero()[:, 0].tolist()
            if others:
                raise UserError(f"{name} of the pass are not those of the batch (text {others[0] + 1}): {_ADVICE}")
        if isinstance(like, Tensor):
            _refuse_other_mask(given.get(SIDES[name]), SIDES[name], side.mask)
    for name, value in given.items():
        known = None if name in SIDES.values() else batch.inputs.get(name)
        if isinstance(value, Tensor) and value.is_floating_point() and known is not None and value.shape != known.shape:
            raise UserError(f"{name} of the pass are {_by(value)}, and those of the batch {_by(known)}: {_ADVICE}")


_ADVICE = "run the model on the inputs of which lo.batch was made."


def _refuse_other_mask(mask: object, name: str, real: Tensor) -> None:
    """UserError if the pass takes other positions for padding than the batch does."""
    if mask is None and name == "attention_mask" and not bool(real.all()):
        raise UserError(f"The pass has no {name}, and the batch has padding: {_ADVICE}")
    if not isinstance(mask, Tensor) or mask.dim() != 2:  # one of more dimensions need not say what is padding
        return
    if not bool((real_tokens(mask, None, name).to(real.device) == real).all()):
        raise UserError(f"{name} of the pass is not that of the batch: {_ADVICE}")


def _by(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape))
