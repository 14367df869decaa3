"""A tiny model and a tiny treebank, saved where a reproduction looks for the real ones."""

import pytest
import torch
from subjects import word_pieces
from transformers import BertConfig, BertModel

SENTENCES = ("The cat sat on the mat.", "A dog ran, and it was good!", "It was not very unbelievably bad.")


@pytest.fixture(scope="session")
def tiny_shelf(tmp_path_factory):
    """A folder with models/minilm and data/ud_en_gum."""
    shelf = tmp_path_factory.mktemp("shelf")
    tokenizer = word_pieces()
    tokenizer.model_max_length = 128
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=128,
        initializer_range=0.3,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(shelf / "models" / "minilm")
    tokenizer.save_pretrained(shelf / "models" / "minilm")
    treebank = shelf / "data" / "ud_en_gum"
    treebank.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        sentences = "".join(
            ("# newdoc id = " + f"{split} {number // 60}\n" if number % 60 == 0 else "")
            + f"# text = {SENTENCES[number % 3]}\n1\tx\tx\tX\tX\t_\t0\troot\t_\t_\n\n"
            for number in range(180)
        )
        (treebank / f"en_gum-ud-{split}.conllu").write_text(sentences)
    return shelf
