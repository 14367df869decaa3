"""`lorgnette trace` on MiniLM and on a tiny translation model: what is printed is what the model does."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from tiny import gpt2, marian
from tiny.pictures import picture_model
from tiny.processors import processor_of
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.figures.cells import weight

TEXT = "The unbelievably cat sat."


def lorgnette(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["trace", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def weights():
    return lo.load("minilm").trace(TEXT).data(words=True)


def test_the_overview_names_what_every_head_reads_most(weights):
    """Words only: [CLS] and [SEP] would fill the table, and are named once, with the heads that prefer them."""
    what, note, *rest = lorgnette("minilm", TEXT).splitlines()
    header, *lines = (line.split() for line in rest)
    assert what == "most attended word of each head, with its mean weight over all queries:"
    assert header == ["layer", *(word for head in range(1, 13) for word in ("head", str(head)))]
    mean = weights.mean("query").values
    above = int(np.isin(mean.argmax(-1), (0, mean.shape[-1] - 1)).sum())
    assert note == f"(left out: [CLS], [SEP], to which {above} of 72 heads attend even more)"
    assert above > 0
    for layer in range(6):
        words, shares = lines[2 * layer][1:], lines[2 * layer + 1]
        for head in range(12):
            row = mean[layer, head, 1:-1]
            word = str(weights["key_text"].values[1 + row.argmax()])
            assert words[head] == (word if len(word) <= 8 else f"{word[:7]}…")
            assert shares[head] == weight(float(row.max()))


def test_links_are_between_words_and_strongest_first(weights):
    lines = lorgnette("minilm", TEXT).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("strongest links"))
    links = [line.split() for line in lines[start + 1 :]]
    assert len(links) == 10
    inner = weights.values[:, :, 1:-1, 1:-1]  # without [CLS] and [SEP]
    strongest = np.sort(inner.max((2, 3)).ravel())[::-1][:10]
    assert [link[-1] for link in links] == [weight(float(value)) for value in strongest]
    layer, head = map(int, links[0][0].split("."))
    query, key = np.unravel_index(inner[layer - 1, head - 1].argmax(), inner.shape[2:])
    words = weights["key_text"].values[1:-1]
    to = ["itself"] if query == key else [str(key + 2), words[key]]
    assert links[0][1:-1] == [str(query + 2), words[query], *to]  # each behind its position, [CLS] being the first


def test_json_holds_all_weights(weights):
    document = json.loads(lorgnette("minilm", TEXT, "--json"))
    assert document["axes"] == ["layer", "head", "query", "key"]
    assert document["keys"] == ["[CLS]", "The", "unbelievably", "cat", "sat", ".", "[SEP]"]
    assert document["unit"] == "word"
    np.testing.assert_allclose(document["weights"], weights.values, atol=1e-6)
    np.testing.assert_allclose(np.sum(document["weights"], -1), 1, atol=1e-5)


def test_json_of_one_head_in_pieces():
    document = json.loads(lorgnette("minilm", TEXT, "--json", "--pieces", "--layer", 2, "--head", 9))
    assert (document["layer"], document["head"], document["unit"]) == (2, 9, "piece")
    assert "##" in "".join(document["keys"])
    assert np.shape(document["weights"]) == (len(document["queries"]), len(document["keys"]))
    expected = lo.load("minilm").trace(TEXT)["encoder.2.weights"][8]
    np.testing.assert_allclose(document["weights"], expected, atol=1e-6)


def test_pieces_are_shown_when_asked_for():
    assert "##" in lorgnette("minilm", TEXT, "--pieces", "--layer", 1, "--head", 1)
    assert "##" not in lorgnette("minilm", TEXT, "--layer", 1, "--head", 1)


def test_a_text_of_special_tokens_only_has_no_links():
    assert "strongest" not in lorgnette("minilm", "")


@pytest.fixture
def translator(monkeypatch):
    subject = marian()
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    return subject


def test_the_first_stack_is_shown_unless_another_is_asked_for(translator):
    arguments = ("marian", "the cat sat", "--target", "le chat")
    first, cross = lorgnette(*arguments), lorgnette(*arguments, "--stack", "cross")
    assert first.splitlines()[:2] == ["translation: le chat", "encoder (--stack: also decoder, cross)"]
    assert cross.splitlines()[1] == "cross (--stack: also encoder, decoder)"
    document = json.loads(lorgnette(*arguments, "--stack", "cross", "--layer", 1, "--head", 2, "--json"))
    assert document["queries"][1:3] == ["le", "chat"]  # after the token that starts every translation
    expected = translator.trace("the cat sat", target="le chat").data(stack="cross", words=True)
    np.testing.assert_allclose(document["weights"], expected.sel(layer=1, head=2), atol=1e-6)
    assert document["keys"][:3] == ["the", "cat", "sat"]


def test_the_overview_of_a_causal_model_leaves_out_its_first_token(monkeypatch):
    subject = gpt2()
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    what, note, header, *lines = lorgnette("gpt2", "the cat sat on a mat").splitlines()
    assert what == "most attended word of each head, with its mean weight over all queries:"
    mean = subject.trace("the cat sat on a mat").data(words=True).mean("query").values
    above = int((mean.argmax(-1) == 0).sum())
    assert note == f"(left out: the first token (the), to which {above} of {mean[..., 0].size} heads attend even more)"
    assert header.split()[:3] == ["layer", "head", "1"]
    mean = mean[..., 1:]
    for layer in range(mean.shape[0]):
        words, shares = lines[2 * layer].split()[1:], lines[2 * layer + 1].split()
        assert "the" not in words
        assert shares == [weight(float(row.max())) for row in mean[layer]]


def test_a_long_head_is_a_list_of_its_largest_weights(monkeypatch):
    subject = gpt2()
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    text = " ".join(["the cat sat on a mat"] * 10) + " the cat"
    head = subject.trace(text).head(1, 2, words=True).values
    lines = lorgnette("gpt2", text, "--layer", 1, "--head", 2).splitlines()
    assert len(lines) == 1 + 62
    place = int(head[-1].argmax())
    assert lines[-1].split()[:4] == ["62", "cat", str(place + 1), text.split()[place]]


def test_no_weight_of_a_long_text_is_written_as_zero(monkeypatch):
    """Of 54 tokens, many weights are below 0.005; a causal head has zeros too, which are written as such."""
    model = gpt2()
    monkeypatch.setattr("lorgnette.cli.options.Opening.load", lambda *_: model)
    text = " ".join(["the cat sat on the mat"] * 9)
    for more in ((), ("--layer", "1", "--head", "1")):
        said = lorgnette("any", text, *more)
        assert "0.00 " not in said
        assert "0.00\n" not in said
    matrix = lorgnette("any", "the cat sat", "--layer", "1", "--head", "1").splitlines()
    assert matrix[1].split()[1:] == ["1.00", "0", "0"]


@pytest.mark.parametrize("value", [1.0, 0.5, 0.0995, 0.0994, 0.0123, 0.0049, 3e-5, 1e-30])
def test_a_weight_shows_two_digits_that_count(value):
    assert float(weight(value)) == pytest.approx(value, rel=0.051)
    assert weight(0.0) == "0"


def test_the_logit_lens_prints_what_each_layer_would_predict(monkeypatch):
    subject = gpt2()
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    found = lo.logit_lens(subject, "the cat sat")
    header, *lines = lorgnette("gpt2", "the cat sat", "--logit-lens").splitlines()
    assert header.split() == ["token", "embeddings", "layer", "1", "layer", "2"]
    for number, line in enumerate(lines):
        token, *cells = line.split()
        assert token == found.tokens[number]
        assert cells[::2] == [row[number][:8] for row in found.pieces]
        assert cells[1::2] == [f"{float(share):.2f}" for share in found.probability[:, number]]
    rows = json.loads(lorgnette("gpt2", "the cat sat", "--logit-lens", "--json"))["predictions"]
    assert [row["prediction"] for row in rows] == [piece for row in found.pieces for piece in row]
    refused = CliRunner().invoke(app, ["trace", "gpt2", "the cat", "--logit-lens", "--without", "1.1"])
    assert refused.exit_code == 2


def test_a_part_that_attends_to_itself_alone_is_not_worth_a_line(monkeypatch):
    """The prompt comes first and cannot attend to what is generated behind it: "prompt attends to: prompt 1.00"."""
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: gpt2())
    said = [line for line in lorgnette("gpt2", "the cat sat", "--generate", 3).splitlines() if "attends to" in line]
    assert [line.split(" attends to: ")[0].strip() for line in said] == ["generated"]
    assert "prompt 0." in said[0]


def test_why_prints_what_wrote_the_query_and_the_key(monkeypatch):
    subject = gpt2()
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    found = lo.why(subject, "the cat sat", "2.1", query=2, key=1)
    ways = ("--layer", 2, "--head", 1, "--why", "3,2")
    about, header, *lines = lorgnette("gpt2", "the cat sat", *ways).splitlines()
    assert about == (
        f"decoder.2.1: sat → cat, weight {found.weight:.3f}, score {found.score:.2f}, {float(found.beyond.sum()):.2f} "
        "beyond the mean of the row"
    )
    assert header.split() == ["written", "by", "into", "the", "query", "beyond", "into", "the", "key", "beyond"]
    frame = found.to_dataframe()
    numbers = frame.set_index("writer")[["query", "query_beyond", "key", "key_beyond"]]
    for line in lines[:-1]:
        name, *cells = line.rsplit(maxsplit=4)
        assert cells == [f"{value:+.2f}" for value in numbers.loc[name]]
    assert lines[-1].split() == ["together", *(f"{value:+.2f}" for value in numbers.sum())]
    rows = json.loads(lorgnette("gpt2", "the cat sat", *ways, "--json"))["parts"]
    assert [row["key_beyond"] for row in rows] == frame["key_beyond"].tolist()
    for wrong in (("--why", "3,2"), (*ways, "--without", "1.1"), (*ways[:-1], "0")):
        assert CliRunner().invoke(app, ["trace", "gpt2", "the cat sat", *map(str, wrong)]).exit_code == 2


def test_paths_prints_the_strongest_edges_and_draws_them(monkeypatch, tmp_path):
    subject = gpt2()
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    found = lo.paths(subject, "the cat sat", target=lo.Next(" dog"))
    drawing = tmp_path / "paths.svg"
    about, header, *lines, where = lorgnette(
        "gpt2", "the cat sat", "--paths", "--said", " dog", "--figure", drawing
    ).splitlines()
    assert about == f"explained: {found.explained} (logit {found.value:.3f})"
    assert header.split() == ["from", "into", "by", "its", "attribution"]
    assert [line.split()[-1] for line in lines] == [f"{edge.attribution:+.3f}" for edge in found.edges]
    assert where == f"The figure is in {drawing}"
    assert drawing.read_text().startswith("<svg")
    said = json.loads(lorgnette("gpt2", "the cat sat", "--paths", "--said", " dog", "--json"))
    assert [row["attribution"] for row in said["edges"]] == [edge.attribution for edge in found.edges]
    more = ("--against", "a dog ran", "--count", "5", "--among", "heads")
    said = json.loads(lorgnette("gpt2", "the cat sat", "--paths", "--said", " dog", *more, "--json"))
    some = lo.paths(subject, "the cat sat", target=lo.Next(" dog"), against="a dog ran", count=5, among="heads")
    assert [row["attribution"] for row in said["edges"]] == [edge.attribution for edge in some.edges]
    for question in (("--logit-lens",), ("--layer", "2", "--head", "1", "--why", "3")):
        lorgnette("gpt2", "the cat sat", *question, "--figure", tmp_path / "one.html")
        assert "<svg" in (tmp_path / "one.html").read_text()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--figure", "a.svg"), "--figure goes with"),
        (("--paths", "--logit-lens"), "--logit-lens and --paths: one at a time"),
        (("--paths", "--layer", "1", "--head", "1"), "--paths cannot be combined with"),
        (("--logit-lens", "--among", "heads"), "--against, --count and --among go with --paths"),
        (("--paths", "--among", "layers"), "--among is all or heads"),
        (("--why", "1"), "--why goes with --layer and --head"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_before_the_model_is_loaded(wrong, message):
    refused = CliRunner().invoke(app, ["trace", "no-such-model", "the cat", *wrong])
    assert refused.exit_code == 2
    assert message in " ".join(refused.output.replace("│", " ").split())


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    """A folder with a tiny LLaVA, its processor and a picture."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")
    folder = tmp_path_factory.mktemp("llava")
    torch.manual_seed(0)
    hf.LlavaForConditionalGeneration(picture_model("llava")[0].config).save_pretrained(folder)
    processor_of("llava").save_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    image.fromarray(pixels).save(folder / "cat.png")
    return folder


def test_a_text_with_a_picture(seeing, tmp_path):
    asked = (seeing, "a red cat", "--image", seeing / "cat.png")
    assert "text attends to: " in lorgnette(*asked)
    head = ("--layer", 2, "--head", 3)
    for file, more in (("head.svg", head), ("tower.svg", (*head, "--stack", "vision", "--query", 1))):
        lorgnette(*asked, *more, "--figure", tmp_path / file)
    assert "from '[CLS]'" in (tmp_path / "tower.svg").read_text(encoding="utf-8")
    trace = lo.load(seeing).trace("a red cat", image=seeing / "cat.png", generate=3)
    assert f"generated: {trace.generated.text.strip()}" in lorgnette(*asked, "--generate", 3)
    told = json.loads(lorgnette(*asked, "--stack", "vision", *head, "--json"))
    np.testing.assert_allclose(told["weights"], trace.tower()["weights"][1, 2], atol=1e-6)
    assert "image attends to: special" in lorgnette(*asked, "--stack", "vision")
    lorgnette(*asked, "--stack", "vision", "--html", tmp_path / "tower.html")
    assert "[4,4]" in (tmp_path / "tower.html").read_text(encoding="utf-8")
