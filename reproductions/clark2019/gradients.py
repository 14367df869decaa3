"""How much a loss depends on what heads read (Clark et al. 2019, §3.3), on the losses at hand.

The paper's loss is that of masked words. Encoders without their head have none; a translation model and an encoder that
was fine-tuned as a classifier do, so these are other quantities, and said to be so.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lorgnette.axes import HEAD
from lorgnette.corpora import corpus as open_corpus
from lorgnette.lenses.gradients.lens import Gradients
from lorgnette.looking.look import look
from lorgnette.subject import load
from reproductions.frame.readings import plain
from reproductions.frame.record import Table

COLUMNS = ("cls", "sep", "period_comma", "other", "all")


@dataclass(frozen=True)
class Losing:
    """A model with a loss, and text that it can be taken on."""

    model: str
    corpus: str
    loss: str
    names: dict[str, str]
    """what its opening and closing tokens are called"""
    stacks: dict[str, str]
    sink: str = "sep"
    """the special token that gets most of the weight"""
    made: str = ""


LOSSES = {
    "gradients": Losing(
        "opus-mt-en-fr",
        "multi30k:en-fr",
        "the cross-entropy of the reference translation",
        {"cls": "start", "sep": "</s>"},
        {"encoder": "encoder", "cross": "decoder reads encoder"},
    ),
    "gradients-classifier": Losing(
        "minilm-sst2",
        "sst2",
        "the cross-entropy of the class, after fine-tuning",
        {"cls": "[CLS]", "sep": "[SEP]"},
        {"encoder": "encoder"},
        sink="cls",
        made="lorgnette train minilm --corpus sst2 --epochs 2 --learning-rate 5e-5 --batch-size 32",
    ),
}
"""By the name of their cell."""


def there(which: str, models: str | None) -> bool:
    return models is not None and Path(models, LOSSES[which].model).is_dir()


def measure(texts: int, which: str = "gradients", **local: Any) -> dict[str, Any]:
    """Mean |∂loss/∂α| by kind of token, layer and head, and its standard error over sentences."""
    asked = LOSSES[which]
    # The published translation checkpoint is a pickle; it is read as tensors only, from a folder the reader gave.
    subject = load(str(Path(local["models"], asked.model)), device=local.get("device"), allow_pickle=True)
    subject.name = asked.model
    sentences = open_corpus(asked.corpus, split="test", data=local.get("data"), limit=texts)
    result = look(subject, sentences, [Gradients()], progress=False)["gradients"]
    data = result.data.sel(category=list(COLUMNS))
    mean = data["gradient"].mean(HEAD)
    # Heads are averaged within a sentence before sentences are; without that, an upper bound: errors that all agree.
    error = data["gradient_se"].mean(HEAD)
    return {
        "model": asked.model,
        "weights_sha256": subject.weights_hash,
        "corpus": asked.corpus,
        "corpus_fingerprint": sentences.fingerprint(),
        "texts": result.provenance.texts,
        "tokens": result.provenance.tokens,
        "gradient": {stack: plain(mean.sel(stack=stack).values) for stack in asked.stacks},
        "error": {stack: plain(error.sel(stack=stack).values) for stack in asked.stacks},
    }


def table(which: str, cell: dict[str, Any]) -> Table:
    asked = LOSSES[which]
    names = {"period_comma": ". and ,", "other": "other", "all": "all", **asked.names}
    rows = []
    for stack, name in asked.stacks.items():
        for layer, (means, errors) in enumerate(zip(cell["gradient"][stack], cell["error"][stack], strict=True), 1):
            row: dict[str, Any] = {"stack": name, "layer": layer}
            for kind, mean, error in zip(COLUMNS, means, errors, strict=True):
                if mean is not None:
                    row[names[kind]] = f"{1000 * mean:.3f} ± {1000 * (error or 0):.3f}"
            rows.append(row)
    made = f" The classifier was made by `{asked.made}`." if asked.made else ""
    return Table(
        f"|∂loss/∂α| × 1000 by kind of token: {asked.model} on {cell['texts']} sentences of {asked.corpus}",
        pd.DataFrame(rows),
        f"The loss is {asked.loss}; mean over pairs of a query and such a token, then over heads and sentences, ± a "
        f"standard error over sentences (an upper bound: the mean of the heads' own).{made} No model with a "
        "masked-word loss was at hand, so this is not the paper's quantity.",
    )
