"""What pruning costs and saves on real models: a classifier, a translation model and a language model.

    python -m benchmarks.smaller_models sst2 --model MODELS/minilm --data DATA --seeds 0 1 2 --out out/smaller
    python -m benchmarks.smaller_models translation --model MODELS/opus-mt-en-fr --data DATA --out out/smaller
    python -m benchmarks.smaller_models language --model MODELS/smollm2 --data DATA --out out/smaller
    python -m benchmarks.smaller_models table --out out/smaller

Everything runs on one thread. Training, and what is chosen, sees training and validation texts only; the test texts are
read for the scores at the end. OUT/cells has a JSON file for each cell, and what is there is not measured again; an
interrupted cell goes on from its last epoch.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from lorgnette.files import written_whole
from lorgnette.texts import corpus
from lorgnette.training import Splits, TrainingSettings, train
from lorgnette.training.folder import RunFolder
from lorgnette.training.pruning import runtimes
from lorgnette.training.pruning.prune import prune
from lorgnette.training.pruning.score import Score, metric_of
from lorgnette.training.pruning.settings import PruningSettings

SPEEDS = (1.8, 2.5)
"""Asked for, so that with a margin 1.5 and 2 are reached."""
PASSES = 30
"""The fewest pairs of passes by which models are timed at the end."""
RATE = 5e-5
KEPT = ("seed", "parts", "parameters", "bytes", "speed", "times", "before", "metrics", "difference", "tuned", "random",
        "scratch", "controls", "settled", "kinds", "notes", "versions")  # fmt: skip
"""What a cell has of the record of a run."""


class Cells:
    """One JSON file for each cell of a part."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.out = given, Path(given.out)
        (self.out / "cells").mkdir(parents=True, exist_ok=True)

    def run(self, name: str, measure: Callable[[Path], Any]) -> None:
        """Measure a cell, unless it has been."""
        file = self.out / "cells" / f"{name}.json"
        if file.is_file():
            return
        print(name, flush=True)
        cell = measure(self.out / "runs" / name)
        with written_whole(file) as partial:
            partial.write_text(json.dumps(cell, indent=1) + "\n", encoding="utf-8")

    def pruned(self, folder: Path, model: Path | str, tuned: dict[int, Score] | None = None, **given: Any) -> Any:
        """The record of a pruning run, which goes on if it was interrupted."""
        run = RunFolder(folder)
        resume = run.finished() is not None or run.work.is_dir()
        settings = PruningSettings(
            model=str(model), out=folder, data=self.given.data, resume=resume, bf16=True, progress=True, **given
        )
        record = prune(settings, tuned).record
        return {name: record[name] for name in KEPT if name in record} | {"settings": told(record["settings"])}


def told(settings: Any) -> Any:
    """The settings that matter to whoever reads a cell: not where the model and the texts lie."""
    own = {name: settings[name] for name in ("epochs", "learning_rate", "batch_size", "limit", "test_limit", "bf16")}
    return own | {name: settings["pruning"][name] for name in ("keep", "speed", "method", "distil", "settle")}


def sst2(cells: Cells) -> None:
    """MiniLM on SST-2: fine-tuned, then pruned to two speeds."""
    given = cells.given
    for seed in given.seeds:
        base = cells.out / "runs" / f"sst2-original-{seed}"
        shared = {"corpus": "sst2", "batch_size": 32, "seed": seed, "learning_rate": RATE}

        def original(folder: Path, shared: Any = shared) -> Any:
            done = RunFolder(folder).finished() is not None or RunFolder(folder).work.is_dir()
            record = train(
                TrainingSettings(
                    model=given.model,
                    out=folder,
                    data=given.data,
                    epochs=3,
                    bf16=True,
                    progress=True,
                    resume=done,
                    **shared,
                )
            ).record
            return {name: record[name] for name in ("seed", "metrics", "best", "texts", "versions")}

        cells.run(f"sst2-original-{seed}", original)
        tuned: dict[int, Score] = {}
        for speed in given.speeds or SPEEDS:
            options = {**shared, "method": given.method, "speed": speed, "settle": given.settle, "controls": 2}
            options |= {"scratch": given.scratch, "limit": given.limit}
            cells.run(
                f"sst2-{given.method}-{speed:g}-{seed}",
                lambda folder, options=options, base=base, tuned=tuned: cells.pruned(folder, base, tuned, **options),
            )


def translation(cells: Cells) -> None:
    """A translation model on image captions, fine-tuned as it is and pruned."""
    given = cells.given
    for seed in given.seeds:
        options = {
            "corpus": "multi30k:en-fr",
            "seed": seed,
            "method": given.method,
            "speed": (given.speeds or [1.35])[0],
            "limit": given.limit,
            "batch_size": 32,
            "test_limit": given.test_limit,
            "settle": given.settle,
            "controls": 2,
            "max_length": 64,
            "allow_pickle": given.allow_pickle,
        }
        cells.run(
            f"translation-{given.method}-{options['speed']:g}-{seed}",
            lambda folder, options=options: cells.pruned(folder, given.model, **options),
        )


