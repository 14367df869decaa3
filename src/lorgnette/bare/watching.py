"""`lo.watch`: lenses on passes that you run yourself."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from lorgnette.bare.inputs import model_inputs, refuse_elsewhere
from lorgnette.bare.interventions import Model
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.passes import Looking
from lorgnette.models.tapping import tapped
from lorgnette.subject import subject_of
from lorgnette.texts.batch import Batch


@contextmanager
def watch(model: Model, *lenses: Lens, batch: Batch) -> Iterator[None]:
    """Feed the forward pass that you run in this context, on this batch, to lenses.

        >>> lens, loader = lo.lens.get("weights"), [inputs]
        >>> for inputs in loader:
        ...     with lo.watch(model, lens, batch=lo.batch(inputs, tokenizer)), torch.no_grad():
        ...         output = model(**inputs)
        >>> lens.compute()["entropy"].data.dims
        ('stack', 'layer', 'head')

    A lens is a torchmetrics metric: it accumulates over batches, resets, merges and syncs like any other. Run one pass
    per context. Lenses on hidden states need `model(**inputs, output_hidden_states=True)`.
    """
    subject = subject_of(model)
    _refuse(lenses, batch)
    refuse_elsewhere(subject, {"the batch": batch.source.mask})
    model_inputs(subject, batch.inputs)
    for lens in lenses:
        lens.bind(subject)
    outputs: list[Any] = []
    with ExitStack() as undo:
        hook = subject.model.register_forward_hook(lambda module, arguments, output: outputs.append(output))
        undo.callback(hook.remove)
        own = [tap for lens in lenses for tap in lens.taps(batch)]
        with tapped(subject, *own, Looking(lenses, batch)):
            yield
    if len(outputs) != 1:
        raise UserError(f"lo.watch is for one pass of the model; {len(outputs)} ran in its context.")
    for lens in lenses:
        lens.take_outputs(batch, outputs[0])
        lens.finish(batch, outputs[0])
        lens.commit()
        lens.committed()


def _refuse(lenses: tuple[Lens, ...], batch: object) -> None:
    if not isinstance(batch, Batch):
        raise UserError(f"batch must be a Batch: lo.batch(inputs, tokenizer). Got a {type(batch).__name__} instead.")
    for lens in lenses:
        if not isinstance(lens, Lens):
            raise UserError(f"lo.watch takes lenses, such as lo.lens.get('weights'). Got {type(lens).__name__}.")
        if lens.wants_gradients or lens.needs() or not lens.looks:
            raise UserError(
                f"The lens {lens.name!r} needs extra passes or results of other lenses: use lo.look for it, not "
                "lo.watch."
            )
