"""A small grammar of reviews that builds each text together with its dependency tree (Universal Dependencies)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar, no_type_check

from lorgnette.texts.planted import lexicon as lex

Thing = TypeVar("Thing")


@no_type_check
@dataclass
class Node:
    """A word with its dependents to the left and to the right: read in that order, every tree is projective."""

    word: str
    upos: str
    relation: str
    left: list["Node"] = field(default_factory=list)
    right: list["Node"] = field(default_factory=list)
    decides: bool = False  # part of the rationale
    negator: bool = False  # a negator that decides

    def in_order(self) -> list["Node"]:
        before = [node for child in self.left for node in child.in_order()]
        after = [node for child in self.right for node in child.in_order()]
        return [*before, self, *after]


def negator() -> Node:
    return Node(lex.NEGATOR, "PART", "advmod", decides=True, negator=True)


def joined(first: Node, second: Node) -> None:
    """Coordinates two clauses: the first stays the head, comma and "and" hang on the second."""
    second.relation = "conj"
    second.left[:0] = [Node(",", "PUNCT", "punct"), Node("and", "CCONJ", "cc")]
    first.right.append(second)


@no_type_check  # a hundred thousand small calls per corpus: checking each at run time would take a minute in tests
class Grammar:
    """Seeded draws of phrases, clauses and whole reviews.

    The choices depend only on `random()`, whose sequence Python guarantees for a seed.
    """

    def __init__(self, seed: str):
        self._random = random.Random(seed)

    def pick(self, choices: Sequence[Thing]) -> Thing:
        return choices[int(self._random.random() * len(choices))]

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability

    def noun_phrase(self, relation: str, nouns: Sequence[str], *, longer: bool = False) -> Node:
        """ "the large soup", and if `longer` perhaps "of the hotel" or "which stands near the river"."""
        noun = Node(self.pick(lex.RARE) if self.happens(0.06) else self.pick(nouns), "NOUN", relation)
        if self.happens(0.2):
            noun.left.append(Node(self.pick(lex.OWNERS), "PRON", "nmod:poss"))
        else:
            noun.left.append(Node(self.pick(lex.DETERMINERS), "DET", "det"))
        if self.happens(0.25):
            noun.left.append(Node(self.pick(lex.PLAIN_ADJECTIVES), "ADJ", "amod"))
        if longer and self.happens(0.25):
            noun.right.append(self.prepositional("nmod", ("of",), lex.PLACES))
        elif longer and self.happens(0.15):
            which = Node("which", "PRON", "nsubj")
            where = self.prepositional("obl", lex.NEAR, lex.PLACES)
            noun.right.append(Node(self.pick(lex.STANDS), "VERB", "acl:relcl", [which], [where]))
        return noun

    def prepositional(self, relation: str, cases: Sequence[str], nouns: Sequence[str]) -> Node:
        noun = self.noun_phrase(relation, nouns)
        noun.left.insert(0, Node(self.pick(cases), "ADP", "case"))
        return noun

    def person(self) -> Node:
        if self.happens(0.7):
            return Node(self.pick(lex.PRONOUNS), "PRON", "nsubj")
        owner = Node(self.pick(lex.OWNERS), "PRON", "nmod:poss")
        return Node(self.pick(lex.PEOPLE), "NOUN", "nsubj", [owner])

    def intensifier(self) -> Node:
        return Node(self.pick(lex.INTENSIFIERS), "ADV", "advmod", decides=True)

    def opinion(self, polarity: int, relation: str, *, negated: bool) -> Node:
        """A clause of that polarity; negated, it says it by denying the opposite ("not bad")."""
        worded = 1 - polarity if negated else polarity
        if self.happens(0.25):
            return self._verb_opinion(worded, relation, negated=negated)
        modifier = negator() if negated else self.intensifier() if self.happens(0.4) else None
        return self.adjective_opinion(worded, relation, modifier)

    def adjective_opinion(self, worded: int, relation: str, modifier: Node | None) -> Node:
        subject = self.noun_phrase("nsubj", lex.THINGS, longer=True)
        cop = Node(self.pick(("was", "is")), "AUX", "cop")
        left = [subject, cop, *([modifier] if modifier else [])]
        return Node(self.pick(lex.ADJECTIVES[worded]), "ADJ", relation, left, decides=True)

    def _verb_opinion(self, worded: int, relation: str, *, negated: bool) -> Node:
        who = Node(self.pick(lex.SPEAKERS), "PRON", "nsubj")
        what = self.noun_phrase("obj", lex.THINGS, longer=True)
        modifiers = []
        if negated:
            modifiers = [Node("do", "AUX", "aux"), negator()]
        elif self.happens(0.3):
            modifiers = [Node("really", "ADV", "advmod", decides=True)]
        return Node(self.pick(lex.VERBS[worded]), "VERB", relation, [who, *modifiers], [what], decides=True)

    def neutral(self, relation: str) -> Node:
        """A clause without opinion; sometimes negated, so that a negator alone decides nothing."""
        if self.happens(0.5):
            what = self.noun_phrase("obj", lex.PLACES)
            node = Node(self.pick(lex.PLAIN_VERBS), "VERB", relation, [self.person()], [what])
            if self.happens(0.4):
                node.right.append(self.prepositional("obl", lex.WITH, lex.PEOPLE))
            return node
        subject = self.noun_phrase("nsubj", lex.THINGS + lex.PLACES)
        left = [subject, Node("was", "AUX", "cop")]
        if self.happens(0.3):
            left.append(Node(lex.NEGATOR, "PART", "advmod"))
        return Node(self.pick(lex.PLAIN_ADJECTIVES), "ADJ", relation, left)

    def opener(self) -> list[Node]:
        """ "in june ," """
        preposition, times = self.pick((("in", lex.SEASONS), ("on", lex.DAYS), ("since", lex.SEASONS + lex.DAYS)))
        case = Node(preposition, "ADP", "case")
        return [Node(self.pick(times), "NOUN", "obl", [case]), Node(",", "PUNCT", "punct")]

    def arrival(self) -> Node:
        """ "when we arrived" """
        mark = Node(self.pick(lex.WHEN), "SCONJ", "mark")
        return Node(self.pick(lex.ARRIVED), "VERB", "advcl", [mark, self.person()])

    def framed(self, said: Node) -> Node:
        """The whole text around what is said: perhaps an opener, a neutral clause before or after, a time; the stop."""
        root = said
        if self.happens(0.3):
            extra_clause = self.neutral("root")
            root, other = (extra_clause, said) if self.happens(0.6) else (said, extra_clause)
            joined(root, other)
        if self.happens(0.2):
            root.right.append(self.arrival())
        if self.happens(0.2):
            root.left[:0] = self.opener()
        root.right.append(Node(".", "PUNCT", "punct"))
        return root

    def review(self, polarity: int) -> Node:
        """A review of that polarity: one opinion or two that agree, each perhaps by negation."""
        said = self.opinion(polarity, "root", negated=self.happens(0.18))
        if self.happens(0.2):
            joined(said, self.opinion(polarity, "conj", negated=self.happens(0.18)))
        return self.framed(said)

    def contrast(self, polarity: int) -> Node:
        """ "the food was not good , really bad .": swapping the two modifiers gives the opposite class."""
        negated_first = self.happens(0.5)
        modifiers = [negator(), self.intensifier()] if negated_first else [self.intensifier(), negator()]
        first, second = (1 - polarity, polarity) if negated_first else (polarity, 1 - polarity)
        said = self.adjective_opinion(first, "root", modifiers[0])
        if self.happens(0.5):
            joined(said, self.adjective_opinion(second, "conj", modifiers[1]))
        else:
            comma = Node(",", "PUNCT", "punct")
            adjective = self.pick(lex.ADJECTIVES[second])
            said.right.append(Node(adjective, "ADJ", "conj", [comma, modifiers[1]], decides=True))
        return self.framed(said)
