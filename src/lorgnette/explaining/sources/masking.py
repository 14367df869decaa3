"""How likely an answer is when parts of the prompt are hidden: copies of the text run together, from a shared cache."""

import inspect
import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from lorgnette.attending import Call, Tap
from lorgnette.explaining.sources.parts import AnsweredPrompt
from lorgnette.kernels import Room
from lorgnette.subject import Subject

TOGETHER = Room(2**12, 2**16)
"""Copies of a text run together up to so many tokens."""


class HiddenParts(Tap):
    """Hides, in each copy of a text, the keys of some parts from every query that is not in the same part.

    The scores of hidden keys are −∞ at every head of every layer; positions stay as they are. The tokens of a hidden
    part still attend to each other, which nobody else can read.
    """

    def __init__(self, hidden: Bool[Tensor, "copy token"], part: Int[Tensor, " token"]) -> None:
        self.hidden, self.part = hidden, part
        self.behind = 0
        """how many tokens have been read when a pass is over"""

    def scores(self, call: Call, scores: Float[Tensor, "copy head query key"]) -> Float[Tensor, "copy head query key"]:
        queries, keys = scores.shape[2:]
        seeing, seen = (slice(self.behind - count, self.behind) for count in (queries, keys))
        return scores.masked_fill(blocked(self.hidden, self.part, seeing, seen)[:, None], -torch.inf)


def blocked(
    hidden: Bool[Tensor, "copy token"], part: Int[Tensor, " token"], queries: slice, keys: slice
) -> Bool[Tensor, "copy query key"]:
    """Which queries cannot see which keys: those of a hidden part, for whoever is not in it."""
    outside = part[queries, None] != part[None, keys]
    return hidden[:, None, keys] & outside


class Likelihood:
    """The log-probability of the answer of one text, with parts of its prompt hidden.

    The first pass keeps keys and values. What no hidden part can have changed (all that comes before the first token
    that would read one) is taken from there; models with caches of another kind are run from the start.
    """

    def __init__(self, subject: Subject, prompt: AnsweredPrompt) -> None:
        self.subject, self.prompt = subject, prompt
        self.length: int = prompt.ids.shape[1] - 1  # the answer's last token is predicted, never read
        self.cache: DynamicCache | None = None
        keeps = "logits_to_keep" in inspect.signature(subject.model.forward).parameters
        self.options: dict[str, object] = {"return_dict": True}
        self.options |= {"logits_to_keep": len(prompt.answer)} if keeps else {}

    def whole(self, *taps: Tap) -> float:
        """log P(answer | prompt), with these taps looking on."""
        with torch.no_grad(), self.subject.tapped(*taps):
            output = self.subject.model(
                input_ids=self.prompt.ids[:, : self.length],
                attention_mask=torch.ones_like(self.prompt.ids[:, : self.length]),
                use_cache=True,
                **self.options,
            )
        self.cache = _shareable(getattr(output, "past_key_values", None))
        return float(self._said(output.logits))

    def without(
        self, hidden: Bool[Tensor, "copy part"], advance: Callable[[int, int], None] = lambda copies, tokens: None
    ) -> Float[Tensor, " copy"]:
        """log P(answer | prompt) with some parts hidden in each copy; `advance` is told of those that are done."""
        if not len(hidden):
            return torch.zeros(0, dtype=torch.float64)
        masks = self.prompt.masks[:, : self.length]
        tokens = (hidden.to(masks.device)[:, :, None] & masks).any(1)
        starts = [self._unchanged(row) for row in tokens]
        order = sorted(range(len(starts)), key=starts.__getitem__)  # copies that share most of the text run together
        out = torch.zeros(len(hidden), dtype=torch.float64)
        for some in self._batches([(number, starts[number]) for number in order]):
            first = min(starts[number] for number in some)
            out[some] = self._run(tokens[some], first).cpu()
            advance(len(some), len(some) * (self.length - first))
        return out

    def copies_together(self, start: int) -> int:
        return max(1, TOGETHER.on(self.prompt.ids.device) // (self.length - start))

    def _batches(self, copies: list[tuple[int, int]]) -> Iterator[list[int]]:
        while copies:
            count = self.copies_together(copies[0][1])
            some, copies = copies[:count], copies[count:]
            yield [number for number, _ in some]

    def _unchanged(self, hidden: Bool[Tensor, " token"]) -> int:
        """How many tokens at the beginning read nothing that is hidden; at least one, which asks, is read again."""
        if self.cache is None:
            return 0
        read = blocked(hidden[None], self.prompt.part[: self.length], slice(None), slice(None))[0].tril().any(-1)
        first = int(read.int().argmax()) if bool(read.any()) else self.length
        return min(first, self.prompt.answer.start - 1)

    def _run(self, hidden: Bool[Tensor, "copy token"], start: int) -> Float[Tensor, " copy"]:
        copies, tap = len(hidden), HiddenParts(hidden, self.prompt.part[: self.length])
        tap.behind = self.length
        more: dict[str, object] = {"use_cache": False}
        if start and self.cache is not None:
            more = {"use_cache": True, "past_key_values": _beginning(self.cache, start, copies)}
        with torch.no_grad(), self.subject.tapped(tap):
            output = self.subject.model(
                input_ids=self.prompt.ids[:, start : self.length].expand(copies, -1),
                attention_mask=torch.ones(copies, self.length, dtype=torch.long, device=hidden.device),
                **more,
                **self.options,
            )
        return self._said(output.logits)

    def _said(self, logits: Float[Tensor, "copy token word"]) -> Float[Tensor, " copy"]:
        answer = self.prompt.ids[0, self.prompt.answer.start :]
        rows = logits[:, -len(answer) :].double().log_softmax(-1)
        said = rows.gather(-1, answer[None, :, None].expand(len(rows), -1, 1))
        return said[..., 0].sum(-1)


def _shareable(cache: object) -> DynamicCache | None:
    """A cache that holds all keys of every layer, in order; None for a window, or anything else."""
    if not isinstance(cache, DynamicCache) or type(cache) is not DynamicCache:
        return None
    return cache if all(type(layer) is DynamicLayer for layer in cache.layers) else None


def _beginning(cache: DynamicCache, tokens: int, copies: int) -> DynamicCache:
    """The first tokens of a cache, once for each copy."""
    out = DynamicCache()
    for number, layer in enumerate(cache.layers):
        keys, values = (each[:, :, :tokens].expand(copies, -1, -1, -1) for each in (layer.keys, layer.values))
        out.update(keys, values, number)
    return out


def passes(tokens: int, copies: int) -> int:
    """How many passes so many copies of a text take at most."""
    return math.ceil(copies / max(1, TOGETHER.cpu // tokens))
