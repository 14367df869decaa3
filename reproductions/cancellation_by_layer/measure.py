"""One model on texts of one length: pairs of weight and norm, and the states without the value of some token."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.lens.losses import IGNORED, next_pieces, text_losses
from lorgnette.lens.sinks.removal import Keys, Removed
from lorgnette.subject import Subject
from lorgnette.texts import corpus as open_corpus
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.example import Example
from lorgnette.types import ModelOutput
from reproductions.cancellation_by_layer.grid import FRENCH
from reproductions.cancellation_by_layer.pairs import LEVELS, MEASURES, PARTS, PairReader, draw, levels
from reproductions.frame.conditions import opened
from reproductions.frame.segments import Document, documents, segments
from reproductions.frame.settings import Machine

Heads = Float[Tensor, "text head dim"]
PUNCTUATION, MIDDLE = "period_comma", "middle"
_SENTENCES = 40
"""Sequoia has no documents: so many of its consecutive sentences are taken for one."""


def measured(
    *, machine: Machine, model: str, sinks: Sequence[str], length: int, blocks: int, texts: int, changed: int,
    pairs: int, seed: int, centred: bool = False,
) -> xr.Dataset:  # fmt: skip
    """Everything by block of documents; the blocks of all lengths are the same documents.

    `centred`: norms of values less one constant per head, its mean over all tokens of these texts; and this mean is
    what a token's value is replaced by, instead of zero.
    """
    subject = opened(model, machine.models, machine.device)
    projections = SiteWeights(subject, layer_norm=False)
    kinds, found = (*sinks, PUNCTUATION, "other"), []
    parts = texts_of(model, length, blocks, texts, subject, machine)
    constants = mean_values(subject, parts) if centred else None
    for part in parts:
        batch = subject.encode(part)
        found.append(_block(subject, projections, batch, kinds, sinks, pairs, seed, changed, constants))
    data = xr.concat(found, "block")
    tokens = int(data["tokens"].sum())
    return data.drop_vars("tokens").assign_attrs(weights_sha256=subject.weights_hash, tokens=tokens)


def translated(*, machine: Machine, model: str, corpus: str, blocks: int, texts: int) -> dict[str, Any]:
    """The loss of reference translations as it is, and without the value of </s> or of a middle token, by block."""
    subject = opened(model, machine.models, machine.device)
    examples = list(open_corpus(corpus, split="test", data=machine.data))
    examples = examples[:: len(examples) // (blocks * texts)][: blocks * texts]
    losses: dict[str, list[float]] = {"intact": [], "sep": [], MIDDLE: []}
    for start in range(0, blocks * texts, texts):
        batch = subject.encode(examples[start : start + texts])
        places = targets(batch, ("sep",))
        for name, values in losses.items():
            taps = [] if name == "intact" else [without(subject, places[name])]
            values.append(float(text_losses(subject, "translation", batch, run(subject, batch, *taps))[0].mean()))
    return {"sentences": len(examples), "loss": losses}


def targets(batch: Batch, sinks: Sequence[str]) -> dict[str, Int[Tensor, " text"]]:
    """Whose values are zeroed in each text: sinks, a word in the middle, the last . or , before it; −1 for none."""
    tokens = batch.source
    middle = middles(tokens)
    place = torch.arange(tokens.mask.shape[1], device=middle.device)
    before = tokens.categories[PUNCTUATION] & (place < middle[:, None]) & (place > 0)
    comma = torch.where(before, place, -1).amax(-1)
    found = {kind: torch.where(tokens.categories[kind] & tokens.mask, place, -1).amax(-1) for kind in sinks}
    return {**found, PUNCTUATION: comma, MIDDLE: middle}


def middles(tokens: Tokens) -> Int[Tensor, " text"]:
    """The word nearest to the middle of each text, the earlier of two; neither special nor . nor , nor first."""
    place = torch.arange(tokens.mask.shape[1], device=tokens.mask.device)
    word = tokens.categories["other"] & tokens.mask & (place > 0)
    far = (place - (tokens.lengths // 2)[:, None]).abs().masked_fill(~word, len(place) + 1)
    return far.argmin(-1)


def without(subject: Subject, place: Int[Tensor, " text"]) -> Removed:
    """The tap that sets the value of one token of each text to zero, in all heads and layers of the first stack."""
    read = set(first_stack(subject))
    keys = {}
    for site in subject.sites:
        shape = (len(place), subject.anatomy[site].total)
        exists = (place >= 0)[:, None].expand(shape) & (site in read)
        keys[site] = Keys(place.clamp(min=0)[:, None].expand(shape) * exists, exists)
    return Removed(keys, "value")


class Replaced(Tap):
    """The heads' output as if one token of each text (−1: none) had other values; the weights do not change."""

    def __init__(self, place: Int[Tensor, " text"], values: Mapping[Site, Heads]) -> None:
        self.place, self.values, self.exists = place.clamp(min=0), values, place >= 0

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        if call.site not in self.values:
            return context
        change = self.values[call.site].to(context) - picked(call.value, self.place).to(context)
        change = change * self.exists[:, None, None]
        weights = call.weights
        column = weights.gather(-1, self.place[:, None, None, None].expand(*weights.shape[:3], 1))
        return context + column.to(context) * change[:, :, None]


