"""One run of TP 9: a model trained on IMDB, in numbers."""

import gc
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lorgnette.training import TrainingSettings, train
from reproductions.frame.running import numbers_of, ready_for_training
from reproductions.frame.settings import Machine
from reproductions.frame.tokens import store, stored

CORPUS = "imdb"
MIN_COUNT = 2  # words of one review only are <unk> where the vectors are trained


def settings_of(*, preset: str, frozen: bool, corpus: str = CORPUS, **rest: Any) -> TrainingSettings:
    """Adam, the learning rate falling to zero over the epochs, the best epoch by validation accuracy."""
    return TrainingSettings(
        model=preset,
        corpus=corpus,
        embeddings="glove",
        freeze=frozen,
        vocabulary="vectors" if frozen else "train",
        min_count=MIN_COUNT,
        schedule="linear",
        select="accuracy",
        **rest,
    )


def prepare_texts(arguments: Mapping[str, Any], machine: Machine) -> None:
    """Writes the token ids that a cell with these arguments reads, unless they are there."""
    told = {**arguments, "preset": "mean", "overrides": {}}
    told = {name: value for name, value in told.items() if name not in ("test", "shuffles", "balanced")}
    store(settings_of(**told, data=machine.data, out=machine.scratch), machine.scratch)


def trained(*, machine: Machine, test: bool, **told: Any) -> dict[str, Any]:
    """Trains one model and keeps its numbers; the model itself goes."""
    ready_for_training()
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder:
        settings = settings_of(**told, data=machine.data, out=Path(folder) / "run")
        prepared = stored(settings, machine.scratch, test=test)
        gc.freeze()  # the collector need not look at fifty thousand reviews again and again
        run = train(settings, prepared=prepared)
    return numbers_of(run)


def tfidf(*, machine: Machine, limit: int | None, test_limit: int | None) -> dict[str, Any]:
    """TF-IDF of words and pairs of words, logistic regression; C is chosen on the same validation reviews."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    from lorgnette.training.splits import parts_of

    base = TrainingSettings(model="mean", corpus=CORPUS, out="", limit=limit, test_limit=test_limit, data=machine.data)
    parts = parts_of(base)
    texts = {name: list(getattr(parts, name)) for name in ("train", "validation", "test")}
    labels = {name: [one.label for one in part] for name, part in texts.items()}
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True)
    features = {
        name: vectorizer.fit_transform(words) if name == "train" else vectorizer.transform(words)
        for name, words in ((name, [one.text.replace("<br />", " ") for one in part]) for name, part in texts.items())
    }
    tried = {}
    for strength in (1.0, 4.0, 16.0):
        model = LogisticRegression(C=strength, solver="liblinear").fit(features["train"], labels["train"])
        tried[strength] = (float(model.score(features["validation"], labels["validation"])), model)
    best = max(tried, key=lambda strength: tried[strength][0])
    accuracy, model = tried[best]
    return {
        "metrics": {
            "validation": {"accuracy": accuracy},
            "test": {"accuracy": float(model.score(features["test"], labels["test"])), "texts": len(labels["test"])},
        },
        "parameters": {"trained": int(model.coef_.size + 1), "total": int(model.coef_.size + 1)},
        "C": best,
    }


def vectors(*, machine: Machine, reviews: int) -> dict[str, float]:
    """How long the words' vectors are: the mean norm over the tokens of some reviews that have one."""
    import torch

    from lorgnette.models.classifier.tokenizer import build_tokenizer
    from lorgnette.texts import corpus
    from lorgnette.texts.vectors import read_vectors
    from lorgnette.training.build import vectors_path

    base = TrainingSettings(model="mean", corpus=CORPUS, out="", data=machine.data)
    words, array = read_vectors(vectors_path("glove", base))
    tokenizer = build_tokenizer(vocabulary=words)
    norms = torch.cat([torch.zeros(len(tokenizer) - len(words)), torch.from_numpy(array).norm(dim=1)])
    texts = [example.text for example in corpus(CORPUS, split="train", data=machine.data, limit=reviews)]
    ids = torch.tensor([one for each in tokenizer(texts, verbose=False)["input_ids"] for one in each])
    lengths = norms[ids]
    known = lengths > 0
    return {"norm": float(lengths[known].mean()), "without_vector": float((~known).double().mean())}
