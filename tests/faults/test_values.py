"""Numbers that no machine has room for, and sentences that know less than their neighbours."""

import math

import pytest
from tiny import bert
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.training import TrainingSettings

HUGE = 99999999999999999999


def test_more_texts_than_there_are_are_all(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert len(list(lo.corpus(tmp_path / "a.txt", limit=HUGE))) == 2


@pytest.mark.parametrize(
    "changes",
    [{"warmup": math.inf}, {"warmup": math.nan}, {"weight_decay": math.inf}, {"seed": HUGE}, {"seed": -1},
     {"split_seed": HUGE}, {"batch_size": 2**31}, {"epochs": HUGE}, {"limit": HUGE}, {"gradient_norm": math.nan}],
    ids=str,
)  # fmt: skip
def test_settings_that_no_run_can_have(tmp_path, changes):
    with pytest.raises(UserError, match=f"^`{next(iter(changes))}` must be"):
        TrainingSettings(model="tp9-cls", corpus="planted", out=tmp_path / "run", **changes)


@pytest.mark.parametrize("command", ["look", "rationales", "prune"])
@pytest.mark.parametrize("seed", ["99999999999999999999", "-1", "x"])
def test_seeds_are_of_32_bits(command, seed, tmp_path):
    given = [command, "minilm", "-c", "planted", "--out", str(tmp_path / "run"), "--seed", seed]
    done = CliRunner().invoke(app, given)
    assert done.exit_code in (1, 2)  # refused by the settings, or as it is read
    assert "--seed" in done.stderr
    assert not list(tmp_path.iterdir())


ROW = "{}\t{}\t_\tNOUN\tNN\t_\t{}\t{}\t_\t_\n"
TREE = ROW.format(1, "cat", 2, "nsubj") + ROW.format(2, "sat", 0, "root") + "\n"
BARE = ROW.format(1, "dog", "_", "_") + ROW.format(2, "ran", "_", "_") + "\n"


@pytest.mark.parametrize("lens", ["roles", "distances", "weights"])
@pytest.mark.parametrize("text", [TREE + BARE, BARE + TREE])
def test_a_sentence_without_heads_among_others(tmp_path, lens, text):
    (tmp_path / "a.conllu").write_text(text)
    if lens == "roles":
        for strict in ("relations", "trees"):
            with pytest.raises(UserError, match="has no gold tree"):
                lo.look(bert(), lo.corpus(tmp_path / "a.conllu"), [strict], progress=False)
    results = lo.look(bert(), lo.corpus(tmp_path / "a.conllu"), [lens], progress=False)
    assert results[lens].provenance.texts == 2
