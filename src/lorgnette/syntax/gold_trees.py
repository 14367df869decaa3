"""The gold trees of a batch as tensors, for the lenses that compare attention with syntax."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lorgnette.attending import Call, Site
from lorgnette.attending.words import between_words
from lorgnette.contributions.layer_mixing import rollable
from lorgnette.errors import UserError
from lorgnette.subject import Subject
from lorgnette.syntax.attachment import UNKNOWN
from lorgnette.syntax.edmonds import ROOT
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.texts.treebank import is_tree


@dataclass(frozen=True)
class Sentence:
    """One text of a batch, reduced to the words that the model sees."""

    text: int  # which of the batch
    example: Example
    words: Int[np.ndarray, " word"]  # their positions among all words
    gold: Int[np.ndarray, " word"]  # position of each head among these words; −1 the root, −2 not among them
    punctuation: Bool[np.ndarray, " word"]

    @property
    def root(self) -> int | None:
        """Position of the gold root; None if the model does not see it."""
        at = np.flatnonzero(self.gold == ROOT)
        return int(at[0]) if len(at) else None


@dataclass(frozen=True)
class GoldTrees:
    """The treebank's annotation of the words of a batch.

    `governor` is the position of each word's head, −1 for the root, for words that are not there and for texts whose
    heads are no tree. A word without a piece (cut off, or nothing to the tokenizer) is not there.
    """

    examples: tuple[Example, ...]
    governor: Int[Tensor, "batch word"]
    visible: Bool[Tensor, "batch word"]  # the text has this word, and the model sees a piece of it
    root: Bool[Tensor, "batch word"]
    relations: tuple[tuple[str, ...], ...]
    broken: tuple[str, ...]  # ids of texts whose heads are no tree
    unseen: Int[Tensor, " batch"]  # words without a piece

    @property
    def pairs(self) -> Bool[Tensor, "batch word"]:
        """Dependents that are there together with their heads."""
        at_head = self.visible.gather(-1, self.governor.clamp(min=0))
        return self.visible & at_head & (self.governor >= 0)

    def sentences(self) -> list[Sentence]:
        """The texts with a tree, one by one."""
        out = []
        for text, example in enumerate(self.examples):
            words = self.visible[text].nonzero()[:, 0].numpy()
            if not len(words):
                continue
            place = np.full(self.visible.shape[1] + 1, UNKNOWN)  # the last entry is that of −1, the root
            place[words], place[-1] = np.arange(len(words)), ROOT
            gold = place[self.governor[text].numpy()[words]]
            marks = np.array([self.relations[text][word].partition(":")[0] == "punct" for word in words])
            out.append(Sentence(text, example, words, gold, marks))
        return out

    @classmethod
    def of(cls, batch: Batch) -> "GoldTrees":
        examples = batch.examples
        size = max((len(example.words or ()) for example in examples), default=0)
        governor = torch.full((len(examples), size), -1)
        root = torch.zeros(len(examples), size, dtype=torch.bool)
        given = torch.zeros_like(root)
        broken = []
        for text, example in enumerate(examples):
            heads = heads_of(example)
            if not is_tree(heads):
                broken.append(example.id)
                continue
            governor[text, : len(heads)] = torch.tensor(heads) - 1
            root[text, : len(heads)] = torch.tensor(heads) == 0
            given[text, : len(heads)] = True
        word = batch.source.word.cpu()
        read = (word[..., None] == torch.arange(size)).any(1)
        visible = given & read
        relations = tuple(example.relations or ("_",) * len(example.heads or ()) for example in examples)
        return cls(examples, governor, visible, root & visible, relations, tuple(broken), (given & ~read).sum(-1))


def heads_of(example: Example) -> tuple[int, ...]:
    """The gold tree of an example, or a UserError that says it has none."""
    if example.words is None or example.heads is None:
        raise UserError(
            f"The text {example.id!r} has no gold tree. Give a treebank: a CoNLL-U file, 'ud_en_pud' or the like."
        )
    return example.heads


def parsed_sites(sites: Sequence[Site]) -> tuple[Site, ...]:
    """Where a treebank's words read each other: self-attention of stacks that read no other text."""
    return tuple(site for site in sites if site in rollable(sites))


def sites_between_words(sites: Sequence[Site], subject: Subject) -> tuple[Site, ...]:
    """The parsed sites, for a lens that needs one."""
    parsed = parsed_sites(sites)
    if not parsed:
        raise UserError(f"{subject.name!r} has no self-attention between the words of a text.")
    return parsed


def word_attention(call: Call, batch: Batch, trees: GoldTrees) -> Tensor:
    """α between the words of the gold tokenisation: [batch head word word]; on the CPU."""
    weights = call.weights
    if not weights.dtype.itemsize >= 4:
        weights = weights.float()
    attention, _ = between_words(weights, batch.source.word, trees.visible.shape[1])
    return attention.cpu()
