"""The cells of translation models: trained, gated, emptied, and pruned at random for comparison."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import set_seed

from lorgnette.attending import Site
from lorgnette.models.families import anatomy_of
from lorgnette.results.provenance import versions
from lorgnette.subject import Subject
from lorgnette.texts import Corpus, corpus
from lorgnette.training import Trained, train
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.preparation import prepare
from lorgnette.training.pruning.removal import prune_by_gates, remove_heads
from lorgnette.training.settings import Splits
from reproductions.frame.running import numbers_of
from reproductions.frame.settings import Machine
from reproductions.raganato2018.patterns import patterns
from reproductions.voita2019.scores import all_scores, counted, scored
from reproductions.voita2019.workshop import Workshop, device, made_once, make_room, opened, short_run

HELD_OUT = 1000
"""Pairs of Tatoeba for validation, and as many for a test in its own domain."""
STACKS = ("encoder", "decoder", "cross")
Kept = dict[Site, list[int]]


def tuned(*, model: str, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """opus-mt before and after fine-tuning, and what its encoder heads look at."""
    shop = Workshop.open(sizes, machine)
    before, tokenizer = opened(Path(shop.source("opus-mt-en-fr")))
    scores = {"before": all_scores(before, tokenizer, shop)}
    del before
    folder = shop.base(model)
    after, ready, _ = shop.further(model, folder, 1)
    after.to(device()).eval()
    scores["after"] = all_scores(after, ready.builder.tokenizer, shop)
    scores["beam 4"] = {"test": scored(after, ready.builder.tokenizer, shop.test("en-fr"), shop, beams=4)}
    looked = patterns(Subject(after, ready.builder.tokenizer), list(ready.parts.validation), counted(ready))
    return {"scores": scores, "patterns": looked, **_about(ready)}


def small(*, languages: str, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """marian-small from scratch on one pair of languages."""
    shop = Workshop.open(sizes, machine)
    folder = shop.small(languages)
    run = Trained.load(folder)
    model, tokenizer = opened(folder)
    settings = shop.settings(str(folder), shop.pairs(languages), 1)
    ready = prepare(settings)
    looked = patterns(Subject(model, tokenizer), list(ready.parts.validation), counted(ready))
    numbers = numbers_of(run)
    return {**numbers, "scores": {"test": scored(model, tokenizer, shop.test(languages), shop)}, "patterns": looked}


def unpruned(*, model: str, where: str, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The point λ = 0: trained as much further as the others, without gates."""
    shop = Workshop.open(sizes, machine)
    network, ready, settings = shop.further(model, shop.base(model), sizes["gates"])
    learn(network, where)
    fitted = short_run(network, ready, settings)
    kept = {site.site: list(range(site.heads)) for site in anatomy_of(network).sites}
    return {**_point(network, kept, ready, shop), "fitted": fitted, **_about(ready)}


def pruned(
    *, model: str, where: str, strength: float, control: bool, sizes: Mapping[str, Any], machine: Machine
) -> dict[str, Any]:
    """Gates on a trained model with the weights going on learning; then as many heads, chosen at random."""
    shop = Workshop.open(sizes, machine)
    network, ready, settings = shop.further(model, shop.base(model), sizes["gates"])
    network.to(device())
    gates = HeadGates.of(network, None if where == "all" else ["encoder"], weight=strength)
    learn(network, where)
    fitted = short_run(network, ready, settings, gates)
    kept = gates.remaining_heads("code")
    left = prune_by_gates(network, gates)
    out = {**_point(left, kept, ready, shop), "gates": _gates(gates), "fitted": fitted, **_about(ready)}
    del network, left
    if control:
        make_room()
        out["control"] = _control(where, kept, ready, settings, shop)
    return out


