"""Word vectors of the classifier: the table, where its rows come from, and what is added to them."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lorgnette.errors import UserError
from lorgnette.models.classifier.config import SelfAttentionClassifierConfig
from lorgnette.models.classifier.positions import LearntPositions, SinusoidalPositions


class WordEmbeddings(nn.Module):
    """x⁽⁰⁾: the row of each word, a learnt vector for <cls>, projected if the widths differ, plus positions.

    <cls> has a vector of its own, so that it is learnt even where the table is frozen. With pooling "cls-zero" it
    starts at zero; where the table is trained this is the zero vocabulary entry of Fosse et al. 2023.
    """

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.embedding_width, padding_idx=config.pad_token_id)
        self.words.weight.requires_grad_(not config.freeze_embeddings)
        self.cls_token_id: int = config.cls_token_id
        self.cls: nn.Parameter | None = nn.Parameter(torch.empty(config.embedding_width)) if config.uses_cls else None
        same = config.embedding_width == config.width
        self.projection: nn.Linear | None = None if same else nn.Linear(config.embedding_width, config.width)
        self.positions: nn.Module | None = None
        if config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(config.width, config.position_scale)
        elif config.positions == "learnt":
            assert config.max_position_embeddings is not None  # the config sees to it
            self.positions = LearntPositions(config.width, config.max_position_embeddings)
        self.dropout: nn.Dropout = nn.Dropout(config.dropout)

    def word_vectors(self, ids: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token embedding"]:
        """Rows of the table (and of <cls>), before projection and positions: what Fosse's code calls state 0."""
        vectors = self.words(ids)
        if self.cls is None:
            return vectors
        return torch.where((ids == self.cls_token_id)[..., None], self.cls, vectors)

    def forward(self, vectors: Float[Tensor, "batch token embedding"]) -> Float[Tensor, "batch token width"]:
        states = vectors if self.projection is None else self.projection(vectors)
        if self.positions is not None:
            states = self.positions(states)
        return self.dropout(states)


def embedding_table(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str], vectors: Float[Tensor, "word embedding"]
) -> tuple[Float[Tensor, "vocabulary embedding"], Bool[Tensor, " vocabulary"]]:
    """The vector of every word of the tokenizer (GloVe, say), and which words had one; the others are zero.

    Zero is where Fosse et al. 2023 and the starter code of TP 9 leave a word without a vector.
    """
    if len(words) != len(vectors):
        raise UserError(f"there must be one vector per word; got {len(words)} words and {len(vectors)} vectors.")
    place = {word: row for row, word in enumerate(words)}
    vocabulary = tokenizer.get_vocab()
    pairs = [(row, place[word]) for word, row in vocabulary.items() if word in place]
    table = torch.zeros(len(tokenizer), vectors.shape[1])
    known = torch.zeros(len(tokenizer), dtype=torch.bool)
    if pairs:
        rows, places = torch.tensor(pairs).T
        table[rows] = vectors[places].float()
        known[rows] = True
    return table, known


def pretrained_embedding_table(
    tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, model_tokenizer: PreTrainedTokenizerBase
) -> tuple[Float[Tensor, "vocabulary embedding"], Bool[Tensor, " vocabulary"]]:
    """Rows copied from the input table of a pretrained model: one piece, its row; several pieces, their mean.

    Specials, and words the model knows only as unknown, stay zero. These are the vectors before any context, position
    or norm of that model.
    """
    rows = model.get_input_embeddings().weight.detach().float().cpu()
    table = torch.zeros(len(tokenizer), rows.shape[1])
    known = torch.zeros(len(tokenizer), dtype=torch.bool)
    specials = set(tokenizer.all_special_ids)
    words = [(word, row) for word, row in tokenizer.get_vocab().items() if row not in specials]
    if not words:
        return table, known
    pieces = model_tokenizer([word for word, _ in words], add_special_tokens=False)["input_ids"]
    for (_, row), ids in zip(words, pieces, strict=True):
        if ids and model_tokenizer.unk_token_id not in ids:
            table[row] = rows[ids].mean(dim=0)
            known[row] = True
    return table, known


def set_embeddings(model: PreTrainedModel, table: Float[Tensor, "vocabulary embedding"], source: str) -> None:
    """Puts `table` into a classifier and notes `source` in its config; the row of <pad> stays zero."""
    weight = model.embeddings.words.weight
    if table.shape != weight.shape:
        raise UserError(
            f"the model has {weight.shape[0]} words of width {weight.shape[1]}, the vectors from {source} are "
            f"{table.shape[0]} of width {table.shape[1]}: set vocab_size and embedding_width of the config to match."
        )
    if not torch.isfinite(table).all():
        raise UserError(f"the vectors from {source} contain NaN or infinity: check the file.")
    with torch.no_grad():
        weight.copy_(table)
        weight[model.config.pad_token_id].zero_()
    model.config.embedding_source = source
