"""Small translation models, made new: a config of transformers' Marian and a sentencepiece vocabulary.

What comes out are ordinary Marian checkpoints: `MarianMTModel`, `MarianTokenizer` with source.spm, target.spm and a
vocab.json that holds the pieces of both languages, as the opus-mt models have it.
"""

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import MarianConfig, MarianTokenizer

from lorgnette.errors import UserError, near
from lorgnette.models.classifier.presets import Preset
from lorgnette.types import Json, PreTrainedTokenizerBase

TRANSLATORS: dict[str, Preset] = {
    "marian-small": Preset(
        "translation, Vaswani et al. 2017 in small: 3 + 3 layers of 8 heads, 256 wide, 5,000 pieces of each language",
        {"layers": 3, "heads": 8, "width": 256, "feed_forward": 1024, "dropout": 0.2, "pieces": 5000},
    ),
    "marian-tiny": Preset(
        "translation, to try things out: 2 + 2 layers of 4 heads, 64 wide, 1,000 pieces of each language",
        {"layers": 2, "heads": 4, "width": 64, "feed_forward": 128, "dropout": 0.1, "pieces": 1000},
    ),
}
"""Presets that translate; the decoder has the `layers` of the encoder unless `decoder_layers` says other."""

SETTINGS = ("layers", "decoder_layers", "heads", "width", "feed_forward", "dropout", "pieces", "positions")
LIMIT = 256
"""Tokens of a sentence; sinusoidal positions, so nothing is learnt about them."""
_LEAST = 40  # pieces; sentencepiece wants more than there are letters
END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"


def translator_sizes(name: str, **overrides: Any) -> Json:
    """The sizes of a preset, with some of them replaced."""
    for override in overrides:
        if override not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise UserError(f"{name} has no setting {override!r}.{near(override, SETTINGS)} There are: {known}.")
    sizes = {**TRANSLATORS[name].overrides, **overrides}
    sizes.setdefault("decoder_layers", sizes["layers"])
    sizes.setdefault("positions", LIMIT)
    for size in ("layers", "decoder_layers", "heads", "width", "feed_forward", "positions"):
        if sizes[size] < 1:
            raise UserError(f"{size} of {name} must be at least 1; got {sizes[size]}.")
    if sizes["width"] % (2 * sizes["heads"]):
        raise UserError(f"width {sizes['width']} cannot be divided into {sizes['heads']} heads of even width.")
    if sizes["pieces"] < _LEAST:
        raise UserError(f"pieces of {name} must be at least {_LEAST}; got {sizes['pieces']}.")
    if not 0 <= sizes["dropout"] < 1:
        raise UserError(f"dropout must be between 0 and 1; got {sizes['dropout']}.")
    return sizes


def marian_config(sizes: Json, tokenizer: PreTrainedTokenizerBase) -> MarianConfig:
    """The config of a model of these sizes for the pieces of this tokenizer, embeddings shared by both sides."""
    return MarianConfig(
        vocab_size=len(tokenizer.encoder),
        decoder_vocab_size=len(tokenizer.encoder),
        d_model=sizes["width"],
        encoder_layers=sizes["layers"],
        decoder_layers=sizes["decoder_layers"],
        encoder_attention_heads=sizes["heads"],
        decoder_attention_heads=sizes["heads"],
        encoder_ffn_dim=sizes["feed_forward"],
        decoder_ffn_dim=sizes["feed_forward"],
        dropout=sizes["dropout"],
        attention_dropout=0.0,
        activation_function="relu",
        max_position_embeddings=sizes["positions"],
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        init_std=sizes["width"] ** -0.5 / 2,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None,
        architectures=["MarianMTModel"],
    )


def build_marian_tokenizer(
    pairs: Iterable[tuple[str, str]], folder: Path, *, pieces: int, limit: int, languages: tuple[str, str]
) -> MarianTokenizer:
    """Trains a unigram sentencepiece model (Kudo 2018) for each side and puts the pieces of both into one vocabulary.

    Its files are written to `folder`, from which the tokenizer reads them. A corpus that has fewer pieces gets fewer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sides = [list(side) for side in zip(*pairs, strict=True)]
    if not sides:
        raise UserError("a vocabulary needs at least one pair of sentences.")
    inner: list[str] = []
    for side, name in zip(sides, ("source", "target"), strict=True):
        inner += _trained(side, folder / f"{name}.spm", pieces)
    words = [END, UNKNOWN, *(piece for piece in dict.fromkeys(inner) if piece not in (END, UNKNOWN, PADDING)), PADDING]
    vocabulary = {piece: number for number, piece in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    with quiet_tokenizer():
        return MarianTokenizer(
            source_spm=str(folder / "source.spm"),
            target_spm=str(folder / "target.spm"),
            vocab=str(folder / "vocab.json"),
            source_lang=languages[0],
            target_lang=languages[1],
            model_max_length=limit,
        )


@contextmanager
def quiet_tokenizer() -> Iterator[None]:
    """Without the advice to install sacremoses: its normalisation of punctuation is not used when texts are cut."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        yield


def _trained(texts: list[str], path: Path, pieces: int) -> list[str]:
    import sentencepiece

    with path.open("wb") as stream:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=stream,
                vocab_size=pieces,
                hard_vocab_limit=False,
                character_coverage=1.0,
                model_type="unigram",
                bos_id=-1,
                eos_id=0,
                unk_id=1,
                pad_id=-1,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise UserError(f"no vocabulary of {pieces} pieces can be made of these texts: {_reason(error)}") from error
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.IdToPiece(number) for number in range(model.GetPieceSize())]


def _reason(error: RuntimeError) -> str:
    return " ".join(str(error).split()).rpartition("] ")[2] or "sentencepiece gave no reason."
