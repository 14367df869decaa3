"""The questions of the live page are answered as the library answers them."""

import asyncio

import httpx
import numpy as np
import pytest
from tiny import classifier, gpt2, subject

import lorgnette as lo
from lorgnette.serve import Models, make_app
from lorgnette.serve.app import Limits
from lorgnette.serve.questions import in_lines
from lorgnette.serve.schemas import LayersAnswer, PathsAnswer, SourcesAnswer, WhyAnswer

TEXT = "the cat was not very good"
BASE = "http://127.0.0.1:8765"
LINES = "the cat sat .\n\na dog ran\nit was not good"
SUBJECTS = {"gpt2": gpt2(), "classifier": classifier(), "marian": subject("marian")}


def ask(where, limits=None, **question):
    app = make_app(Models(tuple(SUBJECTS), SUBJECTS.__getitem__), limits=limits)

    async def run():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8765"
        ) as client:
            return await client.post(where, json={"model": "gpt2", "text": TEXT, **question})

    return asyncio.run(run())


def test_layers_are_those_of_the_logit_lens():
    found, mine = LayersAnswer.model_validate(ask("/api/layers").json()), lo.logit_lens(SUBJECTS["gpt2"], TEXT)
    assert (found.tokens, found.settled) == (list(mine.tokens), mine.settled.tolist())
    assert found.predictions == [list(row) for row in mine.pieces]
    assert np.array(found.probabilities) == pytest.approx(mine.probability.numpy())


def test_what_was_generated_is_read_too():
    found = LayersAnswer.model_validate(ask("/api/layers", generate=3).json())
    trace = SUBJECTS["gpt2"].trace(TEXT, generate=3)
    assert found.tokens == list(trace.batch.source.shown())
    last = found.predictions[-1][-4:-1]  # each generated token is what the last layer predicts before it
    assert last == found.tokens[-3:]


def test_a_translation_has_layers_and_a_classifier_has_none():
    assert ask("/api/layers", model="marian", text="w1 w2", target="w3 w4").status_code == 200
    assert ask("/api/look", model="marian", text="w1 w2", target="w3 w4").json()["layered"]
    assert not ask("/api/look", model="classifier").json()["layered"]
    refused = ask("/api/layers", model="classifier")
    assert refused.status_code == 422
    assert "logits of classes" in refused.json()["detail"]


def test_why_is_the_split_of_the_score():
    found = WhyAnswer.model_validate(ask("/api/why", head="decoder.2.3", query=4, key=1).json())
    mine = lo.why(SUBJECTS["gpt2"], TEXT, "2.3", query=4, key=1)
    assert (found.head, found.query, found.key) == (mine.head, mine.query, mine.key)
    assert (found.score, found.weight) == pytest.approx((mine.score, mine.weight))
    by_writer = mine.to_dataframe().set_index("writer")
    assert {part.writer for part in found.parts} == set(by_writer.index)
    for part in found.parts:
        assert (part.query, part.key) == pytest.approx(
            tuple(by_writer.loc[part.writer, ["query_beyond", "key_beyond"]])
        )
    for side in ("query", "key"):
        assert sum(getattr(part, side) for part in found.parts) == pytest.approx(found.beyond)
    sizes = [max(abs(part.query), abs(part.key)) for part in found.parts]
    assert sizes == sorted(sizes, reverse=True)


def test_paths_are_the_strongest_edges():
    more = {"among": "heads", "count": 6, "against": "a dog ran on it !"}
    found = PathsAnswer.model_validate(ask("/api/paths", **more).json())
    mine = lo.paths(SUBJECTS["gpt2"], TEXT, **more)
    assert (found.explained, found.logit) == (mine.explained, pytest.approx(mine.value))
    assert [edge.attribution for edge in found.edges] == pytest.approx([edge.attribution for edge in mine.edges])
    assert [edge.way for edge in found.edges] == [edge.way for edge in mine.edges]
    places = {(round(part.x, 6), part.y): part.name for part in found.parts}
    assert len(places) == len(found.parts)
    for edge, expected in zip(found.edges, mine.edges, strict=True):
        beside = {"query": -0.008, "key": 0.008}.get(edge.way, 0.0)
        writer, reader = (places[round(x - beside, 6), y] for x, y in ((edge.x, edge.y), (edge.x2, edge.y2)))
        assert writer == f"{expected.writer.layer + 1}.{expected.writer.head + 1}"
        assert reader == (found.explained if expected.reader is None else reader)
        assert edge.label.startswith(f"{expected.writer} → ")
        assert edge.y < edge.y2
    assert ask("/api/look").json()["predicts"]


def test_sources_are_the_lines_of_the_prompt():
    found = SourcesAnswer.model_validate(ask("/api/sources", text=LINES, answer="very bad").json())
    mine = lo.sources(SUBJECTS["gpt2"], in_lines(LINES, 9), " very bad")
    assert [part.text for part in found.parts] == ["the cat sat .", "a dog ran", "it was not good"]
    assert [part.part for part in found.parts] == ["line 1", "line 2", "line 3"]
    assert [part.compared for part in found.parts] == [True, True, False]
    assert [part.drop for part in found.parts] == pytest.approx(mine.to_dataframe()["drop"].tolist())
    assert found.parts[-1].alone is None
    assert (found.log_probability, found.first) == (pytest.approx(mine.log_probability), mine.first)
    assert found.notes == list(mine.notes)


@pytest.mark.parametrize(
    ("where", "question", "words"),
    [
        ("/api/why", {"head": "decoder.9.1", "query": 0}, "9"),
        ("/api/why", {"head": "decoder.1.1", "query": 99}, "no query 99"),
        ("/api/why", {"head": "decoder.1.1", "query": 0, "key": 3}, "may not see"),
        ("/api/why", {"head": "1.1", "query": 0}, "head"),
        ("/api/sources", {}, "Write each source on a line of its own"),
        ("/api/sources", {"text": "cat\n" * 12}, "11 lines before the question; this page compares at most 9"),
        ("/api/sources", {"text": LINES, "answer": "good " * 200}, "answer: 1,000 characters"),
        ("/api/sources", {"text": LINES, "model": "classifier"}, "models that generate"),
        ("/api/paths", {"against": "the cat"}, "must have as many tokens as the text"),
        ("/api/paths", {"against": "cat " * 300}, "against: 1,200 characters"),
        ("/api/paths", {"among": "none"}, "among"),
        ("/api/layers", {"generate": 30}, "generates at most 20"),
    ],
)
def test_what_cannot_be_answered_is_one_line(where, question, words):
    response = ask(where, Limits(text=900, generate=20, sources=9), **question)
    assert response.status_code == 422
    assert words in response.json()["detail"]
