"""Some examples as the model will see them: token ids, masks and word maps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from lorgnette.display import Facts
from lorgnette.texts.batch_words import Occurrences, WordPieces
from lorgnette.texts.example import Example
from lorgnette.texts.readable import readable, readable_piece
from lorgnette.texts.sides import WordSpans
from lorgnette.texts.token_kinds import CATEGORIES

ON_THE_CPU = ("words", "word_spans", "pieces", "word_pieces", "occurrences")
"""What tokens keep when they are moved, since it stays where it is."""


@runtime_checkable
class Where(Protocol):
    """The part of an attention site that says which side of a batch asks and which is read."""

    @property
    def stack(self) -> str: ...

    @property
    def kind(self) -> str: ...


def spans(word: Int[Tensor, " token"]) -> Int[Tensor, " token"]:
    """Number the words of one text, giving every special token (word −1) a number of its own, in order of position."""
    new = torch.ones_like(word, dtype=torch.bool)
    new[1:] = (word[1:] != word[:-1]) | (word[1:] < 0)
    return new.cumsum(0) - 1


@dataclass(frozen=True)
class Units:
    """The words of one text, with every special token as a word of its own."""

    labels: tuple[str, ...]
    index: tuple[int, ...]  # of the word in the text; -1 for a special token
    number: Int[Tensor, " token"]  # the unit of each piece


@dataclass(frozen=True)
class Tokens:
    """One side of a batch: the source, or the target of a translation."""

    ids: Int[Tensor, "batch token"]
    mask: Bool[Tensor, "batch token"]  # True where there is a real token (never padding)
    special: Bool[Tensor, "batch token"]  # [CLS], [SEP], </s> …
    word: Int[Tensor, "batch token"]  # index of the word the piece belongs to; -1 for special and padding
    pieces: tuple[tuple[str, ...], ...]  # the pieces as text, unpadded
    words: tuple[tuple[str, ...], ...]  # the words as text
    categories: Mapping[str, Bool[Tensor, "batch token"]]
    """cls, sep, punctuation, period_comma, other, first, last, and the named parts of the texts: user, template, …"""

    @staticmethod
    def later(
        ids: Tensor,
        mask: Tensor,
        special: Tensor,
        categories: Mapping[str, Tensor],
        rest: Mapping[str, Callable[[], object]],
    ) -> "Tokens":
        """Tokens whose `word`, `words` and `pieces` are made by these functions when they are first asked for."""
        tokens = object.__new__(Tokens)
        vars(tokens).update(ids=ids, mask=mask, special=special, categories=categories, _later=rest)
        return tokens

    def __getattr__(self, name: str) -> Any:
        """Asked only for what is not there yet."""
        make = vars(self).get("_later", {}).get(name)
        if make is None:
            raise AttributeError(name)
        made = make()
        vars(self)[name] = made.to(self.ids.device) if isinstance(made, Tensor) else made
        return vars(self)[name]

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Real tokens of each text, specials included."""
        return self.mask.sum(dim=-1)

    @cached_property
    def sinks(self) -> Bool[Tensor, "batch token"]:
        """Special tokens; in a text without any, the first token, where such models put what they have no use for."""
        special = self.special & self.mask
        return special | (~special.any(-1, keepdim=True) & self.categories["first"])

    @cached_property
    def ordinary(self) -> Bool[Tensor, "batch token"]:
        """Tokens that are no specials, nor padding."""
        return self.mask & ~self.special

    @cached_property
    def word_spans(self) -> tuple[WordSpans, ...]:
        """The words as places in their texts."""
        make = vars(self).get("_later", {}).get("word_spans")
        return tuple(map(WordSpans.of, self.words)) if make is None else make()

    @cached_property
    def word_pieces(self) -> WordPieces:
        """Which tokens each word is made of: on the CPU, wherever the tokens are."""
        return WordPieces.of(self.on_host.word.numpy(), self.word_spans)

    @cached_property
    def occurrences(self) -> Occurrences:
        """Every word that is not punctuation; likewise."""
        return Occurrences.of(self.word_pieces, self.word_spans)

    def kinds(self, names: Sequence[str] = CATEGORIES) -> Bool[Tensor, "batch token kind"]:
        """Which tokens are of these kinds; a part that no text of the batch has is nowhere."""
        made: dict[tuple[str, ...], Tensor] = self.__dict__.setdefault("_kinds", {})
        if tuple(names) not in made:
            none = torch.zeros_like(self.mask)
            made[tuple(names)] = torch.stack([self.categories.get(name, none) & self.mask for name in names], -1)
        return made[tuple(names)]

    def as_numbers(self, dtype: torch.dtype) -> Shaped[Tensor, "batch token"]:
        """1 for a real token, 0 for padding; made once."""
        return self._numbers("mask", self.mask, dtype)

    def kinds_as_numbers(self, names: Sequence[str], dtype: torch.dtype) -> Shaped[Tensor, "batch token kind"]:
        """`kinds` as 1 and 0; made once."""
        return self._numbers(tuple(names), self.kinds(names), dtype)

    def _numbers(self, name: object, flags: Tensor, dtype: torch.dtype) -> Tensor:
        made: dict[tuple[object, torch.dtype], Tensor] = self.__dict__.setdefault("_made_numbers", {})
        if (name, dtype) not in made:
            made[name, dtype] = flags.to(dtype)
        return made[name, dtype]

    def part_names(self, text: int = 0) -> list[str] | None:
        """The named part of each token of a text, "" where it has none; None for a text without parts."""
        own = {name: mask[text] for name, mask in self.categories.items() if name not in CATEGORIES}
        if not any(bool(mask.any()) for mask in own.values()):
            return None
        places = self.mask[text].nonzero()[:, 0].tolist()
        return [next((name for name, mask in own.items() if mask[place]), "") for place in places]

    def units(self, text: int = 0) -> Units:
        """The words of one text, special tokens among them, and which of them each piece belongs to."""
        pieces, word = self.pieces[text], self.word[text][self.mask[text]]
        number = spans(word)
        first = {unit: place for place, unit in reversed(list(enumerate(number.tolist())))}
        index = tuple(int(word[first[unit]]) for unit in range(len(first)))
        named = (self.words[text][own] if own >= 0 else "" for own in index)
        # Neither a special token nor one of white space has letters: its token names it.
        labels = (name or readable_piece(pieces[first[unit]]) for unit, name in enumerate(named))
        return Units(tuple(labels), index, number)

    def word_labels(self, text: int = 0) -> tuple[str, ...]:
        """The words of one text as a person can read them; those that the model does not see keep their letters."""
        units = self.units(text)
        seen = dict(zip(units.index, units.labels, strict=True))
        return tuple(readable(seen.get(number, word)) for number, word in enumerate(self.words[text]))

    def shown(self, text: int = 0) -> tuple[str, ...]:
        """The tokens of one text as a person can read them."""
        return tuple(map(readable_piece, self.pieces[text]))

    def to(self, device: torch.device | str) -> "Tokens":
        return self.changed(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))

    @property
    def on_host(self) -> "Tokens":
        """The same on the CPU: as it was before it was moved, so that nobody waits for a GPU."""
        if self.ids.device.type == "cpu":
            return self
        if "_host" not in vars(self):
            vars(self)["_host"] = self.to("cpu")
        return vars(self)["_host"]

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Tokens":
        """The same with every tensor changed: moved, say."""
        if "_later" in vars(self):
            categories = {name: change(where) for name, where in self.categories.items()}
            rest, made = vars(self)["_later"], vars(self)
            tokens = Tokens.later(change(self.ids), change(self.mask), change(self.special), categories, rest)
            vars(tokens).update({name: made[name] for name in ON_THE_CPU if name in made})
            vars(tokens).update({"word": change(self.word)} if "word" in made else {})
            return tokens
        return replace(
            self,
            ids=change(self.ids),
            mask=change(self.mask),
            special=change(self.special),
            word=change(self.word),
            categories={name: change(where) for name, where in self.categories.items()},
        )