def picked(value: Float[Tensor, "text head key dim"], place: Int[Tensor, " text"]) -> Heads:
    """The values of one token of each text."""
    index = place[:, None, None, None].expand(*value.shape[:2], 1, value.shape[-1])
    return value.gather(2, index)[:, :, 0]


def mean_values(subject: Subject, parts: Sequence[Sequence[Example]]) -> dict[Site, Float[Tensor, "head dim"]]:
    """The mean value of each head over all tokens: the constant that could as well stand in the output bias."""
    sums = _Sums(set(first_stack(subject)))
    for part in parts:
        batch = subject.encode(list(part))
        sums.mask = batch.source.mask
        run(subject, batch, sums)
    return {site: total / sums.tokens[site] for site, total in sums.total.items()}


class _Sums(Tap):
    """Σ v of every head over the tokens of all texts."""

    mask: Bool[Tensor, "text token"]

    def __init__(self, sites: set[Site]) -> None:
        self.sites = sites
        self.total: dict[Site, Tensor] = {}
        self.tokens: dict[Site, int] = {}

    def see(self, call: Call) -> None:
        if call.site in self.sites:
            total = (call.value.double() * self.mask[:, None, :, None]).sum((0, 2))
            self.total[call.site] = self.total.get(call.site, 0) + total
            self.tokens[call.site] = self.tokens.get(call.site, 0) + int(self.mask.sum())


def first_stack(subject: Subject) -> list[Site]:
    return next(iter(subject.layers.values()))


def texts_of(
    model: str, length: int, blocks: int, texts: int, subject: Subject, machine: Machine
) -> list[list[Example]]:
    """Texts of at most so many tokens, at least three quarters of it, evenly from every block of documents."""
    whole = _french(machine.data) if model in FRENCH else list(documents("ud_en_gum", machine.data))
    ends = [round(k * len(whole) / blocks) for k in range(blocks + 1)]
    parts = [whole[start:stop] for start, stop in pairwise(ends)]
    return [segments(part, subject.tokenizer, pairs=False, tokens=length, count=texts) for part in parts]


def _french(data: str | None) -> list[Document]:
    """Consecutive sentences of one source of Sequoia, by forty."""
    sources: dict[str, list[str]] = {}
    for split in ("train", "dev", "test"):
        for example in open_corpus("ud_fr_sequoia", split=split, data=data):
            sources.setdefault(f"{split} {example.id.rpartition('_')[0]}", []).append(example.text)
    return [
        (f"{name} {start}", sentences[start : start + _SENTENCES])
        for name, sentences in sources.items()
        for start in range(0, len(sentences), _SENTENCES)
    ]


