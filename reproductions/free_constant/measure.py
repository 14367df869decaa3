"""SIM of keys and values as they are, and less one constant per head: its mean over other texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.lens.geometry.cosine import directions, mean_pairwise_cosine
from lorgnette.looking.controls import RANDOM, with_random_weights
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from reproductions.cancellation_by_layer.measure import first_stack, run, texts_of
from reproductions.fosse2023.attention.geometry import centred_similarity, measured
from reproductions.fosse2023.attention.measure import fitted, settings_of
from reproductions.fosse2023.attention.texts import groups, test_texts
from reproductions.frame.conditions import opened
from reproductions.frame.running import rounded
from reproductions.frame.settings import Machine

VECTORS, KINDS = ("key", "value"), ("raw", "centred")
Places = Mapping[tuple[str, Site], Float[Tensor, "head dim"]]


def encoder(
    *, machine: Machine, model: str, condition: str, length: int, blocks: int, texts: int, seed: int
) -> xr.Dataset:
    """By block of documents; the constants of a block are the means over the blocks of the other half."""
    subject = opened(model, machine.models, machine.device)
    parts = texts_of(model, length, blocks, texts, subject, machine)
    if condition == RANDOM:
        subject = with_random_weights(subject, seed)
    data = similarity(subject, parts)
    tokens = sum(int(subject.encode(list(part)).source.mask.sum()) for part in parts)
    return data.assign_attrs(weights_sha256=subject.weights_hash, texts=sum(map(len, parts)), tokens=tokens)


def similarity(subject: Subject, parts: Sequence[Sequence[Example]]) -> xr.Dataset:
    """`sim`, mean over the texts of a block and the heads of a layer; `share`, how much of mean ‖x‖² is ‖c‖²."""
    sites = first_stack(subject)
    sums = [_read(subject, part, sites).sums for part in parts]
    halves = [_Sums.joined(sums[half::2]) for half in (0, 1)]
    whole = _Sums.joined(sums)
    found = []
    for block, part in enumerate(parts):
        reader = _read(subject, part, sites, halves[1 - block % 2].means)
        found.append([[[reader.sim[name, site][kind] for site in sites] for kind in KINDS] for name in VECTORS])
    share = [[whole.share(name, site) for site in sites] for name in VECTORS]
    data = {
        "sim": (("block", "vector", "kind", "layer"), np.array(found)),
        "share": (("vector", "layer"), np.array(share)),
    }
    return xr.Dataset(data, {"vector": list(VECTORS), "kind": list(KINDS), "layer": list(range(1, len(sites) + 1))})


def classifier(*, machine: Machine, **told: Any) -> dict[str, Any]:
    """Trains one model of fosse2023, and measures SIM of its keys and values by layer, raw and centred."""
    run_, subject, prepared = fitted(settings_of(**told, data=machine.data, out=machine.scratch), machine)
    texts = test_texts(
        prepared, name=told["corpus"], data=machine.data, limit=told["test_limit"], max_length=told["max_length"]
    )
    some = groups(told["corpus"], texts)["published"]
    entropy = measured(subject, texts, {"published": some}, ranked=0)["published"]["entropy"]
    return rounded(
        {
            "accuracy": {"test": run_.metrics["test"]["accuracy"], "train": run_.curve[-1]["train"]["accuracy"]},
            "epochs": run_.record["epochs"],
            "entropy": entropy,
            **centred_similarity(subject, texts, some),
            "device": run_.record["device"],
        }
    )


@dataclass(frozen=True)
class _Sums:
    """Over tokens: Σ x and Σ ‖x‖² of each head, and how many tokens."""

    total: Places
    squares: Mapping[tuple[str, Site], Float[Tensor, " head"]]
    tokens: int

    @staticmethod
    def joined(parts: Sequence["_Sums"]) -> "_Sums":
        total, squares = (
            {key: torch.stack([getattr(part, name)[key] for part in parts]).sum(0) for key in getattr(parts[0], name)}
            for name in ("total", "squares")
        )
        return _Sums(total, squares, sum(part.tokens for part in parts))

    @property
    def means(self) -> Places:
        return {key: total / self.tokens for key, total in self.total.items()}

    def share(self, name: str, site: Site) -> float:
        """‖c‖² / mean ‖x‖², mean over heads."""
        key = name, site
        return float((self.means[key].square().sum(-1) / (self.squares[key] / self.tokens)).mean())


class _Reader(Tap):
    """The sums of one batch, and SIM by site, raw and less the constants (if there are any)."""

    def __init__(self, sites: Sequence[Site], batch: Batch, constants: Places | None) -> None:
        self.sites, self.mask, self.constants = set(sites), batch.source.mask, constants
        self.total: dict[tuple[str, Site], Tensor] = {}
        self.squares: dict[tuple[str, Site], Tensor] = {}
        self.sim: dict[tuple[str, Site], dict[str, float]] = {}

    def see(self, call: Call) -> None:
        if call.site not in self.sites:
            return
        for name, vectors in (("key", call.key.double()), ("value", call.value.double())):
            here, at = self.mask[:, None, :, None], (name, call.site)
            self.total[at] = (vectors * here).sum((0, 2))
            self.squares[at] = (vectors * here).square().sum((0, 2, 3))
            if self.constants is not None:
                less = vectors - self.constants[at][:, None]
                self.sim[at] = {kind: _sim(some, self.mask) for kind, some in zip(KINDS, (vectors, less), strict=True)}

    @property
    def sums(self) -> _Sums:
        return _Sums(self.total, self.squares, int(self.mask.sum()))


def _read(subject: Subject, part: Sequence[Example], sites: Sequence[Site], constants: Places | None = None) -> _Reader:
    batch = subject.encode(list(part))
    reader = _Reader(sites, batch, constants)
    run(subject, batch, reader)
    return reader


def _sim(vectors: Float[Tensor, "text head token dim"], mask: Bool[Tensor, "text token"]) -> float:
    """The mean cosine of all pairs of tokens of a text, mean over texts and heads."""
    found = directions(vectors.transpose(1, 2), mask)
    return float(mean_pairwise_cosine(found.units, found.count[..., :-1]).mean())
