"""One seed of marian-small: the whole model, what is left of it without most heads, and the same from scratch.

Every model has the same number of steps: T as a whole, G with gates or without, F after the cut. Sets of heads that
gates, confidence, the gradient or chance chose are cut out of one model (trained T + G) and trained F steps each; the
gates' own model went through G with its gates. From scratch, the heads are missing from the first step on.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.lens import get
from lorgnette.lens.importance.lens import Importance
from lorgnette.lens.signals import signals_in
from lorgnette.looking.look import look
from lorgnette.models.families import anatomy_of
from lorgnette.subject import Subject
from lorgnette.texts import Corpus, corpus
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.preparation import prepare
from lorgnette.training.pruning.removal import remove_heads
from lorgnette.training.translation.trainer import per_text
from reproductions.frame.plain import plain
from reproductions.frame.settings import Machine
from reproductions.voita2019.measure_pruning import Kept, table_of
from reproductions.voita2019.scores import scored
from reproductions.voita2019.workshop import Workshop, device, made_once, make_room, opened, saved, short_run

PAIR = "en-fr"
SIGNALS = ("confidence", "gradient")
_BATCH = 250
Table = Mapping[str, Sequence[Sequence[int]]]
"""stack → layer → numbers of heads, from 0."""


def whole(*, seed: int, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The model with all heads after T, T + G and T + G + F steps; its signals, the loss without each head, roles."""
    shop = Workshop.open(sizes, machine)
    network, ready, settings = shop.further("small", longer(shop, seed), 1, seed)
    items = ready.test
    losses = {}
    for name, folder in (("trained", base(shop, seed)), ("longer", longer(shop, seed))):
        losses[name] = cross_entropy(opened(folder)[0], ready, items)
    subject = Subject(network.to(device()).eval(), ready.builder.tokenizer, name="marian-small")
    data = _ranked(subject, ready, sizes["ranking"], ablate=True)
    trees = corpus("ud_en_pud", data=machine.data).shuffled(0).take(sizes["trees"])
    found = look(subject, Corpus.of(list(trees), name="pud"), [get("roles")], truncate=True, progress=False)
    labels = found["roles"].data["label"].sel({axes.STACK: "encoder"})
    out = {
        "losses": losses,
        "confidence": plain(data["weights"].data["confidence"].sel({axes.STACK: "encoder"}).values),
        "change": plain(data["importance"].data["loss_change"].sel({axes.STACK: "encoder", "ablation": "zero"}).values),
        "roles": {
            str(role): labels.sel({axes.ROLE: role}).values.astype(int).tolist() for role in labels[axes.ROLE].values
        },
    }
    torch.set_float32_matmul_precision("high")
    set_seed(seed)
    short_run(network, ready, settings, steps=sizes["tuning"])
    return {**out, "whole": measured(network, ready, items, shop)}


