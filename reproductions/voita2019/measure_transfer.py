"""Does an encoder of English made for French serve for Czech? Raganato & Tiedemann 2018, on Multi30k."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import MarianConfig, MarianMTModel

from lorgnette.models.marian_small import LIMIT, build_marian_tokenizer, quiet_tokenizer
from lorgnette.training import train
from lorgnette.training.splits import parts_of
from lorgnette.training.translation.data import PairReader, translation_of
from lorgnette.training.translation.task import pairs_of
from reproductions.frame.running import numbers_of
from reproductions.frame.settings import Machine
from reproductions.voita2019.scores import scored
from reproductions.voita2019.workshop import Workshop, device

TARGET = "en-cs"
_UNKNOWN = 1
"""Both vocabularies have <unk> here. It stands for padding, which must be a row of either table of embeddings; padding
is masked on the source and ignored behind the end of a translation, so that it has no effect."""


class Recipient:
    """The donor's encoder, or a new one of its shape, with its own vocabulary; a new decoder for the other language."""

    known_words = None
    labels: tuple[str, ...] = ()

    def __init__(self, donor: Path, mode: str, target_tokenizer: Any, dropout: float) -> None:
        self.donor, self.mode, self.target_tokenizer = donor, mode, target_tokenizer
        with quiet_tokenizer():
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(donor)
        self.max_length: int | None = LIMIT
        given = transformers.AutoConfig.from_pretrained(donor).to_dict()
        given |= {
            "decoder_layers": 3,
            "decoder_vocab_size": len(target_tokenizer.encoder),
            "share_encoder_decoder_embeddings": False,
            "tie_word_embeddings": True,
            "pad_token_id": _UNKNOWN,
            "decoder_start_token_id": target_tokenizer.pad_token_id,
            "bad_words_ids": None,
            "forced_eos_token_id": None,
            "dropout": dropout,
            "num_beams": 1,
            "init_std": given["d_model"] ** -0.5 / 2,
        }
        self.config = MarianConfig.from_dict(given)

    def model(self) -> Any:
        model = MarianMTModel(self.config)
        if self.mode == "scratch":
            return model
        opened = transformers.AutoModelForSeq2SeqLM.from_pretrained(self.donor, dtype=torch.float32)
        model.get_encoder().load_state_dict(opened.get_encoder().state_dict())
        if self.mode == "frozen":
            model.get_encoder().requires_grad_(False)
        return model


def transferred(*, donor: str, mode: str, sizes: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """English to Czech with an encoder that is new, taken and frozen, or taken and tuned; the same decoder."""
    shop = Workshop.open(sizes, machine)
    folder = shop.small() if donor == "small" else Path(shop.source("opus-mt-en-fr"))
    pairs = shop.pairs(TARGET)
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as temporary:
        czech = build_marian_tokenizer(
            ((example.text, translation_of(example)) for example in pairs.train),
            Path(temporary) / "pieces",
            pieces=sizes["pieces"],
            limit=LIMIT,
            languages=("en", "cs"),
        )
        wide = donor != "small"
        settings = shop.small_settings(pairs).replace(
            out=Path(temporary) / "run", learning_rate=5e-4 if wide else 1e-3,
            epochs=sizes["transfer"] if wide else sizes["small"],
        )  # fmt: skip
        made = Recipient(folder, mode, czech, 0.2)
        reader = PairReader(made.tokenizer, made.config, made.max_length, czech)
        run = train(settings, prepared=pairs_of(settings, parts_of(settings, classes=False), made, reader))
        model = MarianMTModel.from_pretrained(run.folder).to(device()).eval()
        score = scored(model, made.tokenizer, shop.test(TARGET), shop, target_tokenizer=czech)
    return {**numbers_of(run), "scores": {"test": score}}
