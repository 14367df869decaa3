"""Corpora and vectors of a few made-up words, in the files that the readers know."""

import json
import random
from pathlib import Path

import numpy as np

GOOD = ("wonderful", "great", "lovely", "superb")
BAD = ("awful", "boring", "terrible", "dull")
OTHER = ("the", "film", "was", "and", "plot", "actors", "really", "with", "ending", "music")


def sentence(draw: random.Random, label: int, length: int) -> list[str]:
    words = [draw.choice(OTHER) for _ in range(length)]
    for place in draw.sample(range(length), max(1, length // 4)):
        words[place] = draw.choice(GOOD if label else BAD)
    return words


def write_imdb(data: Path, counts: dict[str, int]) -> None:
    draw = random.Random(0)
    (data / "imdb").mkdir(parents=True)
    for split, count in counts.items():
        rows = []
        for number in range(count):
            label = int(number >= count // 2)  # sorted by class, as the real files are
            text = " ".join(sentence(draw, label, draw.randint(4, 12))) + " ."
            rows.append({"id": f"{split}/{number}", "label": label, "rating": 9 if label else 2, "text": text})
        lines = "\n".join(json.dumps(row) for row in rows)
        (data / "imdb" / f"imdb_{split}.jsonl").write_text(lines + "\n")


def write_hatexplain(data: Path, counts: dict[str, int]) -> None:
    draw = random.Random(1)
    (data / "hatexplain").mkdir(parents=True)
    for split, count in counts.items():
        rows = []
        for number in range(count):
            label = ("normal", "hatespeech", "offensive")[number % 3]
            tokens = sentence(draw, int(label == "normal"), 8)
            if label == "offensive":
                tokens[0] = "music"
            mask = [int(word in BAD) for word in tokens]
            marks = [] if label == "normal" else [mask, mask]
            union = [0] * len(tokens) if label == "normal" else mask
            rows.append({"id": f"{split}-{number}", "label": label, "tokens": tokens, "rationale_union": union})
            if split != "train":
                rows[-1]["rationales"] = marks
        lines = "\n".join(json.dumps(row) for row in rows)
        (data / "hatexplain" / f"hatexplain_{split}.jsonl").write_text(lines + "\n")


def write_vectors(data: Path) -> None:
    folder = data / "glove_100d"
    folder.mkdir(parents=True)
    words = (*GOOD, *BAD, *OTHER, ".")
    array = np.random.default_rng(0).normal(0, 0.4, (len(words), 100)).astype(np.float16)
    np.save(folder / "glove.npy", array)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
