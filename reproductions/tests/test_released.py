"""The published setting: released segments in both formats, what is refused, and the way to it."""

import json
import pickle
import subprocess

import numpy as np
import pytest
from tiny import word_pieces
from typer.testing import CliRunner

import reproductions
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from reproductions.frame.conditions import PUBLISHED_MODEL, RELEASED, Condition
from reproductions.frame.released import released
from reproductions.frame.settings import Settings

PIECES = ["[CLS]", "the", "cat", "sat", ".", "[SEP]", "it", "was", "un", "##believ", "##able", ".", "[SEP]"]


def write(folder, rows, protocol=None):
    home = folder / "clark2019_segments"
    home.mkdir(exist_ok=True)
    if protocol is None:
        (home / "unlabeled.json").write_text(json.dumps(rows))
    else:
        attended = [{**row, "attns": np.full((2, 2, 3, 3), 0.5, dtype=np.float16)} for row in rows]
        (home / "unlabeled_attn.pkl").write_bytes(pickle.dumps(attended, protocol=protocol))
    return str(folder)


@pytest.mark.parametrize("protocol", [None, 0, 2, 4])
def test_segments_are_read_in_both_formats(tmp_path, protocol):
    data, tokenizer = write(tmp_path, [{"tokens": PIECES}] * 3, protocol), word_pieces()
    found = released(data, tokenizer, 2)
    assert len(found) == 2
    assert (found[0].text, found[0].pair) == ("the cat sat .", "it was unbelievable .")
    assert tokenizer.convert_ids_to_tokens(tokenizer(found[0].text, found[0].pair)["input_ids"]) == PIECES
    with pytest.raises(UserError, match="has 3 segments; 992 are needed"):
        released(data, tokenizer, 992)


def test_what_is_missing_or_wrong_is_said(tmp_path):
    tokenizer = word_pieces()
    with pytest.raises(UserError, match="give --data"):
        released(None, tokenizer)
    with pytest.raises(UserError, match=r"linked from github\.com/clarkkev/attention-analysis"):
        released(str(tmp_path), tokenizer)
    for rows, said in (
        ([{"tokens": PIECES[:-1]}], r"segment 1: expected \[CLS\]"),
        ([{"tokens": [*PIECES[:3], "zebra", *PIECES[5:]]}], "pieces of bert-base-uncased"),
        ([["the"]], "each with its tokens"),
    ):
        with pytest.raises(UserError, match=said):
            released(write(tmp_path, rows), tokenizer)
    (tmp_path / "clark2019_segments" / "unlabeled_attn.pkl").write_bytes(b"\x80\x04]")
    with pytest.raises(UserError, match="Is the file whole"):
        released(str(tmp_path), tokenizer)


def test_a_pickle_that_asks_for_more_is_not_opened(tmp_path):
    class Evil:
        def __reduce__(self):
            return subprocess.check_output, (["touch", str(tmp_path / "ran")],)

    home = tmp_path / "clark2019_segments"
    home.mkdir()
    (home / "unlabeled_attn.pkl").write_bytes(pickle.dumps([{"tokens": PIECES, "attns": Evil()}]))
    with pytest.raises(UserError, match=r"The pickle asks for subprocess\.check_output"):
        released(str(tmp_path), word_pieces())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["clark2019", "kobayashi2020"])
def test_the_published_setting_is_bert_on_released_segments(name, tmp_path, tiny_shelf):
    study = reproductions.find(name)
    settings = Settings(out=tmp_path, published=True)
    cells = study.grid(settings, {})
    assert {cell.labels["model"] for cell in cells.values()} == {PUBLISHED_MODEL}
    assert all(cell.arguments["segments_of"] == RELEASED and cell.arguments["count"] == 992 for cell in cells.values())
    assert "--published" in settings.command(name)
    assert not any(cell.arguments.get("segments_of") for cell in study.grid(Settings(out=tmp_path), {}).values())
    data = write(tmp_path, [{"tokens": PIECES}] * 4)
    made = Condition.open("minilm", "trained", count=4, blocks=2, seed=0, segments_of=RELEASED, data=data,
                          models=str(tiny_shelf / "models"))  # fmt: skip
    assert [len(block) for block in made.blocks] == [2, 2]
    assert made.corpus == RELEASED


def test_the_option_is_refused_where_there_is_nothing_to_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, said in (
        (["tp9", "--published"], "cannot run its source's own setting"),
        (["clark2019", "--published", "--quick"], "leave out --quick"),
        (["clark2019", "--published", "--out", str(reproductions.find("clark2019").home)], "give another --out"),
    ):
        done = CliRunner().invoke(app, ["reproduce", *words])
        assert done.exit_code != 0
        assert said in " ".join((done.output + str(done.exception)).split())


@pytest.mark.parametrize("name", ["clark2019", "kobayashi2020"])
def test_the_published_setting_makes_a_page(name, tmp_path, tiny_shelf, monkeypatch):
    monkeypatch.setattr("reproductions.frame.conditions.COUNT", 16)
    monkeypatch.setattr("reproductions.frame.conditions.BLOCKS", 4)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / PUBLISHED_MODEL).symlink_to(tiny_shelf / "models" / "minilm")
    other = ["[CLS]", "a", "dog", "ran", ",", "and", "the", "cat", "slept", "[SEP]", "it", "was", "good", ".", "[SEP]"]
    data = write(tmp_path, [{"tokens": PIECES}, {"tokens": other}] * 8)
    study = reproductions.find(name)
    settings = Settings(out=tmp_path / "out", published=True, data=data, models=str(tmp_path / "models"), device="cpu")
    outcome = study.reproduce(settings)
    assert not outcome.cells.missing
    assert all("bert-base" in claim.id or claim.ours for claim in outcome.claims)
    assert f"reproduce {name} --published" in outcome.page("README.md")
    assert outcome.page("APPENDIX.md")
