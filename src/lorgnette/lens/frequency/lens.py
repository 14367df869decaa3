"""Whether frequent tokens contribute less: rank correlation of frequency with α and with ‖f(x)‖."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Wanted
from lorgnette.constraints import Interval
from lorgnette.contributions.gated import ArrivingNorms
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.layer import transformed_norms_of
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.parts import OncePerBatch
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.statistics.hash_sample import Column, HashSample
from lorgnette.statistics.hashing import text_key, text_keys
from lorgnette.statistics.rank_error import spearman_with_error
from lorgnette.statistics.spearman import rounded
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.frequency import FrequencyRanks, bert_ranks, counted, wordfreq_ranks
from lorgnette.types import ModelOutput

MEASURES = ("weights", "norms")

# Ids of bert-base-uncased that a vocabulary must share for BERT's ranks to mean anything.
_Readings = dict[str, dict[int, Float[Tensor, "2 text key"]]]
"""Of each stack and layer: the mean weight that each key receives, and the norm of its transformed value."""

_BERT_IDS = {101: "[CLS]", 102: "[SEP]", 1010: ",", 1012: ".", 1996: "the", 2003: "is"}

_DESCRIPTIONS = {
    "spearman": "Spearman's ρ of frequency rank with the attention received, and with the norm ‖f(x)‖",
    "spearman_all": "the same with attention and norms averaged over all layers",
}


class Frequency(Lens):
    """Spearman's ρ between a token's frequency rank and α received, and ‖f(x)‖ (Kobayashi et al. 2020, §4.3).

    For every occurrence of a token, α is the mean over heads and over the queries that see it, ‖f(x)‖ the mean over
    heads; by layer, and over all layers. Rank 1 is the most frequent token, so ρ > 0 means that frequent tokens
    get less. Ranks: `"corpus"` counts the tokens of the analysed corpus, `"bert"` are counts of bert-base-uncased's
    tokens in Wikipedia, `"wordfreq"` the words of a `language` (a token has the rank of its word; special tokens and
    punctuation have none), or your own `FrequencyRanks`, by token id or by word. Uncounted tokens rank last.
    Correlations are over a random sample of at most `size` occurrences, the same in every run; standard errors and
    95 % intervals are over texts.

    Behind a gate, which gives each query i another vector of the token, ‖f(x_j)‖ is the mean over queries as they
    attend to it: Σ_i α_ij ‖f_i(x_j)‖ / Σ_i α_ij.

    What it does not tell you: why. Frequent words differ from rare words in more than frequency.
    """

    name: ClassVar[str] = "frequency"
    pieces: Tensor
    summary: ClassVar[str] = "whether frequent tokens contribute less: Spearman's ρ of frequency rank with α and ‖f(x)‖"
    reads = frozenset({"cpu"})

    def __init__(
        self,
        ranks: Literal["corpus", "bert", "wordfreq"] | FrequencyRanks[Any] = "corpus",
        *,
        language: str = "en",
        specials: bool = True,
        size: Annotated[int, Interval(2)] = 2**15,
    ) -> None:
        super().__init__()
        self.source, self.specials, self.size = ranks, specials, size
        self.ranks = self._open(ranks, language)

    @staticmethod
    def _open(ranks: "str | FrequencyRanks[Any]", language: str) -> "FrequencyRanks[Any] | None":
        if not isinstance(ranks, str):
            return ranks
        if ranks == "corpus":
            return None  # known only at the end
        return bert_ranks() if ranks == "bert" else wordfreq_ranks(language)

    @property
    def by_word(self) -> bool:
        return self.ranks is not None and isinstance(next(iter(self.ranks.ranks)), str)

    def allocate(self, subject: Subject) -> None:
        if self.source == "bert":
            _refuse_other_vocabulary(subject)
        self.readings: OncePerBatch[_Readings] = OncePerBatch(self, _no_readings)
        self.projections: SiteWeights = SiteWeights(subject, layer_norm=False, gated=True)
        self.stacks: list[str] = list(dict.fromkeys(site.name for site in self.sites if site.stack != "pooler"))
        self.layers: int = 1 + max(site.layer for site in self.sites)
        whole, layers = Column(dtype=torch.int64), Column((self.layers,))
        columns = {"text": whole, "piece": whole, "rank": Column(), "weights": layers, "norms": layers}
        self.sample: HashSample = HashSample(self, "sample", columns, size=self.size, strata=len(self.stacks))
        vocabulary = max(len(subject.tokenizer), int(getattr(subject.model.config, "vocab_size", 0) or 0))
        self.sums("pieces", 2, vocabulary)

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        if call.site.name not in self.stacks:
            return ()
        queries = batch.queries(call.site).mask
        return (Wanted(received=queries, block=self._arriving(call, queries)),)

    def _arriving(self, call: Call, queries: Bool[Tensor, "text query"]) -> ArrivingNorms | None:
        """The norms behind a gate, which is another vector for each query; None without one."""
        gate = self.projections.gate_of(call)
        if gate is None:
            return None
        maps = self.projections[call.site]
        return call.once(f"arriving {id(self)}", lambda: ArrivingNorms(call, maps, gate, queries))

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site.name not in self.stacks:
            return
        queries = batch.queries(site).mask
        (rows,) = self.measured(call, batch)
        arriving = self._arriving(call, queries)
        if arriving is None:
            norms = transformed_norms_of(call, self.projections[site])
        else:
            norms = arriving.lengths(rows["received"])
        mean = rows["received"].mean(1) / _query_counts(call, queries).clamp(min=1)
        self.readings(batch).setdefault(site.name, {})[site.layer] = torch.stack(
            [mean.double(), norms.mean(1).double()]
        )

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Add occurrences of this batch to the samples, after the last layer."""
        for side, tokens in enumerate((batch.source, batch.target)):
            if tokens is not None:
                ids = tokens.ids[tokens.mask].to(self.pieces.device)
                self.pieces[side] += torch.bincount(ids, minlength=self.pieces.shape[1])
        for stack, layers in self.readings(batch).items():
            site = next(site for site in self.sites if site.name == stack)
            read = torch.stack([each.to(self.pieces.device) for each in layers.values()]).cpu()  # once, for all layers
            measured = dict(zip(layers, read, strict=True))
            self._draw(site, batch.keys(site), measured, [example.id for example in batch.examples])

    def _draw(self, site: Site, tokens: Tokens, layers: dict[int, Float[Tensor, "2 text key"]], ids: list[str]) -> None:
        text, position = self._counting(tokens).nonzero(as_tuple=True)
        token = (tokens.mask.cumsum(-1) - 1)[text, position]  # its number in its text, wherever padding is
        longest = int(token.max()) + 1 if len(token) else 0
        keys = text_keys(ids, [(site.name, n) for n in range(longest)])
        number = torch.from_numpy((keys >> np.uint64(11)).astype(np.int64))[text, token]
        stack = self.stacks.index(site.name)

        def columns(kept: Int[Tensor, " kept"]) -> dict[str, Tensor]:
            at, place = text[kept], position[kept]
            both = torch.zeros(2, len(kept), self.layers, dtype=torch.float64)
            for layer, measured in layers.items():
                for into, values in zip(both, measured, strict=True):
                    into[:, layer] = values[at, place]
            ranks = [0] * len(kept) if self.ranks is None else self._ranked(tokens, at, place)
            return {
                "text": torch.tensor([text_key(i) >> 11 for i in ids])[at],
                "piece": tokens.ids.cpu()[at, place],
                "rank": torch.tensor(ranks, dtype=torch.float64),
                "weights": both[0],
                "norms": both[1],
            }

        self.sample.offer(number, columns, stratum=stack)

    def _counting(self, tokens: Tokens) -> Bool[Tensor, "text token"]:
        """The tokens that have a rank: with ranks of words, not special tokens, nor marks that the ranks leave out."""
        if self.by_word or not self.specials:
            counting = (tokens.mask & ~tokens.special).cpu()
        else:
            counting = tokens.mask.cpu()
        if self.ranks is not None and self.by_word:
            for text, words in enumerate(tokens.words):
                marks = [n for n, word in enumerate(words) if not _is_word(word) and bare_word(word) not in self.ranks]
                counting[text] &= ~torch.isin(tokens.word[text].cpu(), torch.tensor(marks, dtype=torch.long))
        return counting

    def _ranked(self, tokens: Tokens, text: Tensor, position: Tensor) -> list[int]:
        assert self.ranks is not None
        if not self.by_word:
            return [self.ranks[piece] for piece in tokens.ids.cpu()[text, position].tolist()]
        words = tokens.word.cpu()[text, position].tolist()
        return [self.ranks[bare_word(tokens.words[t][word])] for t, word in zip(text.tolist(), words, strict=True)]

    def compute(self) -> Result:
        """ρ by layer and over all layers, with standard errors and intervals over texts."""
        cells = np.full((len(self.stacks), self.layers + 1, len(MEASURES), 6), np.nan)
        cells[..., 4:] = 0
        for number, stack in enumerate(self.stacks):
            layers = [site.layer for site in self.sites if site.name == stack]
            rows = self.sample.rows(number)
            rank = rows["rank"] if self.ranks is not None else self._counted_ranks(stack, rows["piece"])
            for m, name in enumerate(MEASURES):
                values = rows[name].T[layers]
                for layer, value in zip([*layers, self.layers], [*values, values.mean(0)], strict=True):
                    cells[number, layer, m] = rank_correlation(rank, value, rows["text"])
        return self._result(cells)

    def _counted_ranks(self, stack: str, piece: Int[Tensor, " item"]) -> Float[Tensor, " item"]:
        target = stack == "decoder" and bool(self.pieces[1].any())
        counts = self.pieces[int(target)]
        if not len(piece):
            return piece.double()
        ranks = counted({int(k): float(counts[k]) for k in counts.nonzero()[:, 0]}, "corpus")
        return torch.tensor([ranks[int(k)] for k in piece], dtype=torch.float64)

    def _result(self, cells: Float[np.ndarray, "stack layer measure cell"]) -> Result:
        variables: dict[str, xr.DataArray] = {}
        for cell, tail in enumerate(("", "_se", "_low", "_high", "_count", "_tokens")):
            for name, part, dims in (
                ("spearman", cells[:, :-1, :, cell], (axes.STACK, axes.LAYER, axes.MEASURE)),
                ("spearman_all", cells[:, -1, :, cell], (axes.STACK, axes.MEASURE)),
            ):
                array = xr.DataArray(part, dims=dims)
                variables[name + tail] = array.astype("int64") if cell > 3 else array
        layers = list(range(1, self.layers + 1))
        labels = {axes.STACK: self.stacks, axes.LAYER: layers, axes.MEASURE: list(MEASURES)}
        result = self.result(variables, labels, _DESCRIPTIONS)
        source = self.ranks.source if self.ranks is not None else "tokens counted in the corpus itself"
        result.data.attrs |= {"ranks": source, "specials": self.specials and not self.by_word, "size": self.size}
        return result