@dataclass(frozen=True)
class Batch(Facts):
    """Examples with their tokens. `subject.encode` makes a batch from texts, `lo.batch` from tensors.

    >>> batch = subject.encode(texts)
    >>> batch.source.pieces[1][:4], batch.inputs["input_ids"].shape
    (('[CLS]', 'a', 'dog', 'ran'), torch.Size([2, 11]))
    """

    inputs: dict[str, Tensor]  # goes to model(**inputs)
    source: Tokens
    target: Tokens | None  # decoder side of a translation model
    examples: tuple[Example, ...]

    def __len__(self) -> int:
        return len(self.examples)

    def facts(self) -> dict[str, object]:
        """Each text as its first pieces."""
        shown = zip(self.examples, self.source.pieces, strict=True)
        texts = {example.id: " ".join(map(readable_piece, pieces)) for example, pieces in islice(shown, 8)}
        return {"texts": len(self), "tokens": int(self.lengths.sum()), **texts}

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """The number of tokens of each source text, special tokens included, padding excluded."""
        return self.source.lengths

    @property
    def padded(self) -> bool | None:
        """Whether `attention_mask` hides anything; None if only a GPU knows."""
        mask = self.inputs.get("attention_mask")
        known = vars(self).get("_padded")
        if known is not None and known[0] is mask:  # as it was before it was moved, and no other since
            return known[1]
        return None if mask is None or mask.is_cuda else not bool(mask.all())

    def queries(self, site: Where) -> Tokens:
        """The tokens on the query side of this site."""
        if site.stack == "pooler":
            return _one_question(self.source)
        # A decoder-only model has a decoder stack but no target: its one text is the source.
        return self.target if site.stack == "decoder" and self.target is not None else self.source

    def keys(self, site: Where) -> Tokens:
        """The tokens on the key side of this site."""
        return self.source if site.kind == "cross" else self.queries(site)

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        moved = self._changed(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))
        for side, host in ((moved.source, self.source), (moved.target, self.target)):
            if side is not None and host is not None and host.ids.device.type == "cpu":
                vars(side)["_host"] = host
        vars(moved)["_padded"] = moved.inputs.get("attention_mask"), self.padded
        return moved

    def pinned(self) -> "Batch":
        """The same batch in pinned memory."""
        return self._changed(Tensor.pin_memory)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        inputs = {name: change(tensor) for name, tensor in self.inputs.items()}
        target = None if self.target is None else self.target.changed(change)
        return replace(self, inputs=inputs, source=self.source.changed(change), target=target)


def _one_question(tokens: Tokens) -> Tokens:
    """What a pooler asks with: one query for each text, which is none of its tokens or words."""
    one = torch.ones_like(tokens.mask[:, :1])
    nowhere = torch.full_like(tokens.ids[:, :1], -1)
    texts = len(tokens.ids)
    return Tokens(
        ids=nowhere,
        mask=one,
        special=one,
        word=nowhere,
        pieces=(("query",),) * texts,
        words=((),) * texts,
        categories={name: torch.zeros_like(one) for name in tokens.categories},
    )
