"""An explanation: how much of one output of a model comes from each token and through each head."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.constraints import checked
from lorgnette.display import Facts
from lorgnette.errors import UserError
from lorgnette.texts.batch import Tokens

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 8  # texts, and words of each
WIDE = 0.05
"""A gap of integrated gradients beyond which their relevance does not explain the logit."""


@dataclass(frozen=True, repr=False)
class Explanation(Facts):
    """Relevance of the tokens of each text; zero at padding. Several predictions of a text (a translation) are summed.

    >>> explanation = lo.explain(subject, texts, "gradient_x_input")
    >>> [len(words) for words in explanation.words()]
    [7, 9]
    """

    method: str
    start: Float[Tensor, " batch"]
    """the logit, difference of logits, or sum of the predictions' logits that is explained"""
    tokens: Float[Tensor, "batch token"]
    """relevance of the source tokens (their word embeddings)"""
    target_tokens: Float[Tensor, "batch target"] | None = None
    """relevance of the decoder's input tokens, for a translation model"""
    positions: Float[Tensor, "batch token"] | None = None
    """relevance of what is added to the source's word embeddings: positions, token types; None if nothing is"""
    target_positions: Float[Tensor, "batch target"] | None = None
    heads: Mapping[Site, Float[Tensor, "batch head"]] = field(default_factory=dict)
    """relevance of every head: the sum over its output, before the output projection; empty for other methods"""
    biases: Float[Tensor, " batch"] | None = None
    """relevance of all biases together, if requested; decompx: always, as what the tokens leave of `start`"""
    explained: tuple[str, ...] = ()
    """what is explained of each text: the name of a class, or the predicted tokens"""
    gap: Float[Tensor, " batch"] | None = None
    """integrated gradients: what the relevance misses, Σ |f(x_b) − f(x_a) − Σ relevance| over the parts [a, b] of the
    path, as a share of |f(x) − f(x⁰)|; 0 if the integral is exact"""
    source: Tokens | None = None
    """the tokens that were explained"""

    def __repr__(self) -> str:
        said = "; ".join(f"{name} {value}" for name, value in self.facts().items() if name not in ("method", "texts"))
        return f"Explanation({self.method!r}: {said or len(self.tokens)})"

    def facts(self) -> dict[str, object]:
        each = zip(self.explained, self.start.tolist(), strict=False)  # rollouts explain no number
        number = "logit" if self.target_tokens is None else "sum of logits"
        said = [f"{name} ({number} {_minus(f'{start:.4g}')})" for name, start in islice(each, SHOWN)]
        if self.source is not None:
            words = [_strongest(*pair) for pair in islice(zip(self.words(), self._names(), strict=True), SHOWN)]
            said = [f"{what}: {strongest}" for what, strongest in zip_longest(said, words, fillvalue="relevance")]
        if self.gap is not None:
            said = [f"{what}{_told(gap)}" for what, gap in zip(said, self.gap.tolist(), strict=False)]
        texts = {f"text {number}": what for number, what in enumerate(said, 1)}
        return {"method": self.method, "texts": len(self.tokens), **texts}

    def _names(self) -> Iterator[Sequence[str]]:
        assert self.source is not None
        return (self.source.word_labels(text) for text in range(len(self.tokens)))

    @property
    def layers(self) -> dict[Site, Float[Tensor, " batch"]]:
        """The relevance that passes through each site: the sum over its heads. The rest bypasses attention."""
        return {site: heads.sum(-1) for site, heads in self.heads.items()}

    @property
    def total(self) -> Float[Tensor, " batch"]:
        """The sum of all relevance, which equals `start` for a conserving rule if biases are included."""
        parts = (self.tokens, self.target_tokens, self.positions, self.target_positions)
        out = sum(part.sum(-1) for part in parts if part is not None)
        assert isinstance(out, Tensor)
        return out if self.biases is None else out + self.biases

    @checked
    def words(self, tokens: Tokens | None = None, target: bool = False) -> list[Float[Tensor, " word"]]:
        """Relevance of each word of each text: the sum over its tokens; special tokens are excluded.

        `tokens`: those of the source by default; with `target`, those of the target.
        """
        if tokens is None and not target:
            tokens = self.source
        if tokens is None:
            raise UserError("say which tokens: words(batch.source), or words(batch.target, target=True).")
        scores = self.target_tokens if target else self.tokens
        if scores is None:
            raise UserError("This explanation has no target tokens: the model does not translate.")
        out = []
        for row, word, words in zip(scores, tokens.word, tokens.words, strict=True):
            in_word = word >= 0
            out.append(row.new_zeros(len(words)).index_add(0, word[in_word], row[in_word]))
        return out

    @checked
    def to_dataframe(self, target: Tokens | None = None) -> "pd.DataFrame":
        """A row per token: text, what is explained of it, side, token, piece, word (empty for specials), relevance.

            >>> frame = lo.explain(subject, texts, "gradient_x_input").to_dataframe()
            >>> list(frame.columns)
            ['text', 'explained', 'side', 'token', 'piece', 'word', 'relevance']

        Texts are counted from 1, tokens from 0. `target`: the tokens of a translation's target (`batch.target`), whose
        rows follow.
        """
        import pandas as pd

        if self.source is None:
            raise UserError("This explanation does not know its tokens. Explain a batch or texts: lo.explain(…).")
        if target is not None and self.target_tokens is None:
            raise UserError("This explanation has no target tokens: the model does not translate.")
        rows = [*self._rows("source", self.source, self.tokens)]
        if target is not None and self.target_tokens is not None:
            rows += self._rows("target", target, self.target_tokens)
        return pd.DataFrame(rows, columns=["text", "explained", "side", "token", "piece", "word", "relevance"])

    def by_part(self) -> "pd.DataFrame":
        """A row per text and named part of a prompt: its tokens, and their relevance together.

            >>> prompt = lo.prompt(document="the cat sat", question="it was")
            >>> lo.explain(language_model, [prompt], "gradient_x_input", lo.Next(" good")).by_part()["part"].tolist()
            ['document', 'question']

        Tokens of no part (those that a template adds) are a last row, whose part is empty. For what the answer loses
        without a part, see `lo.sources`.
        """
        import pandas as pd

        if self.source is None:
            raise UserError("This explanation does not know its tokens. Explain a batch or texts: lo.explain(…).")
        rows = []
        for text, relevance in enumerate(self.tokens):
            names = self.source.part_names(text)
            if names is None:
                raise UserError(f"Text {text + 1} has no named parts. Name them: lo.prompt(document=…, question=…).")
            own = list(zip(names, relevance[self.source.mask[text]].tolist(), strict=True))
            explained = self.explained[text] if self.explained else None
            for part in sorted(dict.fromkeys(names), key=lambda name: name == ""):
                values = [value for name, value in own if name == part]
                rows.append((text + 1, explained, part, len(values), sum(values)))
        return pd.DataFrame(rows, columns=["text", "explained", "part", "tokens", "relevance"])

    def _rows(self, side: str, tokens: Tokens, scores: Float[Tensor, "batch token"]) -> Iterator[tuple[object, ...]]:
        for text, relevance in enumerate(scores.tolist()):
            name = self.explained[text] if self.explained else None
            places = tokens.mask[text].nonzero()[:, 0].tolist()
            for piece, at in zip(tokens.pieces[text], places, strict=True):
                word = int(tokens.word[text, at])
                yield text + 1, name, side, at, piece, tokens.words[text][word] if word >= 0 else None, relevance[at]


def _strongest(scores: Float[Tensor, " word"], words: Sequence[str]) -> str:
    """The words with the largest relevance, with their sign."""
    order = scores.abs().argsort(descending=True)[:SHOWN].tolist()
    return ", ".join(f"{words[word]} {_minus(f'{scores[word].item():+.3f}')}" for word in order)


def _minus(number: str) -> str:
    return number.replace("-", "−")


def _told(gap: float) -> str:
    """The gap in words, with a warning where the relevance does not add up to the logit."""
    return f" (gap {gap:.2%})" if gap <= WIDE else f" (does NOT add up: gap {gap:.0%} of f(x) − f(x⁰))"


def masked(scores: Float[Tensor, "batch token"], tokens: Tokens) -> Float[Tensor, "batch token"]:
    """The relevance with exact zeros at padding."""
    return torch.where(tokens.mask.to(scores.device), scores, 0.0)
