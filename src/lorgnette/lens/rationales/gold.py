"""The words that people marked, and those of them that a model gets to see."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from lorgnette.errors import UserError, near
from lorgnette.texts.annotated import majority
from lorgnette.texts.batch import Tokens
from lorgnette.texts.example import Example

GOLDS = ("majority", "union", "corpus")
_HALF = 0.5


@dataclass(frozen=True)
class Marked:
    """One text: which words are gold, and which have at least one piece in the batch (the others were cut off)."""

    row: int
    example: Example
    gold: Bool[Tensor, " word"]
    visible: Bool[Tensor, " word"]

    @property
    def marks(self) -> Bool[Tensor, " seen"]:
        """Gold among the words that the model sees."""
        return self.gold[self.visible]


def gold_words(example: Example, rule: str = "majority") -> Bool[Tensor, " word"] | None:
    """Which words of a text are gold; None if nobody was asked about it.

    majority: more than half of the annotators' masks that there are (two of three, both of two); union: any of them;
    corpus: `Example.rationale` as the corpus has it. A text that comes without single masks (HateXplain's train split:
    the union; three parts of YelpHat: two marks or more) has what the corpus says.
    """
    if rule not in GOLDS:
        raise UserError(f"There is no gold {rule!r}.{near(rule, GOLDS)} There are: {', '.join(GOLDS)}.")
    if example.rationale is None:
        return None
    extra = example.extra
    masks = extra.get("rationales") or extra.get("maps") or ()
    marks = example.rationale
    if rule == "majority" and masks:
        marks = majority([tuple(map(int, mask)) for mask in masks])
    elif rule == "union":
        marks = tuple(map(max, zip(*masks, strict=True))) or extra.get("rationale_union") or extra.get("map_sum", marks)
    return torch.tensor(marks, dtype=torch.float64) >= _HALF


def gold_share(examples: Iterable[Example], rule: str = "majority") -> float:
    """The share of a text's words that people mark: mean over the texts in which they marked any.

    Taken from another split than the one that is judged, it says how many words a rationale should have.
    """
    shares = []
    for example in examples:
        gold = gold_words(example, rule)
        if gold is not None and bool(gold.any()):
            shares.append(gold.double().mean())
    if not shares:
        raise UserError(
            "No text has a rationale that marks a word. Use a corpus in which people marked words, such as hatexplain."
        )
    return torch.stack(shares).mean().item()


def marked(example: Example, tokens: Tokens, row: int, rule: str) -> Marked | None:
    """The gold of one text of a batch; None if nobody was asked about it."""
    gold = gold_words(example, rule)
    if gold is None:
        return None
    words = len(tokens.words[row])
    if len(gold) != words:
        raise UserError(
            f"The text {example.id!r} has {words} words and a rationale for {len(gold)}. "
            "Give the words that were marked as Example.words."
        )
    numbers = tokens.word[row].cpu()
    visible = torch.zeros(words, dtype=torch.bool)
    visible[numbers[numbers >= 0]] = True
    return Marked(row, example, gold, visible)
