"""`prune` of a translation model: BLEU before and after, encoder only, and the decoder as it was."""

import pytest
import torch
import transformers as hf
from tiny import tiny_model, tokenizer

from lorgnette.texts import Example, SizedCorpus
from lorgnette.training import Splits, TrainingSettings, train
from lorgnette.training.pruning.prune import prune
from lorgnette.training.pruning.removal import count_heads
from lorgnette.training.pruning.settings import PruningSettings

TINY = {"layers": 1, "heads": 2, "width": 16, "feed_forward": 16, "pieces": 60, "positions": 32}


def pairs(count, split):
    words = [("red", "rouge"), ("blue", "bleu"), ("house", "maison"), ("dog", "chien"), ("runs", "court")]
    made = []
    for number in range(count):
        chosen = [words[(number * 7 + k * k) % 5] for k in range(2 + number % 3)]
        english, french = (" ".join(side) for side in zip(*chosen, strict=True))
        made.append(Example(f"{split}-{number}", english, target=french))
    return SizedCorpus("toy:en-fr", lambda: tuple(made), split=split, size=count)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    parts = Splits(pairs(64, "train"), pairs(12, "val"), pairs(12, "test"))
    out = tmp_path_factory.mktemp("translator") / "model"
    train(TrainingSettings(model="marian-small", corpus=parts, out=out, overrides=TINY, epochs=1, batch_size=32))
    return parts, out


WAYS = {
    "ranked, then settled": {"method": "importance", "keep": 0.5, "only": ("heads",)},
    "by gates": {"weight": 0.1, "allow_empty": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_encoder_learns_alone(translator, tmp_path, way):
    parts, base = translator
    given = {"model": str(base), "corpus": parts, "out": tmp_path / "small", "epochs": 1, "batch_size": 32, "beams": 2}
    done = prune(PruningSettings(**given, stacks=("encoder",), train="gated", onnx=False, **WAYS[way]))
    assert done.record["heads"]["before"] == {"encoder": [2], "decoder": [2], "cross": [2]}
    left = 1 if "keep" in WAYS[way] else 2
    assert done.record["heads"]["after"] == {"encoder": [left], "decoder": [2], "cross": [2]}
    assert 0 <= done.record["before"]["bleu"] <= 100
    assert done.record["before"]["signature"].startswith("nrefs:1|case:mixed")
    assert done.record["settings"]["beams"] == 2
    assert [(each["runtime"], each["batch"][0]) for each in done.record["times"]] == [
        ("torch", 1), ("generation", 1), ("torch", 32), ("generation", 32),
    ]  # fmt: skip
    assert "torch, generating " in (done.folder / "README.md").read_text()
    tuned = done.record["tuned"]
    assert tuned["difference"]["value"] == pytest.approx(done.record["metrics"]["test"]["bleu"] - tuned["bleu"])
    low, high = done.record["difference"]["interval"]
    assert low <= high
    opened = hf.AutoModelForSeq2SeqLM.from_pretrained(done.folder)
    assert type(opened).__name__ == "PrunedMarianMTModel"
    assert count_heads(opened) == done.record["heads"]["after"]
    before, after = hf.AutoModelForSeq2SeqLM.from_pretrained(base).state_dict(), opened.state_dict()
    same = {name for name in after if after[name].shape == before[name].shape and after[name].equal(before[name])}
    changed = after.keys() - same
    assert any("fc1" in name for name in changed), "the layers that are pruned go on learning"
    assert all(name.startswith("model.encoder.layers.") for name in changed), "embeddings are the decoder's too"


def test_a_t5_with_more_decoder_than_encoder_layers(translator, tmp_path):
    """transformers makes its cache too short: it is scored without one, and the checkpoint says so in one line."""
    parts, _ = translator
    base = tmp_path / "t5"
    model = tiny_model("t5", dtype=torch.float32)
    model.config.architectures = [type(model).__name__]
    model.save_pretrained(base)
    tokenizer("t5").save_pretrained(base)
    given = {"model": str(base), "corpus": parts, "out": tmp_path / "small", "epochs": 1, "batch_size": 32}
    made = PruningSettings(**given, keep=0.8, method="importance", settle=0, uniform=True, onnx=False, max_length=20)
    done = prune(made)
    layers = {name: len(left) for name, left in done.record["layers"]["after"].items()}
    assert layers["decoder"] > layers["encoder"]
    assert [note for note in done.record["notes"] if note.startswith("it has more decoder than encoder layers")]
    opened = hf.AutoModelForSeq2SeqLM.from_pretrained(done.folder)
    assert opened.generation_config.use_cache is False
    assert opened.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=4).shape[0] == 1
