"""The same for classifiers: accuracy against heads, by gates, by importance (Michel et al. 2019), and at random."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import set_seed

from lorgnette.attending import Site
from lorgnette.lens.importance.lens import Gates
from lorgnette.models.families import anatomy_of
from lorgnette.models.tapping import tapped
from lorgnette.texts import corpus as corpus_of
from lorgnette.training import TrainingSettings
from lorgnette.training.data import Collator, Items
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.preparation import Prepared, prepare
from lorgnette.training.pruning.removal import prune_by_gates, remove_heads
from lorgnette.training.settings import Splits
from reproductions.frame.settings import Machine
from reproductions.voita2019.measure_pruning import Kept, table_of
from reproductions.voita2019.workshop import Workshop, device, made_once, saved, short_run

_BATCH = {"sst2": 64, "hatexplain": 128}
_RATE = 5e-5
_TEXTS = 1024  # of the training texts, for the importance of heads


def classified(
    *,
    model: str,
    corpus: str,
    seed: int,
    strengths: Sequence[float],
    sizes: Mapping[str, Any],
    machine: Machine,
) -> dict[str, Any]:
    """One fine-tuned classifier, pruned to as many heads by three ways, each trained as long afterwards."""
    shop = Workshop.open(sizes, machine)
    settings = TrainingSettings(
        model=shop.source(model), corpus=_splits(corpus, sizes, machine), out=shop.scratch / "unused", seed=seed,
        epochs=sizes["classes"], learning_rate=_RATE, batch_size=min(_BATCH[corpus], sizes["batch"]),
        bf16=shop.sizes["bf16"], data=machine.data,
    )  # fmt: skip
    ready = prepare(settings)
    sets = _sets(ready)

    def make(folder: Path) -> None:
        set_seed(seed)
        first = ready.builder.model()
        short_run(first, ready, settings)
        saved(first, ready, folder)

    folder = made_once(shop.scratch / f"{model}-{corpus}-{seed}", make)
    again = settings.replace(model=str(folder), epochs=sizes["gates"])
    prepared = prepare(again)
    whole = _opened(prepared, seed)
    sensitivity = importance(whole, ready)
    base = accuracies(whole, sets, ready)
    short_run(whole, prepared, again)
    heads = {site.site: site.heads for site in anatomy_of(whole).sites}
    points = [_zero(whole, heads, sets, ready, base)]
    for strength in strengths:
        points.append(_point(prepared, again, strength, seed, sensitivity, sets))
    found = {
        "importance": {str(site.layer + 1): [round(x, 5) for x in row.tolist()] for site, row in sensitivity.items()}
    }
    counts = {name: len(items) for name, items in sets.items()}
    return {"points": points, **found, "texts": {"train": ready.count, **counts}, "device": device()}


def _zero(
    whole: Any, heads: Mapping[Site, int], sets: Mapping[str, Items], ready: Prepared, base: Any
) -> dict[str, Any]:
    number = sum(heads.values())
    return {"lambda": 0.0, "heads": number, "before": base, "gates": accuracies(whole, sets, ready)}


def _point(
    ready: Prepared, settings: TrainingSettings, strength: float, seed: int, sensitivity: Any, sets: Mapping[str, Items]
) -> dict[str, Any]:
    network = _opened(ready, seed)
    gates = HeadGates.of(network, weight=strength)
    short_run(network, ready, settings, gates)
    kept = gates.remaining_heads("code")
    count = sum(map(len, kept.values()))
    by_paper = sum(map(len, gates.remaining_heads("paper").values()))
    out: dict[str, Any] = {"lambda": strength, "heads": count, "heads_by_paper": by_paper, "kept": table_of(kept)}
    out["gates"] = accuracies(prune_by_gates(network, gates), sets, ready)
    ways = {"importance": strongest(sensitivity, count), "random": drawn(sensitivity, count, seed)}
    for name, chosen in ways.items():
        network = remove_heads(_opened(ready, seed), chosen)
        out[f"{name}_untrained"] = accuracies(network, sets, ready)
        short_run(network, ready, settings)
        out[name] = accuracies(network, sets, ready)
    return out


def strongest(sensitivity: Mapping[Site, Tensor], count: int) -> Kept:
    """The heads with the largest importance over all layers."""
    ranked = sorted(((float(x), site, head) for site, row in sensitivity.items() for head, x in enumerate(row)),
                    key=lambda one: (-one[0], one[1].layer, one[2]))  # fmt: skip
    return _kept(sensitivity, {(site, head) for _, site, head in ranked[:count]})


def drawn(sensitivity: Mapping[Site, Tensor], count: int, seed: int) -> Kept:
    places = [(site, head) for site, row in sensitivity.items() for head in range(len(row))]
    return _kept(sensitivity, set(random.Random(seed).sample(places, count)))


def _kept(sensitivity: Mapping[Site, Tensor], picked: set[tuple[Site, int]]) -> Kept:
    return {site: [h for h in range(len(row)) if (site, h) in picked] for site, row in sensitivity.items()}


def importance(model: Any, ready: Prepared) -> dict[Site, Float[Tensor, " head"]]:
    """E|∂L/∂ξ_h| over training texts, divided by its norm over the heads of a layer (Michel, Levy & Neubig 2019)."""
    assert ready.train is not None
    items = sorted(ready.train.items[:_TEXTS], key=lambda item: len(item["input_ids"]))
    collate, tap = Collator(ready.builder.tokenizer.pad_token_id), Gates()
    sums: dict[Site, Tensor] = {}
    model.eval()
    with tapped(model, tap):
        for start in range(0, len(items), 64):
            batch = {key: value.to(model.device) for key, value in collate(items[start : start + 64]).items()}
            labels = batch.pop("labels")
            loss = torch.nn.functional.cross_entropy(model(**batch).logits, labels, reduction="sum")
            for site, slope in tap.gradients(loss).items():
                sums[site] = sums.get(site, 0) + slope.abs().sum(0).double().cpu()
    return {site: row / row.norm() for site, row in sums.items()}


@torch.inference_mode()
def accuracies(model: Any, sets: Mapping[str, Items], ready: Prepared) -> dict[str, float]:
    """The share of right answers on validation and test."""
    model.to(device()).eval()
    collate = Collator(ready.builder.tokenizer.pad_token_id)
    out = {}
    for name, items in sets.items():
        right = 0
        for start in range(0, len(items), 256):
            batch = {key: value.to(model.device) for key, value in collate(items.items[start : start + 256]).items()}
            labels = batch.pop("labels")
            right += int((model(**batch).logits.argmax(-1) == labels).sum())
        out[name] = right / len(items)
    return out


def _opened(ready: Prepared, seed: int) -> Any:
    set_seed(seed)
    return ready.builder.model().to(device())


def _sets(ready: Prepared) -> dict[str, Items]:
    test = ready.test
    assert test is not None
    return {"validation": ready.validation, "test": test}


def _splits(name: str, sizes: Mapping[str, Any], machine: Machine) -> Splits:
    train, validation, test = (
        corpus_of(name, split=split, data=machine.data) for split in ("train", "validation", "test")
    )
    if sizes["limit"] is None:
        return Splits(train, validation, test)
    few = sizes["limit"] // 3  # longer texts, and a larger model than the small translator
    return Splits(train.take(few), validation.take(few // 2), test.take(few // 2))
