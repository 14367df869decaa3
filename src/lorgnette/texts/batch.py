"""Examples as the model reads them: token ids, masks and word maps."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from lorgnette.display import Facts
from lorgnette.texts.batch_words import Occurrences, WordPieces
from lorgnette.texts.example import Example
from lorgnette.texts.patches import Patches
from lorgnette.texts.readable import readable, readable_piece
from lorgnette.texts.sides import WordSpans
from lorgnette.texts.token_kinds import CATEGORIES

T = TypeVar("T")


@runtime_checkable
class Where(Protocol):
    """The part of an attention site that decides which side of a batch has the queries and which the keys."""

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


class TokenTexts:
    """The tokens of one side of a batch as text, on the CPU; each is found when somebody first reads it.

    Many lenses never ask for words, and finding them takes longer than cutting a text into tokens.
    """

    def __init__(
        self,
        word: Callable[[], Int[Tensor, "batch token"]],
        pieces: Callable[[], tuple[tuple[str, ...], ...]],
        words: Callable[[], tuple[tuple[str, ...], ...]],
        spans: Callable[[], tuple[WordSpans, ...]] | None = None,
    ) -> None:
        self._word, self._pieces, self._words, self._spans = word, pieces, words, spans

    @staticmethod
    def of(
        word: Int[Tensor, "batch token"], pieces: tuple[tuple[str, ...], ...], words: tuple[tuple[str, ...], ...]
    ) -> "TokenTexts":
        """The token texts of known texts."""
        on_host = word.cpu()
        return TokenTexts(lambda: on_host, lambda: pieces, lambda: words)

    def __reduce__(self) -> tuple[object, ...]:
        """A copy has the texts themselves: the functions that would find them cannot be pickled."""
        return TokenTexts.of, (self.word, self.pieces, self.words)

    @cached_property
    def word(self) -> Int[Tensor, "batch token"]:
        """Index of the word that a piece belongs to; −1 for special tokens and padding."""
        return self._word()

    @cached_property
    def pieces(self) -> tuple[tuple[str, ...], ...]:
        """The pieces of each text, unpadded."""
        return self._pieces()

    @cached_property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """The words of each text."""
        return self._words()

    @cached_property
    def word_spans(self) -> tuple[WordSpans, ...]:
        """The words as places in their texts."""
        return tuple(map(WordSpans.of, self.words)) if self._spans is None else self._spans()

    @cached_property
    def word_pieces(self) -> WordPieces:
        """Which tokens each word is made of."""
        return WordPieces.of(self.word.numpy(), self.word_spans)

    @cached_property
    def occurrences(self) -> Occurrences:
        """Every word that is not punctuation."""
        return Occurrences.of(self.word_pieces, self.word_spans)


class Tokens:
    """One side of a batch: the source, or the target of a translation."""

    def __init__(
        self,
        ids: Int[Tensor, "batch token"],
        mask: Bool[Tensor, "batch token"],
        special: Bool[Tensor, "batch token"],
        categories: Mapping[str, Bool[Tensor, "batch token"]],
        text: TokenTexts,
        patches: Patches | None = None,
    ) -> None:
        self.ids = ids
        self.mask = mask
        """True where there is a real token (never padding)."""
        self.special = special
        """[CLS], [SEP], </s> …"""
        self.categories = categories
        """cls, sep, punctuation, period_comma, other, first, last, and named parts of the texts: user, template, …"""
        self.text = text
        self.patches = patches
        """Where on a picture each token stands; None where there is no picture, or its grid is not known."""
        self.host: Tokens | None = None
        """The same on the CPU, as they were before they were moved."""
        self.cache: dict[Hashable, Any] = {}
        """Values derived from these tensors."""

    def __repr__(self) -> str:
        texts, positions = self.ids.shape
        return f"Tokens({texts} texts, {positions} positions)"

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """A value derived from the tokens, computed once and kept."""
        if name not in self.cache:
            self.cache[name] = make()
        return self.cache[name]

    def known(self) -> dict[Hashable, Any]:
        """What has been derived from the tokens so far."""
        return dict(self.cache)

    def know(self, derived: Mapping[Hashable, Any], *, only: bool = False) -> None:
        """Keep what was derived before; `only` that, and forget the rest."""
        self.cache = {**({} if only else self.cache), **derived}

    def tensors(self) -> list[Tensor]:
        """What a batch with other texts has in its place, in one order: tokens of the same kinds have as many."""
        word = [self.cache["word"]] if "word" in self.cache else []
        return [self.ids, self.mask, self.special, *self.categories.values(), *word]

    def overwrite(self, new: "Tokens") -> None:
        """Put other texts into the memory of these tensors; `new` is on the CPU."""
        self.host, self.text = new, new.text
        for mine, theirs in zip(self.tensors(), new.tensors(), strict=True):
            mine.copy_(theirs, non_blocking=True)

    @property
    def word(self) -> Int[Tensor, "batch token"]:
        """Index of the word that a piece belongs to; −1 for special tokens and padding."""
        return self.once("word", lambda: self.text.word.to(self.ids.device))

    @property
    def pieces(self) -> tuple[tuple[str, ...], ...]:
        """The pieces of each text, unpadded."""
        return self.text.pieces

    @property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """The words of each text."""
        return self.text.words

    @property
    def word_spans(self) -> tuple[WordSpans, ...]:
        """The words as places in their texts."""
        return self.text.word_spans

    @property
    def word_pieces(self) -> WordPieces:
        """Which tokens each word is made of: on the CPU, wherever the tokens are."""
        return self.text.word_pieces

    @property
    def occurrences(self) -> Occurrences:
        """Every word that is not punctuation; likewise."""
        return self.text.occurrences

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Real tokens of each text, specials included."""
        return self.mask.sum(dim=-1)

    @property
    def sinks(self) -> Bool[Tensor, "batch token"]:
        """Special tokens; in a text without any, the first token, where such models put what they have no use for."""

        def made() -> Tensor:
            special = self.special & self.mask
            return special | (~special.any(-1, keepdim=True) & self.categories["first"])

        return self.once("sinks", made)

    @property
    def ordinary(self) -> Bool[Tensor, "batch token"]:
        """Tokens that are neither special nor padding."""
        return self.once("ordinary", lambda: self.mask & ~self.special)

    def kinds(self, names: Sequence[str] = CATEGORIES) -> Bool[Tensor, "batch token kind"]:
        """Which tokens are of these kinds; a part that no text of the batch has is nowhere."""

        def made() -> Tensor:
            none = torch.zeros_like(self.mask)
            return torch.stack([self.categories.get(name, none) & self.mask for name in names], -1)

        return self.once(("kinds", *names), made)

    def as_numbers(self, dtype: torch.dtype) -> Shaped[Tensor, "batch token"]:
        """1 for a real token, 0 for padding; made once."""
        return self.once(("mask", dtype), lambda: self.mask.to(dtype))

    def kinds_as_numbers(self, names: Sequence[str], dtype: torch.dtype) -> Shaped[Tensor, "batch token kind"]:
        """`kinds` as 1 and 0; made once."""
        return self.once(("kinds", *names, dtype), lambda: self.kinds(names).to(dtype))

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

    @property
    def on_host(self) -> "Tokens":
        """The same tokens on the CPU, kept from before the move, so that nothing waits for a GPU."""
        if self.ids.device.type == "cpu":
            return self
        if self.host is None:
            self.host = self.changed(lambda tensor: tensor.cpu())
        return self.host

    def replaced(
        self,
        *,
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        special: Tensor | None = None,
        categories: Mapping[str, Tensor] | None = None,
        text: TokenTexts | None = None,
        patches: Patches | None = None,
    ) -> "Tokens":
        """A copy with other tensors, or another text."""
        return Tokens(
            self.ids if ids is None else ids,
            self.mask if mask is None else mask,
            self.special if special is None else special,
            self.categories if categories is None else categories,
            self.text if text is None else text,
            self.patches if patches is None else patches,
        )

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Tokens":
        """A copy with a function applied to every tensor, for example to move it."""
        categories = {name: change(where) for name, where in self.categories.items()}
        patches = None if self.patches is None else self.patches.changed(change)
        tokens = Tokens(change(self.ids), change(self.mask), change(self.special), categories, self.text, patches)
        if "word" in self.cache:
            tokens.cache["word"] = change(self.cache["word"])
        return tokens


