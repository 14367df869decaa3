"""`lo.watch`: lenses on passes that you run yourself."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from lorgnette.bare.attention import refuse_elsewhere
from lorgnette.bare.batch import refuse_unmasked
from lorgnette.bare.interventions import Model
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.passes import Looking
from lorgnette.models.tapping import tapped
from lorgnette.subject import Subject
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
    subject = model if isinstance(model, Subject) else Subject(model, None)
    _refuse(lenses)
    refuse_elsewhere(subject, {**batch.inputs, "the batch": batch.source.mask})
    config = subject.model.config
    refuse_unmasked(batch.inputs, getattr(config, "pad_token_id", None), getattr(config, "eos_token_id", None))
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


def _refuse(lenses: tuple[Lens, ...]) -> None:
    for lens in lenses:
        if not isinstance(lens, Lens):
            raise UserError(f"lo.watch takes lenses, such as lo.lens.get('weights'). Got {type(lens).__name__}.")
        if lens.wants_gradients or lens.needs() or not lens.looks:
            raise UserError(
                f"The lens {lens.name!r} needs extra passes or results of other lenses: use lo.look for it, not "
                "lo.watch."
            )
