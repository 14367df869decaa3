"""What a model makes of any state of its residual stream: its own final norm and output head, and nothing else of it.

The model itself runs, with its layers replaced by one that gives the state: whatever stands behind the last layer (a
norm, a transform, a scale, a bias, a cap of the logits) is applied as the model applies it, whatever its family.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lorgnette.errors import CaptureError
from lorgnette.explaining.backward import run_options
from lorgnette.explaining.target import require_head
from lorgnette.models.anatomy import LayerStack
from lorgnette.models.linear import TOLERANCE
from lorgnette.models.switching import evaluating, run_as
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.patches import pictured_in
from lorgnette.types import ModelOutput

MOST = 2**25
"""Logits that are in memory at a time, beside those of the model's own pass."""


@dataclass(frozen=True)
class Predictions:
    """Where a batch is read, packed: each text's positions stand in front, and texts with fewer are filled up."""

    where: Int[Tensor, "text place"]
    known: Bool[Tensor, "text place"]
    """False where a text has no further position"""

    @staticmethod
    def at(mask: Bool[Tensor, "text token"]) -> "Predictions":
        """The positions that a mask names."""
        places = int(mask.sum(-1).max()) if mask.numel() else 0
        order = (~mask).to(torch.uint8).argsort(dim=-1, stable=True)[:, :places]
        return Predictions(order, mask.gather(1, order))

    def of(self, tokens: Tensor) -> Tensor:
        """[text token …] → [text place …]"""
        return tokens[torch.arange(len(tokens), device=tokens.device)[:, None], self.where]

    def parts(self, vocabulary: int) -> "Iterator[Predictions]":
        """The same places, so many at a time that their logits fit into memory."""
        step = max(1, MOST // max(1, vocabulary * len(self.where)))
        for start in range(0, self.where.shape[1], step):
            part = slice(start, start + step)
            yield Predictions(self.where[:, part], self.known[:, part])


@dataclass(frozen=True)
class ReadStates:
    """The states of one pass, before the first layer and behind each, and what the model returned."""

    states: tuple[Float[Tensor, "text token model"], ...]
    outputs: ModelOutput


class OutputHead:
    """What follows the last layer of the stack that predicts. A model for which it is not exact is refused.

    >>> head = OutputHead(subject)
    >>> read = head.read(batch)
    >>> torch.equal(head.logits(batch, read.states[-1]), read.outputs.logits)
    True
    """

    def __init__(self, subject: Subject) -> None:
        require_head(subject)
        self.subject = subject
        if subject.labels is not None:
            raise self._refused("it gives the logits of classes, not of tokens. Give a language or translation model")
        self.stack: LayerStack = next((s for s in subject.anatomy.stacks if s.name == "decoder"), _only(subject))
        self.layers: tuple[nn.Module, ...] = _layers(self.stack)
        self.calls: int = _calls(self.stack, self.layers)
        """how many layers a pass goes through; modules may serve several (ALBERT)"""
        self._more: int | None = None
        """what layers return behind their state (weights, a position bias); None: they return no tuple"""

    def read(self, batch: Batch) -> ReadStates:
        """Run a batch and keep the state before the first layer and behind every one."""
        with self.recorded() as states:
            outputs = self.subject.run(batch, **run_options(self.subject))
        return self.complete(states, outputs)

    def complete(self, states: Sequence[Tensor], outputs: ModelOutput) -> ReadStates:
        """The recorded states, after checking that all are there."""
        if len(states) != self.calls + 1:
            raise self._refused(f"{len(states) - 1} layers were run where {self.calls} were expected")
        logits = outputs.logits
        if any(state.shape[:-1] != logits.shape[:-1] for state in states):
            raise self._refused(f"its states are of shape {tuple(states[-1].shape)}, its logits {tuple(logits.shape)}")
        return ReadStates(tuple(states), outputs)

    @contextmanager
    def recorded(self) -> Iterator[list[Tensor]]:
        """Inside, a pass fills the list with its states."""
        states: list[Tensor] = []

        def keep(state: object) -> None:
            assert isinstance(state, Tensor)
            states.append(state)

        def before(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
            if not states:
                keep(arguments[0] if arguments else keywords["hidden_states"])

        def behind(module: nn.Module, arguments: object, output: object) -> None:
            self._more = len(output) - 1 if isinstance(output, tuple) else None
            keep(output[0] if isinstance(output, tuple) else output)

        with ExitStack() as undo:
            for layer in {id(layer): layer for layer in self.layers}.values():
                undo.callback(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
                undo.callback(layer.register_forward_hook(behind).remove)
            yield states

    def logits(self, batch: Batch, state: Float[Tensor, "text place model"]) -> Float[Tensor, "text place vocabulary"]:
        """What the model would say if its last layer gave this state; at no more places than the batch has tokens.

        `read` must have run before: it has seen in which form layers hand on their output.
        """
        given = state if self._more is None else (state, *[None] * self._more)
        inputs = self._inputs(batch, state.shape[1])
        with evaluating(self.subject.model), ExitStack() as undo:
            for layer in {id(layer): layer for layer in self.layers}.values():
                undo.callback(run_as(layer, lambda *arguments, **keywords: given))
            logits: Tensor = self.subject.model(**inputs, **run_options(self.subject)).logits
        return logits

    def check(self, batch: Batch) -> None:
        """Refuse the model unless its last state gives its logits, to the last bit."""
        with torch.no_grad():
            read = self.read(batch)
            self.compare(self.logits(batch, read.states[-1]), read.outputs.logits, exactly=True)

    def compare(self, found: Tensor, logits: Tensor, *, exactly: bool = False) -> None:
        """Refuse the model if these are not its logits; packed, sums may be rounded otherwise."""
        if found.shape != logits.shape:
            raise self._refused(f"the output head gives {tuple(found.shape)} logits of {tuple(logits.shape)}")
        apart = (found.double() - logits.double()).abs()
        size = logits.double().abs().amax(-1, keepdim=True)
        allowed = 0.0 if exactly else TOLERANCE[logits.dtype]
        if not bool((apart <= allowed * size).all()):
            raise self._refused(
                f"its last state gives other logits than the model (by up to {float(apart.max()):.3g}), so something "
                "else than a norm and an output head follows the last layer"
            )

    def _inputs(self, batch: Batch, places: int) -> dict[str, Tensor]:
        """Any tokens in the right number: the embeddings run, but no layer reads them. An encoder reads one token."""
        translates = batch.target is not None
        pictured = pictured_in(batch.source.ids, self.subject.model.config)
        if pictured:  # words in the place of patches, so that no pixels are needed
            places_of_pictures = torch.stack(list(pictured.values())).any(0)
            word = batch.source.ids[~places_of_pictures][0]
            ids = batch.source.ids.masked_fill(places_of_pictures, int(word))
            given = {"input_ids": ids, "attention_mask": batch.source.mask.long()}
        else:
            given = batch.inputs
        inputs = {}
        for name, tensor in given.items():
            size = 1 if translates and not name.startswith("decoder") else places
            short = tensor[:, :size] if tensor.dim() > 1 else tensor
            inputs[name] = torch.ones_like(short) if name.endswith("attention_mask") else short
        return inputs

    def _refused(self, why: str) -> CaptureError:
        return CaptureError(
            f"The output head of {self.subject.name!r} ({type(self.subject.model).__name__}) cannot be run by itself: "
            f"{why}."
        )


def _only(subject: Subject) -> LayerStack:
    return next(stack for stack in subject.anatomy.stacks if stack.name != "pooler")


def _layers(stack: LayerStack) -> tuple[nn.Module, ...]:
    """The layers of a stack in order: the list that holds all that attend, others too (Mamba's, in a hybrid)."""
    attending = {id(site.layer): site.layer for site in stack.sites}
    for module in stack.module.modules():
        if isinstance(module, nn.ModuleList) and set(attending) <= {id(layer) for layer in module}:
            return tuple(module)
    return tuple(attending.values())


def _calls(stack: LayerStack, layers: Sequence[nn.Module]) -> int:
    """Layers that share a module are counted by their sites."""
    attending = {id(site.layer) for site in stack.sites}
    return len({site.site.layer for site in stack.sites}) + sum(id(layer) not in attending for layer in layers)
