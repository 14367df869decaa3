"""A tiny model and a tiny treebank, saved where a reproduction looks for the real ones."""

import random

import pytest

WORDS = ("the", "cat", "sat", "on", "mat", "dog", "ran", "it", "was", "good")
SENTENCES = ("The cat sat on the mat.", "A dog ran, and it was good!", "It was not very unbelievably bad.")


@pytest.fixture(scope="session")
def tiny_shelf(tmp_path_factory):
    """A folder with models/minilm and data/ud_en_gum, ud_en_ewt and glove_100d."""
    # The process that only hands out the tests reads this file too, and needs none of these.
    import torch
    from made_up import write_vectors
    from tiny import word_pieces
    from transformers import BertConfig, BertModel

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
            ("# newdoc id = " + f"{split} {number // 60}\n# global.Entity = GRP-etype\n" if number % 60 == 0 else "")
            + f"# text = {SENTENCES[number % 3]}\n1\tx\tx\tX\tX\t_\t0\troot\t_\tEntity=({number % 7}-person)\n\n"
            for number in range(180)
        )
        (treebank / f"en_gum-ud-{split}.conllu").write_text(sentences)
    _trees(shelf / "data" / "ud_en_ewt")
    write_vectors(shelf / "data")
    return shelf


def _trees(folder):
    """Every word hangs on the next one, and is its determiner; the last is the root."""
    draw = random.Random(0)
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        blocks = []
        for number in range(80):
            words = [draw.choice(WORDS) for _ in range(draw.randint(4, 8))]
            rows = [
                f"{k}\t{word}\t_\tX\t_\t_\t{(k + 1) if k < len(words) else 0}\t"
                f"{'det' if k < len(words) else 'root'}\t_\t_"
                for k, word in enumerate(words, 1)
            ]
            blocks.append(f"# sent_id = {split}-{number}\n# text = {' '.join(words)}\n" + "\n".join(rows) + "\n\n")
        (folder / f"en_ewt-ud-{split}.conllu").write_text("".join(blocks))
