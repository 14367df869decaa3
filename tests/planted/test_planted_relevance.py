"""Relevance on a classifier whose decisive words and whose one head are set by hand; attention is uniform."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from lorgnette.explaining import explain
from lorgnette.lens.rationales.plausibility import average_precision
from lorgnette.lens.relevance.lens import Relevance
from lorgnette.looking.look import look
from lorgnette.subject import Subject
from lorgnette.texts import corpus

WIDTH, HEADS, CARRIER = 48, 4, 2
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@cache
def texts():
    """Planted reviews in which a decisive word also says which way it decides: `bad-`, `not+` … `bad+`."""
    out = []
    for example in corpus("planted", split="test").take(80):
        sign = "+" if example.label else "-"
        words = tuple(w + sign * int(r > 0) for w, r in zip(example.words, example.rationale, strict=True))
        out.append(replace(example, words=words, text=" ".join(words)))
    return tuple(out)


@cache
def classifier(control: bool = False, *, looking: bool = False, carried: float = 4.0) -> Subject:
    """Words that decide carry ±d; one head of the first layer, reading all tokens alike, takes d to [CLS] as e.

    `looking`: heads do not read all tokens alike, but prefer words that decide. `carried`: how much the head writes; 4
    saturates the LayerNorm behind it and the pooler's tanh, so that one word more or less changes no logit.
    """
    words = dict.fromkeys(word for example in texts() for word in example.words)
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *words))}
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=32,
        max_position_embeddings=48,
        num_labels=2,
        initializer_range=0.3 if control else 0.02,
    )
    model = BertForSequenceClassification(config).eval()
    if not control:
        with torch.no_grad():
            _plant(model, vocabulary, carried)
            if looking:
                _look(model, vocabulary)
    return Subject(model, _tokenizer(vocabulary), name="control" if control else "planted")


def _plant(model, vocabulary, carried):
    bert = model.bert
    read = torch.zeros(WIDTH)
    read[0], read[1] = 1.0, -1.0  # LayerNorm takes away the mean
    write = torch.zeros(WIDTH)
    write[2], write[3] = 1.0, -1.0
    bert.embeddings.word_embeddings.weight.normal_(std=0.3)
    for word, number in vocabulary.items():
        row = bert.embeddings.word_embeddings.weight[number]
        row[:4] = 0.0
        row += 2.0 * read * (word.endswith("+") - float(word.endswith("-")))
    for layer in bert.encoder.layer:
        for projection in (layer.attention.self.query, layer.attention.self.key):
            projection.weight.zero_(), projection.bias.zero_()
    first = bert.encoder.layer[0].attention
    at = CARRIER * WIDTH // HEADS
    first.self.value.weight[at] += 2.0 * read
    first.output.dense.weight[:, at] += carried * write
    bert.pooler.dense.weight[0] += write
    model.classifier.weight[1, 0] += 2.0
    model.classifier.weight[0, 0] -= 2.0


def _look(model, vocabulary):
    """Words that decide carry f too, which every head's keys have and every query asks for."""
    mark = torch.zeros(WIDTH)
    mark[4], mark[5] = 1.0, -1.0
    for word, number in vocabulary.items():
        row = model.bert.embeddings.word_embeddings.weight[number]
        row[4:6] = 0.0
        row += 2.0 * mark * word.endswith(("+", "-"))
    for layer in model.bert.encoder.layer:
        own = layer.attention.self
        own.key.weight[:: WIDTH // HEADS] += mark
        own.query.bias[:: WIDTH // HEADS] = 2.0


def _tokenizer(vocabulary):
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=48, **names)


def precision(subject: Subject, method: str) -> float:
    """Average precision of the relevance of words against the decisive ones, mean over texts."""
    batch = subject.encode(texts())
    found = explain(subject, batch, method, torch.tensor([example.label for example in texts()]))
    scores = []
    for words, example in zip(found.words(batch.source), texts(), strict=True):
        words = (words.double() / words.abs().max()).round(decimals=5)  # rounding must not order what is equal
        scores.append(average_precision(words, torch.tensor(example.rationale) > 0))
    return torch.stack(scores).mean().item()


def test_the_planted_classifier_is_right():
    subject = classifier()
    batch = subject.encode(texts())
    with torch.no_grad():
        said = subject.run(batch).logits.argmax(-1)
    assert (said == torch.tensor([example.label for example in texts()])).all()


@pytest.mark.parametrize("method", ["attnlrp", "ah", "decompx", "voita2021"])
def test_relevance_finds_the_decisive_words(method):
    assert precision(classifier(), method) >= 0.95


@pytest.mark.parametrize("method", ["occlusion", "chefer2021"])
def test_what_removes_or_weighs_finds_them_where_a_word_changes_the_logit(method):
    assert precision(classifier(carried=0.2), method) >= 0.95


def test_occlusion_finds_little_where_the_model_is_saturated():
    """Without one of its words the logit stays: the drop is that of the model, and no fault of the method."""
    subject = classifier()
    batch = subject.encode(texts())
    found = explain(subject, batch, "occlusion", torch.tensor([example.label for example in texts()]))
    assert (found.tokens.abs().amax(-1) / found.start.abs()).median() < 0.01
    assert precision(subject, "occlusion") < 0.8


@pytest.mark.parametrize("method", ["attention", "rollout", "attention_flow"])
def test_uniform_attention_does_not(method):
    chance = sum(sum(e.rationale) / len(e.rationale) for e in texts()) / len(texts())
    assert precision(classifier(), method) == pytest.approx(chance, abs=0.02)


@pytest.mark.parametrize("method", ["attention", "rollout", "attention_flow"])
def test_attention_to_the_decisive_words_does(method):
    assert precision(classifier(looking=True), method) >= 0.95


@pytest.mark.parametrize(
    "method", ["attnlrp", "ah", "decompx", "voita2021", "attention_flow", "occlusion", "chefer2021"]
)
def test_nothing_is_found_in_the_control(method):
    assert precision(classifier(control=True), method) < 0.5


def test_the_one_head_that_carries_it_is_found():
    result = look(classifier(), texts(), [Relevance()], progress=False)["relevance"].data
    shares = result["relevance"].sel(stack="encoder", layer=1)
    assert shares.sel(head=CARRIER + 1) > 0.9
    assert abs(shares).drop_sel(head=CARRIER + 1).max() < 0.05
    assert result["layer_share"].sel(stack="encoder", layer=1) > 0.9
    control = look(classifier(control=True), texts(), [Relevance()], progress=False)["relevance"].data
    assert abs(control["relevance"]).max() < 0.6
