"""How much syntax all heads encode together: a trained combination of their weights, with and without GloVe."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from torch.nn.functional import pad

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.words import between_words
from lorgnette.constraints import Interval, Seed, Share
from lorgnette.lens.attention_probe.probe import (
    AttentionAndVectors,
    AttentionOnly,
    Sentences,
    VectorsAndDistance,
    log_odds,
    trained,
)
from lorgnette.lens.attention_probe.sentences import SampledSentence, SentenceSample
from lorgnette.lens.base import Lens
from lorgnette.lens.parts import OncePerBatch
from lorgnette.results import Result
from lorgnette.statistics.estimate import error_of_terms
from lorgnette.statistics.hashing import text_key
from lorgnette.subject import Subject
from lorgnette.syntax.arborescence import free_trees
from lorgnette.syntax.attachment import SCORES, UNKNOWN, agreement, head_is_next
from lorgnette.syntax.gold_trees import GoldTrees, Sentence, sites_between_words
from lorgnette.texts.annotated import share
from lorgnette.texts.batch import Batch
from lorgnette.texts.vectors import read_vectors
from lorgnette.types import ModelOutput

DECODINGS = ("argmax", "tree")
FEATURES: dict[str, Callable[[int, int], torch.nn.Module]] = {
    "attention": AttentionOnly,
    "attention_vectors": AttentionAndVectors,
    "vectors_distance": VectorsAndDistance,
}
"""What a probe sees; those with vectors need `vectors`."""

_DESCRIPTIONS = {
    "weight": "weight of a head in the probe of attention alone",
    "uas": "share of held-out words attached to the correct head, root included",
}


class AttentionProbe(Lens):
    """UAS of a trained combination of all heads (Clark et al. 2019, §5).

        p(i is the head of j) ∝ exp Σ_k (w_k α^k_ji + u_k α^k_ij)          α_ji: what j gives to i
        with vectors: w_k = W_k (v_i ⊕ v_j), u_k = U_k (v_i ⊕ v_j)

    over the other words i and the root, which is scored from what j gives to the tokens that open and close a text. The
    model is frozen. Trained by Adam on the development part of the texts (a hash of their ids), scored on the held-out
    part: each word's most likely head (`argmax`, as published), and the best tree of the log-odds (`tree`). Without
    `vectors` only the attention is used; with them (a GloVe file, or a folder that holds one), also attention with
    vectors, and vectors with distance alone. Beside them: the head is the next word ("right-branching").

    At most `texts` texts are kept, those whose hashes are smallest. Standard errors are over held-out texts. The paper
    takes 36,160 steps of one sentence at rate .002; fewer steps need a higher rate.

    What it does not tell you: which head the model uses. Weights of heads that say the same are shared out anyhow.
    """

    trees: GoldTrees

    name: ClassVar[str] = "attention-probe"
    summary: ClassVar[str] = "a trained combination of all heads as a parser, with and without GloVe: UAS (treebank)"
    reads = frozenset({"cpu"})

    def __init__(
        self,
        vectors: str | Path | None = None,
        *,
        texts: Annotated[int, Interval(1)] = 2000,
        development: Share = 0.8,
        rate: Annotated[float, Interval(0, closed="right")] = 0.01,
        steps: Annotated[int, Interval(1)] = 1000,
        batch: Annotated[int, Interval(1)] = 4,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        self.texts, self.development = texts, development
        self.rate, self.steps, self.batch_texts, self.seed = rate, steps, batch, seed
        self.vectors: str | None = None if vectors is None else str(vectors)
        self.place: dict[str, int] = {}
        self.table = np.zeros((1, 1), dtype=np.float32)
        if vectors is not None:
            words, table = read_vectors(vectors)
            self.place = {word: number for number, word in enumerate(words)}
            self.table = np.concatenate([table, np.zeros_like(table[:1])])  # the last: a word without a vector
        self.features = tuple(FEATURES) if vectors is not None else ("attention",)
        self.matrices: dict[Site, tuple[Tensor, Tensor]] = {}

    def allocate(self, subject: Subject) -> None:
        self.parsing: tuple[Site, ...] = sites_between_words(self.sites, subject)
        self.begun: OncePerBatch[None] = OncePerBatch(self, self._begin)
        self.sentences: SentenceSample = SentenceSample(self, len(self.parsing) * self.heads, self.texts)

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site not in self.parsing:
            return
        self.begun(batch)
        weights = call.weights.to(torch.promote_types(call.query.dtype, torch.float32))
        words = self.trees.visible.shape[1]
        between, _ = between_words(weights, batch.source.word, words)
        kinds = torch.stack([batch.source.categories[kind] for kind in ("cls", "sep")], -1).to(weights.dtype)
        given = weights @ kinds[:, None]  # [batch head token two]
        member = (batch.source.word[..., None] == torch.arange(words, device=weights.device)).to(weights.dtype)
        special = given.mT @ (member / member.sum(1, keepdim=True).clamp(min=1))[:, None]
        # A site may have fewer heads than another; those that are not there give nothing.
        padding = (0, 0, 0, 0, 0, self.heads - weights.shape[1])
        self.matrices[site] = (pad(between.cpu(), padding), pad(special.cpu(), padding))

    def _begin(self, batch: Batch) -> None:
        self.trees, self.matrices = GoldTrees.of(batch), {}

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Keep the sentences of this batch, now that all layers have been seen."""
        keys, chosen = [], []
        for sentence in self.trees.sentences():
            between, special = (
                torch.cat([self.matrices[site][which][sentence.text] for site in self.parsing]) for which in (0, 1)
            )
            words = torch.from_numpy(sentence.words)
            late = share(f"part/{sentence.example.id}") >= self.development
            rows = [self._vector(word) for word in np.array(sentence.example.words, dtype=object)[sentence.words]]
            keys.append(text_key("attention-probe", sentence.example.id) >> 11)
            chosen.append(SampledSentence(late, between[:, words][:, :, words], special[:, :, words], sentence, rows))
        if chosen:
            self.sentences.add(keys, chosen)
        self.matrices = {}

    def _vector(self, word: str) -> int:
        """The row of a word's vector: as written, else in lower case, else the last, which is zero."""
        return self.place.get(word, self.place.get(word.lower(), len(self.table) - 1))

    def compute(self) -> Result:
        """`uas` and its kin by features and decoding, on held-out texts; `weight` of each head, both ways."""
        early, late = self.sentences.parts(self.batch_texts, self.table)
        shares = np.full((len(FEATURES), len(DECODINGS), len(SCORES), 3), np.nan)
        shares[..., 2] = 0
        weight = torch.zeros(2, len(self.parsing), self.heads, dtype=torch.float64)
        over = shares.copy()
        following = _next_word([g for _, gold in late for g in gold])
        if early and late:
            for number, name in enumerate(FEATURES):
                if name not in self.features:
                    continue
                untrained = FEATURES[name](self.sentences.heads, self.table.shape[1])
                probe = trained(untrained, [s for s, _ in early], rate=self.rate, steps=self.steps, seed=self.seed)
                shares[number], over[number] = _scored(probe, late, following)
                if isinstance(probe, AttentionOnly):
                    weight = probe.own.detach().view(2, len(self.parsing), self.heads)
        base = share_of_words(*following)
        return self._result(shares, over, base, weight, bool(early and late))

    def _result(
        self, shares: np.ndarray, over: np.ndarray, following: np.ndarray, weight: Tensor, complete: bool
    ) -> Result:
        variables: dict[str, xr.DataArray] = {}
        labels = {axes.FEATURES: list(FEATURES), axes.DECODING: list(DECODINGS)}
        for number, name in enumerate(SCORES):
            for cell, tail in enumerate(("", "_se", "_count")):
                array = xr.DataArray(shares[:, :, number, cell], dims=tuple(labels), coords=labels)
                base = xr.DataArray(following[number, cell])
                whole = cell == 2
                variables[name + tail] = array.astype("int64") if whole else array
                gain = xr.DataArray(over[:, :, number, cell], dims=tuple(labels), coords=labels)
                variables[f"{name}_over_next{tail}"] = gain.astype("int64") if whole else gain
                variables[f"head_is_next_{name}{tail}"] = base.astype("int64") if whole else base
        by_site = torch.zeros(len(self.sites), self.heads, 2, dtype=torch.float64)
        for number, site in enumerate(self.parsing):
            by_site[self.position[site]] = weight[:, number].mT
        counted = torch.zeros(len(self.sites), self.heads, 2, dtype=torch.float64)
        for site in self.parsing:
            counted[self.position[site]] = float(complete)
        # Heads come out the same up to rounding, however texts were batched.
        for name, values in (("weight", by_site.mul(1000).round() / 1000), ("weight_count", counted)):
            grid = self.grid(values, {axes.WAY: ["to_head", "read_by_head"]})
            variables[name] = grid.fillna(0).astype("int64") if name == "weight_count" else grid.where(grid != 0, 0.0)
        if not complete:
            variables["weight"] = variables["weight"] * np.nan
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        texts = {"rate": self.rate, "steps": self.steps, "batch": self.batch_texts, "vectors": self.vectors or ""}
        result.data.attrs |= {**texts, "texts": self.sentences.count}
        return result