def gated(*, seed: int, left: int, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Gates on all heads while the weights learn, until so many are left; then the model without the others."""
    shop = Workshop.open(sizes, machine)
    network, ready, settings = shop.further("small", base(shop, seed), sizes["gates"], seed)
    items = ready.test
    network.to(device())
    before = cross_entropy(network, ready, items)
    steps = sizes["gates"] * -(-ready.count // settings.batch_size)
    gates = HeadGates.of(network, weight=sizes["pressure"], warmup=steps // 2, keep=left)
    fitted = short_run(network, ready, settings, gates)
    kept = gates.strongest(left)
    own = remove_heads(network, kept, factors=gates.values())
    out = {"kept": table_of(kept), "open": gates.open_heads, "tied": gates.tied(left), "fitted": fitted}
    return {**out, "before": before, **tuned(own, ready, settings, items, shop)}


def chosen(*, seed: int, kept: Table, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The gates' heads, the most confident ones and those with the largest gradient, cut out of one model."""
    cut = Cutting.of(seed, kept, sizes, machine)
    ranked = signals_in(_ranked(Subject(cut.model, cut.ready.builder.tokenizer), cut.ready, sizes["ranking"]))
    torch.set_float32_matmul_precision("high")
    sets = {"gates": cut.kept} | {name: highest(ranked[name].value, cut.kept, cut.heads) for name in SIGNALS}
    found = {name: cut.tuned(heads) | {"kept": table_of(heads)} for name, heads in sets.items()}
    return {**found, "before": cut.before}


def right_after(
    *, seed: int, kept: Table, sizes: Mapping[str, Any], texts: int, random: int, free: int, machine: Machine
) -> dict[str, Any]:
    """The loss right after the cut, before any step: of the sets that the others train, on a part of the sentences."""
    short = {**sizes, "limit": 10 * sizes["ranking"], "test_limit": texts}  # a tenth of the limit is for validation
    cut = Cutting.of(seed, kept, short, machine)
    ranked = signals_in(_ranked(Subject(cut.model, cut.ready.builder.tokenizer), cut.ready, sizes["ranking"]))
    sets = {"gates": cut.kept} | {name: highest(ranked[name].value, cut.kept, cut.heads) for name in SIGNALS}
    matched, everywhere = draws(f"{seed} {cut.left}", cut.kept, cut.heads, sizes["untrained"])
    out: dict[str, Any] = {name: {"loss": cut.loss(heads), "kept": table_of(heads)} for name, heads in sets.items()}
    out["random"] = [cut.loss(heads) for heads in matched[:random]]
    return {**out, "free": [cut.loss(heads) for heads in everywhere[:free]], "before": cut.before}


def by_chance(
    *, seed: int, kept: Table, first: int, last: int, sizes: Mapping[str, Any], machine: Machine
) -> dict[str, Any]:
    """Random heads, as many in every layer as gates left: the sets from `first` to before `last`."""
    cut = Cutting.of(seed, kept, sizes, machine)
    matched, _ = draws(f"{seed} {cut.left}", cut.kept, cut.heads, sizes["untrained"])
    return {"random": [cut.tuned(heads) for heads in matched[first:last]], "before": cut.before}


@dataclass(frozen=True)
class Cutting:
    """The whole model after T + G steps, out of which sets of heads are cut; each is trained F steps."""

    model: Any
    ready: Any
    settings: Any
    items: Any
    shop: Workshop
    kept: Kept
    before: float
    """The loss of the whole model: the same for all cells of a seed, or they were not cut out of one model."""

    @classmethod
    def of(cls, seed: int, kept: Table, sizes: Mapping[str, Any], machine: Machine) -> "Cutting":
        shop = Workshop.open(sizes, machine)
        model, ready, settings = shop.further("small", longer(shop, seed), 1, seed)
        model.to(device())  # not in `cross_entropy`: what is moved in inference mode cannot learn
        items = ready.test
        heads = {each.site: list(kept[each.site.name][each.site.layer]) for each in anatomy_of(model).sites}
        return cls(model, ready, settings, items, shop, heads, cross_entropy(model, ready, items))

    @property
    def heads(self) -> dict[Site, int]:
        return {each.site: each.heads for each in anatomy_of(self.model).sites}

    @property
    def left(self) -> int:
        return sum(map(len, self.kept.values()))

    def tuned(self, heads: Kept) -> dict[str, Any]:
        return tuned(remove_heads(self.model, heads), self.ready, self.settings, self.items, self.shop)

    def loss(self, heads: Kept) -> float:
        return cross_entropy(remove_heads(self.model, heads), self.ready, self.items)


def draws(seed: str, kept: Kept, heads: Mapping[Site, int], count: int) -> tuple[list[Kept], list[Kept]]:
    """Random sets of as many heads in every layer as were kept, and as many drawn from all layers alike."""
    draw = random.Random(seed)
    matched = [{s: sorted(draw.sample(range(heads[s]), len(kept[s]))) for s in kept} for _ in range(count)]
    places = [(site, head) for site in kept for head in range(heads[site])]
    left = sum(map(len, kept.values()))
    return matched, [_by_site(draw.sample(places, left), kept) for _ in range(count)]


def from_scratch(*, seed: int, kept: Table, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The heads that gates left, in a new model: the same steps and step sizes, without the others from the first."""
    shop = Workshop.open(sizes, machine)
    settings = shop.small_settings(shop.pairs(PAIR)).replace(seed=seed)
    ready = prepare(settings)
    set_seed(seed)
    network = ready.builder.model()
    heads = {each.site: kept[each.site.name][each.site.layer] for each in anatomy_of(network).sites}
    network = remove_heads(network, heads).to(device())
    short_run(network, ready, settings)
    later = {"learning_rate": 3e-4, "warmup": 0.1, "epochs": sizes["gates"]}
    short_run(network, ready, settings.replace(**later))
    return tuned(network, ready, settings.replace(**later), ready.test, shop)


def base(shop: Workshop, seed: int) -> Path:
    """T steps; the weights of the last one."""

    def make(folder: Path) -> None:
        settings = shop.small_settings(shop.pairs(PAIR)).replace(seed=seed)
        ready = prepare(settings)
        set_seed(seed)
        network = ready.builder.model()
        short_run(network, ready, settings)
        saved(network, ready, folder)

    return made_once(shop.scratch / f"whole-{seed}", make)


def longer(shop: Workshop, seed: int) -> Path:
    """G steps more, without gates."""

    def make(folder: Path) -> None:
        network, ready, settings = shop.further("small", base(shop, seed), shop.sizes["gates"], seed)
        short_run(network, ready, settings)
        saved(network, ready, folder)

    return made_once(shop.scratch / f"longer-{seed}", make)


def tuned(network: Any, ready: Any, settings: Any, items: Any, shop: Workshop) -> dict[str, Any]:
    """The loss right after the cut; loss and BLEU after F steps, the same pairs in the same order for all."""
    network.to(device())
    untrained = cross_entropy(network, ready, items)
    set_seed(settings.seed)
    short_run(network, ready, settings, steps=shop.sizes["tuning"])
    found = measured(network, ready, items, shop)
    make_room()
    return {"untrained": untrained, **found}


def measured(network: Any, ready: Any, items: Any, shop: Workshop) -> dict[str, Any]:
    score = scored(network, ready.builder.tokenizer, shop.test(PAIR), shop, draws=False)
    return {"loss": cross_entropy(network, ready, items), "bleu": score["bleu"], "brevity": score["brevity"]}


@torch.inference_mode()
def cross_entropy(network: Any, ready: Any, items: Any) -> float:
    """−log p of a token of the reference, given those before it: the mean over all tokens."""
    collate = ready.trainer_parts()["data_collator"]
    network.to(device()).eval()
    sums = torch.zeros(3, dtype=torch.float64)
    for start in range(0, len(items), _BATCH):
        batch = collate([items[number] for number in range(start, min(start + _BATCH, len(items)))])
        batch = {name: tensor.to(network.device) for name, tensor in batch.items()}
        labels = batch.pop("labels")
        sums += per_text(network(**batch, use_cache=False).logits, labels).double().sum(0).cpu()
    return round(float(sums[0] / sums[2]), 6)


def highest(scores: Any, kept: Kept, heads: Mapping[Site, int]) -> Kept:
    """As many heads of every layer as were kept: those with the largest scores [stack layer head]."""
    out: Kept = {}
    for site in kept:
        row = scores.sel({axes.STACK: site.name, axes.LAYER: site.layer + 1})
        value = {head: float(row.sel({axes.HEAD: head + 1})) for head in range(heads[site])}
        out[site] = sorted(sorted(value, key=lambda head: -value[head])[: len(kept[site])])
    return out


def _by_site(places: Sequence[tuple[Site, int]], kept: Kept) -> Kept:
    return {site: sorted(head for other, head in places if other == site) for site in kept}


def _ranked(subject: Subject, ready: Any, texts: int, *, ablate: bool = False) -> Any:
    """Confidence and gradient of every head on validation pairs, and the loss without each."""
    subject.model.eval()
    torch.set_float32_matmul_precision("highest")
    some = Corpus.of(list(ready.parts.validation)[:texts], name="validation")
    lenses = [get("weights"), Importance(("zero",) if ablate else ())]
    return look(subject, some, lenses, truncate=True, progress=False)
