"""look, train, prune and reproduce, killed at a write and gone on with: the numbers, and what lies in the folder."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz.kills import Point, forked, points
from fuzz.place import Place

sys.path.append(str(Path(__file__).parents[1] / "training"))


@dataclass(frozen=True)
class Scenario:
    """`begin` makes what lies in the folder before; `work(folder, resume)` is killed, and then done again."""

    begin: Callable[[Path], None]
    work: Callable[[Path, bool], None]
    outcome: Callable[[Path], Any]

    def points(self, root: Path) -> list[Point]:
        folder = root / "whole"
        self.begin(folder)
        return points(lambda: self.work(folder, False), folder)

    def wrong(self, point: Point, root: Path, expected: Any) -> str | None:
        """What is wrong after a kill there and a second run; None if all is as if nothing had happened."""
        folder = root / f"killed-{point.number}-{point.torn}"
        self.begin(folder)
        if (status := forked(lambda: self.work(folder, False), folder, point)) != -9:
            return f"{point}: the process ended with {status}, not by the kill"
        if (status := forked(lambda: self.work(folder, True), folder)) != 0:
            return f"{point}: gone on with, it ended with {status}: {Path(f'{folder}.error').read_text()[-800:]}"
        outcome = self.outcome(folder)
        shutil.rmtree(folder)
        return None if outcome == expected else f"{point}: {_differing(outcome, expected)}"


def _differing(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        return str(
            {key: (one.get(key), other.get(key)) for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
        )[:600]
    return f"{one!r} is not {other!r}"[:600]


def everything(folder: Path) -> dict[str, str]:
    """Every file below, by name; the content of JSON without what depends on the hour."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() or not any(path.iterdir()))
    return {str(path.relative_to(folder)): "" if path.is_dir() else _hash(path) for path in files}


_OF_THE_HOUR = (
    "sha256",
    "created",
    "command",
    "seconds",
    "resumed",
    "speed",
    "times",
    "size",
    "this_process",
    "versions",
)


def _hash(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".json":
        content = json.dumps(_timeless(json.loads(content)), sort_keys=True).encode()
    if path.name == "README.md":  # of a pruned model: how fast it was
        timed = (b" ms (", b"speed ", b"these times", b"one thread, ")
        content = b"".join(line for line in content.splitlines(True) if not any(word in line for word in timed))
    return hashlib.sha256(content).hexdigest()[:12]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in _OF_THE_HOUR}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def looking(subject: Any, texts: str) -> Scenario:
    """Into a folder with older results and a file of the reader's own; states are kept after every batch.

    As the command does it, but for what it prints, and with a page that says nothing: it matters that it is written.
    """
    import lorgnette as lo
    from lorgnette.files import written_whole
    from lorgnette.looking import resume
    from lorgnette.reporting.examples import save_examples

    def run(folder: Path, limit: int | None = None, again: bool = False) -> None:
        resume.EVERY = 0.0  # in a fork, never undone
        corpus = lo.corpus(texts, limit=limit)
        lo.look(subject, corpus, ["weights"], batch_tokens=12, out=folder / "run", resume=again, progress=False)
        save_examples([], folder / "run", subject.weights_hash)
        with written_whole(folder / "run" / "report.html") as partial:
            partial.write_text("<html></html>")

    def begin(folder: Path) -> None:
        folder.mkdir(parents=True)
        if not (older := folder.parent / "older").is_dir():
            older.mkdir()
            assert forked(lambda: run(older, 2), older) == 0
            (older / "run" / "thesis.tex").write_text("mine")
        shutil.copytree(older, folder, dirs_exist_ok=True)

    return Scenario(
        begin,
        lambda folder, again: run(folder, again=again),
        everything,
    )


def training() -> Scenario:
    from planted_runs import kept, settings

    from lorgnette.training import Splits, train

    parts = Splits(kept("train", 24), kept("val", 8), kept("test", 8))
    small = {"layers": 1, "width": 8, "positions": "relative"}

    def work(folder: Path, again: bool) -> None:
        train(settings(folder / "run", corpus=parts, overrides=small, epochs=2, batch_size=12, resume=again))

    return Scenario(lambda folder: folder.mkdir(parents=True), work, everything)


