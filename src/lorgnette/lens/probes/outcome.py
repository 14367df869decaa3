"""From kept vectors to the numbers of `probes`: train, test, control, baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.lens.pairs import extreme_q
from lorgnette.lens.probes.probe import Recipe, control_labels, train_mixture, train_probes
from lorgnette.statistics.estimate import Estimate

DESCRIPTIONS = {
    "accuracy": "test accuracy of the probe, mean over seeds",
    "accuracy_top_q": "q of the difference from the best state: paired over texts, corrected over all pairs",
    "control": "test accuracy on the control task (a random label for every word type)",
    "selectivity": "selectivity: accuracy minus accuracy on the control task",
    "embedding_accuracy": "accuracy of a probe on the input embeddings",
    "embedding_selectivity": "selectivity of the probe on the input embeddings",
    "mixing": "weight of each state in a learnt mix that a linear probe uses",
    "mixing_centre": "centre of gravity: mean state under those weights",
    "converged": "1 if the linear probe has converged (largest gradient component ≤ 1e-4), else 0",
    "majority": "accuracy of always predicting the most frequent label",
    "type_majority": "accuracy of predicting the most frequent label of each word type",
}


@dataclass(frozen=True)
class ProbeItems:
    """Words or texts with their vectors; labels, types and texts are codes."""

    vectors: Float[Tensor, "state item width"]
    embedding: Float[Tensor, "1 item width"]
    label: Int[Tensor, " item"]
    type: Int[Tensor, " item"]
    text: Int[Tensor, " item"]

    def __len__(self) -> int:
        return len(self.label)


def probed(
    train: ProbeItems, test: ProbeItems, *, recipes: Mapping[str, Recipe], seeds: Sequence[int]
) -> dict[str, xr.DataArray]:
    """All numbers of one label; missing (count 0) if a part is empty or has a single class."""
    names = train.label.unique()
    learnable = len(names) > 1 and len(test) > 0
    out = _ProbeTable(list(recipes), len(train.vectors), len(seeds), learnable)
    if learnable:
        known, true = _numbered(train.label, names), _numbered(test.label, names)
        out.baselines(_majority(known, true), _type_majority(train.type, known, test.type, true), test.text)
        control = control_labels([str(int(t)) for t in (*train.type, *test.type)], known, len(names))
        controls = [torch.tensor([control[str(int(t))] for t in part.type]) for part in (train, test)]
        for name, recipe in recipes.items():
            for source in ("vectors", "embedding"):
                x, z = getattr(train, source), getattr(test, source)
                hits, converged = _hits(x, known, z, true, len(names), seeds, recipe)
                own, _ = _hits(x, controls[0], z, controls[1], len(names), seeds, recipe)
                if source == "vectors" and converged is not None:
                    out.values["converged"] = converged.double().cpu()
                out.add(name, source, hits, own, test.text)
        mixture = train_mixture(
            train.vectors, known.to(train.vectors.device), len(names), seeds, next(iter(recipes.values()))
        )
        out.mixture(mixture.weights, mixture.centre)
    return out.arrays(len(names), train, test, int((_numbered(test.label, names) < 0).sum()))


def _hits(
    x: Tensor, labels: Tensor, z: Tensor, true: Tensor, classes: int, seeds: Sequence[int], recipe: Recipe
) -> tuple[Bool[Tensor, "seed state item"], Bool[Tensor, " state"] | None]:
    """Which answers are right, and whether linear probes have converged."""
    probes = train_probes(x, labels[None].to(x.device), classes, seeds, recipe)
    return (probes.predict(z) == true.to(z.device)).cpu(), probes.converged


def _numbered(labels: Int[Tensor, " item"], names: Int[Tensor, " label"]) -> Int[Tensor, " item"]:
    """The index of each label among the names; −1 for an unseen label, which no probe can predict."""
    if not len(names):
        return torch.full_like(labels, -1)
    at = torch.searchsorted(names, labels).clamp(max=len(names) - 1)
    return torch.where(names[at] == labels, at, -1)


def _majority(known: Int[Tensor, " item"], true: Int[Tensor, " item2"]) -> Bool[Tensor, " item2"]:
    return true == known.bincount().argmax()


def _type_majority(train_type: Tensor, known: Tensor, test_type: Tensor, true: Tensor) -> Bool[Tensor, " item"]:
    """Unknown types get the most frequent label of all."""
    counts: dict[int, Tensor] = {}
    classes = int(known.max()) + 1
    for kind, label in zip(train_type.tolist(), known.tolist(), strict=True):
        counts.setdefault(kind, torch.zeros(classes))[label] += 1
    fallback = int(known.bincount().argmax())
    guess = [int(counts[kind].argmax()) if kind in counts else fallback for kind in test_type.tolist()]
    return true == torch.tensor(guess)


def ratio(values: Float[Tensor, "*rest item"], texts: Int[Tensor, " item"]) -> tuple[Tensor, Tensor]:
    """Mean over items, and its standard error over texts: the linearised one of a ratio, as in `Moments`."""
    mean, off = _terms(values, texts)
    n = off.shape[-1]
    error = (n / (n - 1) * off.square().sum(-1)).sqrt() if n > 1 else torch.full_like(mean, torch.nan)
    return mean, error


def _terms(values: Float[Tensor, "*rest item"], texts: Int[Tensor, " item"]) -> tuple[Tensor, Float[Tensor, "*rest t"]]:
    """Mean over items, and what each text adds to its error: w (m − M) / W."""
    _, which = texts.unique(return_inverse=True)
    n = int(which.max()) + 1
    sizes = torch.bincount(which, minlength=n).double()
    sums = values.new_zeros(*values.shape[:-1], n, dtype=torch.float64).index_add_(-1, which, values.double())
    mean = sums.sum(-1) / sizes.sum()
    return mean, (sums - mean[..., None] * sizes) / sizes.sum()


def from_the_best(values: Float[Tensor, "state item"], texts: Int[Tensor, " item"]) -> Float[Tensor, " state"]:
    """q of every state's difference from the best, paired over texts: what a text does to all states cancels."""
    mean, terms = (part.numpy() for part in _terms(values, texts))
    count = np.full(len(mean), float(terms.shape[-1]))
    return torch.from_numpy(extreme_q(mean, terms @ terms.T, count, count > 0, largest=True))


