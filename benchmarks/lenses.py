"""What `look` costs on one CPU thread, everything included, over the plain forward pass of the same texts.

MiniLM on WikiText where both are here (LORGNETTE_MODELS, LORGNETTE_DATA); else a model of its shape with random
weights on texts of as many tokens. Everything: tokenising, the pass, the lenses, their results.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch

from benchmarks.harness import Figure, side_by_side
from benchmarks.relevance import classifier, forward
from benchmarks.shapes import E5_SMALL, subject, texts
from lorgnette.errors import UserError
from lorgnette.lens.gating.lens import Gating
from lorgnette.looking.look import look
from lorgnette.looking.texts import TokenizedTexts, batches
from lorgnette.subject import Subject
from lorgnette.texts.corpus import Corpus

TEXTS = 96
TOGETHER = ("weights", "norms", "frequency", "distances", "rollout", "geometry", "convexity", "roles")
CASES = {
    "weights": (("weights",), 1.3),
    "norms": (("norms",), 1.8),
    "contribution": (("norms:contribution=true,all_heads=false,sample=0",), 1.4),
    "sinks": (("sinks",), 1.5),
    "together": (TOGETHER, 4.0),
}


def watched() -> tuple[Subject, Corpus, str]:
    """The model, the texts, and what they are."""
    from lorgnette.subject import load
    from lorgnette.texts import corpus

    try:
        found = islice(corpus("wikitext2", split="test"), TEXTS)
        return load("minilm"), Corpus.of(list(found), name="WikiText"), "MiniLM, WikiText"
    except UserError:
        return subject({**E5_SMALL, "num_hidden_layers": 6}), texts(TEXTS, 128), "MiniLM's shape, random weights"


def over_forward(repeats: int = 5) -> Iterator[Figure]:
    """All cases in turn beside the plain pass, `repeats` times; the median of the ratios."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model, corpus, what = watched()
        ready = [model.collate(each) for each in batches(TokenizedTexts(model, corpus, truncate=True), 4096)]

        def plain() -> None:
            with torch.no_grad():
                for batch in ready:
                    model.run(batch)

        def looking(lenses: tuple[str, ...]) -> None:
            look(model, corpus, list(lenses), truncate=True, progress=False)

        ratios: dict[str, list[float]] = {name: [] for name in CASES}
        for turn in range(repeats + 1):
            base = statistics.median(_seconds(plain) for _ in range(2))
            for name, (lenses, _) in CASES.items():
                taken = _seconds(looking, lenses)
                if turn:  # the first turn warms up
                    ratios[name].append(taken / base)
        tokens = sum(int(batch.source.mask.sum()) for batch in ready)
        for name, (_, bound) in CASES.items():
            low, middle, high = statistics.quantiles(ratios[name], n=4)
            details = {"middle_half": [round(low, 3), round(high, 3)], "of": what, "tokens": tokens, "threads": 1}
            yield Figure(f"look_{name}_over_forward", middle, bound, details=details)
    finally:
        torch.set_num_threads(before)


def effects_over_forward(count: int = 8, tokens: int = 64) -> Iterator[Figure]:
    """Direct and gradient effects of all heads, and with the total ones, over the forward pass of a classifier.

    The total effects take 72 passes, each from its layer on.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = classifier(layers=6, shape=E5_SMALL)
        corpus = texts(count, tokens)
        batch = model.encode(list(corpus))
        plain = forward(model, batch)
        for name, options, bound in (
            ("effects", ":ablation=zero,total=false", 7.0),
            ("effects_total", ":ablation=zero", 60.0),
        ):
            ratio = side_by_side(
                plain, lambda o=options: look(model, corpus, [f"effects{o}"], progress=False), seconds=30
            )
            yield Figure(f"look_{name}_over_forward", ratio.value, bound, details=ratio.details(tokens=count * tokens))
    finally:
        torch.set_num_threads(before)


def gating() -> Iterator[Figure]:
    """Gates of three seeds, fitted for four steps, over as many plain forward passes of as many texts."""
    watched, steps = classifier(layers=6, shape=E5_SMALL), 4
    examples = [replace(example, label=number % 2) for number, example in enumerate(texts(24, 64))]
    lens = {"steps": steps, "batch": 8, "texts": len(examples)}
    batch = watched.encode(examples)

    def plain() -> None:
        with torch.no_grad():
            for _ in range(3 * steps):  # without pressure, and under both
                watched.run(batch)

    ratio = side_by_side(plain, lambda: look(watched, examples, [Gating(**lens)], progress=False), seconds=40)
    details = ratio.details(of="MiniLM's shape, random weights", steps=steps, seeds=3, tokens=64)
    yield Figure("gating_over_forward", ratio.value, 4.0, details=details)


def _seconds(work, *arguments) -> float:  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


BENCHES = {
    "lenses_over_forward": over_forward,
    "effects_over_forward": effects_over_forward,
    "gating_over_forward": gating,
}
