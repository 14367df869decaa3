"""The leaves of relevance: word vectors, or the states that enter the first layer."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import TEXT_STACKS
from lorgnette.models.classifier.embeddings import WordEmbeddings
from lorgnette.subject import Subject


def without_words(subject: Subject) -> Float[Tensor, "*model"]:
    """The vector that stands for no word: that of the mask token, of padding, or zero."""
    number = subject.tokenizer.mask_token_id
    number = subject.tokenizer.pad_token_id if number is None else number
    model = subject.model
    if number is None:
        return torch.zeros((), dtype=subject.dtype, device=subject.device)
    ids = torch.tensor([[number]], device=subject.device)
    with torch.no_grad():
        own = [module for module in model.modules() if isinstance(module, WordEmbeddings)]
        return (own[0].word_vectors(ids) if own else model.get_input_embeddings()(ids))[0, 0]


def own_words(model: nn.Module) -> bool:
    return any(isinstance(module, WordEmbeddings) for module in model.modules())


def word_tables(subject: Subject) -> list[nn.Module]:
    """The tables of word vectors: one, or one for each stack that has its own."""
    base = getattr(subject.model, "base_model", subject.model)
    if own_words(subject.model):
        return []  # <cls> has a vector of its own there: the graph begins behind the table
    tables = [subject.model.get_input_embeddings()]
    for stack in (getattr(base, name, None) for name in ("encoder", "decoder")):
        table = getattr(stack, "embed_tokens", None)
        if table is not None:
            tables.append(table)
    return tables


@contextmanager
def words_changed(subject: Subject, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Word vectors pass through `change` before the model reads them: the source's first, then the target's."""
    own = [module for module in subject.model.modules() if isinstance(module, WordEmbeddings)]
    with ExitStack() as undo:
        for module in own:
            undo.callback(module.register_forward_pre_hook(lambda m, args: (change(args[0]), *args[1:])).remove)
        for table in {id(table): table for table in word_tables(subject)}.values():
            undo.callback(table.register_forward_hook(lambda m, args, out: change(out)).remove)
        yield


@contextmanager
def states_begun(subject: Subject, states: list[Tensor]) -> Iterator[None]:
    """The states that enter the first layer of each stack begin the graph: word, position and type together."""

    def begin(x: Tensor) -> Tensor:
        states.append(x.detach().clone().requires_grad_())
        return states[-1]

    def enter(layer: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if id(layer) in entered:  # layers that share their weights (ALBERT)
            return None
        entered.add(id(layer))
        if arguments:
            return (begin(arguments[0]), *arguments[1:]), keywords
        return arguments, keywords | {"hidden_states": begin(keywords["hidden_states"])}

    entered: set[int] = set()
    own = [module for module in subject.model.modules() if isinstance(module, WordEmbeddings)]
    with ExitStack() as undo:
        for module in own:
            undo.callback(module.register_forward_hook(lambda m, args, out: begin(out)).remove)
        for stack in () if own else (one for one in subject.anatomy.stacks if one.name in TEXT_STACKS):
            undo.callback(stack.sites[0].layer.register_forward_pre_hook(enter, with_kwargs=True).remove)
        yield
