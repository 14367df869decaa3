"""Probes with a corpus to train on and another to test on."""

from typing import Any

import torch
import xarray as xr

from lorgnette.errors import UserError
from lorgnette.lens.probes.lens import Probes
from lorgnette.lens.probes.structural import DESCRIPTIONS, ProbedTrees, trained_maps, tree_scores
from lorgnette.looking.look import look
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.corpus import Corpus


def probe(subject: Subject, train: Corpus, test: Corpus, label: str = "upos", **options: Any) -> Result:
    """Probes trained on one corpus and tested on another; options as those of `Probes`, `words` of each corpus."""
    lenses = []
    for corpus, development in ((train, 1.0), (test, 0.0)):
        lens = Probes(label, development=development, **options)
        look(subject, corpus, [lens], truncate=True)
        lenses.append(lens)
    result = lenses[0].joined(lenses[1]).compute()
    result.provenance = lenses[1].provenance.noted(
        f"trained on {train.name} {train.split or ''} ({train.fingerprint()})".replace("  ", " ")
    )
    return result


def structural_probe(
    subject: Subject,
    train: Corpus,
    test: Corpus,
    *,
    rank: int = 64,
    longest: int = 40,
    epochs: int = 10,
    batch_size: int = 20,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> Result:
    """A linear map B per hidden state such that ‖B(h_i − h_j)‖² is the distance of two words in the tree.

    Trained by Adam on the L1 loss of the paper, all states at once; tested by the spanning tree of the probed
    distances (undirected, without punctuation) beside the chain of neighbours, and by rank correlation. Sentences of
    more than `longest` words are left out and counted.

    What it does not tell you: that the model builds or reads trees; a probe of rank 64 finds much by itself, so look
    at state 0 beside the others. Hewitt and Manning 2019.
    """
    parts, left_out = [], 0
    for corpus in (train, test):
        lens = ProbedTrees(longest)
        left_out += int(look(subject, corpus, [lens], truncate=True)[lens.name].data["left_out"])
        if not lens.trees:
            raise UserError(f"{corpus.name}: no sentence of 2 to {longest} words has a tree.")
        parts.append(lens)
    generator = torch.Generator().manual_seed(seed)
    maps = trained_maps(parts[0].trees, rank, epochs, batch_size, learning_rate, generator)
    data = tree_scores(parts[1].trees, maps)
    data |= {"train_texts": xr.DataArray(len(parts[0].trees)), "test_texts": xr.DataArray(len(parts[1].trees))}
    data["left_out"] = xr.DataArray(left_out)
    for name, text in DESCRIPTIONS.items():
        data[name].attrs["description"] = text
    return Result("structural", xr.Dataset(data), parts[1].provenance)