def pruning(base: Path) -> Scenario:
    from planted_runs import kept, settings

    from lorgnette.training import Splits, train
    from lorgnette.training.pruning import speed
    from lorgnette.training.pruning.prune import prune
    from lorgnette.training.pruning.settings import PruningSettings

    parts = Splits(kept("train", 24), kept("val", 8), kept("test", 8))
    small = {"layers": 1, "width": 8, "heads": 4, "positions": "relative"}
    given = {"corpus": parts, "batch_size": 12}
    if not base.is_dir():
        assert forked(lambda: train(settings(base, overrides=small, epochs=1, **given)), base) == 0

    def work(folder: Path, again: bool) -> None:
        speed.SECONDS = 0.0  # of timing, which writes nothing; in a fork, never undone
        own = settings(folder / "run", model=str(base), embeddings=None, overrides={}, epochs=1, resume=again, **given)
        prune(
            PruningSettings(**vars(own), onnx=False, keep=0.5, only=("heads",), allow_empty=True, settle=1, controls=1)
        )

    return Scenario(lambda folder: folder.mkdir(parents=True), work, everything)


def reproducing(root: Path) -> Scenario:
    """A study of three cells, a table and a figure, over the outcome of an older one."""
    import altair as alt
    import pandas as pd

    from lorgnette.figures import drawing
    from reproductions.frame import page, study
    from reproductions.frame.cells import Cell
    from reproductions.frame.settings import Settings

    templates = root / "templates" / "tiny"
    templates.mkdir(parents=True)
    (templates / "published.json").write_text('{"reference": "Somebody 1999."}')
    (templates / "page.md.j2").write_text("# {{ study.title }}\n{{ table('cells') }}\n")
    (templates / "appendix.md.j2").write_text("{{ all_claims }}")

    class Tiny(study.Study):
        def grid(self, settings: Settings, done: Any) -> dict[str, Cell]:
            return {f"cell-{n}": Cell("nowhere:none", {"n": n, "power": settings.seeds[0]}) for n in range(3)}

        def module(self, name: str) -> Any:
            def table(cells: Any) -> pd.DataFrame:
                return pd.DataFrame({"cell": [c.key for c in cells], "value": [c.result["x"] for c in cells]})

            def chart(cells: Any) -> Any:
                rows = [{"x": c.key, "y": c.result["x"]} for c in cells]
                return alt.Chart(alt.Data(values=rows)).mark_point().encode(x="x:N", y="y:Q")

            return SimpleNamespace(
                claims=lambda cells: [],
                tables=lambda cells: [page.Table("cells", "Cells", table(cells))],
                figures=lambda cells: [page.Figure("dots", chart(cells), "Dots.")],
            )

    tiny = Tiny(name="tiny", title="Tiny", question="?", headline=[])

    def run(folder: Path, power: int) -> None:
        page.ROOT = study.ROOT = root / "templates"
        Cell.run = lambda cell: {"x": cell.arguments["n"] ** cell.arguments["power"]}  # type: ignore[method-assign]
        drawing.drawn = lambda chart, kind, **_: json.dumps(chart.to_dict()).encode()  # type: ignore[assignment]
        tiny.reproduce(Settings(out=folder / "out", seeds=(power,))).write(folder / "out")

    def begin(folder: Path) -> None:
        folder.mkdir(parents=True)
        if not folder.name.endswith("fresh"):
            assert forked(lambda: run(folder, 2), folder) == 0

    return Scenario(begin, lambda folder, again: run(folder, 3), everything)


def scenario(name: str, root: Path, place: Place) -> Scenario:
    root.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[], Scenario]] = {
        "look": lambda: looking(place.subjects["bert"], place.texts),
        "train": training,
        "prune": lambda: pruning(root / "base"),
        "reproduce": lambda: reproducing(root),
    }
    return makers[name]()


NAMES = ("look", "train", "prune", "reproduce")


def killed_everywhere(name: str, root: Path, place: Place, every: int = 1) -> tuple[int, list[str]]:
    """How many points were tried (every n-th of them), and what was wrong."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    one = scenario(name, root, place)
    chosen = one.points(root)[::every]
    expected = one.outcome(root / "whole")
    return len(chosen), [said for point in chosen if (said := one.wrong(point, root, expected)) is not None]
