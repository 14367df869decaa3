"""What a head can do according to its weights: spectra of the QK and OV circuits, copying, composition of heads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.constraints import Interval
from lorgnette.errors import CaptureError
from lorgnette.lens.base import Lens
from lorgnette.lens.circuits.formulas import composition, effective_rank, eigenvalues, positive_share, singular_values
from lorgnette.lens.signals import Signal, variable
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.offloading import parameter
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.readable import readable_piece
from lorgnette.types import PreTrainedTokenizerBase

CIRCUITS = ("qk", "ov")
WAYS = ("query", "key", "value")
TOP = 10
_DESCRIPTIONS = {
    "effective_rank": "effective rank: exp of the entropy of the normalised singular values of a circuit",
    "first_share": "share of the largest singular value in the sum of squares of all",
    "positive": "real parts of the eigenvalues of W_V W_O over their absolute values, both summed: 1 for a head that "
    "copies directions, −1 for one that reverses them",
    "composition": "how much of what the earlier head writes the later head can read: the norm of the product of "
    "their matrices over the product of their norms",
    "copied": f"share of sampled tokens that are among the {TOP} tokens their own OV circuit raises most",
    "turns": "the sampled tokens that the OV circuit raises most: token → token",
}


@dataclass(frozen=True)
class Maps:
    """W_Q, W_K, W_V and W_O of one site, per query head; the first two may be unknown."""

    query: Float[Tensor, "head model dim"] | None
    key: Float[Tensor, "head key_model dim"] | None
    value: Float[Tensor, "head source value_dim"]
    output: Float[Tensor, "head value_dim model"]

    @staticmethod
    def of(site: AttentionSite) -> "Maps":
        """Grouped keys and values are repeated for their query heads."""
        whole = site.head_weights(gated=site.gate_scales)
        times = site.heads // site.groups
        wide = torch.promote_types(whole.value.dtype, torch.float32)
        query = key = None
        if scored_by(site) is None and site.query is not None and site.key is not None:
            query = site.query.weights(site.heads)[0].detach().to(wide)
            key = site.key.weights(site.groups)[0].repeat_interleave(times, dim=0).detach().to(wide)
        return Maps(query, key, whole.value.detach().to(wide), whole.output.detach().to(wide))

    @property
    def qk(self) -> tuple[Tensor, Tensor] | None:
        return None if self.query is None or self.key is None else (self.query, self.key.mT)

    @property
    def ov(self) -> tuple[Tensor, Tensor]:
        return self.value, self.output


def scored_by(site: AttentionSite) -> str | None:
    """Why a site's scores have no W_Q W_Kᵀ, or None."""
    return next((why for why in map(site.lack, ("query", "key")) if why is not None), None)


