"""The demo: a classifier trained on text whose truth is known, and a pretrained encoder, looked at side by side."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from lorgnette.looking.look import look
from lorgnette.models.opening import find
from lorgnette.reporting import Finding, Report, examples_of
from lorgnette.reporting.examples import save_examples
from lorgnette.results import Result, Results
from lorgnette.subject import load
from lorgnette.texts import corpus
from lorgnette.texts.corpus import Corpus
from lorgnette.types import Json

LENSES = ("weights", "norms", "frequency", "distances", "roles", "geometry")
"""What both subjects are looked at with."""
EXPLAINED = ("rationales", "relevance", "importance")
"""What only a classifier can be looked at with: lenses that need a prediction."""
PRETRAINED = "minilm"
REVIEWS = 200  # held-out planted texts that the classifier is looked at on
PLANTED_SHARE = 100  # planted texts beside the paragraphs that the pretrained encoder reads


@dataclass(frozen=True)
class Demo:
    """What the demo made: results and findings by subject, and where the page is."""

    results: dict[str, Results]
    findings: dict[str, list[Finding]]
    page: Path


def demo(out: str | os.PathLike[str], *, progress: bool = True) -> Demo:
    """Train the classifier, look at both subjects, write `out`/report.html; a classifier trained before is used again.

    Models go to `out`/models and results to `out`/runs, a folder for each subject.
    """
    out = Path(out)
    find(PRETRAINED)  # before any work: without lorgnette[demo] there is nothing to compare with
    command = shlex.join(["lorgnette", "demo", "--out", str(out)])
    results, examples = {}, {}
    for name, looked in (
        ("classifier", _classifier(out, command, progress)),
        (PRETRAINED, _pretrained(command, progress)),
    ):
        results[name], examples[name] = looked
        folder = results[name].save(out / "runs" / name)
        save_examples(examples[name], folder, next(iter(results[name].values())).provenance.weights_hash)
    report = Report(results, title="Attention report: the demo classifier and MiniLM", examples=examples)
    page = report.write(out / "report.html")
    sentences = {
        name: [finding for some in by_lens.values() for finding in some] for name, by_lens in report.findings.items()
    }
    return Demo(results, sentences, page)


def english(planted: int = PLANTED_SHARE) -> Corpus:
    """Fifty short paragraphs of all kinds of English, and some planted reviews."""
    reviews = list(corpus("planted", split="test", limit=planted))
    return Corpus.of([*corpus("english"), *reviews], name="English paragraphs and planted reviews")


def _classifier(out: Path, command: str, progress: bool) -> tuple[Results, list[Json]]:
    from lorgnette.training.demo import quick

    folder = out / "models" / "classifier"
    trained = quick(folder, resume=True, progress=progress)
    reviews = corpus("planted", split="test", limit=REVIEWS)
    subject = load(str(folder))
    results = look(subject, reviews, (*LENSES, *EXPLAINED), progress=progress, command=command, seed=0)
    right = f"trained on planted reviews; {trained.accuracy:.1%} of the held-out ones are classified right"
    noted = {name: Result(r.lens, r.data, r.provenance.noted(right)) for name, r in results.items()}
    return Results(noted), examples_of(subject, reviews)


def _pretrained(command: str, progress: bool) -> tuple[Results, list[Json]]:
    subject, texts = load(PRETRAINED), english()
    return look(subject, texts, LENSES, progress=progress, command=command, seed=0), examples_of(subject, texts)
