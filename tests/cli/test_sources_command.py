"""`lorgnette sources`: the cost first, then the parts of each prompt, the sentences, and a folder."""

import json
import re

import pandas as pd
import pytest
from tiny import gpt2
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app

PARTS = {"start": "the", "document 1": "a dog ran", "document 2": "the cat was not good", "question": "it was"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("model"), gpt2()
    made.model.float().save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    return str(folder)


def written(folder, *rows):
    file = folder / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(file)


def test_parts_are_printed_and_written(model, tmp_path):
    rows = [{"parts": PARTS, "answer": f" {word}", "gold": "document 2"} for word in ("good", "bad", "dog", "cat")]
    out = tmp_path / "run"
    done = CliRunner().invoke(
        app, ["sources", model, written(tmp_path, *rows), "--among", "document *", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert "sources: 4 prompts: one pass for attention and norms" in done.stderr
    assert "28 copies with masked parts" in done.stderr
    assert "prompt 1: the answer 'good' has log P −" in done.stdout
    assert "Note: 'start' has the first token" in done.stdout
    assert "1 more prompts" in done.stdout
    table = pd.read_csv(out / "sources.csv")
    assert table["part"].tolist() == [*PARTS] * 4
    used = lo.sources(lo.load(model), lo.prompt(PARTS), " bad", among="document *")
    mine = table[table["prompt"] == 2]
    assert mine["drop"].tolist() == pytest.approx(used.to_dataframe()["drop"].tolist(), abs=1e-5)
    heads = pd.read_csv(out / "heads.csv")
    layers, count = used.data["head_norm"].shape[:2]
    assert len(heads) == 4 * len(PARTS) * layers * count
    own = heads[heads["prompt"] == 2].set_index(["part", "layer", "head"])
    for signal in ("attention", "norm", "relevance"):
        expected = used.data[f"head_{signal}"].to_series().reorder_levels(["source", "layer", "head"])
        assert own.loc[expected.index.tolist(), signal].tolist() == pytest.approx(expected.tolist(), abs=1e-4)
    result = lo.Results.load(out)["sources"]
    assert int(result.data["gold_count"].sel(signal="drop")) == 4
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Which parts of a prompt answers use" in page
    assert "Prompt 1, part by part" in page
    assert re.search(r"The answer (.#39;|.#x27;|.#34;|.)good.{1,6}: log P −", page)
    about = result.data.attrs["prompts"]["2"]
    assert about["answer"].strip() == "bad"
    assert about["log_probability"] == pytest.approx(used.log_probability, abs=1e-5)
    assert about["without_any"] == pytest.approx(used.without_any, abs=1e-5)


def test_the_model_answers_where_no_answer_is_given(model, tmp_path):
    done = CliRunner().invoke(app, ["sources", model, written(tmp_path, {"parts": PARTS}), "--generate", "3"])
    assert done.exit_code == 0, done.output
    assert "1 answer to generate" in done.stderr
    assert "document 2" in done.stdout


def test_heads_are_left_out_on_request(model, tmp_path):
    rows, out = [{"parts": PARTS, "answer": " good"}], tmp_path / "run"
    done = CliRunner().invoke(app, ["sources", model, written(tmp_path, *rows), "--no-heads", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert not (out / "heads.csv").exists()
    assert "head_norm" not in lo.Results.load(out)["sources"].data


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "the cat"}, "line 1: no prompt in named parts"),
        ({"parts": PARTS, "answer": ""}, "is empty"),
        ({"parts": {"a": "the dog", "b": "it was"}, "answer": " good"}, "there is nothing to rank"),
        ({"parts": PARTS, "answer": " good", "gold": "document 9"}, "gold part 'document 9'"),
    ],
)
def test_errors_are_one_line(model, tmp_path, row, words):
    done = CliRunner().invoke(app, ["sources", model, written(tmp_path, row)])
    assert done.exit_code == 1
    assert words in " ".join(done.stderr.split())