class _ProbeTable:
    """Collects the arrays; what was not measured stays missing."""

    def __init__(self, probes: list[str], states: int, seeds: int, complete: bool) -> None:
        self.probes, self.states, self.seeds, self.complete = probes, states, seeds, complete
        self.values: dict[str, Tensor] = {}
        for name in ("accuracy", "control", "selectivity"):
            for tail in ("", "_se"):
                self.values[name + tail] = torch.full((len(probes), states), torch.nan, dtype=torch.float64)
        for name in ("accuracy_seed_sd", "accuracy_top_q"):
            self.values[name] = torch.full((len(probes), states), torch.nan, dtype=torch.float64)
        for name in ("embedding_accuracy", "embedding_selectivity"):
            for tail in ("", "_se"):
                self.values[name + tail] = torch.full((len(probes),), torch.nan, dtype=torch.float64)
        for name in ("majority", "type_majority", "mixing_centre"):
            for tail in ("", "_se"):
                self.values[name + tail] = torch.tensor(torch.nan, dtype=torch.float64)
        self.values["converged"] = torch.full((states,), torch.nan, dtype=torch.float64)
        for tail in ("", "_se"):
            self.values[f"mixing{tail}"] = torch.full((states,), torch.nan, dtype=torch.float64)

    def add(self, probe: str, source: str, hits: Tensor, control: Tensor, texts: Tensor) -> None:
        row = self.probes.index(probe)
        right, own = hits.double().mean(0), control.double().mean(0)
        measured = {"accuracy": right, "control": own, "selectivity": right - own}
        for name, values in measured.items():
            mean, error = ratio(values, texts)
            if source == "vectors":
                self.values[name][row], self.values[f"{name}_se"][row] = mean, error
            elif name != "control":
                self.values[f"embedding_{name}"][row] = mean[0]
                self.values[f"embedding_{name}_se"][row] = error[0]
        if source == "vectors":
            self.values["accuracy_top_q"][row] = from_the_best(right, texts)
        if source == "vectors" and len(hits) > 1:
            self.values["accuracy_seed_sd"][row] = hits.double().mean(-1).std(0)

    def baselines(self, majority: Tensor, type_majority: Tensor, texts: Tensor) -> None:
        for name, hits in (("majority", majority), ("type_majority", type_majority)):
            self.values[name], self.values[f"{name}_se"] = ratio(hits.double(), texts)

    def mixture(self, weights: Float[Tensor, "seed state"], centre: Float[Tensor, " seed"]) -> None:
        """Means over seeds; these errors are over seeds."""
        for name, values in (("mixing", weights.double().cpu()), ("mixing_centre", centre.double().cpu())):
            found = Estimate.mean(values.movedim(0, -1).numpy())
            self.values[name], self.values[f"{name}_se"] = torch.as_tensor(found.value), torch.as_tensor(found.se)

    def arrays(self, labels: int, train: ProbeItems, test: ProbeItems, unseen: int) -> dict[str, xr.DataArray]:
        dims = {2: (axes.PROBE, axes.STATE), 1: (axes.PROBE,), 0: ()}
        out = {}
        for name, values in self.values.items():
            lead = (axes.STATE,) if name.removesuffix("_se") in ("mixing", "converged") else dims[values.ndim]
            coordinates = {axes.PROBE: self.probes, axes.STATE: list(range(self.states))}
            out[name] = xr.DataArray(values.numpy(), dims=lead, coords={d: coordinates[d] for d in lead})
            out[name].attrs["description"] = DESCRIPTIONS.get(name, "")
            if not name.endswith("_se"):
                of = self.seeds if name.startswith("mixing") or name.endswith("_sd") else len(test.text.unique())
                has = out[name].notnull() if name.endswith("_q") else not values.isnan().any()  # the best has no q
                out[f"{name}_count"] = xr.full_like(out[name], of if self.complete else 0, dtype="int64") * has
        counts = {"labels": labels, "train_items": len(train), "test_items": len(test), "unseen_labels": unseen}
        return out | {name: xr.DataArray(value) for name, value in counts.items()}
