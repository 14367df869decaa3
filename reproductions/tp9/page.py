"""The outcome of TP 9 put together."""

from typing import TYPE_CHECKING, Any

import torch

from lorgnette.models.classifier.positions import (
    analytic_position_similarity,
    position_similarity,
    sinusoidal_positions,
)
from reproductions.frame.record import Reproduction, origin, published
from reproductions.tp9 import answers, figures, tables
from reproductions.tp9.diagnosis import diagnosis_table
from reproductions.tp9.runs import Outcome

if TYPE_CHECKING:
    from reproductions.frame.record import Settings

_WIDTH, _LENGTH = 100, 500


def page_of(settings: "Settings", outcome: Outcome) -> Reproduction:
    told = published("tp9")
    some = next(iter(outcome.finals.values()))
    return Reproduction(
        name="tp9",
        title="TP 9: self-attention on IMDB",
        reference=told["reference"],
        question="What do residual connections, positions, a `<cls>` token and depth do to small classifiers?",
        setup=_setup(outcome, some),
        summary=answers.summary(outcome, position_check(), vector_norms(settings.data)),
        tables=[
            tables.main_table(outcome),
            tables.depth_table(outcome),
            *([found] if len((found := diagnosis_table(outcome)).frame) else []),
            tables.search_table(outcome),
        ],
        figures=[
            figures.ranking(outcome),
            figures.curves(outcome),
            figures.depth(outcome),
            figures.position_map(_WIDTH),
        ],
        claims=answers.claims(outcome, told),
        provenance=origin(
            settings,
            "tp9",
            partial=settings.partial,
            texts=some["texts"],
            corpus_fingerprint=some["corpus_fingerprint"],
            devices=sorted({one["device"] for one in outcome.finals.values()}),
            trained_with={one["device"]: one["versions"] for one in outcome.finals.values()},
            chosen={" ".join(key): vars(choice) for key, choice in outcome.chosen.items()},
            position_scales={" ".join(key): scale for key, scale in outcome.scales.items()},
            runs={key: _kept(one) for key, one in outcome.finals.items()},
            cells=len(outcome.finals) + len(outcome.searches) + (outcome.tfidf is not None),
        ),
    )


def _kept(one: Any) -> dict[str, Any]:
    return {name: one[name] for name in ("metrics", "best", "parameters", "seconds")}


def _setup(outcome: Outcome, some: Any) -> list[str]:
    size, texts = outcome.size, some["texts"]
    epochs = ", ".join(f"{count} epochs with {name} vectors" for name, count in size.epochs.items())
    return [
        f"IMDB: {texts['train']:,} reviews to train on, {texts['validation']:,} of the training reviews to choose "
        f"settings and epoch by, {texts['test']:,} test reviews, read once by each run. Words are split from "
        f"punctuation, `<br />` is stripped, n't becomes not; reviews are cut to {size.max_length} tokens. GloVe "
        "6B, 100-d, 100,000 words (the list at hand lacks single letters and numbers, so “a” and “I” too): with frozen "
        "vectors every word that has one; with trained vectors the words that occur at least twice in the training "
        "reviews, those without a vector starting at zero.",
        "Models: the equations of the practical, one head, three layers unless told otherwise; padding is masked "
        "in the softmax and in the mean. Sinusoidal positions are added as the practical says, and multiplied by "
        "a factor chosen on the validation reviews; learnt positions start near zero; relative ones are a learnt "
        "number per offset (±16) and layer. BiLSTM + attention is that of Nguyen et al. 2022.",
        f"Training: Adam, batches of {size.batch_size}, the learning rate falling linearly to zero over at most "
        f"{epochs}, stopped after {size.patience} epochs without progress; the epoch with the best validation "
        f"accuracy is kept. Seeds {', '.join(map(str, outcome.seeds))}. On a GPU, products of matrices are in TF32.",
        "Intervals are 95 %, from the spread over seeds (t distribution). They are not widened for the number of "
        "comparisons: of twenty between equals, about one comes out as a difference.",
    ]


def position_check() -> dict[str, float]:
    """How far pe_i·pe_j is from its analytic form, from a Toeplitz matrix, and what its diagonal is."""
    found, expected = position_similarity(_WIDTH, _LENGTH), analytic_position_similarity(_WIDTH, _LENGTH)
    diagonal = found.diagonal()
    return {
        "difference": float((found - expected).abs().max()),
        "toeplitz": float((found[1:, 1:] - found[:-1, :-1]).abs().max()),
        "diagonal": round(float(diagonal.mean()), 9),
        "diagonal_spread": float((diagonal - _WIDTH / 2).abs().max()),
    }


def vector_norms(data: str | None) -> dict[str, float]:
    """The mean norm of the words' vectors over the tokens of some reviews, and of a position."""
    from lorgnette.corpora import corpus
    from lorgnette.corpora.vectors import read_vectors
    from lorgnette.models.classifier.tokenizer import build_tokenizer
    from lorgnette.training import TrainingSettings
    from lorgnette.training.build import vectors_path

    base = TrainingSettings(model="mean", corpus="imdb", out="", data=data)
    words, array = read_vectors(vectors_path("glove", base))
    tokenizer = build_tokenizer(vocabulary=words)
    norms = torch.cat([torch.zeros(len(tokenizer) - len(words)), torch.from_numpy(array).norm(dim=1)])
    texts = [example.text for example in corpus("imdb", split="train", data=data, limit=1000)]
    ids = torch.tensor([one for each in tokenizer(texts, verbose=False)["input_ids"] for one in each])
    found = norms[ids]
    there = found > 0
    return {
        "words": float(found[there].mean()),
        "zero": float((~there).double().mean()),
        "position": float(sinusoidal_positions(_WIDTH, 1).norm()),
    }
