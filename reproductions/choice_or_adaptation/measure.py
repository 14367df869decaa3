"""Sets of heads cut out of one model at the step at which gates begin to close, and trained on for several lengths.

T steps make the whole model; gates then choose heads in G steps (heavy_lifting), and their weights are thrown away: all
sets, also theirs, are cut out of the model after T. From scratch, the other heads are missing from the first step on,
and T steps come before the same adaptation.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import set_seed

from lorgnette.attending import Site
from lorgnette.lens.importance.lens import Importance
from lorgnette.lens.norms.lens import Norms
from lorgnette.lens.signals import signals_in
from lorgnette.looking.look import look
from lorgnette.models.families import anatomy_of
from lorgnette.subject import Subject
from lorgnette.texts import Corpus
from lorgnette.training.preparation import prepare
from lorgnette.training.pruning.removal import remove_heads
from reproductions.frame.settings import Machine
from reproductions.heavy_lifting.measure import PAIR, Table, base, draws, highest, measured
from reproductions.voita2019.measure_pruning import Kept, table_of
from reproductions.voita2019.workshop import Workshop, device, make_room, short_run

_EPOCHS = 2
"""Of the settings of the adaptation; its steps are told."""


def whole(*, seed: int, sizes: Mapping[str, Any], adapting: Sequence[int], machine: Machine) -> dict[str, Any]:
    """All heads, T steps and then each length of adaptation."""
    shop = Workshop.open(sizes, machine)
    network, ready, settings = shop.further("small", base(shop, seed), _EPOCHS, seed)
    return {"after": adapted(network, ready, settings, shop, adapting)}


def pruned(
    *, seed: int, kept: Table, choice: str, sizes: Mapping[str, Any], adapting: Sequence[int], machine: Machine
) -> dict[str, Any]:
    """One set of heads, cut out of the model after T steps."""
    shop = Workshop.open(sizes, machine)
    network, ready, settings = shop.further("small", base(shop, seed), _EPOCHS, seed)
    network.to(device())
    heads = chosen(choice, seed, by_site(kept, network), network, ready, sizes["ranking"])
    torch.set_float32_matmul_precision("high")
    found = adapted(remove_heads(network, heads), ready, settings, shop, adapting)
    return {"kept": table_of(heads), "after": found}


def scratch(
    *, seed: int, kept: Table, choice: str, sizes: Mapping[str, Any], adapting: Sequence[int], machine: Machine
) -> dict[str, Any]:
    """The same heads in a new model: T steps without the others, then the same adaptation."""
    shop = Workshop.open(sizes, machine)
    settings = shop.small_settings(shop.pairs(PAIR)).replace(seed=seed)
    ready = prepare(settings)
    set_seed(seed)
    network = ready.builder.model()
    heads = chosen(choice, seed, by_site(kept, network), network, ready, sizes["ranking"])
    network = remove_heads(network, heads).to(device())
    short_run(network, ready, settings)
    later = settings.replace(learning_rate=3e-4, warmup=0.1, epochs=_EPOCHS)
    return {"kept": table_of(heads), "after": adapted(network, ready, later, shop, adapting)}


def by_site(kept: Table, network: Any) -> Kept:
    """The heads by site of this model."""
    return {each.site: list(kept[each.site.name][each.site.layer]) for each in anatomy_of(network).sites}


def chosen(choice: str, seed: int, kept: Kept, network: Any, ready: Any, texts: int) -> Kept:
    """The gates' heads; as many of every layer by chance; or those that a signal puts first."""
    if choice == "gates":
        return kept
    heads: dict[Site, int] = {each.site: each.heads for each in anatomy_of(network).sites}
    if choice.startswith("random"):
        number = int(choice.removeprefix("random"))
        left = sum(map(len, kept.values()))
        return draws(f"{seed} {left}", kept, heads, number + 1)[0][number]
    subject = Subject(network.eval(), ready.builder.tokenizer, name="marian-small")
    torch.set_float32_matmul_precision("highest")
    some = Corpus.of(list(ready.parts.validation)[:texts], name="validation")
    lens = Importance(()) if choice == "gradient" else Norms(contribution=True, sample=0)
    found = signals_in(look(subject, some, [lens], truncate=True, progress=False))
    return highest(found[choice].value, kept, heads)


def adapted(network: Any, ready: Any, settings: Any, shop: Workshop, adapting: Sequence[int]) -> list[dict[str, Any]]:
    """Loss and BLEU after each length, every time from the same weights, with the same pairs in the same order."""
    out = []
    for steps in adapting:
        one = copy.deepcopy(network).to(device())
        set_seed(settings.seed)
        short_run(one, ready, settings, steps=steps)
        out.append({"steps": steps, **measured(one, ready, ready.test, shop)})
        del one
        make_room()
    return out
