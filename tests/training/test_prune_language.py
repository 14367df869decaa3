"""`prune` of a language model: perplexity on plain texts before and after, and the smaller model."""

import random

import numpy as np
import pytest
import torch
import transformers as hf
from tiny import tiny_model, tokenizer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.texts import Example, SizedCorpus
from lorgnette.training import Splits
from lorgnette.training.language.task import TextReader
from lorgnette.training.preparation import prepare
from lorgnette.training.pruning import budget, speed
from lorgnette.training.pruning.prune import prune
from lorgnette.training.pruning.settings import PruningSettings


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(speed, "SECONDS", 0.04)
    monkeypatch.setattr(budget, "SECONDS", 0.04)


def plain(count, split, words=(4, 12)):
    draw = random.Random(split)
    made = tuple(
        Example(f"{split}-{n}", " ".join(f"w{draw.randrange(40)}" for _ in range(draw.randint(*words))))
        for n in range(count)
    )
    return SizedCorpus("plain", lambda: made, split=split, size=count)


PARTS = Splits(plain(48, "train"), plain(16, "validation"), plain(20, "test"))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    out = tmp_path_factory.mktemp("language") / "llama"
    tiny_model("llama", dtype=torch.float32).save_pretrained(out)
    tokenizer("llama").save_pretrained(out)
    return out


def settings(base, out, **changes):
    given = {"model": str(base), "corpus": PARTS, "out": out, "epochs": 1, "batch_size": 16, "controls": 2}
    return PruningSettings(**{**given, "onnx": False, "settle": 1, **changes})


def test_the_loss_and_the_perplexity_are_those_of_the_model(base, tmp_path):
    """In float64, text by text, from the model's own loss, which moves the labels by itself."""
    ready = prepare(settings(base, tmp_path / "out", keep=0.5), trained=True)
    model = ready.builder.model().eval().double()
    collate = ready.trainer_parts()["data_collator"]
    items = [ready.validation[n] for n in range(len(ready.validation))]
    losses, tokens = [], []
    for item in items:
        ids = item["input_ids"].long()[None]
        losses.append(model(input_ids=ids, labels=ids).loss.item() * (ids.shape[1] - 1))
        tokens.append(ids.shape[1] - 1)
    assert ready.loss(model, collate(items)).item() == pytest.approx(sum(losses) / sum(tokens))
    found = ready.likelihoods(model, ready.validation)
    assert found.tokens.tolist() == tokens
    np.testing.assert_allclose(found.losses, losses, rtol=1e-5)  # of logits in float32
    assert found.perplexity == pytest.approx(np.exp(sum(losses) / sum(tokens)), rel=1e-5)


WAYS = {
    "ranked": {"keep": 0.6, "method": "importance"},
    "by gates": {"keep": 0.6},
    "heads alone": {"keep": 0.7, "method": "importance", "only": ("heads",)},
    "nothing trained": {"keep": 0.6, "method": "importance", "settle": 0},
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_left_is_a_language_model(base, tmp_path, way):
    record = prune(settings(base, tmp_path / "out", **WAYS[way])).record
    before, after = record["before"], record["metrics"]["test"]
    assert before["texts"] == after["texts"] == 20
    assert before["interval"][0] < before["perplexity"] < before["interval"][1]
    change = record["difference"]
    assert change["value"] == pytest.approx(after["perplexity"] - before["perplexity"])
    assert change["interval"][0] <= change["value"] <= change["interval"][1]
    assert record["parameters"]["after"] < record["parameters"]["before"]
    assert record["controls"]["metric"] == "perplexity"
    assert min(record["controls"]["random"]) > 1
    opened = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.tensor([[5, 6, 7]])
    assert opened.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0).shape == (1, 6)
    assert lo.load(str(tmp_path / "out")).model.num_parameters() == record["parameters"]["after"]
    assert "AutoModelForCausalLM" in (tmp_path / "out" / "README.md").read_text()
    if "tuned" in record:
        assert record["tuned"]["perplexity"] < before["perplexity"], "it learns"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scratch": True}, "is a language model: what it knows was not learnt on this corpus"),
        ({"labels": {"a": "b"}}, "is a language model, which has no classes: omit --labels"),
        ({"select": "accuracy"}, "is chosen by loss or cross_entropy, not by accuracy"),
        ({"max_length": 10**6}, "max_length 1000000 is more than"),
    ],
)
def test_what_it_refuses(base, tmp_path, changes, said):
    with pytest.raises(UserError, match=said) as refused:
        prune(settings(base, tmp_path / "out", keep=0.6, **changes))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_text_of_one_token_has_nothing_to_predict():
    words = Tokenizer(WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    plain_words = hf.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]")
    reader = TextReader(plain_words, hf.LlamaConfig(vocab_size=3), None)
    assert len(list(reader.read([Example("a", "one two")]))) == 1
    with pytest.raises(UserError, match="the text 'b' has one token, so there is none to predict"):
        list(reader.read([Example("a", "one two"), Example("b", "one")]))


def test_longer_texts_are_cut_and_counted(base, tmp_path):
    done = prune(settings(base, tmp_path / "out", keep=0.6, method="importance", settle=0, max_length=6))
    assert any("training texts truncated to 6 tokens" in note for note in done.record["notes"])


@pytest.mark.parametrize("lines", [1, 2, 3, 8, 14, 15])
def test_too_few_texts_are_refused_before_any_work(base, tmp_path, lines):
    """A tenth of a file validates, and an interval needs two texts."""
    file, out = tmp_path / "texts.txt", tmp_path / "out"
    file.write_text("\n".join(f"w{n} w1 w2 w3" for n in range(lines)))
    given = settings(base, out, corpus=str(file), keep=0.5)
    if lines == 15:
        assert prune(given).record["before"]["texts"] == 2
        return
    said = "too few to train and to validate" if lines == 1 else "has 1 validation text; 10% of the training texts"
    with pytest.raises(UserError, match=said):
        prune(given)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["texts.txt"]
