"""The logits of the answers alone: if the model ends in an output layer, no pass needs its whole vocabulary."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.lens.effects.goal import Goal
from lorgnette.models.switching import run_as
from lorgnette.subject import Subject


class OutputLayer:
    """Watches the model's output layer during a pass, to see whether the logits are its output unchanged."""

    def __init__(self, subject: Subject) -> None:
        found = getattr(subject.model, "get_output_embeddings", lambda: None)()
        here = type(found) is nn.Linear and not found.weight.is_meta  # what is offloaded comes only for its own pass
        self.layer: nn.Linear | None = found if here else None
        self.given: Tensor | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        def keep(module: nn.Module, arguments: object, output: Tensor) -> None:
            self.given = output

        if self.layer is None:
            yield
            return
        hook = self.layer.register_forward_hook(keep)
        try:
            yield
        finally:
            hook.remove()

    def answers(self, logits: Tensor, goal: Goal) -> "Answers | None":
        """None if the model changes the logits after this layer, or if the layer sees other positions."""
        given, self.given = self.given, None
        if self.layer is None or given is not logits or logits.shape[:-1] != goal.answer.shape:
            return None
        return Answers(self.layer, goal)


@dataclass(frozen=True)
class Answers:
    """An output layer that computes only two logits at each position: those of the goal's two tokens."""

    layer: nn.Linear
    goal: Goal

    @property
    def narrow(self) -> Goal:
        """The same goal for these two texts."""
        first = torch.zeros_like(self.goal.answer)
        return Goal(first, None if self.goal.other is None else first + 1, self.goal.weight)

    @contextmanager
    def only(self) -> Iterator[None]:
        """Inside, the layer gives ⟨h, w_answer⟩ + b_answer and ⟨h, w_other⟩ + b_other for every copy of the batch."""
        other = self.goal.answer if self.goal.other is None else self.goal.other
        ids = torch.stack([self.goal.answer, other], -1)
        rows, bias = self.layer.weight.detach()[ids], self.layer.bias

        def forward(states: Float[Tensor, "copies token dim"]) -> Float[Tensor, "copies token 2"]:
            copies = states.unflatten(0, (-1, len(ids)))
            logits = (rows @ copies[..., None])[..., 0]
            return (logits if bias is None else logits + bias.detach()[ids]).flatten(0, 1)

        undo = run_as(self.layer, forward)
        try:
            yield
        finally:
            undo()
