"""One sentence with the tree induced by a head's attention, beside the gold tree."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from lorgnette.attending import Recorder, Site
from lorgnette.errors import UserError
from lorgnette.subject import Subject
from lorgnette.syntax.arborescence import ROOTS, WAYS, free_trees, rooted_trees
from lorgnette.syntax.edge_scores import EdgeScores
from lorgnette.syntax.gold_trees import GoldTrees, parsed_sites
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.types import Json


@dataclass(frozen=True)
class InducedTree:
    """The words of a sentence, the heads that were drawn and the gold ones: 1-based, 0 for the root.

    A word that the model does not see has None for its head and score; the root has None for its score.
    """

    id: str
    words: tuple[str, ...]
    predicted: tuple[int | None, ...]
    scores: tuple[float | None, ...]  # of the edge to the predicted head
    gold: tuple[int, ...]
    relations: tuple[str, ...]
    stack: str
    layer: int
    head: int | None  # None: the mean over heads
    way: str
    root: str

    @property
    def right(self) -> tuple[bool, ...]:
        return tuple(one == other for one, other in zip(self.predicted, self.gold, strict=True))

    @property
    def uas(self) -> float:
        """Share of the words that the model sees whose head is right, the root's among them."""
        judged = [right for right, head in zip(self.right, self.predicted, strict=True) if head is not None]
        return sum(judged) / max(1, len(judged))

    @property
    def name(self) -> str:
        """Which attention drew it, as "encoder 3.5" or "encoder 3, mean over heads"."""
        return f"{self.stack} {self.layer}" + (f".{self.head}" if self.head else ", mean over heads")

    def to_dict(self) -> Json:
        """Everything, for JSON."""
        return {**asdict(self), "uas": self.uas}

    def text(self) -> str:
        """Both trees as text, the drawn tree on the left, the gold tree on the right; a cross marks a wrong head."""
        left = drawn(self.words, self.predicted, ["" if good else " ✗" for good in self.right])
        right = drawn(self.words, self.gold, [f"  {relation}" for relation in self.relations])
        return "\n".join(beside([self.name, *left], ["gold", *right]))


def induced(
    subject: Subject,
    example: Example,
    layer: int,
    head: int | None = None,
    *,
    way: str = "to_head",
    root: str = "gold",
    scores: str = "weights",
) -> InducedTree:
    """The maximum spanning tree of one head (or of a layer's mean) for one sentence; see the lens `trees`."""
    for name, value, known in (("way", way, WAYS), ("root", root, ROOTS)):
        if value not in known:
            raise UserError(f"{name!r} must be one of {', '.join(known)}. Got {value!r} instead.")
    site = _site(subject, layer, head)
    batch = subject.encode([example])
    trees = GoldTrees.of(batch)
    sentence = next(iter(trees.sentences()), None)
    if sentence is None or (root == "gold" and sentence.root is None):
        raise UserError(f"The text {example.id!r} has no gold tree whose root is among the model's tokens.")
    heads, mean = _edges(subject, scores, site, batch, trees)
    matrix = (mean if head is None else heads[:, head - 1])[0].double().numpy()
    inner = matrix[sentence.words][:, sentence.words]
    graph = (inner if way == "to_head" else inner.T)[None]
    tree = (free_trees(graph) if root == "free" or sentence.root is None else rooted_trees(graph, sentence.root))[0]
    predicted: list[int | None] = [None] * len(example.words or ())
    edges: list[float | None] = [None] * len(predicted)
    for place, word in enumerate(sentence.words.tolist()):
        governor = int(tree[place])
        predicted[word] = 0 if governor < 0 else int(sentence.words[governor]) + 1
        edges[word] = None if governor < 0 else float(graph[0, place, governor])
    return InducedTree(
        id=example.id,
        words=tuple(example.words or ()),
        predicted=tuple(predicted),
        scores=tuple(edges),
        gold=tuple(example.heads or ()),
        relations=trees.relations[0],
        stack=site.name,
        layer=layer,
        head=head,
        way=way,
        root=root,
    )


def _edges(subject: Subject, scores: str, site: Site, batch: Batch, trees: GoldTrees) -> tuple[Tensor, Tensor]:
    made = EdgeScores(subject, scores)
    if scores == "relevance":
        return next((heads, layer) for _, heads, layer in made.of_batch(batch, [site], trees.visible.shape[1]))
    recorder = Recorder(lambda call: made(call, batch, trees), sites=[site])
    with torch.no_grad(), subject.tapped(recorder):
        subject.run(batch)
    return recorder[site]


def _site(subject: Subject, layer: int, head: int | None) -> Site:
    sites = parsed_sites(subject.sites)
    chosen = next((site for site in sites if site.layer + 1 == layer), None)
    if chosen is None or (head is not None and not 1 <= head <= subject.anatomy[chosen].heads):
        asked = f"{layer}" if head is None else f"{layer}.{head}"
        raise UserError(
            f"{subject.name!r} has no head {asked}: it has {len(sites)} layers of {subject.heads} heads, from 1 on."
        )
    return chosen


def drawn(words: Sequence[str], heads: Sequence[int | None], notes: Sequence[str]) -> list[str]:
    """A tree as lines, dependents below their head in the order of the sentence; what hangs nowhere comes last."""
    children: dict[int, list[int]] = {}
    for word, head in enumerate(heads, 1):
        if head is not None:
            children.setdefault(head, []).append(word)
    lines: list[str] = []
    todo = [(root, "", "") for root in reversed(children.get(0, []))]
    while todo:
        word, lead, branch = todo.pop()
        lines.append(f"{lead}{branch}{words[word - 1]}{notes[word - 1]}")
        deeper = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        below = children.get(word, [])
        todo += [(child, deeper, "└─ " if child == below[-1] else "├─ ") for child in reversed(below)]
    return lines + [f"({words[n]}: not seen)" for n, head in enumerate(heads) if head is None]


def beside(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Two blocks of lines side by side."""
    width = max(map(len, left), default=0) + 4
    rows = max(len(left), len(right))
    pad = lambda lines: [*lines, *[""] * (rows - len(lines))]  # noqa: E731
    return [f"{a:<{width}}{b}".rstrip() for a, b in zip(pad(left), pad(right), strict=True)]
