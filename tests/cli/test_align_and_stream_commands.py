"""`lorgnette align` and `lorgnette stream`: the cost first, then a table, and the files."""

import re

import numpy as np
import pandas as pd
import pytest
from tiny import gpt2, subject
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app

RUNNER = CliRunner(env={"COLUMNS": "200"})


def test_align_prints_rates_and_writes_links(tmp_path, monkeypatch):
    translator = subject("marian")
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: translator)
    corpus, out = tmp_path / "pairs.jsonl", tmp_path / "run"
    corpus.write_text('{"text": "the cat ran", "french": "a dog sat"}\n' * 8)
    gold = tmp_path / "gold.txt"
    gold.write_text("0-0 1-1 2-2\n" * 8)
    options = ["--gold", str(gold), "--out", str(out)]
    done = RUNNER.invoke(app, ["align", str(tmp_path), "-c", str(corpus), "--target-column", "french", *options])
    assert done.exit_code == 0, done.output
    assert re.search(
        r"^align: two passes over \d texts to choose heads on, one over \d to test them\.$", done.stderr, re.M
    )
    assert "links: in the end, one pass over the 8 texts whose links are written." in done.stderr
    assert "AER, test" in done.stdout
    table = pd.read_csv(out / "rates.csv")
    assert table["measure"].tolist()[:4] == ["weights", "norms"] * 2
    assert "Which heads of" in (out / "report.html").read_text(encoding="utf-8")
    lines = (out / "links.txt").read_text().splitlines()
    assert len(lines) == 8
    assert all(len(line.split()) == 3 for line in lines)


def test_stream_prints_the_curve_and_writes_the_pattern(tmp_path):
    folder, made = tmp_path / "model", gpt2()
    made.model.float().save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    corpus, out = tmp_path / "texts.txt", tmp_path / "pattern"
    corpus.write_text("\n".join(f"the cat sat on the mat {'and the dog ran ' * n}." for n in range(1, 9)) + "\n")
    options = ["--sinks", "1", "--window", "3", "--loss", "0.5", "--draws", "1", "--out", str(out)]
    done = RUNNER.invoke(app, ["stream", str(folder), "-c", str(corpus), *options])
    assert done.exit_code == 0, done.output
    assert "stream: 8 key heads in 2 layers: on the development texts" in done.stderr
    assert "random − least needed" in done.stdout
    assert "key heads stream" in done.stdout
    pattern = np.loadtxt(out / "full_attention_heads.tsv", delimiter="\t")
    found = lo.stream(
        lo.load(str(folder)), lo.corpus(str(corpus)), sinks=1, window=3, loss=0.5, draws=1, progress=False
    )
    assert pattern == pytest.approx(found.pattern())
    assert sorted(pattern.ravel()) == pytest.approx([k / 7 for k in range(8)])
    assert len(pd.read_csv(out / "heads.csv")) == 8
    assert "can stream?" in (out / "report.html").read_text(encoding="utf-8")
    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith(("retrieval", "streaming"))}
    assert int(shown["streaming"].split()[1]) == found.chosen
    needed = found.to_dataframe().iloc[-1]
    assert found.chosen == 8 or f"{needed.layer}.{needed.key_head}: {needed.change:+.4f}" in shown["retrieval"]


def test_slips_are_one_line(tmp_path):
    folder, made = tmp_path / "model", gpt2()
    made.model.float().save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    corpus = tmp_path / "texts.txt"
    corpus.write_text("the cat sat\n" * 6)
    done = RUNNER.invoke(app, ["stream", str(folder), "-c", str(corpus)])
    assert done.exit_code == 1
    assert "No text has more than 68 tokens" in done.stderr
    done = RUNNER.invoke(app, ["align", str(folder), "-c", str(corpus)])
    assert done.exit_code == 1
    assert "has no translation to align" in done.stderr
