"""The sizes of a subject's vectors, measured in one tiny pass, and the hidden states in what it returns."""

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lorgnette.attending import Call, Recorder, Site
from lorgnette.errors import UserError
from lorgnette.models.discovery.events import small_batch
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.example import Example
from lorgnette.types import ModelOutput

VECTORS = ("query", "key", "value")


@dataclass(frozen=True)
class VectorSizes:
    """Heads and width of each kind of vector at each site; number and width of the hidden states of each stack."""

    vectors: dict[Site, tuple[tuple[int, int], ...]]  # (heads, dim) of query, key, value
    states: dict[str, tuple[int, int]]

    @property
    def dim(self) -> int:
        return max(dim for kinds in self.vectors.values() for _, dim in kinds)

    @property
    def width(self) -> int:
        return max(width for _, width in self.states.values())

    @staticmethod
    def of(subject: Subject) -> "VectorSizes":
        """Measure the sizes in one pass over one word, once for each model: configurations name them differently."""
        anatomy = tuple(
            (each.site, each.heads, each.groups, each.numbers, id(each.module)) for each in subject.anatomy.sites
        )
        known = _KNOWN.get(subject.model)
        if known is None or known[0] != anatomy:
            known = _KNOWN[subject.model] = anatomy, VectorSizes._seen(subject)
        return known[1]

    @staticmethod
    def _seen(subject: Subject) -> "VectorSizes":
        recorder = Recorder(_heads_and_widths, subject.text_sites)
        if subject.anatomy.sees or not subject.has_tokenizer:
            inputs = small_batch(subject.model, subject.shown)[0]
        else:
            inputs = any_text(subject).inputs
        with torch.no_grad(), subject.tapped(recorder):
            outputs = subject.forward(inputs, output_hidden_states=True, return_dict=True)
        states = {name: (len(s), s[-1].shape[-1]) for name, s in hidden_states(outputs, subject.anatomy.causal).items()}
        return VectorSizes(recorder.records, states)


_KNOWN: WeakKeyDictionary[nn.Module, tuple[object, VectorSizes]] = WeakKeyDictionary()
"""For each model in memory, its sizes and the sites that it had when they were measured."""


def _heads_and_widths(call: Call) -> tuple[tuple[int, int], ...]:
    return tuple((tensor.shape[1], tensor.shape[3]) for tensor in (call.query, call.key, call.value))


def any_text(subject: Subject) -> Batch:
    """A text of at least one token: the first that the tokenizer does not swallow."""
    words = ["a", "the", "."]
    words += [str(subject.tokenizer.decode([number])) for number in range(min(64, len(subject.tokenizer)))]
    for word in words:
        encoded = subject.tokenize(Example("shapes", word), truncate=True)
        if len(encoded.source):
            return subject.collate([encoded])
    raise UserError(f"The tokenizer of {subject.name!r} has no token for any of the {len(words)} words tried.")


def hidden_states(outputs: ModelOutput, causal: bool) -> dict[str, tuple[Tensor, ...]]:
    """Stack → its hidden states: the embeddings, then the output of every layer."""
    out = {}
    for stack in ("encoder", "decoder"):
        states = getattr(outputs, f"{stack}_hidden_states", None)
        if states is not None:
            out[stack] = tuple(states)
    alone = getattr(outputs, "hidden_states", None)
    if not out and alone is not None:
        out["decoder" if causal else "encoder"] = tuple(alone)
    if not out:
        raise UserError(f"The model returns no hidden states ({type(outputs).__name__}), which geometry needs.")
    return out


def sides(batch: Batch, states: dict[str, tuple[Tensor, ...]]) -> Iterator[tuple[str, Tokens, tuple[Tensor, ...]]]:
    """Stack, the tokens that its states belong to, and the states."""
    for stack, some in states.items():
        yield stack, batch.target if stack == "decoder" and batch.target is not None else batch.source, some