def emptied(*, model: str, where: str, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """An encoder without a single head: a feed-forward network over tokens and their positions."""
    shop = Workshop.open(sizes, machine)
    network, ready, settings = shop.further(model, shop.base(model), sizes["gates"])
    sites = {site.site: site.heads for site in anatomy_of(network).sites}
    kept = {site: [] if site.name == "encoder" else list(range(heads)) for site, heads in sites.items()}
    network = remove_heads(network, kept)
    learn(network, where)
    fitted = short_run(network, ready, settings)
    return {**_point(network, kept, ready, shop), "fitted": fitted, **_about(ready)}


def from_scratch(*, strength: float, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Gates on marian-small from the first step on."""
    shop = Workshop.open(sizes, machine)
    settings = shop.small_settings(shop.pairs(shop.own))
    ready = prepare(settings)
    set_seed(0)
    network = ready.builder.model().to(device())
    gates = HeadGates.of(network, weight=strength, start="scratch", warmup=_steps(ready, settings) // 4)
    fitted = short_run(network, ready, settings, gates)
    kept = gates.remaining_heads("code")
    left = prune_by_gates(network, gates)
    return {**_point(left, kept, ready, shop), "gates": _gates(gates), "fitted": fitted, **_about(ready)}


def russian(*, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """marian-small English to Russian: trained on Tatoeba, tested on subtitles, and on what Tatoeba held out."""
    shop = Workshop.open(sizes, machine)
    whole = list(corpus("parallel_en_ru:tatoeba", data=shop.machine.data))
    random.Random(0).shuffle(whole)
    whole = [pair for pair in whole if pair.text.strip() and (pair.target or "").strip()]
    held, rest = whole[: 2 * HELD_OUT], whole[2 * HELD_OUT :][: sizes["limit"]]
    name = "parallel_en_ru:tatoeba"
    splits = Splits(Corpus.of(rest, name=name), Corpus.of(held[:HELD_OUT], name=name))
    subtitles = list(corpus("parallel_en_ru:opensubtitles", data=shop.machine.data, limit=sizes["test_limit"]))

    def make(folder: Path) -> None:
        run = train(shop.small_settings(splits).replace(out=folder.with_name(folder.name + ".run")))
        run.folder.rename(folder)

    folder = made_once(shop.scratch / "small-en-ru", make)
    model, tokenizer = opened(folder)
    own = held[HELD_OUT:][: sizes["test_limit"]]
    scores = {"subtitles": scored(model, tokenizer, subtitles, shop), "tatoeba": scored(model, tokenizer, own, shop)}
    return {**numbers_of(Trained.load(folder)), "scores": scores}


def learn(model: Any, where: str) -> None:
    """Which weights learn: all, or the encoder's layers alone (Voita et al.; the embeddings are the decoder's too)."""
    if where == "all":
        return
    model.requires_grad_(False)
    model.get_encoder().layers.requires_grad_(True)


def chosen_at_random(kept: Kept, heads: Mapping[Site, int], seed: int = 0) -> Kept:
    """As many heads of each stack as were kept, drawn from all of its layers."""
    draw = random.Random(seed)
    out: Kept = {}
    for stack in STACKS:
        places = [(site, head) for site in kept if site.name == stack for head in range(heads[site])]
        wanted = sum(len(kept[site]) for site in kept if site.name == stack)
        picked = set(draw.sample(places, wanted))
        for site in kept:
            if site.name == stack:
                out[site] = [head for head in range(heads[site]) if (site, head) in picked]
    return out


def _control(where: str, kept: Kept, ready: Any, settings: Any, shop: Workshop) -> dict[str, Any]:
    set_seed(0)
    network = ready.builder.model()
    heads = {site.site: site.heads for site in anatomy_of(network).sites}
    drawn = chosen_at_random(kept, heads)
    network = remove_heads(network, drawn)
    learn(network, where)
    short_run(network, ready, settings)
    return _point(network, drawn, ready, shop, apart=False)


def _point(
    model: Any, kept: Mapping[Site, Sequence[int]], ready: Any, shop: Workshop, apart: bool = True
) -> dict[str, Any]:
    return {"kept": table_of(kept), "scores": all_scores(model, ready.builder.tokenizer, shop, apart=apart)}


def table_of(kept: Mapping[Site, Sequence[int]]) -> dict[str, list[list[int]]]:
    """stack → layer → numbers of the heads that stay, from 0; stacks without gates are not there."""
    out: dict[str, list[list[int]]] = {}
    for site in sorted(kept, key=lambda one: (one.name, one.layer)):
        out.setdefault(site.name, []).append(list(kept[site]))
    return out


def _gates(gates: HeadGates) -> dict[str, Any]:
    """log α by site, and how many heads each rule keeps."""
    values = gates.log_alpha.detach().cpu()
    alpha: dict[str, list[list[float]]] = {}
    for site in sorted(gates.place, key=lambda one: (one.name, one.layer)):
        alpha.setdefault(site.name, []).append([round(x, 3) for x in values[gates.place[site]].tolist()])
    rules = {rule: sum(map(len, gates.remaining_heads(rule).values())) for rule in ("code", "paper")}
    return {"log_alpha": alpha, "kept_by": rules, "expected_open": gates.expected_open().item()}


def _steps(ready: Any, settings: Any) -> int:
    return settings.epochs * (len(ready.train) // settings.batch_size + 1)


def _about(ready: Any) -> dict[str, Any]:
    return {
        "corpus_fingerprint": ready.fingerprint,
        "texts": len(ready.train),
        "device": device(),
        "versions": versions(),
    }