def rank_correlation(rank: Tensor, value: Tensor, text: Tensor) -> tuple[float, float, float, float, int, int]:
    """ρ, its standard error, a 95 % interval (even on Fisher's scale), texts and occurrences."""
    missing = float("nan")
    correlation = spearman_with_error(rank, rounded(value), text.long()) if len(rank) > 1 else None
    if correlation is None:
        return missing, missing, missing, missing, 0, 0
    rho, error, texts = correlation
    return rho, error, *Estimate(rho, error, texts).correlation_interval, texts, len(rank)


def _no_readings(batch: Batch) -> _Readings:
    return {}


def _query_counts(call: Call, queries: Tensor) -> Tensor:
    """How many queries may see each key: [batch key]."""
    return queries.sum(-1, keepdim=True) if call.scores.rows_alike else call.scores.query_counts(queries)


def bare_word(word: str) -> str:
    """Lower case, without the marks around it that some tokenizers leave on a word; a mark alone stays itself."""
    bare = word.lower()
    return re.sub(r"^\W+|\W+$", "", bare) or bare


def _is_word(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _refuse_other_vocabulary(subject: Subject) -> None:
    last = len(subject.tokenizer) - 1
    known = subject.tokenizer.convert_ids_to_tokens([min(number, last) for number in _BERT_IDS])
    if known != list(_BERT_IDS.values()):
        raise UserError(
            f"BERT's frequency ranks are for the tokens of bert-base-uncased, but {subject.name!r} has another "
            "vocabulary. Use ranks='corpus' or ranks='wordfreq'."
        )
