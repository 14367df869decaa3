"""Conditions of Clark et al. 2019, §4.2 and §5, measured: each head as a parser, and all heads together as one."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from lorgnette.lens.attention_probe.lens import AttentionProbe
from lorgnette.lens.coreference.lens import Coreference, best_antecedents
from lorgnette.lens.relations.lens import Relations, best_heads
from lorgnette.looking.controls import shuffled, with_random_weights
from lorgnette.looking.look import look
from lorgnette.subject import Subject
from lorgnette.syntax.attachment import SCORES
from lorgnette.texts import corpus as open_corpus
from lorgnette.texts.corpus import Corpus
from reproductions.clark2019.stanford import UD_RELATIONS
from reproductions.frame.conditions import RANDOM, SHUFFLED, opened, origin_of
from reproductions.frame.settings import Machine

if TYPE_CHECKING:
    import pandas as pd

TREEBANK, PARTS = "ud_en_ewt", ("dev", "test")
PASSAGES = "ud_en_gum:passages"
VECTORS = "glove_100d"


def relations(*, model: str, condition: str, sentences: int, seed: int, machine: Machine) -> xr.Dataset:
    """The best head and the best offset for each relation and way, chosen on one half and tested on the other."""
    subject = _subject(model, condition, seed, machine)
    texts = treebank(sentences, condition, seed, machine.data)
    result = look(subject, texts, [Relations(UD_RELATIONS)], progress=False, truncate=True)["relations"]
    counts = {name: int(result.data.attrs[name]) for name in ("words", "words_without_a_piece")}
    return rows_as_arrays(best_heads(result), "relation", "way").assign_attrs({**origin_of(subject, texts), **counts})


def parser(
    *, model: str, condition: str, sentences: int, steps: int, seed: int, vectors: bool = True, machine: Machine
) -> xr.Dataset:
    """UAS of the trained combinations of all heads, with and without GloVe, on the sentences left out of training."""
    subject = _subject(model, condition, seed, machine)
    texts = treebank(sentences, condition, seed, machine.data)
    where = Path(str(machine.data), VECTORS) if vectors else None
    lens = AttentionProbe(where, texts=sentences, steps=steps, seed=seed)
    data = look(subject, texts, [lens], progress=False, truncate=True)["attention-probe"].data
    names = [score + tail for score in SCORES for tail in ("", "_se")]
    kept = data[[*names, *(f"head_is_next_{name}" for name in names)]]
    kept = kept if vectors else kept.sel(features=["attention"])
    return kept.drop_attrs().assign_attrs({**origin_of(subject, texts), "steps": steps})


def antecedents(*, model: str, condition: str, sentences: int, seed: int, machine: Machine) -> xr.Dataset:
    """The head that finds antecedents best, chosen on one half of GUM's passages and tested on the other."""
    subject = _subject(model, condition, seed, machine)
    made = list(open_corpus(PASSAGES, split="test", data=machine.data))[:sentences]
    texts = Corpus.of(made, name=PASSAGES)
    result = look(subject, texts, [Coreference()], progress=False, truncate=True)["coreference"]
    counts = {name: int(result.data.attrs[name]) for name in ("mentions", "with_antecedent")}
    data = rows_as_arrays(best_antecedents(result), "kind", "candidates")
    return data.assign_attrs({**origin_of(subject, texts), **counts})


def rows_as_arrays(frame: "pd.DataFrame", *index: str) -> xr.Dataset:
    """A table with one row for each pair of labels, as arrays along them, labels in the order of the rows."""
    order = {name: frame[name].drop_duplicates().tolist() for name in index}
    return frame.drop(columns="stack").set_index(list(index)).to_xarray().reindex(order)


def treebank(sentences: int, condition: str, seed: int, data: str | None) -> Corpus:
    """So many sentences, spread evenly over the development and the test part."""
    every = list(chain.from_iterable(open_corpus(TREEBANK, split=part, data=data) for part in PARTS))
    count = min(sentences, len(every))
    taken = [every[k * len(every) // count] for k in range(count)]
    if condition == SHUFFLED:
        taken = [shuffled(example, seed) for example in taken]
    return Corpus.of(taken, name=TREEBANK)


def _subject(model: str, condition: str, seed: int, machine: Machine) -> Subject:
    subject = opened(model, machine.models, machine.device)
    return with_random_weights(subject, seed) if condition == RANDOM else subject
