"""Value Zeroing: how far each token's new vector moves if nothing can be read from another token (or from itself).

C_ij = 1 − cos(x̃_i^{¬j}, x̃_i), where x̃ is the output of the whole layer and x̃^{¬j} that with the value of token j set to
zero (or to the mean over a corpus: docs/gauge.md); weights stay as they are. Mohebbi et al. 2023, "Quantifying Context
Mixing in Transformers", EACL. The layer is really run again, once per token.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import ACTIVE, Arrival, Call, Site, Tap
from lorgnette.contributions.mixing import cosine_distance, off_diagonal_share
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.switching import switched
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

LayerInput = tuple[tuple[object, ...], dict[str, object]]


Constants = Mapping[Site, Float[Tensor, "head dim"]]


def value_zeroing(
    subject: Subject, batch: Batch, constants: Constants | None = None
) -> Iterator[tuple[Site, Float[Tensor, "text token"]]]:
    """For every self-attention, the share of C_ij from other tokens; costs one pass more, and n runs of each layer."""
    for site, distances in zeroing_distances(subject, batch, constants):
        yield site, off_diagonal_share(distances)


def zeroing_distances(
    subject: Subject, batch: Batch, constants: Constants | None = None
) -> Iterator[tuple[Site, Float[Tensor, "text token token"]]]:
    """C_ij of every self-attention, in the order of the passes; zero for a padded j. `constants` replace values."""
    inputs = _layer_inputs(subject, batch)
    with torch.no_grad(), switched(subject.model.modules(), subject.anatomy):
        for attention, (arguments, keywords) in zip(_layers(subject), inputs, strict=True):
            site = attention.site
            mask = batch.queries(site).mask
            zero = _Zero(attention.module, site, None if constants is None else constants[site])
            whole = _output(attention.layer, arguments, keywords, zero)
            columns = []
            for token in range(mask.shape[1]):
                zero.token = token
                distance = cosine_distance(_output(attention.layer, arguments, keywords, zero), whole)
                columns.append(distance.masked_fill(~mask[:, token, None], 0.0))  # padding contributes nothing
            yield site, torch.stack(columns, -1)


def _layers(subject: Subject) -> list[AttentionSite]:
    """The self-attention sites in the order of their passes."""
    read = set(subject.text_sites)
    stacks = subject.anatomy.stacks
    return [site for stack in stacks for site in stack.sites if site.site.kind == "self" and site.site in read]


def _layer_inputs(subject: Subject, batch: Batch) -> list[LayerInput]:
    """The arguments of each layer's call; layers that share a module are told apart by their order."""
    inputs: list[LayerInput] = []

    def keep(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        inputs.append((arguments, keywords))

    caches = any(
        hasattr(config, "use_cache") for config in (subject.model.config, subject.model.config.get_text_config())
    )
    options = {"use_cache": False} if caches else {}
    with ExitStack() as undo:
        for layer in {id(site.layer): site.layer for site in _layers(subject)}.values():
            undo.callback(layer.register_forward_pre_hook(keep, with_kwargs=True).remove)
        undo.enter_context(torch.no_grad())
        undo.enter_context(subject.tapped(Tap()))
        subject.run(batch, **options)
    return inputs


class _Zero(Tap):
    """Runs one layer outside its stack, watches its attention, and removes one token's value from the context."""

    def __init__(self, module: nn.Module, site: Site, constant: Float[Tensor, "head dim"] | None = None) -> None:
        self.module, self.site, self.constant, self.token = module, site, constant, -1

    @property
    def taps(self) -> Sequence[Tap]:
        return (self,)

    def contains(self, module: nn.Module) -> bool:
        return module is self.module

    def arrive(self, module: nn.Module) -> Arrival:
        return Arrival(self.site)

    def context(self, call: Call, context: Tensor) -> Tensor:
        if self.token < 0:
            return context
        value = call.value.clone()
        value[:, :, self.token] = 0.0 if self.constant is None else self.constant[:, : value.shape[-1]].to(value)
        return call.weights.to(value.dtype) @ value


@contextmanager
def _heard(zero: _Zero) -> Iterator[None]:
    token = ACTIVE.set((*ACTIVE.get(), zero))
    try:
        yield
    finally:
        ACTIVE.reset(token)


def _output(layer: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object], zero: _Zero) -> Tensor:
    with _heard(zero):
        output = layer(*arguments, **keywords)
    # 1 − cos of nearly equal vectors needs all the digits there are.
    return (output[0] if isinstance(output, tuple) else output).double()