def _block(
    subject: Subject, projections: SiteWeights, batch: Batch, kinds: Sequence[str], sinks: Sequence[str], pairs: int,
    seed: int, changed: int, constants: Mapping[Site, Float[Tensor, "head dim"]] | None = None,
) -> xr.Dataset:  # fmt: skip
    sites, causal = first_stack(subject), subject.anatomy.causal and not subject.encoder.translates
    drawn = {kind: draw(batch, kind, pairs, seed, causal=causal) for kind in kinds}
    places = targets(batch, sinks)
    behind = behind_middle(batch.source)
    reader = PairReader(projections, sites, batch.source, drawn, places, behind, constants)
    run(subject, batch, reader)
    rows = {(kind, m): levels(*reader.of(kind, m)) for kind in kinds for m in MEASURES}
    data = {
        name: (("kind", "measure"), [[rows[kind, m][name] for m in MEASURES] for kind in kinds])
        for name in (*LEVELS, *PARTS)
    }
    by_layer = {"weight_by_layer": "alpha", "norm_by_layer": "norm", "relative_by_layer": "relative"}
    data |= {
        name: (("kind", "layer"), [[float(each.mean()) for each in getattr(reader, part)[kind]] for kind in kinds])
        for name, part in by_layer.items()
    }
    few = subject.encode(list(batch.examples[:changed]))
    sent = {name: torch.stack(reader.sent[name])[:, :, :changed].nanmean((0, 2)).tolist() for name in places}
    data |= {
        name: ("target", [sent[target][which] for target in places])
        for which, name in enumerate(("sent_weight", "sent_norm"))
    }
    data |= _without_each(subject, few, targets(few, sinks), constants, causal=causal)
    data["tokens"] = ((), int(batch.source.mask.sum()))
    coords = {"kind": list(kinds), "measure": list(MEASURES), "target": list(places)}
    return xr.Dataset(data, {**coords, "layer": list(range(1, len(sites) + 1))})


def _without_each(
    subject: Subject, batch: Batch, places: Mapping[str, Tensor],
    constants: Mapping[Site, Float[Tensor, "head dim"]] | None, *, causal: bool,
) -> dict[str, tuple[Any, Any]]:  # fmt: skip
    """How far the states behind the middle move without each target's value, and, of a language model, its loss.

    Without is with zero in its place, or with the heads' constants, if there are any.
    """
    behind = behind_middle(batch.source)
    intact = run(subject, batch)
    before, changes, losses = final_states(intact), [], []
    for place in places.values():
        outputs = run(subject, batch, _tap(subject, place, constants))
        rows = behind & (torch.arange(behind.shape[1], device=behind.device) != place[:, None]) & (place >= 0)[:, None]
        moved = (final_states(outputs) - before).norm(dim=-1) / before.norm(dim=-1)
        changes.append(float(moved[rows].mean()))
        if causal:
            losses.append(float((token_losses(outputs, batch) - token_losses(intact, batch))[rows].nanmean()))
    out: dict[str, tuple[Any, Any]] = {"change": ("target", changes)}
    if causal:
        out["loss_change"] = ("target", losses)
        out["loss"] = ((), float(token_losses(intact, batch)[behind].nanmean()))
    return out


def _tap(
    subject: Subject, place: Int[Tensor, " text"], constants: Mapping[Site, Float[Tensor, "head dim"]] | None
) -> Tap:
    if constants is None:
        return without(subject, place)
    return Replaced(place, {site: one.expand(len(place), *one.shape) for site, one in constants.items()})


def behind_middle(tokens: Tokens) -> Bool[Tensor, "text token"]:
    """Words behind the middle one: a causal model can read both the first token and the middle one there."""
    place = torch.arange(tokens.mask.shape[1], device=tokens.mask.device)
    return tokens.ordinary & (place > middles(tokens)[:, None])


def run(subject: Subject, batch: Batch, *taps: Tap) -> ModelOutput:
    with torch.no_grad(), subject.tapped(*taps):
        return subject.run(batch, return_dict=True, output_hidden_states=True)


def final_states(outputs: ModelOutput) -> Float[Tensor, "text token model"]:
    """The last states of the stack that is looked at."""
    for name in ("encoder_last_hidden_state", "last_hidden_state"):
        if getattr(outputs, name, None) is not None:
            return getattr(outputs, name)
    return outputs.hidden_states[-1]


def token_losses(outputs: ModelOutput, batch: Batch) -> Float[Tensor, "text token"]:
    """Cross-entropy of the next token at every place, NaN where there is none."""
    labels = next_pieces(batch.source, None, None)
    each = F.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED)
    return each.view_as(labels).masked_fill(labels == IGNORED, np.nan)
