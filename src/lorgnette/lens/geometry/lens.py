"""Geometry of the representations: mean cosine, isotropy, effective rank, rogue dimensions."""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.constraints import Interval
from lorgnette.errors import UserError
from lorgnette.free_memory import free_memory
from lorgnette.lens.centring import CentredLens
from lorgnette.lens.geometry.cloud import Cloud, Clouds
from lorgnette.lens.geometry.cosine import (
    SQUARES,
    TOTAL,
    UNITS,
    contributions,
    directions,
    mean_pairwise_cosine,
)
from lorgnette.lens.geometry.isotropy import effective_rank_of, eigenvalues
from lorgnette.lens.geometry.word_similarity import WordSimilarity, state_grams, word_similarity
from lorgnette.lens.hidden_states import VECTORS, VectorSizes, hidden_states, sides
from lorgnette.lens.moments import Moments
from lorgnette.lens.occurrences import occurrences, smallest_of_each, word_vectors
from lorgnette.lens.pairs import Pairs
from lorgnette.lens.parts import Waiting
from lorgnette.lens.places import Places
from lorgnette.results import Result
from lorgnette.statistics.hash_sample import Column, HashSample
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.word_forms import word_number
from lorgnette.types import ModelOutput

MOST_MEMORY = 2**32
_DESCRIPTIONS = {
    "sim": "mean cosine of all pairs of vectors of a text, mean over texts",
    "intra_similarity": "mean cosine of the vectors of a text with their mean, mean over texts",
    "part_sim": "sim among the vectors of one part of a text, mean over texts",
    "state_part_sim": "the same of hidden states",
    "sim_corpus": "mean cosine of all pairs of vectors of the corpus",
    "along_mean": "mean cosine of the vectors of the corpus with their mean (zero vectors excluded)",
    "mean_share": "squared norm of the mean vector divided by the mean squared norm, over all vectors of the corpus",
    "sim_centred": "sim of the vectors minus their mean over the corpus (an arbitrary constant in keys and values)",
    "sim_corpus_centred": "sim_corpus of the vectors minus their mean over the corpus",
    "rogue_1": "share of sim_corpus due to the largest dimension (if sim_corpus is above 0.01)",
    "rogue_3": "share of sim_corpus due to the three largest dimensions",
    "isoscore": "IsoScore of the corpus: 1 = isotropic, 0 = all variance in one direction",
    "effective_rank": "effective rank: exp of the entropy of the normalised singular values (vectors not centred)",
    "vectors_count": "number of non-zero vectors",
    "zero_vectors": "number of zero vectors (excluded from every cosine)",
    "short_texts": "number of texts with fewer than two vectors (excluded from sim)",
    "self_similarity": "mean cosine of the occurrences of a word, mean over words",
    "mev": "MEV: share of the squared norm of a word's occurrences along one direction, mean over words",
    "random_cosine": "baseline: mean cosine of random words, one from each text",
    "random_mev": "baseline: share of the squared norm of random words along one direction",
    "state_mean_direction": "direction of the mean of the corpus (unit vector)",
    "state_contribution": "contribution of each dimension to state_sim_corpus, to which they sum",
}

_CENTRED = ("sim", "sim_se", "sim_count", "sim_corpus", "sim_corpus_count")
"""What is measured of centred vectors too."""


