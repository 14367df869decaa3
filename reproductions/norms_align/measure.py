"""Links of every head and layer, by weights and norms, counted against gold, by block of consecutive pairs."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.contributions.centred import centred
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.norms import all_heads_norms, gram, transformed_norms
from lorgnette.lens.alignment.formulas import predicted_words, word_scores
from lorgnette.looking.controls import RANDOM, with_random_weights
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from reproductions.frame.conditions import opened
from reproductions.frame.settings import Machine
from reproductions.norms_align.hansards import Pair, pairs

MEASURES = ("weights", "norms", "centred")
"""α; α‖f(x)‖; the same with values less their head's mean over all texts. Of a layer: mean α, ‖Σ_h α f(x)‖."""
READINGS = ("output", "input")
"""A target word's rows: those that predict it, those that read it."""
RULES = ("target", "source", "both")
"""Every target word and its best source word; every source word and its best target word; what both agree on."""
COUNTS = ("in_sure", "in_possible", "links")
_BATCH = 16


def measured(
    *, machine: Machine, model: str, direction: str, condition: str, every: int, blocks: int, limit: int | None,
    seed: int,
) -> xr.Dataset:  # fmt: skip
    """|A∩S|, |A∩P| and |A| of every place (the heads of each layer, then the layer) and way of reading, by block."""
    subject = opened(model, machine.models, machine.device)
    if condition == RANDOM:
        subject = with_random_weights(subject, seed)
    chosen = pairs(machine.data, direction)[::every][:limit]
    ends = [round(k * len(chosen) / blocks) for k in range(blocks + 1)]
    parts = [chosen[start:stop] for start, stop in pairwise(ends)]
    means = _Means(subject)
    for part in parts:
        _read(subject, part, means)
    reader = _Reader(subject, means)
    counts, known = [], []
    for part in parts:
        reader.begin(part)
        _read(subject, part, reader)
        counts.append(torch.stack([reader.counts[site] for site in sorted(reader.counts, key=lambda site: site.layer)]))
        known.append([sum(len(pair.gold.sure) for pair in part), len(part)])
    places = torch.stack(counts)
    of = ("measure", "reading", "rule", "count")
    data = {
        "heads": (("block", "layer", "head", *of), places[:, :, :-1].numpy()),
        "layers": (("block", "layer", *of), places[:, :, -1].numpy()),
        "baselines": (("block", "baseline", "count"), [_baselines(part) for part in parts]),
        "sure": ("block", [sure for sure, _ in known]),
        "pairs": ("block", [count for _, count in known]),
    }
    coords = {"measure": list(MEASURES), "reading": list(READINGS), "rule": list(RULES), "count": list(COUNTS)}
    coords |= {"baseline": ["diagonal", "system"], "layer": list(range(1, places.shape[1] + 1))}
    return xr.Dataset(data, coords, {"weights_sha256": subject.weights_hash})


def linked(scores: Float[Tensor, "*place target source"]) -> Bool[Tensor, "rule *place target source"]:
    """The links of each rule; words without a piece have none."""
    known = ~scores.isneginf()
    rules = [torch.zeros_like(known).scatter_(axis, scores.argmax(axis, keepdim=True), True) for axis in (-1, -2)]
    return torch.stack([*rules, rules[0] & rules[1]]) & known


def counted(links: Bool[Tensor, "*rest target source"], pair: Pair) -> Int[Tensor, "*rest count"]:
    """|A∩S|, |A∩P| and |A|."""
    gold = [matrix(part, pair) for part in (pair.gold.sure, pair.gold.possible)]
    return torch.stack([(links & part).sum((-1, -2)) for part in gold] + [links.sum((-1, -2))], -1)


def matrix(links: frozenset[tuple[int, int]], pair: Pair) -> Bool[Tensor, "target source"]:
    out = torch.zeros(len(pair.target), len(pair.source), dtype=torch.bool)
    for source, target in links:
        out[target, source] = True
    return out


