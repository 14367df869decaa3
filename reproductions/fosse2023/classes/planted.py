"""Texts with as many classes as one likes, each with words of its own: the truth is known and nothing is scarce."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

CLS = 2
FIRST = 3  # after <pad>, <unk>, <cls>
FILLERS = 200
OWN = 4  # words that a class has
LENGTH = 12
BEARING = 3  # words of a text that bear its class
MISLEADING = 1  # and that bear another


@dataclass(frozen=True)
class PlantedClasses:
    """C classes of 4 words each, and 200 words that mean nothing.

    A text has 12 words in random order: three (with repetition) of its class, one of another class, eight that mean
    nothing. So the class is that of the majority of class-bearing words; a classifier that counts them is always right.
    """

    classes: int

    @property
    def vocabulary(self) -> int:
        return FIRST + FILLERS + OWN * self.classes

    def draw(self, texts: int, generator: torch.Generator) -> tuple[Int[Tensor, "text token"], Int[Tensor, " text"]]:
        """Token ids, <cls> first, and classes, on the generator's device."""
        where: dict[str, Any] = {"generator": generator, "device": generator.device}

        def any_of(count: int, words: int) -> Tensor:
            return torch.randint(count, (texts, words), **where)

        labels = any_of(self.classes, 1)
        others = (labels + 1 + any_of(self.classes - 1, MISLEADING)) % self.classes
        own = self._words(labels, any_of(OWN, BEARING))
        misleading = self._words(others, any_of(OWN, MISLEADING))
        fillers = FIRST + any_of(FILLERS, LENGTH - BEARING - MISLEADING)
        words = torch.cat([own, misleading, fillers], 1)
        order = torch.rand(words.shape, **where).argsort(1)
        first = torch.full((texts, 1), CLS, device=generator.device)
        return torch.cat([first, words.gather(1, order)], 1), labels[:, 0]

    @staticmethod
    def _words(labels: Tensor, which: Tensor) -> Tensor:
        return FIRST + FILLERS + OWN * labels + which

    def class_of(self, ids: Int[Tensor, "text token"]) -> Int[Tensor, " text"]:
        """The class that the words of each text say, by counting: the rule that a model has to find."""
        numbers = (ids - FIRST - FILLERS).div(OWN, rounding_mode="floor")
        votes = torch.stack([(numbers == c).sum(1) for c in range(self.classes)], 1)
        return votes.argmax(1)