def language(cells: Cells) -> None:
    """A language model's perplexity by the share of its layers that is kept; nothing is trained."""
    given = cells.given
    for seed in given.seeds:
        ranked = corpus("wikitext2", split="validation", data=given.data).shuffled(seed).take(given.limit or 200)
        tested = corpus("wikitext2", split="test", data=given.data).shuffled(0).take(given.test_limit or 100)
        texts = Splits(ranked, ranked, tested)  # nothing is trained
        for share in given.shares:
            options = {
                "corpus": texts,
                "seed": seed,
                "method": "importance",
                "keep": share,
                "max_length": given.max_length,
                "batch_size": 8,
                "settle": 0,
                "distil": 0.0,
                "controls": given.controls,
                "onnx": False,
            }
            cells.run(
                f"language-{share:g}-{seed}",
                lambda folder, options=options: cells.pruned(folder, given.model, **options),
            )


def table(cells: Cells) -> None:
    """All cells as the tables of docs/pruning.md."""
    files = sorted((cells.out / "cells").glob("*.json"))
    print("\n".join([*saved(files), "", *cost(files)]))


def saved(files: Sequence[Path]) -> Iterator[str]:
    """A row for each cell: what is left of the model, and how much faster that is."""
    yield (
        "| | parameters | heads, units, layers | torch, 1 text | 32 texts | ONNX Runtime, 1 text | 32 texts "
        "| fewest pairs of passes |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for file, cell in _pruned(files):
        sizes, every = cell["parameters"], [cell["times"], *([cell["times_again"]] if "times_again" in cell else [])]
        parts = ", ".join(f"{left:,} of {there:,}" for left, there in cell["parts"].values())
        faster = [_faster(every, runtime, batch) for runtime in ("torch", "onnxruntime") for batch in (1, 32)]
        fewest = " and ".join(str(min(each["passes"] for each in times)) for times in every)
        yield _row(_name(file), f"{sizes['after'] / sizes['before']:.1%}", parts, *faster, fewest)


def cost(files: Sequence[Path]) -> Iterator[str]:
    """A row for each cell: the score, and what it is compared with."""
    yield (
        "| | fine-tuned | texts | original | pruned | − original | − original trained as long "
        "| − same shape from scratch | before training: chosen; random; magnitude |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for file, cell in _pruned(files):
        before, controls = cell["before"], cell["controls"]
        after = cell["metrics"][before["split"]]
        name, digits = metric_of(before)
        own = 2 if controls["metric"] == "perplexity" else 3
        random = ", ".join(f"{each:.{own}f}" for each in controls["random"])
        yield _row(
            _name(file),
            {0: "", 1: "1 epoch"}.get(epochs := cell["settings"]["settle"], f"{epochs} epochs"),
            f"{before['texts']:,}",
            *(_score(each, name, digits) for each in (before, after)),
            *(_change(each, digits) for each in (cell, cell.get("tuned"), cell.get("scratch"))),
            f"{controls['chosen']:.{own}f}; {random}; {controls['magnitude']:.{own}f}",
        )


def _pruned(files: Sequence[Path]) -> Iterator[tuple[Path, Any]]:
    """The cells of pruned models, by their part and what was asked for."""
    for file in sorted(files, key=_order):
        cell = json.loads(file.read_text(encoding="utf-8"))
        if "difference" in cell:
            yield file, cell


def _order(file: Path) -> tuple[int, str, int]:
    part, *_, target, seed = file.stem.split("-")
    return list(PARTS).index(part), target, int(seed)


def _name(file: Path) -> str:
    part, *_, target, seed = file.stem.split("-")
    named = {"sst2": "SST-2", "translation": "Multi30k", "language": "WikiText-2"}
    return f"{named[part]}, `--{'keep' if part == 'language' else 'speed'} {target}`, seed {seed}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _score(score: Any, name: str, digits: int) -> str:
    low, high = score["interval"]
    return f"{score[name]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _faster(every: Sequence[Any], runtime: str, batch: int) -> str:
    """How many times as fast, once for each time that it was measured."""
    some = [each for times in every for each in times if each["runtime"] == runtime and each["batch"][0] == batch]
    return "; ".join(f"× {each['measured']:.2f} ({each['spread'][0]:.2f}–{each['spread'][1]:.2f})" for each in some)


def _change(cell: Any, digits: int) -> str:
    if cell is None:
        return ""
    value, (low, high) = cell["difference"]["value"], cell["difference"]["interval"]
    return f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]".replace("-", "−")


PARTS = {"sst2": sst2, "translation": translation, "language": language, "table": table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--model")
    parser.add_argument("--data")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--method", default="importance", choices=("gates", "importance"))
    parser.add_argument("--speeds", type=float, nargs="+", help="default: 1.8 and 2.5; of translations 1.35")
    parser.add_argument("--settle", type=int, default=1, help="epochs of fine-tuning after parts are removed, at most")
    parser.add_argument("--controls", type=int, default=3, help="random choices beside that of a language model")
    parser.add_argument("--scratch", action="store_true", help="also train the same shape from random weights (sst2)")
    parser.add_argument("--limit", type=int, help="at most so many texts to train on and to rank by")
    parser.add_argument("--allow-pickle", action="store_true", help="read weights from a pickle, which can run code")
    parser.add_argument("--test-limit", type=int, help="at most so many translations are scored")
    parser.add_argument("--max-length", type=int, default=128, help="tokens of each text of the language model")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.9, 0.8, 0.7])
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.part != "language":  # where a pass takes seconds, and the perplexity is what counts
        runtimes.PASSES = PASSES
    PARTS[given.part](Cells(given))


if __name__ == "__main__":
    main()
