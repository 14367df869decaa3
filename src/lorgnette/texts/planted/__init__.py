"""Planted truth: reviews whose class, rationale, tree, parts of speech and rare words are known by construction."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lorgnette.errors import UserError, near
from lorgnette.texts.annotated import share
from lorgnette.texts.corpus import SizedCorpus
from lorgnette.texts.example import Example
from lorgnette.texts.planted.grammar import Grammar, Node
from lorgnette.texts.planted.lexicon import RARE

LABELS = ("negative", "positive")
SIZES = {"train": 4000, "val": 500, "test": 1000, "pairs": 800}
# A text belongs to the split whose interval holds the hash of its bag of words: splits do not even share a bag.
PLACES = {"train": (0.0, 0.6), "val": (0.6, 0.7), "test": (0.7, 0.85), "pairs": (0.85, 1.0)}
LONGEST = 30
PAIR_SHARE = 0.09  # of the draws in the other splits


def planted_corpus(split: str | None = None, *, seed: int = 0, size: int | None = None) -> SizedCorpus:
    """Short English-like reviews, negative (0) or positive (1), generated from `seed`: no file, the same everywhere.

    The class is the polarity of the opinion words, flipped by a negator ("not bad"); all opinions of a text agree. The
    rationale marks those words with their negators and intensifiers. `extra` has `rare` (the indices of rare words),
    `negated`, and for a minimal pair `pair_id` and `counterpart`: two texts in a row with the same bag of words, the
    same tree and opposite classes ("not good , really bad" / "really good , not bad"). About a third of the texts has a
    negated opinion; split "pairs" is all minimal pairs, so no bag-of-words classifier can do better than chance there.
    Splits share no text. It does not tell how a method does on real language: its sentences are simpler and fewer in
    kind.
    """
    split = split or "train"
    split = "val" if split in ("dev", "validation", "valid") else split
    if split not in SIZES:
        raise UserError(f"planted has no split {split!r}; there are {', '.join(SIZES)}.{near(split, SIZES)}")
    size = SIZES[split] if size is None else size
    if split == "pairs" and size % 2:
        raise UserError(f"planted:pairs comes in pairs: expected an even size, not {size}.")
    name = "planted" if seed == 0 else f"planted:seed{seed}"
    return SizedCorpus(name, lambda: _texts(split, seed, size), split=split, labels=LABELS, size=size)


def _texts(split: str, seed: int, size: int) -> Iterator[Example]:
    grammar = Grammar(f"planted/{seed}/{split}")
    low, high = PLACES[split]
    seen: set[str] = set()
    while len(seen) < size:
        as_pair = split == "pairs" or (grammar.happens(PAIR_SHARE) and size - len(seen) >= 2)
        label = grammar.pick((0, 1))
        root = grammar.contrast(label) if as_pair else grammar.review(label)
        words = [node.word for node in root.in_order()]
        if len(words) > LONGEST or not low <= share(" ".join(sorted(words))) < high:
            continue
        name = f"{split}-{len(seen)}"
        made = _pair(name, root, label) if as_pair else [_example(name, root, label)]
        if seen.isdisjoint(example.text for example in made):
            seen.update(example.text for example in made)
            yield from made


def _pair(name: str, root: Node, label: int) -> list[Example]:
    """A text and its twin, in which negator and intensifier have changed places."""
    first = _example(f"{name}a", root, label, pair_id=name)
    one, other = (node for node in root.in_order() if node.decides and node.relation == "advmod")
    one.word, other.word = other.word, one.word
    one.upos, other.upos = other.upos, one.upos
    second = _example(f"{name}b", root, 1 - label, pair_id=name, counterpart=first.text)
    return [replace(first, extra={**first.extra, "counterpart": second.text}), second]


def _example(name: str, root: Node, label: int, **extra: Any) -> Example:
    nodes = root.in_order()
    parent = {id(child): node for node in nodes for child in (*node.left, *node.right)}
    place = {id(node): index for index, node in enumerate(nodes, 1)}
    heads = tuple(0 if node is root else place[id(parent[id(node)])] for node in nodes)
    words = tuple(node.word for node in nodes)
    return Example(
        id=name,
        text=" ".join(words),
        words=words,
        label=label,
        rationale=tuple(float(node.decides) for node in nodes),
        heads=heads,
        relations=tuple(node.relation for node in nodes),
        tags={"upos": tuple(node.upos for node in nodes)},
        extra={
            "rare": tuple(index for index, word in enumerate(words) if word in RARE),
            "negated": any(node.negator for node in nodes),
            **extra,
        },
    )