class Geometry(CentredLens):
    """Mean pairwise cosine of states, queries, keys and values, and its relatives (Fosse et al. 2023, Ethayarajh 2019).

        SIM = 2/(n(n−1)) Σ_{i<j} cos(x_i, x_j)        within a text, then mean over texts; and over the corpus

    for every head, for the concatenated heads (`_all`) and for the hidden states (`state_`), with IntraSim, the mean
    direction, rogue dimensions; with `covariances`, IsoScore and effective rank (`"states"`: of hidden states only; by
    default of all vectors if their covariances fit into 4 GiB, else of the states if those fit, else of none); with
    `words`, SelfSim and MEV of words with at least `least` occurrences, and all of them less what random words
    have in common (`_adjusted`).

    With `centred`, `sim_centred` and `sim_corpus_centred` are of queries, keys and values less their mean over all
    tokens of the corpus, per head, which is read once before: a constant in all keys changes no attention, and one in
    all values could as well stand in the bias, but both change SIM (docs/gauge.md).

    `specials`: which tokens count: True all, False none of [CLS], [SEP], </s>, "cls" only what opens a text. Padding
    never; in state 0, the embeddings, neither specials nor unknown words ever (Fosse et al. 2023).

    What it does not tell you: why. A high SIM may be one rogue dimension, frequent tokens, or a bias, and says nothing
    of whether differences between vectors are lost: see `isoscore`, which is about the cloud, not about its place.
    """

    heads_clouds: Clouds
    by_word: HashSample

    name: ClassVar[str] = "geometry"
    summary: ClassVar[str] = "anisotropy: mean cosine of states, queries, keys and values; IsoScore; rogue dimensions"
    reads = frozenset({"hidden states"})

    def __init__(
        self,
        *,
        specials: bool | Literal["cls"] = True,
        covariances: bool | Literal["states"] | None = None,
        words: bool = True,
        least: Annotated[int, Interval(2)] = 5,
        occurrences: Annotated[int, Interval(20)] = 4096,
        centred: bool = False,
        parts: Sequence[str] = (),
    ) -> None:
        """`parts`: named parts of the texts (image, text, special; user, assistant, …) whose SIM is measured apart."""
        super().__init__(centred)
        self.parts: tuple[str, ...] = tuple(parts)
        self.specials, self.wanted, self.words = specials, covariances, words
        self.least, self.occurrences = least, occurrences
        self.reads = self.reads | ({"words"} if words else set()) | ({"cpu"} if centred else set())

    def allocate(self, subject: Subject) -> None:
        shapes = VectorSizes.of(subject)
        self.precision = torch.float64 if subject.dtype == torch.float64 else torch.float32
        self.causal: bool = subject.anatomy.causal
        self.unknown = subject.tokenizer.unk_token_id if subject.has_tokenizer else None
        # Patches and frames have no ids, so that none is a word that comes again.
        self.words = self.words and getattr(subject.model, "main_input_name", "input_ids") == "input_ids"
        self.stacks: list[str] = list(shapes.states)
        states = [Site(stack, "self", number) for stack, (n, _) in shapes.states.items() for number in range(n)]
        self.covariances: bool | Literal["states"] = self._chosen(subject, shapes, len(states))
        # Behind the heads, all of them side by side.
        at_sites = Places(self.sites, self.heads, self.numbers, together=1)
        self.heads_clouds = Clouds(self, at_sites, VECTORS, shapes.dim, "vector", covariances=self.covariances is True)
        for site, kinds in shapes.vectors.items():
            for kind, shape in enumerate(kinds):
                self.heads_clouds.widths[self.position[site], kind] = shape
        at_states = Places(tuple(states), 1, together=1, layer=axes.STATE, first=0)
        covariances = bool(self.covariances)
        self.state_clouds: Clouds = Clouds(self, at_states, ("state",), shapes.width, "state", covariances=covariances)
        for site in states:
            self.state_clouds.widths[at_states.index(site), 0] = (1, shapes.states[site.stack][1])
        self.pairs: dict[str, Pairs] = {
            name: Pairs(clouds.moments, "sim", together=True, name=name)
            for name, clouds in (("sim_all", self.heads_clouds), ("state_sim", self.state_clouds))
        }
        if self.parts:
            by_part = {axes.VECTORS: VECTORS, axes.CATEGORY: self.parts}
            self.of_parts: Moments = Moments(self, "part_sim", by_part)
            layers = Places(tuple(states), layer=axes.STATE, first=0)
            self.states_of_parts: Moments = Moments(self, "state_part_sim", {axes.CATEGORY: self.parts}, at=layers)
        if self.centred:
            self.centred_clouds: Clouds = Clouds(self, at_sites, VECTORS, shapes.dim, "centred", covariances=False)
            self.centred_clouds.widths |= self.heads_clouds.widths
        if self.per_text is not None:
            self.per_text.named = self._named_as_in_the_result
        self.depth: int = max(number for number, _ in shapes.states.values())
        self.width: int = shapes.width
        if self.words:
            self.pieces: Waiting[_States] = Waiting(self, self._take_words, on_cpu=True)
            columns = {"vectors": Column((self.depth, self.width), self.precision, on_device=True)}
            each, stacks = max(20, self.least), len(self.stacks)
            self.by_word = HashSample(self, "words", columns, size=self.occurrences, strata=stacks, each=each)
            self.at_random: HashSample = HashSample(self, "random", columns, size=1000, strata=stacks, each=1)

    def _chosen(self, subject: Subject, shapes: VectorSizes, states: int) -> bool | Literal["states"]:
        """Which covariances are kept: those that the option names, or those that fit into `MOST_MEMORY`."""
        of_states = states * shapes.width**2 * 8
        of_heads = len(self.sites) * len(VECTORS) * (self.heads * shapes.dim) ** 2 * 8
        sizes: dict[bool | Literal["states"], int] = {True: of_states + of_heads, "states": of_states, False: 0}
        self.note: str | None = None
        if self.wanted is None:
            chosen = next(choice for choice, size in sizes.items() if size <= MOST_MEMORY)
            if chosen is not True:
                self.note = (
                    f"IsoScore and effective rank {'of queries, keys and values ' if chosen else ''}were left out: "
                    f"covariances would take {sizes[True] / 2**30:.0f} GiB (covariances=true measures them"
                    f"{'' if chosen else f', covariances=states takes {of_states / 2**30:.0f} GiB'})."
                )
            return chosen
        size, free = sizes[self.wanted], free_memory(self.states.device)
        if free is not None and size > free:
            less = "'states' or False" if self.wanted is True else "False"
            raise UserError(
                f"The covariances of {subject.name!r} would take {size / 2**30:.0f} GiB, and {free / 2**30:.0f} GiB "
                f"are free. Use Geometry(covariances={less})."
            )
        return self.wanted

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        queries, keys = self._counting(batch.queries(site)), self._counting(batch.keys(site))
        masks = (queries, keys, keys)
        self.heads_clouds.add(_clouds(site, (call.query, call.key, call.value), masks))
        if self.parts:
            each = zip((call.query, call.key, call.value), (batch.queries(site), *(batch.keys(site),) * 2), strict=True)
            found = [self._sim_of_parts(vectors.transpose(1, 2), tokens) for vectors, tokens in each]
            self.of_parts.add(
                site, part_sim=(torch.stack([v for v, _ in found], 2), torch.stack([w for _, w in found], 2))
            )
        if self.centred:
            self.centred_clouds.add(_clouds(site, self.centring.vectors(call), masks))

    def _sim_of_parts(
        self, vectors: Float[Tensor, "batch token head dim"], tokens: Tokens
    ) -> tuple[Float[Tensor, "batch head part"], Float[Tensor, "batch head part"]]:
        """SIM among the vectors of each part of each text, and which of them are defined."""
        values, weights = [], []
        for part in tokens.kinds(self.parts).unbind(-1):
            of_part = directions(vectors, part)
            count = of_part.count[:, : vectors.shape[2]]
            values.append(mean_pairwise_cosine(of_part.units, count))
            weights.append((count > 1).double())
        return torch.stack(values, -1), torch.stack(weights, -1)

    def _counting(self, tokens: Tokens) -> Bool[Tensor, "batch token"]:
        if self.specials is True:
            return tokens.mask
        return tokens.ordinary | (tokens.mask & tokens.categories["cls"]) if self.specials else tokens.ordinary

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Add the hidden states, which are complete after the pass."""
        with torch.no_grad():
            for stack, tokens, states in sides(batch, hidden_states(outputs, self.causal)):
                embedded, counting = tokens.ordinary, self._counting(tokens)
                if self.unknown is not None:
                    embedded = embedded & (tokens.ids != self.unknown)
                masks = (counting if number else embedded for number in range(len(states)))
                self.state_clouds.add(
                    [
                        Cloud(Site(stack, "self", number), 0, state[:, :, None], mask)
                        for number, (state, mask) in enumerate(zip(states, masks, strict=True))
                    ]
                )
                for number, state in enumerate(states if self.parts else ()):
                    value, weight = self._sim_of_parts(state[:, :, None], tokens)
                    self.states_of_parts.add(Site(stack, "self", number), state_part_sim=(value[:, 0], weight[:, 0]))
                if self.words:
                    self.pieces.add(_States(batch, stack, tokens, states))

    def _take_words(self, states: Sequence["_States"]) -> None:
        """Take in some words of each side of a batch, which are chosen on the CPU."""
        for one in states:
            ids = [example.id for example in one.batch.examples]
            with torch.no_grad():
                self._take_side(one.stack, one.tokens, ids, tuple(state.detach() for state in one.states))

    def _take_side(self, stack: str, tokens: Tokens, ids: list[str], states: tuple[Tensor, ...]) -> None:
        where, words, items = occurrences(tokens, ids, stack)
        if not len(items):
            return
        at = self.stacks.index(stack)
        first = smallest_of_each(where[:, 0], items)  # of each text one word
        texts = torch.tensor([word_number(f"text {ids[text]}") for text in where[first, 0].tolist()])
        chosen = [
            (sample, picked, places[picked.kept])
            for sample, groups, numbers, places in (
                (self.by_word, words, items, where),
                (self.at_random, texts, items[first], where[first]),
            )
            if (picked := sample.chosen(groups, numbers, at)) is not None
        ]
        if not chosen:
            return
        every = [places for _, _, places in chosen]
        vectors = self._vectors(tokens, torch.cat(every), states)  # of both samples in one go
        for (sample, picked, _), some in zip(chosen, vectors.split(list(map(len, every))), strict=True):
            sample.keep(picked, {"vectors": some})

    def _vectors(
        self, tokens: Tokens, where: Int[Tensor, "item 2"], states: tuple[Tensor, ...]
    ) -> Float[Tensor, "item depth width"]:
        """The vectors of some words in every state; a shorter or narrower stack is padded to the largest."""
        vectors = word_vectors(tokens, where, states).unflatten(1, (len(states), -1))
        if vectors.shape[1:] == (self.depth, self.width):
            return vectors
        room = vectors.new_zeros(len(vectors), self.depth, self.width)
        room[:, : vectors.shape[1], : vectors.shape[2]] = vectors
        return room

    def compute(self) -> Result:
        """SIM and its relatives of every head, of all heads, and of the hidden states."""
        # The eigenvalues of everything are found together: it is most of the work at the end.
        moments = [clouds.second_moments() for clouds in (self.heads_clouds, self.state_clouds)]
        matrices = [some.matrices for some in chain.from_iterable(moments)]
        random = [self._random(number) for number in range(len(self.stacks) if self.words else 0)]
        values = eigenvalues([*matrices, *map(state_grams, random)])
        ranks = [effective_rank_of(some) for some in values[: len(matrices)]]
        at_sites, at_states = self.heads_clouds.places, self.state_clouds.places
        stacks = list(dict.fromkeys([*at_sites.stacks, *at_states.stacks]))
        variables: dict[str, xr.Variable] = {}
        found = self.heads_clouds.means() | self.heads_clouds.pooled(moments[0], ranks[: len(moments[0])])
        if self.centred:
            mine = self.centred_clouds.means() | self.centred_clouds.pooled((), ())
            found |= {_tailed(name, "_centred"): mine[name] for name in _CENTRED}
        for name, cells in found.items():
            cells, together = _on_stacks(cells, at_sites.stacks, stacks), _tailed(name, "_all")
            variables[name] = _variable(name, (*at_sites.dims, axes.VECTORS), cells[:, :, : self.heads])
            variables[together] = _variable(together, (*at_sites.dims[:2], axes.VECTORS), cells[:, :, -1])
        found = self.state_clouds.means() | self.state_clouds.pooled(moments[1], ranks[len(moments[0]) :])
        states = {f"state_{name}": cells[:, :, 0, 0] for name, cells in found.items()}
        states |= self._dimensions(states["state_sim_corpus_count"])
        if self.words:
            states |= self._words(states["state_intra_similarity"], random, values[len(matrices) :])
        for name, cells in states.items():
            dims = (*at_states.dims[:2], axes.MODEL)[: cells.ndim]
            variables[name] = _variable(name, dims, _on_stacks(cells, at_states.stacks, stacks))
        for of_parts in (self.of_parts, self.states_of_parts) if self.parts else ():
            for name, array in of_parts.arrays().items():
                cells = _on_stacks(array.values, [str(stack) for stack in array[axes.STACK].values], stacks)
                about = array.attrs | {"description": _DESCRIPTIONS.get(name, "")}
                variables[name] = xr.Variable(array.dims, cells, about)
        variables |= self._apart(stacks)
        labels = self.by_head.labels({axes.VECTORS: VECTORS} | ({axes.CATEGORY: self.parts} if self.parts else {}))
        labels |= {axes.STACK: stacks, axes.STATE: at_states.labels()[axes.STATE]}
        result = self.result(variables, labels)
        result.data.attrs |= {"specials": self.specials, "least_occurrences": self.least}
        if self.note is not None:
            result.data.attrs["note"] = self.note
        return result

    def _apart(self, stacks: list[str]) -> dict[str, xr.Variable]:
        """How sure it is that each layer and each state differs from the one whose vectors are most alike."""
        out: dict[str, xr.Variable] = {}
        for pairs in self.pairs.values():
            for name, array in pairs.q().items():
                # States have one kind of vectors, which is no axis of the result.
                found = array.squeeze(axes.VECTORS, drop=True) if array.sizes[axes.VECTORS] == 1 else array
                cells = _on_stacks(found.values, pairs.places.stacks, stacks)
                out[name] = xr.Variable(found.dims, cells, found.attrs)
        return out

    def _named_as_in_the_result(self, texts: xr.Dataset) -> xr.Dataset:
        """The numbers of single texts: `sim` of every head, `sim_all` of all heads side by side, `state_sim`."""
        out: dict[str, xr.DataArray] = {}
        of_heads, of_states = (clouds.moments for clouds in (self.heads_clouds, self.state_clouds))
        for name in of_heads.variables:
            for tail in ("", "_weight"):
                cells = texts[f"{name}{tail}"].sel({axes.VECTORS: list(VECTORS)})
                out[f"{name}{tail}"] = cells.isel({axes.HEAD: slice(self.heads)})
                out[f"{name}_all{tail}"] = cells.isel({axes.HEAD: self.heads}, drop=True)
                states = texts[f"{of_states.state}_{name}{tail}"]
                out[f"state_{name}{tail}"] = states.sel({axes.HEAD: 1, axes.VECTORS: "state"}, drop=True)
        for tail in ("", "_weight") if self.centred else ():
            cells = texts[f"{self.centred_clouds.moments.state}_sim{tail}"].sel({axes.VECTORS: list(VECTORS)})
            out[f"sim_centred{tail}"] = cells.isel({axes.HEAD: slice(self.heads)})
            out[f"sim_centred_all{tail}"] = cells.isel({axes.HEAD: self.heads}, drop=True)
        return xr.Dataset(out)

    def _dimensions(self, count: np.ndarray) -> dict[str, np.ndarray]:
        """Mean direction of the hidden states, and what each dimension adds to their mean cosine."""
        clouds = self.state_clouds
        sums = clouds.of("sums")[:, :, 0, 0].cpu()  # [what place dim]
        n = clouds.of("counts")[0, :, 0, 0].cpu()
        total = sums[TOTAL]
        length = total.norm(dim=-1, keepdim=True)
        direction = torch.where(length > 0, total / torch.where(length > 0, length, 1.0), 0.0)
        each = torch.stack([direction, contributions(sums[UNITS], sums[SQUARES], n)])
        laid_out = np.where(count[..., None] > 0, clouds.places.laid_out(each.numpy(), lead=1), np.nan)
        out: dict[str, np.ndarray] = {}
        for name, cells in zip(("state_mean_direction", "state_contribution"), laid_out, strict=True):
            out |= {name: cells, f"{name}_count": count}
        return out

    def _random(self, stack: int) -> Float[Tensor, "word depth width"]:
        """The vectors of random words, one from each text."""
        return self.at_random.rows(stack)["vectors"]

    def _words(self, intra: np.ndarray, random: Sequence[Tensor], values: Sequence[Tensor]) -> dict[str, np.ndarray]:
        """SelfSim and MEV, what random words have in common, and each less that."""
        similarities: list[WordSimilarity] = []
        for number, (baseline, of_baseline) in enumerate(zip(random, values, strict=True)):
            rows = self.by_word.rows(number)
            similarities.append(word_similarity(rows["vectors"], rows.sizes(), self.least, baseline, of_baseline))
        together = WordSimilarity(*map(torch.stack, zip(*similarities, strict=True)))
        out = {name: cells.numpy() for name, cells in together._asdict().items()}
        known = out["random_cosine_count"]
        for name, common in (("self_similarity", "random_cosine"), ("mev", "random_mev")):
            count = np.where(known > 0, out[f"{name}_count"], 0)
            out[f"{name}_adjusted"] = np.where(count > 0, out[name] - out[common], np.nan)
            out[f"{name}_adjusted_count"] = count
        adjusted = intra - out["random_cosine"]
        out["state_intra_similarity_adjusted"] = adjusted
        out["state_intra_similarity_adjusted_count"] = np.where(np.isnan(adjusted), 0, known)
        return out


class _States(NamedTuple):
    """The hidden states of one side of a batch."""

    batch: Batch
    stack: str
    tokens: Tokens
    states: tuple[Tensor, ...]


def _variable(name: str, dims: Sequence[str], cells: np.ndarray) -> xr.Variable:
    plain = name.removeprefix("state_").removesuffix("_all")
    text = _DESCRIPTIONS.get(name, _DESCRIPTIONS.get(plain))
    return xr.Variable(dims, cells, None if text is None else {"description": text})


def _clouds(
    site: Site, vectors: Sequence[Float[Tensor, "batch head _ _"]], masks: Sequence[Bool[Tensor, "batch _"]]
) -> list[Cloud]:
    """One cloud for each kind of vector at a site, of the tokens that count."""
    pairs = enumerate(zip(vectors, masks, strict=True))
    return [Cloud(site, kind, some.transpose(1, 2), mask) for kind, (some, mask) in pairs]


def _on_stacks(cells: np.ndarray, own: list[str], stacks: list[str]) -> np.ndarray:
    """Laid out by all stacks: the cross-attention has no hidden states of its own: missing there, counted zero."""
    if own == stacks:
        return cells
    out = np.full((len(stacks), *cells.shape[1:]), 0 if cells.dtype.kind == "i" else np.nan, dtype=cells.dtype)
    out[[stacks.index(name) for name in own]] = cells
    return out


def _tailed(name: str, tail: str) -> str:
    """sim_count → sim_all_count: the tail goes before what says how sure a number is."""
    for last in ("_se", "_count"):
        if name.endswith(last):
            return name.removesuffix(last) + tail + last
    return name + tail
