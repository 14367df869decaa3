"""Whole things that the cases damage: tiny models in folders, their subjects, runs, texts in their words."""

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import vl_convert
from tiny import TEXTS, WORDS, classifier, gpt2, marian

import lorgnette as lo
import lorgnette.subject
from fuzz.trial import numbers
from lorgnette.texts.example import Example

MODELS = {"bert": classifier, "gpt2": gpt2, "marian": marian}
WORD = [word for word in WORDS if word.isalpha()]


class Place:
    """Made once in `root`, before the workers are forked; cases only read it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, make in MODELS.items():
            subject = make(torch.float32)
            subject.model.save_pretrained(root / name)
            subject.tokenizer.save_pretrained(root / name)
        (root / "texts.txt").write_text("\n".join(TEXTS) + "\n")
        self.subjects = {name: lo.load(str(root / name), dtype="float64") for name in MODELS}

    def model(self, name: str = "bert") -> str:
        return str(self.root / name)

    @property
    def texts(self) -> str:
        return str(self.root / "texts.txt")

    @cached_property
    def seeing(self) -> tuple[lo.Subject, list[Example]]:
        """A tiny model of pictures and text with its processor, and two texts with a picture of noise each."""
        from PIL import Image
        from tiny.pictures import picture_model
        from tiny.processors import processor_of
        from transformers import LlavaForConditionalGeneration

        torch.manual_seed(0)
        model = LlavaForConditionalGeneration(picture_model("llava")[0].config).eval()
        subject, draw = lo.Subject(model, processor_of("llava")), np.random.default_rng(0)
        noise = [Image.fromarray(draw.integers(0, 256, (20, 30, 3), dtype=np.uint8)) for _ in range(2)]
        return subject, [
            subject.example(text, image=each) for text, each in zip(("a red cat", "it"), noise, strict=True)
        ]

    @cached_property
    def run(self) -> Path:
        """A folder of results, with its examples."""
        from lorgnette.looking.texts import TokenizedTexts
        from lorgnette.reporting.examples import examples_of, save_examples

        subject, folder = self.subjects["bert"], self.root / "run"
        texts = TokenizedTexts(subject, lo.corpus(self.texts))
        lo.look(subject, texts, ["weights", "norms"], progress=False, out=folder)
        save_examples(examples_of(subject, texts), folder, subject.weights_hash)
        return folder

    @cached_property
    def kept_states(self) -> bytes:
        """What a look keeps that was interrupted at its third batch."""
        from lorgnette.looking import resume

        folder, batches = self.root / "interrupted", 0
        due = resume.Keeper.due

        def interrupted(keeper: Any, lenses: Any, count: int) -> None:
            nonlocal batches
            batches += 1
            if batches == 3:
                raise KeyboardInterrupt

        resume.Keeper.due = interrupted  # type: ignore[method-assign]
        try:
            corpus = lo.corpus(self.texts)
            lo.look(self.subjects["bert"], corpus, ["weights"], batch_tokens=8, progress=False, out=folder)
        except KeyboardInterrupt:
            return (self.root / ".interrupted.unfinished/states-0.safetensors").read_bytes()
        finally:
            resume.Keeper.due = due  # type: ignore[method-assign]
        raise AssertionError("there is no third batch")

    @cached_property
    def expected_of_texts(self) -> Mapping[str, np.ndarray]:
        return self.expected(TEXTS)

    def copied(self, name: str, folder: Path) -> Path:
        return Path(shutil.copytree(self.root / name, folder / name, dirs_exist_ok=True))

    def expected(
        self, texts: Sequence[str | Example], lenses: Sequence[str] = ("weights",), **options: Any
    ) -> Mapping[str, np.ndarray]:
        """The numbers of these texts by the library, in batches of another size than the command line's."""
        subject = self.subjects["bert"]
        return numbers(lo.look(subject, list(texts), list(lenses), batch_tokens=17, progress=False, **options))


def shared_models(place: Place) -> Any:
    """Whole models are opened once for all cases that damage something else."""
    opened = lorgnette.subject.load
    known = {str(place.root / name): name for name in MODELS}

    def shared(name: str, **options: Any) -> Any:
        plain = options.get("dtype") == "float64" and options.get("device") is None
        return place.subjects[known[name]] if name in known and plain else opened(name, **options)

    return patch.object(lorgnette.subject, "load", shared)


def quick_pictures() -> Any:
    """Charts are made and not drawn: what Vega draws is tested elsewhere, and would be most of the time here."""
    picture = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>'
    return patch.object(vl_convert, "vegalite_to_svg", lambda spec, **options: json.dumps(spec) and picture)


@cache
def content(file: Path) -> bytes:
    return file.read_bytes()
