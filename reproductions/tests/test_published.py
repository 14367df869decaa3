"""The published setting of two training studies: vectors of width 300 and the released files of e-SNLI, in small."""

import csv
from dataclasses import replace

import numpy as np
import pytest

import lorgnette as lo
from lorgnette.errors import UserError
from reproductions import find
from reproductions.frame.settings import Settings
from reproductions.frame.wide_vectors import vectors_of

WORDS = ("a", "man", "dog", "runs", "sleeps", "outside", "inside", "is")
LABELS = ("entailment", "neutral", "contradiction")


def write(data, rows=24):
    """e-SNLI as its authors released it: one annotator in train, three in the other files."""
    folder = data / "esnli_full"
    folder.mkdir(parents=True)
    for name, annotators in (("train_1", 1), ("train_2", 1), ("dev", 3), ("test", 3)):
        with (folder / f"esnli_{name}.csv").open("w", newline="") as file:
            marked = [f"{what}_{k}" for k in range(1, annotators + 1) for what in
                      ("Explanation", "WorkerId", "Sentence1_marked", "Sentence2_marked")]  # fmt: skip
            writer = csv.DictWriter(file, ["pairID", "gold_label", "Sentence1", "Sentence2", *marked])
            writer.writeheader()
            for number in range(rows):
                row = {"pairID": f"{name}{number}", "gold_label": LABELS[number % 3]}
                row |= {"Sentence1": f"A {WORDS[1 + number % 2]} runs outside.", "Sentence2": "A dog, is it inside?"}
                for k in range(1, annotators + 1):
                    row[f"Sentence1_marked_{k}"] = f" A {WORDS[1 + number % 2]} *runs* *outside.*"
                    row[f"Sentence2_marked_{k}"] = " A dog, is it *inside?*" if k < 3 else " A *dog,* is it inside?"
                    row[f"Explanation_{k}"] = "Not both, it is said."
                writer.writerow(row)
            if name == "train_2":
                writer.writerow({"pairID": "cut", "gold_label": "neutral", "Sentence1": "A dog.", "Sentence2": ""})
    vectors = data / "glove_300d"
    vectors.mkdir()
    dice = np.random.default_rng(0)
    lines = [" ".join([word, *(f"{x:.3f}" for x in dice.normal(0, 0.3, 300))]) for word in WORDS]
    (vectors / "glove.840B.300d.txt").write_text("\n".join(lines) + "\n")
    return str(data)


def test_released_pairs_have_the_highlights_of_their_annotators(tmp_path):
    data = write(tmp_path)
    train, test = (list(lo.corpus("esnli_full", split=split, data=data)) for split in ("train", "test"))
    assert len(train) == 48
    assert train[0].words == ("A", "man", "runs", "outside", ".", "A", "dog", ",", "is", "it", "inside", "?")
    assert train[0].rationale == (0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0)
    assert test[0].rationale == train[0].rationale, "the majority of three"
    assert len(test[0].extra["rationales"]) == 3
    assert {lo.corpus("esnli_full", split="test", data=data).labels[one.label] for one in test} == set(LABELS)


def test_highlights_of_other_words_are_none(tmp_path):
    data = write(tmp_path, rows=1)
    path = tmp_path / "esnli_full" / "esnli_test.csv"
    path.write_text(path.read_text().replace("*runs*", "*walks*"))
    (one,) = lo.corpus("esnli_full", split="test", data=data)
    assert one.rationale is None
    path.write_text(path.read_text().replace("gold_label", "label"))
    with pytest.raises(UserError, match=r"no column 'gold_label'; expected a file of github.com/OanaMariaCamburu"):
        list(lo.corpus("esnli_full", split="test", data=data))


def test_a_missing_file_says_where_it_comes_from(tmp_path):
    with pytest.raises(UserError, match=r"no folder 'esnli_full'. Its files are those of github.com/OanaMariaCamburu"):
        lo.corpus("esnli_full", data=tmp_path)
    with pytest.raises(UserError, match=r"glove.840B.300d.txt: it is in glove.840B.300d.zip of nlp.stanford.edu"):
        vectors_of("glove-300", str(tmp_path))
    (tmp_path / "wmt_en_ru").mkdir()
    with pytest.raises(UserError, match=r"no file train.en .* It is one of statmt.org"):
        lo.corpus("wmt_en_ru", data=tmp_path)


@pytest.mark.parametrize("name", ["wmt_en_ru", "opensubtitles_en_ru"])
def test_bitexts_are_read_line_by_line(name, tmp_path):
    (tmp_path / name).mkdir()
    (tmp_path / name / "val.en").write_text("A dog .\nIt runs .\n")
    (tmp_path / name / "val.ru").write_text("Собака .\nОна бежит .\n")
    found = list(lo.corpus(name, split="val", data=tmp_path))
    assert [(one.text, one.target) for one in found] == [("A dog .", "Собака ."), ("It runs .", "Она бежит .")]


@pytest.mark.parametrize(("name", "cells"), [("nguyen2022", 3), ("fosse2023", 3)])
def test_the_published_setting_trains_on_them_and_makes_a_page(name, cells, tmp_path, monkeypatch):
    study = find(name)
    grid = study.module("grid")
    small = {"corpora": ("esnli",), "epochs": 1, "batch_size": 16}
    small |= {"strengths": (0.0, 0.02, 0.1)} if name == "nguyen2022" else {"strengths": (0.0, 0.1), "depths": (1, 2)}
    whole = study.grid(Settings(out=tmp_path, published=True), {})
    assert {cell.arguments["embeddings"] for cell in whole.values()} == {"glove-300"}
    assert {cell.arguments["width"] for cell in whole.values()} == {300}
    assert {cell.arguments["corpus"] for cell in whole.values()} == {"esnli_full", "hatexplain", "yelphat"}
    monkeypatch.setattr(grid, "PUBLISHED", replace(grid.PUBLISHED, **small))
    settings = Settings(out=tmp_path / "out", published=True, data=write(tmp_path / "data"), device="cpu")
    outcome = study.reproduce(settings)
    assert len(outcome.cells) == cells
    assert f"reproduce {name} --published" in outcome.page("README.md")
    assert "glove-300" in outcome.page("APPENDIX.md")