class Circuits(Lens):
    """Spectra of W_Q W_Kᵀ and W_V W_O of every head, copying, and Q-, K- and V-composition (Elhage et al. 2021).

        effective_rank   exp(H(σ / Σσ)) of both circuits            positive   Σ Re λ / Σ |λ| of W_V W_O
        composition      ‖W_OV^a W_QK^b‖, ‖W_QK^b W_OV^aᵀ‖, ‖W_OV^a W_OV^b‖ over the product of the norms, a below b

    Read off the weights, whatever the corpus. Biases, LayerNorms and rotations of queries and keys are left out, and a
    positive gate of one number for each head, which changes none of these numbers: what
    the numbers describe is the linear part in the residual basis. `copied` and `turns` need a language model. Where
    W_Q W_Kᵀ is not known (a model without a record that has a norm behind W_Q), what needs it is missing, and a note
    says why.

    What it does not tell you: what the head does on text. A circuit that could copy is not one that is used; two random
    maps of rank r in d dimensions have a composition of about 1/√d too.
    """

    name: ClassVar[str] = "circuits"
    summary: ClassVar[str] = "spectra of each head's QK and OV circuits, copying, and composition of heads"
    signals: ClassVar[Mapping[str, Signal]] = {
        "ov_rank": Signal("effective rank of W_V W_O", variable("effective_rank", {axes.CIRCUIT: "ov"})),
        "copying": Signal("Σ Re λ / Σ |λ| of W_V W_O", variable("positive"), signed=True),
    }

    def __init__(self, tokens: Annotated[int, Interval(1)] = 256) -> None:
        super().__init__()
        self.tokens = tokens

    def allocate(self, subject: Subject) -> None:
        """A model whose projections are unknown is refused before any pass."""
        for site in self._attention():
            site.require("value", "output", gated=site.gate_scales)
            if site.reads_latent:
                raise CaptureError(
                    f"W_V of {site.site} reads vectors of another width than W_O writes (latent ones, say), so that "
                    "W_V W_O is no map of the residual stream."
                )

    def _attention(self) -> list[AttentionSite]:
        return [site for site in self.subject.text_attention if site.site.stack != "pooler"]

    def compute(self) -> Result:
        maps = {site.site: Maps.of(site) for site in self._attention()}
        variables = self._spectra(maps) | self._compositions(maps) | self._tokens(self.subject, maps)
        for name in _DESCRIPTIONS:
            if name in variables and variables[name].dtype.kind == "f":  # missing values have a count of 0
                variables[f"{name}_count"] = variables[name].notnull().astype("int64")
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        if notes := self._unscored():
            result.data.attrs["note"] = "; ".join(notes)
        return result

    def _unscored(self) -> list[str]:
        """Where W_Q W_Kᵀ is not known, and why."""
        reasons: dict[str, list[str]] = {}
        for site in self._attention():
            if (why := scored_by(site)) is not None:
                reasons.setdefault(why, []).append(str(site.site))
        return [f"no QK circuits of {', '.join(sites)}: {why}" for why, sites in reasons.items()]

    def _spectra(self, maps: dict[Site, Maps]) -> dict[str, xr.DataArray]:
        shape = (len(self.sites), self.heads)
        rank, first = (torch.full((*shape, len(CIRCUITS)), torch.nan, dtype=torch.float64) for _ in range(2))
        positive = torch.full(shape, torch.nan, dtype=torch.float64)
        for site, each in maps.items():
            place = self.position[site]
            for number, circuit in enumerate((each.qk, each.ov)):
                if circuit is None:
                    continue
                values = singular_values(*circuit).double().cpu()
                rank[place, : len(values), number] = effective_rank(values)
                first[place, : len(values), number] = values[:, 0] ** 2 / (values**2).sum(-1)
            if site.kind == "self":  # an eigenvalue needs one space: cross-attention maps from another
                positive[place, : len(each.value)] = positive_share(eigenvalues(*each.ov)).double().cpu()
        both = [self.grid(tensor, {axes.CIRCUIT: CIRCUITS}) for tensor in (rank, first)]
        return {"effective_rank": both[0], "first_share": both[1], "positive": self.grid(positive)}

    def _compositions(self, maps: dict[Site, Maps]) -> dict[str, xr.DataArray]:
        """The composition of every head with every head of a later layer in its stack."""
        sites = [site for site in maps if site.kind == "self"]
        names = [f"{site.name} {site.layer + 1}-{number + 1}" for site in sites for number in self.numbers[site]]
        out = np.full((len(WAYS), len(names), len(names)), np.nan)
        start = {}
        at = 0
        for site in sites:
            start[site], at = at, at + len(self.numbers[site])
        for early in sites:
            for late in sites:
                if early.stack == late.stack and early.layer < late.layer:
                    rows = slice(start[early], start[early] + len(maps[early].value))
                    columns = slice(start[late], start[late] + len(maps[late].value))
                    out[:, rows, columns] = _ways(maps[early], maps[late])
        if not len(names) or np.isnan(out).all():
            return {}
        coordinates = {axes.WAY: list(WAYS), axes.HEAD_A: names, axes.HEAD_B: names}
        return {"composition": xr.DataArray(out, dims=(axes.WAY, axes.HEAD_A, axes.HEAD_B), coords=coordinates)}

    def _tokens(self, subject: Subject, maps: dict[Site, Maps]) -> dict[str, xr.DataArray]:
        """Which tokens each OV circuit turns into which, from the input to the output embeddings."""
        network, tokenizer = subject.model, subject.tokenizer if subject.has_tokenizer else None
        get = getattr(network, "get_output_embeddings", None)
        head = None if get is None else get()
        weight = None if head is None else parameter(head, "weight")
        inputs = network.get_input_embeddings()
        words = None if inputs is None else parameter(inputs, "weight")
        if weight is None or tokenizer is None or words is None or words.shape[1] != weight.shape[1]:
            return {}
        size = min(len(tokenizer), len(words), len(weight))
        plain = [i for i in range(size) if i not in set(tokenizer.all_special_ids)]
        ids = torch.tensor(plain[:: max(1, len(plain) // self.tokens)][: self.tokens], device=weight.device)
        copied = torch.full((len(self.sites), self.heads), torch.nan, dtype=torch.float64)
        turns = np.full(copied.shape, "", dtype=object)
        for site, each in maps.items():
            if site.kind == "self" and each.value.shape[1] == weight.shape[1]:
                for number in range(len(each.value)):
                    logits = words[ids].to(each.value) @ each.value[number] @ each.output[number]
                    top = (logits @ weight.T.to(logits)).detach().topk(min(TOP, len(weight)))
                    copied[self.position[site], number] = (top.indices == ids[:, None]).any(-1).double().mean()
                    turns[self.position[site], number] = _turns(top.values, top.indices, ids, tokenizer)
        out = {"copied": self.grid(copied)}
        names = xr.full_like(out["copied"], "", dtype=object)
        for site in maps:
            for number, original in enumerate(self.numbers[site]):
                place = {axes.STACK: site.name, axes.LAYER: site.layer + 1, axes.HEAD: original + 1}
                names.loc[place] = turns[self.position[site], number]
        return out | {"turns": names}


def _ways(early: Maps, late: Maps) -> np.ndarray:
    """Composition of two layers by query, key and value: [way head_a head_b]; missing where widths differ."""
    value = composition(early.ov, late.ov)
    pairs = [torch.full_like(value, torch.nan)] * 2
    if late.query is not None and late.key is not None:
        query, key = late.query, late.key
        pairs = [composition(early.ov, (query, key.mT)), composition(early.ov, (key, query.mT))]
    return np.stack([pair.double().cpu().numpy() for pair in (*pairs, value)])


def _turns(
    logits: Float[Tensor, "token top"],
    outputs: Int[Tensor, "token top"],
    ids: Int[Tensor, " token"],
    tokenizer: PreTrainedTokenizerBase,
) -> str:
    """The three largest entries, as "cat → dog"; each is among the largest of its token."""
    places = logits.flatten().topk(min(3, logits.numel())).indices
    word = lambda i: readable_piece(str(tokenizer.convert_ids_to_tokens(int(i))))  # noqa: E731
    pairs = zip(ids[places // logits.shape[1]].tolist(), outputs.flatten()[places].tolist(), strict=True)
    return ", ".join(f"{word(source)} → {word(target)}" for source, target in pairs)
