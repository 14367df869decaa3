"""How much a loss depends on what heads read (Clark et al. 2019, §3.3), on the losses at hand.

The paper's loss is that of masked words. Encoders without their head have none; a translation model and an encoder that
was fine-tuned as a classifier do, so these are other quantities, and said to be so.
"""

from pathlib import Path

import xarray as xr

from lorgnette.axes import HEAD
from lorgnette.lens.gradients.lens import Gradients
from lorgnette.looking.look import look
from lorgnette.subject import load
from lorgnette.texts import corpus as open_corpus
from reproductions.clark2019.losses import COLUMNS, LOSSES
from reproductions.frame.settings import Machine


def measure(*, texts: int, which: str = "gradients", machine: Machine) -> xr.Dataset:
    """Mean |∂loss/∂α| by kind of token, layer and head, and its standard error over sentences.

    `sink_ratio`: that for the sink over that for other tokens, mean over the upper half of the encoder.
    """
    asked = LOSSES[which]
    # The published translation checkpoint is a pickle; it is read as tensors only, from a folder the reader gave.
    subject = load(str(Path(str(machine.models), asked.model)), device=machine.device, allow_pickle=True)
    subject.name = asked.model
    sentences = open_corpus(asked.corpus, split="test", data=machine.data, limit=texts)
    result = look(subject, sentences, [Gradients()], progress=False)["gradients"]
    data = result.data.sel(category=list(COLUMNS), stack=list(asked.stacks))
    mean = data["gradient"].mean(HEAD)
    out = xr.Dataset(
        {
            "gradient": mean,
            # Heads are averaged within a sentence before sentences are; without that, an upper bound.
            "error": data["gradient_se"].mean(HEAD),
            "sink_ratio": sink_ratio(mean, asked.sink),
        }
    )
    about = {"model": asked.model, "weights_sha256": subject.weights_hash, "corpus": asked.corpus}
    about |= {"corpus_fingerprint": sentences.fingerprint()}
    return out.assign_attrs({**about, "texts": result.provenance.texts, "tokens": result.provenance.tokens})


def sink_ratio(gradient: xr.DataArray, sink: str) -> float:
    encoder = gradient.sel(stack="encoder")
    ratio = (encoder.sel(category=sink) / encoder.sel(category="other")).values
    return float(ratio[len(ratio) // 2 :].mean())