def diagonal(pair: Pair) -> Bool[Tensor, "target source"]:
    """Every target word and the source word at the same relative place."""
    targets, sources = len(pair.target), len(pair.source)
    places = [int((target + 0.5) * sources / targets) for target in range(targets)]
    return matrix(frozenset((source, target) for target, source in enumerate(places)), pair)


def _baselines(part: Sequence[Pair]) -> list[list[int]]:
    found = [torch.stack([counted(diagonal(pair), pair), counted(matrix(pair.system, pair), pair)]) for pair in part]
    return torch.stack(found).sum(0).tolist()


def _read(subject: Subject, part: Sequence[Pair], tap: "_Reads") -> None:
    for start in range(0, len(part), _BATCH):
        some = part[start : start + _BATCH]
        examples = [Example(p.id, " ".join(p.source), words=p.source, target=" ".join(p.target)) for p in some]
        tap.batch = subject.encode(examples)
        with torch.no_grad(), subject.tapped(tap):
            subject.run(tap.batch, return_dict=True)


class _Reads(Tap):
    """Reads the cross-attention of one batch after the other."""

    batch: Batch


class _Means(_Reads):
    """The mean value of each head over all source tokens: the constant that could as well stand in the output bias."""

    def __init__(self, subject: Subject) -> None:
        self.total: dict[Site, Tensor] = {}
        self.tokens: dict[Site, int] = {}

    def see(self, call: Call) -> None:
        if call.site.name == "cross":
            mask = self.batch.source.mask
            total = (call.value.double() * mask[:, None, :, None]).sum((0, 2))
            self.total[call.site] = self.total.get(call.site, torch.zeros_like(total)) + total
            self.tokens[call.site] = self.tokens.get(call.site, 0) + int(mask.sum())

    def of(self, site: Site) -> Float[Tensor, "head dim"]:
        return self.total[site] / self.tokens[site]


class _Reader(_Reads):
    """Counts of one block, at every cross-attention."""

    def __init__(self, subject: Subject, means: _Means) -> None:
        self.projections, self.means = SiteWeights(subject, layer_norm=False), means

    def begin(self, part: Sequence[Pair]) -> None:
        self.counts: dict[Site, Int[Tensor, "place measure reading rule count"]] = {}
        self.pairs = {pair.id: pair for pair in part}

    def see(self, call: Call) -> None:
        if call.site.name != "cross":
            return
        products = self.projections[call.site].products
        weights, value = call.weights.to(products.dtype), call.value.to(products.dtype)
        scores = [torch.cat([weights, weights.mean(1, keepdim=True)], 1)]
        for each in (value, centred(value, self.means.of(call.site)[:, None])):
            squares = gram(each.to(products.dtype), products)
            heads = weights * transformed_norms(squares)[:, :, None]
            scores.append(torch.cat([heads, all_heads_norms(weights, squares)[:, None]], 1))
        every = torch.stack(scores, 2).cpu()  # [text place measure query key]
        found = sum(self._text(text, every[text]) for text in range(len(every)))
        self.counts[call.site] = self.counts.get(call.site, 0) + found

    def _text(
        self, text: int, scores: Float[Tensor, "place measure query key"]
    ) -> Int[Tensor, "place measure reading rule count"]:
        batch = self.batch
        assert batch.target is not None
        pair = self.pairs[batch.examples[text].id]
        source, target = batch.source.word[text].cpu(), batch.target.word[text].cpu()
        sizes = (len(pair.target), len(pair.source))
        by_reading = []
        for rows in (predicted_words(target), target):  # in the order of READINGS
            links = linked(word_scores(scores, rows, source, sizes))
            by_reading.append(counted(links, pair).movedim(0, -2))
        return torch.stack(by_reading, 2)


def error_rate(counts: np.ndarray, sure: float) -> np.ndarray:
    """AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|), of counts [… count] summed over sentences (Och & Ney 2003)."""
    return 1 - (counts[..., 0] + counts[..., 1]) / (counts[..., 2] + sure)
