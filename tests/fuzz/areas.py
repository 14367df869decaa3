"""The areas that are fuzzed, with their shares of the cases, and how a chunk of cases runs."""

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from fuzz import calls, corpora, models, options, runs, texts, trainings, treebanks
from fuzz.place import Place, quick_pictures, shared_models
from fuzz.trial import Call, Case, Outcome, tried
from lorgnette import lens as lenses
from lorgnette.cli.app import app  # noqa: F401  (read once, before the workers are forked)

AREAS: dict[str, Callable[[Place], SearchStrategy[Case] | SearchStrategy[Call]]] = {
    "corpora": corpora.cases,
    "treebanks": treebanks.cases,
    "models": models.cases,
    "results": runs.cases,
    "texts": texts.cases,
    "options": options.cases,
    "calls": calls.cases,
    "trainings": trainings.cases,
}
SHARES = {
    "corpora": 0.15, "treebanks": 0.1, "models": 0.15, "results": 0.1, "texts": 0.15, "options": 0.1, "calls": 0.2,
    "trainings": 0.05,
}  # fmt: skip


@contextmanager
def place_for_cases(root: Path) -> Iterator[Place]:
    place = Place(root)
    with quick_pictures(), warnings.catch_warnings():
        warnings.simplefilter("default")
        _ = place.run, place.kept_states, place.expected_of_texts  # made now, not in every worker
        for name in lenses.names():
            _ = lenses.find(name), lenses.report_of(name)
        with shared_models(place):
            yield place


def run_cases(place: Place, area: str, number: int, count: int, report: Callable[[Outcome], None]) -> None:
    """So many cases of an area, drawn from this seed."""

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(AREAS[area](place))
    def one(case: Case | Call) -> None:
        folder = Path(tempfile.mkdtemp(prefix="case-", dir=place.root))
        try:
            report(tried(case, folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    one()
