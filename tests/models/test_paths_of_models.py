"""Every way into a model: with and without padding, without a mask, one token, a cache. Each is eager attention."""

import pytest
import torch
from tiny.architectures import model_of_type

from lorgnette.attending import Recorder
from lorgnette.models.switching import eager
from lorgnette.models.tapping import tapped

LENGTHS = (9, 5)
ENCODERS = ("splinter", "bert", "roberta", "esm", "deberta-v2", "modernbert", "layoutlm")
DECODERS = ("llama", "gpt2", "bloom", "gpt_neox", "gemma2", "opt", "gpt_oss", "falcon", "gptj", "mistral")


def inputs(way):
    ids = torch.randint(10, 97, (2, 9), generator=torch.Generator().manual_seed(1))
    real = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
    if way == "padded on the left":
        real = real.flip(1)
    given = {"input_ids": ids.masked_fill(~real, 0), "attention_mask": real.long()}
    if not way.startswith("padded"):
        given = {name: tensor[:1, : 1 if way == "one token" else 9] for name, tensor in given.items()}
    if way == "without a mask":
        del given["attention_mask"]
    return given, real[: len(given["input_ids"]), : given["input_ids"].shape[1]]


@pytest.mark.parametrize(
    "way", ["padded on the right", "padded on the left", "without padding", "without a mask", "one token"]
)
@pytest.mark.parametrize("kind", ENCODERS + DECODERS)
def test_every_way_gives_what_eager_attention_gives(kind, way):
    model = model_of_type(kind)
    given, real = inputs(way)
    recorder = Recorder.of("weights")
    with torch.no_grad():
        with eager(model):
            theirs = model(**given, output_attentions=True)
        with tapped(model, recorder):
            mine = model(**given)
    torch.testing.assert_close(mine[0][real], theirs[0][real], rtol=1e-4, atol=2e-5)
    for seen, weights in zip(recorder.records.values(), theirs.attentions, strict=True):
        torch.testing.assert_close(
            seen["weights"].transpose(1, 2)[real], weights.transpose(1, 2)[real], rtol=1e-4, atol=2e-5
        )