@dataclass(eq=False, repr=False)
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
    shared: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Values computed once for the whole batch, each under its own key."""
    padding_known: tuple[Tensor | None, bool | None] | None = field(default=None, init=False, repr=False)
    """A moved mask, and whether it hides anything, known from before the move."""

    def __len__(self) -> int:
        return len(self.examples)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {' × '.join(map(str, each.shape))}" for name, each in self.inputs.items())
        return f"Batch({len(self)} text{'' if len(self) == 1 else 's'}: {inputs})"

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
        if self.padding_known is not None and self.padding_known[0] is mask:  # and no other since
            return self.padding_known[1]
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
                side.host = host
        moved.padding_known = moved.inputs.get("attention_mask"), self.padded
        return moved

    def pinned(self) -> "Batch":
        """The same batch in pinned memory."""
        return self._changed(Tensor.pin_memory)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        inputs = {name: change(tensor) for name, tensor in self.inputs.items()}
        target = None if self.target is None else self.target.changed(change)
        return replace(self, inputs=inputs, source=self.source.changed(change), target=target)


def _one_question(tokens: Tokens) -> Tokens:
    """The query side of a pooler: one query per text, which is neither a token nor a word."""
    one = torch.ones_like(tokens.mask[:, :1])
    nowhere = torch.full_like(tokens.ids[:, :1], -1)
    texts = len(tokens.ids)
    return Tokens(
        ids=nowhere,
        mask=one,
        special=one,
        categories={name: torch.zeros_like(one) for name in tokens.categories},
        text=TokenTexts.of(nowhere, (("query",),) * texts, ((),) * texts),
    )
