"""Conditions of Raganato & Tiedemann 2018, measured: trees of every head, the four patterns, probes on every layer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import xarray as xr

from lorgnette.lens.probes.lens import Probes
from lorgnette.lens.probes.probe import Recipe, train_probes
from lorgnette.lens.trees.lens import Trees
from lorgnette.looking.controls import RANDOM, SHUFFLED, shuffled, with_random_weights
from lorgnette.looking.look import look
from lorgnette.looking.probing import probe as probed
from lorgnette.subject import Subject, load
from lorgnette.syntax.attachment import SCORES
from lorgnette.texts import corpus as open_corpus
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from reproductions.frame.conditions import origin_of
from reproductions.frame.plain import plain
from reproductions.frame.settings import Machine
from reproductions.raganato2018.grid import SEMANTIC_TAGS
from reproductions.raganato2018.patterns import patterns as looked_at
from reproductions.raganato2018.semantics import with_semantics
from reproductions.raganato2018.tagged import tagged_corpus

SEEDS = (0,)
"""Of a probe's training; the model is one."""


def opened(model: str, condition: str, seed: int, machine: Machine) -> Subject:
    """A translation model under its own name, or the same with random weights."""
    folder = Path(machine.models, model) if machine.models else None
    here = folder is not None and folder.is_dir()
    # The published checkpoints are pickles; they are read as tensors only, from a folder the reader gave.
    subject = load(str(folder) if here else model, device=machine.device, allow_pickle=here)
    subject.name = model
    return with_random_weights(subject, seed) if condition == RANDOM else subject


def sentences(
    corpus: str, split: str, every: int, limit: int | None, condition: str, seed: int, machine: Machine
) -> Corpus:
    """Every so many of a corpus, in order; with their words shuffled where the condition says so."""
    taken = list(open_corpus(corpus, split=split, data=machine.data))[::every][:limit]
    if condition == SHUFFLED:
        taken = [shuffled(example, seed) for example in taken]
    return Corpus.of(taken, name=f"{corpus}:{split}")


def blocks_of(examples: Sequence[Example], count: int) -> list[list[Example]]:
    """Consecutive parts of nearly the same size."""
    count = min(count, len(examples))
    ends = [round(k * len(examples) / count) for k in range(count + 1)]
    return [list(examples[first:last]) for first, last in pairwise(ends)]


def trees(
    model: str,
    corpus: str,
    condition: str,
    *,
    every: int,
    limit: int | None,
    blocks: int,
    seed: int,
    machine: Machine,
) -> dict[str, Any]:
    """UAS of every head, both ways, and of the mean over heads, in each block and over all."""
    subject = opened(model, condition, seed, machine)
    texts = sentences(corpus, "test", every, limit, condition, seed, machine)
    whole = Trees(seed=seed)
    whole.bind(subject)
    by_block: dict[str, list[Any]] = {}
    for block in blocks_of(list(texts), blocks):
        lens = Trees(seed=seed)
        # A decoder of more layers would leave rows of the encoder empty.
        encoder = {"stack": 0, "layer": slice(len(whole.parsing))}
        data = look(subject, block, [lens], progress=False)["trees"].data.isel(encoder)
        for name in ("uas", "layer_uas", "baseline_uas"):
            by_block.setdefault(name, []).append(plain(data[name].values))
        whole.merge_state(lens)
    data = whole.compute().data.isel(encoder)
    names = [f"{prefix}{score}" for prefix in ("", "layer_", "baseline_") for score in SCORES]
    counts = {name: int(data.attrs[name]) for name in ("words", "words_without_a_piece", "words_in_broken_trees")}
    return {
        **origin_of(subject, texts),
        **counts,
        "by_block": by_block,
        "whole": {name: plain(data[name].values) for name in names},
        "recall": plain(data["recall"].values.round(4)),
        "relations": data["recall"]["relation"].values.tolist(),
    }


def patterns(
    model: str,
    corpus: str,
    condition: str,
    *,
    split: str,
    every: int,
    limit: int | None,
    blocks: int,
    seed: int,
    machine: Machine,
) -> dict[str, Any]:
    """How often the largest weight of a word's row is on itself, its neighbours, the last token; in each block."""
    subject = opened(model, condition, seed, machine)
    texts = sentences(corpus, split, every, limit, condition, seed, machine)
    found = [looked_at(subject, block, {}) for block in blocks_of(list(texts), blocks)]
    kept = [name for name in found[0] if name.startswith(("peak_", "mass_"))] + ["confidence"]
    return {
        **origin_of(subject, texts),
        "pieces": sum(block["words"] for block in found),
        "by_block": {name: [block[name] for block in found] for name in kept},
    }


