"""The hidden states of texts, where a model of pictures and text returns those of its pictures, or none."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from lorgnette.attending.call import TEXT_STACKS
from lorgnette.models.anatomy import Anatomy
from lorgnette.types import ModelOutput


class TextStates:
    """What the modules around each stack of texts returned as its hidden states, embeddings first."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Tensor, ...]] = {}

    def placed(self, output: ModelOutput) -> ModelOutput:
        """A copy of the whole model's output with these states: those of two stacks under the names of both."""
        if not self.found or getattr(output, "decoder_hidden_states", None) is not None:
            return output
        placed = copy.copy(output)
        for stack, states in self.found.items():
            placed["hidden_states" if len(self.found) == 1 else f"{stack}_hidden_states"] = states
        return placed


@contextmanager
def text_states(model: nn.Module, anatomy: Anatomy) -> Iterator[TextStates]:
    """Keep the hidden states of every stack of texts of a model that sees pictures too, asked for in this context."""
    states = TextStates()
    with ExitStack() as undo:
        for stack in anatomy.stacks if anatomy.sees else ():
            if stack.name in TEXT_STACKS:

                def keep(module: nn.Module, arguments: object, output: object, name: str = stack.name) -> None:
                    own = getattr(output, "hidden_states", None)
                    if own is not None:  # the innermost returns first
                        states.found.setdefault(name, own)

                for module in _around(model, stack.module):
                    undo.callback(module.register_forward_hook(keep).remove)
        yield states


def _around(model: nn.Module, stack: nn.Module) -> list[nn.Module]:
    """The modules that a stack is part of, without the whole model."""
    path = next((path for path, module in model.named_modules() if module is stack), "")
    parts = path.split(".") if path else []
    return [model.get_submodule(".".join(parts[:depth])) for depth in range(len(parts), 0, -1)]
