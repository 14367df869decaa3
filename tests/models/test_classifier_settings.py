"""Presets, settings that are refused, and where the word vectors come from."""

import math

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from lorgnette.errors import UserError
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.embeddings import embedding_table, pretrained_embedding_table, set_embeddings
from lorgnette.models.classifier.presets import PRESETS, preset
from lorgnette.models.classifier.tokenizer import build_tokenizer


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"block": "residul"}, "Did you mean 'residual'"),
        ({"pooling": "max"}, "pooling must be one of"),
        ({"positions": "sinusoid"}, "Did you mean 'sinusoidal'"),
        ({"heads": 3}, "multiple of heads"),
        ({"layers": -1}, "layers must be 0 or more"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"num_labels": 1}, "at least 2 labels"),
        ({"unk_token_id": 0}, "different ids"),
        ({"layrs": 3}, "no setting 'layrs'. Did you mean 'layers'"),
    ],
)
def test_wrong_settings_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        preset("tp9-base", **overrides)


def test_presets():
    with pytest.raises(UserError, match="Did you mean 'tp9-residual'"):
        preset("tp9-residul")
    config = preset("tp9-position", positions="learnt", num_labels=3, hidden_size=50)
    assert (config.positions, config.max_position_embeddings, config.num_labels, config.width) == ("learnt", 512, 3, 50)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (50, 3, 1)
    assert config.preset == "tp9-position"
    assert preset("tp9-base").output_projection is False
    assert preset("pure-attention").output_projection is True
    assert all(each.description for each in PRESETS.values())


def test_glove_rows_and_zero_for_the_rest():
    tokenizer = build_tokenizer(["a good film"])
    vectors = torch.arange(9.0).reshape(3, 3)
    table, known = embedding_table(tokenizer, ["good", "film", "elephant"], vectors)
    vocabulary = tokenizer.get_vocab()
    assert torch.equal(table[vocabulary["good"]], vectors[0])
    assert torch.equal(table[vocabulary["film"]], vectors[1])
    assert known.sum() == 2
    assert torch.count_nonzero(table[~known]) == 0
    model = SelfAttentionClassifier(preset("mean", vocab_size=len(tokenizer), width=3))
    set_embeddings(model, table, "glove")
    assert torch.equal(model.embeddings.words.weight, table)
    assert not model.embeddings.words.weight.requires_grad
    with pytest.raises(UserError, match="3 words and 2 vectors"):
        embedding_table(tokenizer, ["good", "film", "elephant"], vectors[:2])
    with pytest.raises(UserError, match="of width 3, the vectors from glove are 6 of width 2"):
        set_embeddings(model, table[:, :2], "glove")
    with pytest.raises(UserError, match="NaN"):
        set_embeddings(model, table.fill_(float("nan")), "glove")


def test_rows_of_a_pretrained_model():
    torch.manual_seed(0)
    pieces = build_tokenizer(vocabulary=["good", "film", "noir"])  # stands for the pretrained model's tokenizer
    bert = BertModel(
        BertConfig(vocab_size=6, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    )
    words = build_tokenizer(vocabulary=["good", "film noir", "unseen"])
    table, known = pretrained_embedding_table(words, bert, pieces)
    rows = bert.get_input_embeddings().weight
    assert torch.equal(table[3], rows[3])
    torch.testing.assert_close(table[4], (rows[4] + rows[5]) / 2)
    assert known.tolist() == [False, False, False, True, True, False]
    assert torch.count_nonzero(table[~known]) == 0


def test_linear_maps_start_as_in_pytorch():
    torch.manual_seed(0)
    model = SelfAttentionClassifier(preset("pure-attention", vocab_size=30))
    bound = 1 / math.sqrt(100)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert 0.9 * bound < module.weight.abs().max() <= bound
    assert model.embeddings.words.weight[1:].std().item() == pytest.approx(0.4, rel=0.1)
