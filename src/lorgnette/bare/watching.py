"""`lo.watch`: lenses on passes that you run yourself."""

from collections.abc import Iterator
from contextlib import contextmanager

from lorgnette.bare.inputs import model_inputs, refuse_elsewhere
from lorgnette.bare.interventions import Model
from lorgnette.bare.own_pass import one_pass
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.driver import Driver, looks, refuse_odd_keep
from lorgnette.models.text_states import text_states
from lorgnette.subject import subject_of
from lorgnette.texts.batch import Batch


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
