"""Whether a head's attention encodes the dependency tree: maximum spanning arborescence, scored by UAS."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.constraints import Interval, OneOf, Seed
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs
from lorgnette.lens.parts import OncePerBatch
from lorgnette.results import Result
from lorgnette.statistics.hash_sample import NameSet
from lorgnette.statistics.hashing import text_key
from lorgnette.statistics.spearman import rounded
from lorgnette.subject import Subject
from lorgnette.syntax.arborescence import ROOTS, WAYS, free_trees, rooted_trees
from lorgnette.syntax.attachment import BASELINES, SCORES, agreement, baseline_trees
from lorgnette.syntax.edge_scores import SCORES as EDGES
from lorgnette.syntax.edge_scores import EdgeScores
from lorgnette.syntax.gold_trees import GoldTrees, Sentence, sites_between_words
from lorgnette.syntax.relation_names import SUBTYPES, UNIVERSAL, membership
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

_DESCRIPTIONS = {
    "uas": "share of words attached to the correct head, root included (a given root counts as correct)",
    "uas_nonroot": "share of words attached to the correct head, without the root",
    "uas_words": "share of words attached to the correct head, without punctuation, root included",
    "uas_words_nonroot": "share of words attached to the correct head, without punctuation and root",
    "undirected": "share of gold edges found, direction ignored",
    "undirected_words": "share of gold edges found, direction ignored, without punctuation",
    "recall": "share of the words of a relation attached to the correct head",
}

_OF = {"": "", "layer_": ": tree of the mean over heads", "baseline_": ": trees that ignore the sentence"}


class Trees(Lens):
    """UAS of the maximum spanning arborescence of each head's attention between words (Raganato & Tiedemann 2018).

        tree = argmax Σ_d score(d, head(d)),   score(d, h) = α_dh (`to_head`) or α_hd (`read_by_head`)

    α is between words (to: sum over pieces, from: mean); special tokens are left out. `scores="norms"` takes α‖f(x)‖
    for a head and ‖Σ_h α f(x)‖ for a layer, `scores="relevance"` what the prediction owes to the edge (a model with a
    head, one more pass and its way back). `root="gold"` gives the tree its root, as published, which then counts as
    right in `uas` and `uas_words`; the scores with `nonroot` leave it out. `root="free"` finds it. `layer_…` is the
    tree of the mean over heads. Shares are over all words of the corpus, standard errors over texts.

    Baselines: head_is_next, head_is_previous, a random other word, the tree of random scores (both seeded by the
    text's id, mean of `draws`), the star on the root. All are given the gold root.

    What it does not tell you: that a model builds trees. A head that reads the next word scores what head_is_next does.
    """

    of_heads: "_Shares"
    of_layers: "_Shares"
    trees: GoldTrees

    name: ClassVar[str] = "trees"
    summary: ClassVar[str] = "dependency trees from each head's attention (maximum spanning tree), UAS (treebank)"
    reads = frozenset({"cpu"})

    def __init__(
        self,
        scores: Annotated[str, OneOf(EDGES)] = "weights",
        *,
        root: Annotated[str, OneOf(ROOTS)] = "gold",
        subtypes: bool = False,
        draws: Annotated[int, Interval(1)] = 10,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        self.scores, self.root, self.draws, self.seed = scores, root, draws, seed
        self.relations = UNIVERSAL + (SUBTYPES if subtypes else ())

    def allocate(self, subject: Subject) -> None:
        self.parsing: tuple[Site, ...] = sites_between_words(self.sites, subject)
        self.begun: OncePerBatch[None] = OncePerBatch(self, self._begin)
        self.edges: EdgeScores = EdgeScores(subject, self.scores)
        self.of_heads, self.of_layers = _Shares(self, WAYS, "head"), _Shares(self, WAYS, "layer")
        self.pairs: Pairs = Pairs(self.of_heads.scores, "uas", {axes.WAY: "to_head"})
        self.of_baselines: _Shares = _Shares(self, BASELINES, "corpus")
        self.over_next: Moments = Moments(self, "uas_over_next")
        self.sums("words", 4)  # seen, without a piece, in broken trees, in texts whose root has no piece
        self.skipped: NameSet = NameSet(self, "skipped_texts")

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site not in self.parsing:
            return
        self.begun(batch)
        if self.scores != "relevance":
            self._take(site, *self.edges(call, batch, self.trees))

    def _take(
        self, site: Site, heads: Float[Tensor, "batch head word word2"], layer: Float[Tensor, "batch word word2"]
    ) -> None:
        both = _distinct(torch.cat([heads, layer[:, None]], 1)).numpy()
        judged = [self._judged(both[s.text], s, members) for s, members in self.sentences]
        if not judged:
            return
        values, weights = (torch.from_numpy(np.stack([text[which] for text in judged])) for which in (0, 1))
        texts = [sentence.text for sentence, _ in self.sentences]
        self.of_heads.add(site, values[:, :-1], weights[:, None, None], texts)
        uas = SCORES.index("uas")
        over = values[:, :-1, WAYS.index("to_head"), uas] - self.next_word[:, None]
        self.over_next.add(site, texts, uas_over_next=(over, weights[:, None, uas].expand_as(over)))
        self.of_layers.add(site, values[:, -1], weights[:, None], texts)

    def _begin(self, batch: Batch) -> None:
        """What all layers of a batch share; baselines and counts are taken in here, once."""
        self.trees = GoldTrees.of(batch)
        members = membership(self.trees.relations, self.relations, self.trees.visible.shape[1]).numpy()
        sentences = self.trees.sentences()
        rooted = [s for s in sentences if s.root is not None]
        self.sentences = [(s, members[s.text, s.words]) for s in rooted]
        lost = sum(len(e.words or ()) for e in batch.examples if e.id in self.trees.broken)
        rootless = sum(len(s.words) for s in sentences if s.root is None)
        self.skipped.add([*self.trees.broken, *(s.example.id for s in sentences if s.root is None)])
        visible = sum(len(s.words) for s in rooted)
        words = torch.tensor([visible, int(self.trees.unseen.sum()), lost, rootless])
        self.words += words.to(self.words)
        self._baselines()

    def _baselines(self) -> None:
        rows, counts = [], []
        for sentence, members in self.sentences:
            seed = text_key(sentence.example.id, self.seed)
            assert sentence.root is not None
            trees = baseline_trees(len(sentence.words), sentence.root, seed, self.draws)
            judged = [_shares(trees[name], sentence, members) for name in BASELINES]
            rows.append(np.stack([shares.mean(0) for shares, _ in judged]))
            counts.append(judged[0][1])
        if rows:
            values, weights = torch.from_numpy(np.stack(rows)), torch.from_numpy(np.stack(counts))
            self.next_word: Tensor = values[:, BASELINES.index("head_is_next"), SCORES.index("uas")]
            self.of_baselines.add(None, values, weights[:, None], [s.text for s, _ in self.sentences])

    def _judged(
        self, scores: Float[np.ndarray, "graph word word2"], sentence: "Sentence", members: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """[graph way column] shares of one text, and [column] what each is a share of."""
        inner = scores[:, sentence.words][:, :, sentence.words]
        ways = []
        for graphs in (inner, inner.transpose(0, 2, 1)):
            assert sentence.root is not None
            trees = rooted_trees(graphs, sentence.root) if self.root == "gold" else free_trees(graphs)
            ways.append(_shares(trees, sentence, members))
        return np.stack([shares for shares, _ in ways], 1), ways[0][1]

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Relevance is known only now."""
        if self.scores == "relevance":
            for site, heads, layer in self.edges.of_batch(batch, self.parsing, self.trees.visible.shape[1]):
                self._take(site, heads, layer)

    def compute(self) -> Result:
        """`uas` and its kin by head and way, `layer_…` for the mean over heads, `baseline_…`; `recall` by relation."""
        variables: dict[str, xr.DataArray] = {}
        descriptions: dict[str, str] = {}
        parts = (("", self.of_heads), ("layer_", self.of_layers), ("baseline_", self.of_baselines))
        for prefix, shares in parts:
            variables |= {f"{prefix}{name}": array for name, array in shares.arrays().items()}
            descriptions |= {prefix + name: about + _OF[prefix] for name, about in _DESCRIPTIONS.items()}
        variables |= self.over_next.arrays() | self.pairs.q()
        descriptions["uas_over_next"] = "UAS to heads minus that of attaching every word to the next one"
        result = self.result(variables, descriptions=descriptions)
        visible, unseen, lost, rootless = (int(n) for n in self.words)
        counted = {"words": visible, "words_without_a_piece": unseen, "words_in_broken_trees": lost}
        counted["words_in_texts_without_their_root"] = rootless
        result.data.attrs |= {"scores": self.scores, "root": self.root, "draws": self.draws, **counted}
        result.data.attrs["skipped"] = ", ".join(self.skipped.first(10))
        return result


class _Shares:
    """The scores and the recall of each relation, of trees read in some ways, or of baselines."""

    def __init__(self, lens: Trees, rows: tuple[str, ...], at: str) -> None:
        by_row = {axes.BASELINE if at == "corpus" else axes.WAY: rows}
        self.scores = Moments(lens, SCORES, by_row, at=at, state=f"{at}_scores")
        self.recall = Moments(lens, "recall", {**by_row, axes.RELATION: lens.relations}, at=at, state=f"{at}_recall")

    def add(
        self,
        site: Site | None,
        shares: Float[Tensor, "text *row column"],
        counts: Float[Tensor, "text *#row column"],
        texts: Sequence[int],
    ) -> None:
        """Columns are the scores, then the relations; `texts` are those of the batch."""
        each, weight = shares[..., : len(SCORES)].unbind(-1), counts[..., : len(SCORES)].unbind(-1)
        self.scores.add(site, texts, **{name: (each[number], weight[number]) for number, name in enumerate(SCORES)})
        self.recall.add(site, texts, recall=(shares[..., len(SCORES) :], counts[..., len(SCORES) :]))

    def arrays(self) -> dict[str, xr.DataArray]:
        return self.scores.arrays() | self.recall.arrays()


def _shares(trees: np.ndarray, sentence: "Sentence", members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores and recall by relation of some trees of one sentence, and how many words each is over."""
    right, counted = agreement(trees, sentence.gold, sentence.punctuation)
    pairs = members * (sentence.gold >= 0)[:, None]
    counts = np.concatenate([counted.sum(0), pairs.sum(0)]).astype(float)
    hits = np.concatenate([right.sum(1), (trees == sentence.gold) @ pairs], -1)
    return hits / np.maximum(counts, 1), counts


def _distinct(scores: Tensor) -> Tensor:
    """What differs by rounding alone must tie: which of equal trees is taken must not depend on the batch."""
    return rounded(scores.double().flatten(), bits=24).view(scores.shape)
