"""What one pass over the test texts shows: cosines of keys, values and states, entropies, cones, the class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Call, Recorder, Tap
from lorgnette.lens.convexity.formulas import angle, cone
from lorgnette.lens.geometry.cosine import directions, mean_pairwise_cosine
from lorgnette.lens.geometry.isotropy import effective_rank
from lorgnette.subject import Subject
from lorgnette.training.penalties import normalised_entropy, row_entropy
from reproductions.fosse2023.attention.texts import Text, Texts, batches

RANKED = 300  # texts of which the effective rank is computed: an eigenvalue problem each
Columns = dict[str, Float[Tensor, "layer text"]]


@dataclass(frozen=True)
class Pass:
    """One forward pass: the calls, states x⁽⁰⁾ … x⁽ᴸ⁾, logits."""

    calls: list[Call]
    states: tuple[Float[Tensor, "batch token width"], ...]
    logits: Float[Tensor, "batch label"]

    @property
    def cls(self) -> Float[Tensor, "batch width"]:
        return self.states[-1][:, 0]


def passed(subject: Subject, texts: Texts, *taps: Tap) -> Pass:
    """The model on some texts; `taps` may edit."""
    recorder = Recorder(lambda call: call)
    with subject.tapped(*taps, recorder):
        out = subject.model(input_ids=texts.ids, attention_mask=texts.mask, output_hidden_states=True)
    return Pass(list(recorder.records.values()), out.hidden_states, out.logits)


@torch.no_grad()
def measured(
    subject: Subject, texts: Sequence[Text], groups: Mapping[str, list[int]], *, ranked: int = RANKED
) -> dict[str, Any]:
    """Means over the texts of each group; per layer where there are layers. Of the first `ranked` texts of the
    published group also the effective rank."""
    some = set(groups["published"][:ranked])
    found: dict[str, Tensor] = {}
    for batch in batches(texts, subject.device):
        for name, values in _columns(subject, batch, some).items():
            where = found.setdefault(name, torch.full((len(values), len(texts)), torch.nan, dtype=torch.float64))
            where[:, batch.numbers] = values.double().cpu()
    labels = torch.tensor([text.example.label for text in texts])
    found["accuracy"] = (found.pop("predicted") == labels).double()
    return {name: _means(found, members) for name, members in groups.items()}


@torch.no_grad()
def centred_similarity(subject: Subject, texts: Sequence[Text], members: Sequence[int]) -> dict[str, list[float]]:
    """SIM of keys and values by layer, as they are and less one constant: their mean over all tokens of all texts.

    That constant is free (docs/gauge.md). The means of SIM are over the texts `members`.
    """
    totals: dict[str, Tensor] = {}
    tokens = 0
    for batch in batches(texts, subject.device):
        tokens += int(batch.mask.sum())
        for name, vectors in _keys_and_values(subject, batch).items():
            summed = (vectors * batch.mask[..., None]).sum((1, 2))
            totals[name] = totals[name] + summed if name in totals else summed
    found: dict[str, Float[Tensor, "layer text"]] = {}
    for batch in batches([texts[number] for number in members], subject.device):
        for name, vectors in _keys_and_values(subject, batch).items():
            centred = vectors - (totals[name] / tokens)[:, None, None]
            for kind, some in ((name, vectors), (f"{name}_centred", centred)):
                sims = torch.stack([sim(layer, batch.mask) for layer in some])
                found[kind] = torch.cat([found[kind], sims], 1) if kind in found else sims
    return {name: values.nanmean(1).tolist() for name, values in found.items()}


def _keys_and_values(subject: Subject, batch: Texts) -> dict[str, Float[Tensor, "layer batch token dim"]]:
    calls = passed(subject, batch).calls
    return {name: torch.stack([getattr(call, name)[:, 0].double() for call in calls]) for name in ("key", "value")}


def _means(found: Mapping[str, Float[Tensor, "layer text"]], members: list[int]) -> dict[str, Any]:
    """The mean over those texts that have a value; `without` counts the others, where there are some."""
    out: dict[str, Any] = {"texts": len(members)}
    for name, values in found.items():
        some = values[:, members]
        there = ~some.isnan()
        means = (some.nan_to_num().sum(-1) / there.sum(-1).clamp(min=1)).tolist()
        out[name] = means if name != "accuracy" else means[0]
        missing = (~there).sum(-1).tolist()
        if any(missing) and not name.startswith("rank"):
            out.setdefault("without", {})[name] = missing
    return out


def _columns(subject: Subject, batch: Texts, ranked: set[int]) -> Columns:
    run = passed(subject, batch)
    model = subject.model
    entering = [model.embeddings.word_vectors(batch.ids), *run.states[1:]]  # before positions, as the released code
    specials = torch.tensor([model.config.cls_token_id, model.config.unk_token_id], device=batch.ids.device)
    words = batch.mask & ~torch.isin(batch.ids, specials)
    keys = [call.key[:, 0] for call in run.calls]
    values = [call.value[:, 0] for call in run.calls]
    out = {
        "key": torch.stack([sim(vectors, batch.mask) for vectors in keys]),
        "value": torch.stack([sim(vectors, batch.mask) for vectors in values]),
        "state": torch.stack([sim(v, batch.mask if at else words) for at, v in enumerate(entering)]),
        "predicted": run.logits.argmax(-1)[None].double(),
        **_rows(run.calls, batch.mask),
    }
    chosen = torch.tensor([number in ranked for number in batch.numbers.tolist()])
    for name, vectors in (("rank_value", values), ("rank_state", entering[1:])):
        out[name] = torch.stack([_rank(v, batch.mask, chosen) for v in vectors])
    return out


def sim(vectors: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"]) -> Float[Tensor, " batch"]:
    """SIM of the tokens of each text; NaN for texts without a pair."""
    sums = directions(vectors[:, :, None], mask)
    count = sums.count[:, 0]
    return torch.where(count > 1, mean_pairwise_cosine(sums.units[:, 0], count), torch.nan)


def _rows(calls: Sequence[Call], mask: Bool[Tensor, "batch token"]) -> Columns:
    """Of <cls>, per layer: H of its row, the cone of the values, and how far from their mean its mix of them is."""
    length = mask.sum(-1)
    out: dict[str, list[Tensor]] = {}
    for call in calls:
        entropy = row_entropy(call.block(rows=[0])[:, 0, 0].double())
        found = cone(call.scores, call.value)
        one = {
            "entropy": normalised_entropy(entropy, length),
            "entropy_without_cls": normalised_entropy(entropy, length - 1),
            "cone_widest": found.widest[:, 0, 0],
            "cone_average": found.average[:, 0, 0],
            "turn": angle(call.context[:, 0, 0].double(), found.mean[:, 0, 0]),
        }
        for name, values in one.items():
            out.setdefault(name, []).append(values)
    return {name: torch.stack(values) for name, values in out.items()}


def _rank(
    vectors: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"], chosen: Bool[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Effective rank of the tokens of some texts, NaN for the others; from the smaller of X Xᵀ and Xᵀ X."""
    out = torch.full((len(vectors),), torch.nan, dtype=torch.float64)
    if not bool(chosen.any()):
        return out.to(vectors.device)
    some = (vectors * mask[..., None])[chosen.to(vectors.device)].double().cpu()  # small problems: faster there
    products = some @ some.mT if some.shape[1] < some.shape[2] else some.mT @ some
    out[chosen] = effective_rank(products)
    return out.to(vectors.device)
