"""A small grammar of reviews that builds each text together with its dependency tree (Universal Dependencies)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lorgnette.corpora.planted import lexicon as lex

Thing = TypeVar("Thing")


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


class Draw:
    """Seeded choices that depend only on `random()`, whose sequence Python guarantees for a seed."""

    def __init__(self, seed: str):
        self._random = random.Random(seed)

    def pick(self, choices: Sequence[Thing]) -> Thing:
        return choices[int(self._random.random() * len(choices))]

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability


def noun_phrase(draw: Draw, relation: str, nouns: Sequence[str], *, longer: bool = False) -> Node:
    """ "the large soup", and if `longer` perhaps "of the hotel" or "which stands near the river"."""
    noun = Node(draw.pick(lex.RARE) if draw.happens(0.06) else draw.pick(nouns), "NOUN", relation)
    if draw.happens(0.2):
        noun.left.append(Node(draw.pick(lex.OWNERS), "PRON", "nmod:poss"))
    else:
        noun.left.append(Node(draw.pick(lex.DETERMINERS), "DET", "det"))
    if draw.happens(0.25):
        noun.left.append(Node(draw.pick(lex.PLAIN_ADJECTIVES), "ADJ", "amod"))
    if longer and draw.happens(0.25):
        noun.right.append(prepositional(draw, "nmod", ("of",), lex.PLACES))
    elif longer and draw.happens(0.15):
        which = Node("which", "PRON", "nsubj")
        where = prepositional(draw, "obl", lex.NEAR, lex.PLACES)
        noun.right.append(Node(draw.pick(lex.STANDS), "VERB", "acl:relcl", [which], [where]))
    return noun


def prepositional(draw: Draw, relation: str, cases: Sequence[str], nouns: Sequence[str]) -> Node:
    noun = noun_phrase(draw, relation, nouns)
    noun.left.insert(0, Node(draw.pick(cases), "ADP", "case"))
    return noun


def person(draw: Draw) -> Node:
    if draw.happens(0.7):
        return Node(draw.pick(lex.PRONOUNS), "PRON", "nsubj")
    owner = Node(draw.pick(lex.OWNERS), "PRON", "nmod:poss")
    return Node(draw.pick(lex.PEOPLE), "NOUN", "nsubj", [owner])


def negator() -> Node:
    return Node(lex.NEGATOR, "PART", "advmod", decides=True, negator=True)


def intensifier(draw: Draw) -> Node:
    return Node(draw.pick(lex.INTENSIFIERS), "ADV", "advmod", decides=True)


def opinion(draw: Draw, polarity: int, relation: str, *, negated: bool) -> Node:
    """A clause of that polarity; negated, it says it by denying the opposite ("not bad")."""
    worded = 1 - polarity if negated else polarity
    if draw.happens(0.25):
        return _verb_opinion(draw, worded, relation, negated=negated)
    modifier = negator() if negated else intensifier(draw) if draw.happens(0.4) else None
    return adjective_opinion(draw, worded, relation, modifier)


def adjective_opinion(draw: Draw, worded: int, relation: str, modifier: Node | None) -> Node:
    subject = noun_phrase(draw, "nsubj", lex.THINGS, longer=True)
    cop = Node(draw.pick(("was", "is")), "AUX", "cop")
    left = [subject, cop, *([modifier] if modifier else [])]
    return Node(draw.pick(lex.ADJECTIVES[worded]), "ADJ", relation, left, decides=True)


def _verb_opinion(draw: Draw, worded: int, relation: str, *, negated: bool) -> Node:
    who = Node(draw.pick(lex.SPEAKERS), "PRON", "nsubj")
    what = noun_phrase(draw, "obj", lex.THINGS, longer=True)
    modifiers = []
    if negated:
        modifiers = [Node("do", "AUX", "aux"), negator()]
    elif draw.happens(0.3):
        modifiers = [Node("really", "ADV", "advmod", decides=True)]
    return Node(draw.pick(lex.VERBS[worded]), "VERB", relation, [who, *modifiers], [what], decides=True)


def neutral(draw: Draw, relation: str) -> Node:
    """A clause without opinion; sometimes negated, so that a negator alone decides nothing."""
    if draw.happens(0.5):
        what = noun_phrase(draw, "obj", lex.PLACES)
        node = Node(draw.pick(lex.PLAIN_VERBS), "VERB", relation, [person(draw)], [what])
        if draw.happens(0.4):
            node.right.append(prepositional(draw, "obl", lex.WITH, lex.PEOPLE))
        return node
    subject = noun_phrase(draw, "nsubj", lex.THINGS + lex.PLACES)
    left = [subject, Node("was", "AUX", "cop")]
    if draw.happens(0.3):
        left.append(Node(lex.NEGATOR, "PART", "advmod"))
    return Node(draw.pick(lex.PLAIN_ADJECTIVES), "ADJ", relation, left)


def opener(draw: Draw) -> list[Node]:
    """ "in june ," """
    preposition, times = draw.pick((("in", lex.SEASONS), ("on", lex.DAYS), ("since", lex.SEASONS + lex.DAYS)))
    case = Node(preposition, "ADP", "case")
    return [Node(draw.pick(times), "NOUN", "obl", [case]), Node(",", "PUNCT", "punct")]


def arrival(draw: Draw) -> Node:
    """ "when we arrived" """
    mark = Node(draw.pick(lex.WHEN), "SCONJ", "mark")
    return Node(draw.pick(lex.ARRIVED), "VERB", "advcl", [mark, person(draw)])


def joined(first: Node, second: Node) -> None:
    """Coordinates two clauses: the first stays the head, comma and "and" hang on the second."""
    second.relation = "conj"
    second.left[:0] = [Node(",", "PUNCT", "punct"), Node("and", "CCONJ", "cc")]
    first.right.append(second)


def framed(draw: Draw, said: Node) -> Node:
    """The whole text around what is said: perhaps an opener, a neutral clause before or after, a time; the stop."""
    root = said
    if draw.happens(0.3):
        extra_clause = neutral(draw, "root")
        root, other = (extra_clause, said) if draw.happens(0.6) else (said, extra_clause)
        joined(root, other)
    if draw.happens(0.2):
        root.right.append(arrival(draw))
    if draw.happens(0.2):
        root.left[:0] = opener(draw)
    root.right.append(Node(".", "PUNCT", "punct"))
    return root


def review(draw: Draw, polarity: int) -> Node:
    """A review of that polarity: one opinion or two that agree, each perhaps by negation."""
    said = opinion(draw, polarity, "root", negated=draw.happens(0.18))
    if draw.happens(0.2):
        joined(said, opinion(draw, polarity, "conj", negated=draw.happens(0.18)))
    return framed(draw, said)


def contrast(draw: Draw) -> tuple[Node, int]:
    """ "the food was not good , really bad ." with its class: swapping the two modifiers gives the opposite class."""
    polarity = draw.pick((lex.POSITIVE, lex.NEGATIVE))
    negated_first = draw.happens(0.5)
    modifiers = [negator(), intensifier(draw)] if negated_first else [intensifier(draw), negator()]
    first, second = (1 - polarity, polarity) if negated_first else (polarity, 1 - polarity)
    said = adjective_opinion(draw, first, "root", modifiers[0])
    if draw.happens(0.5):
        joined(said, adjective_opinion(draw, second, "conj", modifiers[1]))
    else:
        comma = Node(",", "PUNCT", "punct")
        adjective = draw.pick(lex.ADJECTIVES[second])
        said.right.append(Node(adjective, "ADJ", "conj", [comma, modifiers[1]], decides=True))
    return framed(draw, said), polarity