def _scored(
    probe: torch.nn.Module, late: list[tuple[Sentences, list[Sentence]]], following: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """[decoding score (share, standard error, texts)] over held-out texts; the same beyond the next word."""
    right: dict[str, list[np.ndarray]] = {name: [] for name in DECODINGS}
    counts = []
    for batch, sentences in late:
        odds = log_odds(probe, batch)
        for row, sentence in zip(odds, sentences, strict=True):
            n = len(sentence.gold)
            scores = torch.cat([row[:n, :n], row[:n, -1:]], -1).numpy()
            best = scores.argmax(-1)
            finite = np.where(np.isfinite(scores), scores, 0.0)
            trees = {
                "argmax": np.where(best == n, -1, best)[None],
                "tree": free_trees(finite[None, :, :n], finite[None, :, n]),
            }
            for name, tree in trees.items():
                correct, counted = agreement(tree, sentence.gold, sentence.punctuation)
                right[name].append(correct[0].sum(0))
            counts.append(counted.sum(0))
    by_way = [np.stack(right[name]) for name in DECODINGS]
    found, beyond = ([share_of_words(each - less, np.stack(counts)) for each in by_way] for less in (0, following[0]))
    return np.stack(found), np.stack(beyond)


def _next_word(sentences: list[Sentence]) -> tuple[np.ndarray, np.ndarray]:
    """Words that "the head is the next word" gets right and words counted, [text score]; it is not given the root."""
    if not sentences:
        return np.zeros((0, len(SCORES))), np.zeros((0, len(SCORES)))
    right, counts = [], []
    for sentence in sentences:
        tree = head_is_next(len(sentence.gold), len(sentence.gold) - 1)
        tree[-1] = UNKNOWN
        tree = np.where(sentence.gold == UNKNOWN, -3, tree)
        correct, counted = agreement(tree[None], sentence.gold, sentence.punctuation)
        right.append(correct[0].sum(0))
        counts.append(counted.sum(0))
    return np.stack(right), np.stack(counts)


def share_of_words(right: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[score (share, standard error, texts)] from [text score]: a ratio of sums, linearised over texts."""
    out = np.full((right.shape[1], 3), np.nan)
    for score in range(right.shape[1]):
        counted = counts[:, score] > 0
        x, n = right[counted, score], counts[counted, score]
        out[score, 2] = len(n)
        if len(n):
            out[score, 0] = x.sum() / n.sum()
        if len(n) > 1:
            out[score, 1] = error_of_terms((x - out[score, 0] * n) / n.sum(), out[score, 2])
    return out
