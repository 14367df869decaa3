"""`lorgnette trace … --explain` and the lens from the command line, on a tiny classifier on disk."""

import json

import pytest
import torch
from tiny import classifier
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.explaining import explain, explanations
from lorgnette.lens.relevance.lens import Relevance

TEXT = "The unbelievably cat sat."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "classifier"
    made = classifier(torch.float32)
    made.model.save_pretrained(path), made.tokenizer.save_pretrained(path)
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_words_are_printed_with_their_relevance(folder):
    shown = run("trace", folder, TEXT, "--explain", "ah", "--explain", "rollout").output
    found = json.loads(run("trace", folder, TEXT, "--explain", "ah", "--json").output)
    (one,) = found["explanations"]
    assert one["words"] == ["[CLS]", "The", "unbelievably", "cat", "sat", ".", "[SEP]"]
    assert all(f"{value:+.3g}" in shown for value in one["relevance"])
    subject = lo.load(folder)
    expected = explain(subject, subject.encode([TEXT]), "ah")
    assert sum(one["relevance"]) == pytest.approx(expected.tokens.sum().item(), abs=1e-5)
    pieces = json.loads(run("trace", folder, TEXT, "--explain", "ah", "--pieces", "--json").output)
    torch.testing.assert_close(torch.tensor(pieces["explanations"][0]["relevance"]), expected.tokens[0])


def test_bad_input_is_one_line(folder):
    done = run("trace", folder, TEXT, "--explain", "attnlpr")
    assert done.exit_code == 1
    assert isinstance(done.exception, UserError) or "Did you mean 'attnlrp'" in done.output
    assert run("trace", folder, TEXT, "--explain", "ah", "--layer", 1, "--head", 1).exit_code == 2
    with pytest.raises(UserError, match=r"^The option 'method' of the lens 'relevance' must be .* Got 'rollout'"):
        Relevance(method="rollout")


def test_the_lens_normalises_within_the_layer_and_over_layers():
    subject = classifier()
    texts = ["The cat sat on the mat.", "It was not very bad."]
    data = lo.look(subject, texts, ["relevance"], progress=False)["relevance"].data
    found = explain(subject, subject.encode(texts))
    for site, heads in found.heads.items():
        expected = (heads / heads.abs().sum(-1, keepdim=True)).mean(0)
        shown = data["relevance"].sel(stack=site.name, layer=site.layer + 1).values
        torch.testing.assert_close(torch.from_numpy(shown), expected)
    assert data["layer_share"].sum("layer").item() == pytest.approx(1.0)
    kinds = data["token_share"].sel(category=["cls", "sep", "punctuation", "other", "positions"])
    assert -1 <= kinds.sum().item() <= 1


def test_methods_have_one_line_each():
    assert all(text and "\n" not in text for text in explanations().values())
