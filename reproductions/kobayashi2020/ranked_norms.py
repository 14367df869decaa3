"""The norms lens that also remembers each token's mixing ratios, for their rank correlation with frequency."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.contributions.centred import centred
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.norms import head_norms
from lorgnette.lens.base import Lens
from lorgnette.lens.norms.lens import Norms
from lorgnette.lens.parts import Waiting
from lorgnette.statistics.estimate import Estimate
from lorgnette.statistics.rank_error import spearman_with_error
from lorgnette.statistics.spearman import rounded
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.frequency import FrequencyRanks, counted

Constants = Mapping[Site, Float[Tensor, "head dim"]]


class Occurrences:
    """Mixing ratios of every token, averaged over layers, beside its piece and text."""

    def __init__(self) -> None:
        self.ratios: dict[str, list[Tensor]] = defaultdict(list)
        self.pieces: list[Tensor] = []
        self.texts: list[Tensor] = []
        self.count = 0

    def add(self, batch: Batch, ratios: dict[str, Tensor]) -> None:
        mask = batch.source.mask.cpu()
        text = torch.arange(len(mask))[:, None].expand(mask.shape) + self.count
        self.count += len(mask)
        self.pieces.append(batch.source.ids.cpu()[mask])
        self.texts.append(text[mask])
        for name, values in ratios.items():
            self.ratios[name].append(values[mask])

    def correlations(self, ranks: FrequencyRanks[int] | None) -> xr.Dataset:
        """Spearman's ρ of frequency rank with each ratio [ratio], and its 95 % interval over texts.

        Without ranks, the pieces are counted here.
        """
        pieces, texts = torch.cat(self.pieces), torch.cat(self.texts)
        if ranks is None:
            kinds, counts = pieces.unique(return_counts=True)
            ranks = counted(dict(zip(kinds.tolist(), counts.tolist(), strict=True)), "corpus")
        rank = torch.tensor([ranks[piece] for piece in pieces.tolist()], dtype=torch.float64)
        names = ("frequency_of_mixing", "frequency_of_mixing_low", "frequency_of_mixing_high")
        rows = []
        for parts in self.ratios.values():
            values = torch.cat(parts)
            known = ~values.isnan()
            correlation = spearman_with_error(rank[known], rounded(values[known]), texts[known])
            rho, error, count = (math.nan, math.nan, 0) if correlation is None else correlation
            rows.append((rho, *Estimate(rho, error, count).correlation_interval))
        columns = zip(names, zip(*rows, strict=True), strict=True)
        return xr.Dataset({name: ("ratio", list(column)) for name, column in columns}, {"ratio": list(self.ratios)})


class RankedNorms(Norms):
    """`Norms`, whose per-token mixing ratios also go to `occurrences`.

    With `constants`, values are less these, one for each head: they are those of the whole corpus, where `look` would
    take those of one block. It is a lens of this reproduction alone: the occurrences do not merge.
    """

    name: ClassVar[str] = "norms"

    def __init__(self, occurrences: Occurrences, constants: "Constants | None" = None, **options: Any) -> None:
        super().__init__(centred=constants is not None, **options)
        self.occurrences, self.constants = occurrences, constants
        self.sums_of_batch: dict[str, Tensor] = {}
        self.layers_of_batch = 0

    def needs(self) -> Sequence[Lens]:
        return ()

    def allocate(self, subject: Subject) -> None:
        super().allocate(subject)
        self.centring.means = None if self.constants is None else {"value": dict(self.constants)}
        self.batches: Waiting[Batch] = Waiting(self, self._give, on_cpu=True)  # behind what calls `take_ratios`

    def take_ratios(self, sites: Sequence[Site], ratios: dict[str, Tensor], query: Tensor) -> None:
        super().take_ratios(sites, ratios, query)
        self.layers_of_batch += len(sites)
        for name, values in ratios.items():
            of_layers = values.unflatten(0, (len(sites), -1)).double().sum(0).cpu()  # [text token]
            self.sums_of_batch[name] = self.sums_of_batch.get(name, 0.0) + of_layers

    def finish(self, batch: Batch, outputs: Any) -> None:
        super().finish(batch, outputs)
        self.batches.add(batch)

    def _give(self, batches: Sequence[Batch]) -> None:
        """Means over layers, which `take_ratios` has summed for the batch that has gone through."""
        means = {name: values / self.layers_of_batch for name, values in self.sums_of_batch.items()}
        self.sums_of_batch, self.layers_of_batch = {}, 0
        for batch in batches if means else ():
            self.occurrences.add(batch, means)


class TokenNorms(Tap):
    """‖f(x) − its constant‖ of every token of a batch, mean over heads and layers."""

    def __init__(self, subject: Subject, constants: Constants) -> None:
        self.projections, self.constants = SiteWeights(subject, layer_norm=False), constants
        self.found: list[Tensor] = []

    def see(self, call: Call) -> None:
        if call.site in self.constants:
            products = self.projections[call.site].products
            value = centred(call.value, self.constants[call.site][:, None])
            self.found.append(head_norms(value.to(products.dtype), products).double().mean(1).cpu())

    def mean(self) -> Float[Tensor, "text token"]:
        """Of the batch that was run since the last."""
        mean = torch.stack(self.found).mean(0)
        self.found.clear()
        return mean