def probe(
    model: str, task: str, condition: str, *, corpus: str, parts: Sequence[str], words: int, seed: int, machine: Machine
) -> dict[str, Any]:
    """Linear probes for one label on every hidden state, with control task and baselines."""
    subject = opened(model, condition, seed, machine)
    train, test = (_tagged(corpus, part, task, condition, words, seed, machine) for part in parts)
    result = probed(subject, train, test, task, words=words, hidden=None, seeds=SEEDS)
    data = result.data.isel(probe=0)
    names = ("accuracy", "control", "selectivity", "embedding_accuracy", "mixing", "majority", "type_majority")
    values = {f"{name}{tail}": plain(data[f"{name}{tail}"].values) for name in names for tail in ("", "_se")
              if f"{name}{tail}" in data}  # fmt: skip
    values["converged"] = plain(data["converged"].values)
    counts = {name: int(data[name]) for name in ("labels", "train_items", "test_items", "unseen_labels")}
    return {**origin_of(subject, test), "trained_on": train.name, **counts, **values}


def compared(
    model: str,
    task: str,
    condition: str,
    *,
    corpus: str,
    parts: Sequence[str],
    words: int,
    test_words: int,
    seed: int,
    machine: Machine,
) -> xr.Dataset:
    """`right`: how many words of each text the linear probe of each state gets right, of `words` in the text.

    All states are probed on the same words, so that layers can be compared text by text.
    """
    subject = opened(model, condition, seed, machine)
    kept = []
    for part, count in zip(parts, (words, test_words), strict=True):
        lens = Probes(task, words=count, hidden=None, seeds=SEEDS)
        look(subject, _tagged(corpus, part, task, condition, count, seed, machine), [lens], truncate=True,
             progress=False)  # fmt: skip
        rows = lens.rows.rows()
        _, label, _, text = rows["codes"].mT.contiguous()
        kept.append((rows["vectors"].transpose(0, 1)[:-1], label, text))
    (x, known, _), (z, true, text) = kept
    names, known = known.unique(return_inverse=True)
    probes = train_probes(x, known[None], len(names), SEEDS, Recipe())
    at = torch.searchsorted(names, true).clamp(max=len(names) - 1)
    true = torch.where(names[at] == true, at, -1)
    hits = (probes.predict(z) == true)[0].long()
    _, which = text.unique(return_inverse=True)
    count = int(which.max()) + 1
    right = hits.new_zeros(len(hits), count).index_add_(1, which, hits)
    data = {"right": (("layer", "text"), right.numpy()), "words": ("text", which.bincount(minlength=count).numpy())}
    converged = -1 if probes.converged is None else int(probes.converged.sum())
    return xr.Dataset(data, {"layer": list(range(len(hits)))}, {"converged": converged, "trained_on": len(known)})


def small(languages: str, *, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The patterns of a small translation model that voita2019 trains, one for each target language."""
    from reproductions.voita2019.measure_pruning import small as trained

    result = trained(languages=languages, sizes=sizes, machine=machine)
    return {name: result[name] for name in ("patterns", "corpus_fingerprint", "device", "versions")}


def _tagged(corpus: str, part: str, task: str, condition: str, words: int, seed: int, machine: Machine) -> Corpus:
    """Sentences of all documents, about twice as many words as the probe takes of them."""
    every = list(_read(corpus, part, machine.data))
    total = sum(len(example.words or ()) for example in every)
    taken = every[:: max(1, total // (2 * words))]
    if task in ("etype", "infstat"):
        taken = [with_semantics(example) for example in taken]
    # Nothing but the label is read; the tree is left behind, since CoNLL-2000 has none.
    taken = [replace(example, tags={task: example.tags[task]}, extra={}) for example in taken]
    if condition == SHUFFLED:
        taken = [shuffled(example, seed) for example in taken]
    return Corpus.of(taken, name=f"{corpus}:{part}")


def _read(corpus: str, part: str, data: Any) -> Corpus:
    """A named corpus, or semantic tags in the usual format (word, tab, tag), which have no name."""
    if corpus == SEMANTIC_TAGS:
        return tagged_corpus(Path(str(data), corpus, f"{part}.txt"), label="sem")
    return open_corpus(corpus, split=part, data=data)
