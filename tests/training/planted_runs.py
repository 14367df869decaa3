"""Small runs on planted reviews, and how to compare what they leave."""

import json

import torch
import transformers as hf

from lorgnette.texts import SizedCorpus
from lorgnette.texts.planted import planted_corpus
from lorgnette.training import Splits, TrainingSettings

SMALL = {"layers": 1, "width": 16, "positions": "relative", "dropout": 0.1}


def kept(split, size):
    """Planted reviews, made once."""
    corpus = planted_corpus(split, size=size)
    return SizedCorpus("planted", lambda made=tuple(corpus): made, split=split, labels=corpus.labels, size=size)


PARTS = Splits(kept("train", 200), kept("val", 60), kept("test", 60))


def settings(out, **changes):
    given = {"model": "tp9-residual-cls", "corpus": PARTS, "embeddings": "random", "overrides": SMALL, "epochs": 3}
    return TrainingSettings(**{**given, "batch_size": 32, "out": out, **changes})


def weights(folder):
    return hf.AutoModelForSequenceClassification.from_pretrained(folder).state_dict()


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def plain_record(folder):
    record = json.loads((folder / "training.json").read_text())
    for entry in record["curve"]:
        del entry["seconds"]
    return {key: record[key] for key in ("metrics", "curve", "best", "epochs", "settings")}
