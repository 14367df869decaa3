"""How much a loss depends on what heads read (Clark et al. 2019, §3.3), on the one loss at hand: a translation's.

The paper's loss is that of masked words. Encoders without their head have none, so this is another quantity, on another
kind of model, and said to be so.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from lorgnette.axes import HEAD
from lorgnette.corpora import corpus as open_corpus
from lorgnette.lenses.gradients import Gradients
from lorgnette.look import look
from lorgnette.reproduce.readings import plain
from lorgnette.reproduce.record import Table
from lorgnette.subject import load

MODEL, CORPUS = "opus-mt-en-fr", "multi30k:en-fr"
COLUMNS = ("cls", "sep", "period_comma", "other", "all")
STACKS = {"encoder": "encoder", "cross": "decoder reads encoder"}
_NAMES = {"cls": "start", "sep": "</s>", "period_comma": ". and ,", "other": "other", "all": "all"}


def there(models: str | None) -> bool:
    return models is not None and Path(models, MODEL).is_dir()


def measure(texts: int, **local: Any) -> dict[str, Any]:
    """Mean |∂loss/∂α| by kind of token, layer and head, and its standard error over sentences."""
    # The published checkpoint is a pickle; transformers reads it as tensors only, and the reader gave the folder.
    subject = load(str(Path(local["models"], MODEL)), device=local.get("device"), allow_pickle=True)
    subject.name = MODEL
    sentences = open_corpus(CORPUS, split="test", data=local.get("data"), limit=texts)
    result = look(subject, sentences, [Gradients()], progress=False)["gradients"]
    data = result.data.sel(category=list(COLUMNS))
    mean = data["gradient"].mean(HEAD)
    # Heads are averaged within a sentence before sentences are; without that, an upper bound: errors that all agree.
    error = data["gradient_se"].mean(HEAD)
    return {
        "model": MODEL,
        "weights_sha256": subject.weights_hash,
        "corpus": CORPUS,
        "corpus_fingerprint": sentences.fingerprint(),
        "texts": result.provenance.texts,
        "tokens": result.provenance.tokens,
        "gradient": {stack: plain(mean.sel(stack=stack).values) for stack in STACKS},
        "error": {stack: plain(error.sel(stack=stack).values) for stack in STACKS},
    }


def table(cell: dict[str, Any]) -> Table:
    rows = []
    for stack, name in STACKS.items():
        for layer, (means, errors) in enumerate(zip(cell["gradient"][stack], cell["error"][stack], strict=True), 1):
            row: dict[str, Any] = {"stack": name, "layer": layer}
            for kind, mean, error in zip(COLUMNS, means, errors, strict=True):
                if mean is not None:
                    row[_NAMES[kind]] = f"{1000 * mean:.3f} ± {1000 * (error or 0):.3f}"
            rows.append(row)
    return Table(
        f"|∂loss/∂α| × 1000 by kind of token: {MODEL} on {cell['texts']} sentences of {CORPUS}",
        pd.DataFrame(rows),
        "The loss is the cross-entropy of the reference translation; mean over pairs of a query and such a token, then "
        "over heads and sentences, ± a standard error over sentences (an upper bound: the mean of the heads' own). No "
        "model with a masked-word loss and no fine-tuned classifier was at hand, so this is not the paper's quantity.",
    )
