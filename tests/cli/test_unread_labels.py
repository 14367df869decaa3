"""A classifier on a table whose labels nobody asked for: one line says how to get its accuracy."""

import pytest
import torch
from tiny import classifier, gpt2
from typer.testing import CliRunner

from lorgnette.cli.app import app

ROWS = [("the cat sat", 0), ("a dog ran", 1), ("it was good", 1), ("it was not", 0)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("unread")
    for name, made in (("classifier", classifier(torch.float32)), ("gpt2", gpt2(torch.float32))):
        made.model.save_pretrained(root / name)
        made.tokenizer.save_pretrained(root / name)
    return root


def looked(folders, model, content, *options, name="texts.csv"):
    (folders / name).write_text(content)
    command = ["look", str(folders / model), "-c", str(folders / name), "--lens", "weights", *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return done


def test_the_column_is_named(folders):
    labels = classifier(torch.float32).labels
    table = "text,label\n" + "".join(f"{text},{labels[label]}\n" for text, label in ROWS)
    done = looked(folders, "classifier", table)
    assert "column 'label'" in done.stderr
    assert "--label-column label" in done.stderr
    assert "ccuracy" not in done.stdout
    done = looked(folders, "classifier", table, "--label-column", "label")
    assert "--label-column" not in done.stderr
    assert "ccuracy" in done.stdout
    rows = "".join(f'{{"text": "{text}", "label": "{labels[label]}"}}\n' for text, label in ROWS)
    assert "--label-column label" in looked(folders, "classifier", rows, name="texts.jsonl").stderr


def test_nothing_is_said_where_labels_are_of_no_use(folders):
    table = "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS)
    assert "--label-column" not in looked(folders, "gpt2", table).stderr
    assert "--label-column" not in looked(folders, "classifier", "text,stars\nthe cat,1\na dog,2\n").stderr
    assert "--label-column" not in looked(folders, "classifier", "the cat\na dog\n", name="texts.txt").stderr
