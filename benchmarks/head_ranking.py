"""Which heads can go together? Rankings of heads against random sets, by the accuracy that is left without them.

    python -m benchmarks.head_ranking --models MODELS/minilm MODELS/e5-small --corpora sst2 hatexplain --data DATA \\
        --device cuda --out out/ranking
    python -m benchmarks.head_ranking --out out/ranking --table

Each model is fine-tuned on each corpus. For each seed the heads are ranked on other validation texts; a quarter, a half
and three quarters of all heads are taken away at once (their outputs are zero, nothing is trained), lowest first, and
accuracy is measured on test texts. Beside them: random sets of as many heads, and random sets with as many in each
layer as `prune --method importance` takes. OUT/MODEL-CORPUS.json has the numbers; what is in it is not measured again.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.files import written_whole
from lorgnette.lens.ablation.copies import copies_together
from lorgnette.lens.ablation.rerun import Replacement, Rerun
from lorgnette.lens.importance.lens import Gates
from lorgnette.lens.losses import text_losses
from lorgnette.looking.texts import TokenizedTexts, batches
from lorgnette.subject import Subject, load
from lorgnette.subject.knockout import Knockout
from lorgnette.texts import corpus
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.training.pruning.ranking import agreement_scores, importance_scores

Head = tuple[Site, int]
Scores = dict[Head, float]
SHARES = (0.25, 0.5, 0.75)
WHOLE, RANDOM, MATCHED, CHOSEN = "whole model", "random", "random, same layers", "greedy, mean abs. slope"
ONE_BY_ONE = "greedy, one head at a time"
ONE_BY_ONE_SEEDS = 2
"""It takes as many looks as there are heads, so only some samples of texts are tried."""


class Study:
    """A classifier and its texts as batches."""

    def __init__(self, subject: Subject, test: Sequence[Example], batch_tokens: int = 2048) -> None:
        self.subject, self.batch_tokens = subject, batch_tokens
        self.heads: list[Head] = [(s.site, n) for s in subject.anatomy.sites for n in s.numbers]
        self.test = self.collated(test)

    def collated(self, examples: Sequence[Example]) -> list[Batch]:
        texts = TokenizedTexts(self.subject, examples, truncate=True)
        return [self.subject.collate(batch) for batch in batches(texts, self.batch_tokens)]

    def accuracy(self, gone: Sequence[Head]) -> float:
        right = total = 0
        places: dict[Site, list[int]] = {}
        for site, number in gone:
            places.setdefault(site, []).append(self.subject.anatomy[site].numbers.index(number))
        with torch.no_grad(), self.subject.tapped(Knockout(places)):
            for batch in self.test:
                labels = torch.tensor([example.label for example in batch.examples])
                right += int((self.subject.run(batch).logits.argmax(-1).cpu() == labels).sum())
                total += len(labels)
        return right / total

    def slopes(self, texts: Sequence[Batch]) -> Tensor:
        """∂L/∂ξ of every text and head, [text head]."""
        rows = []
        for batch in texts:
            gates = Gates(batch, ())
            with torch.enable_grad(), self.subject.tapped(gates):
                losses, _ = text_losses(self.subject, "classification", batch, self.subject.run(batch))
                slopes, _ = gates.gradients(losses.sum())
            rows.append(torch.cat([slopes[s.site] for s in self.subject.anatomy.sites], -1).detach().cpu())
        return torch.cat(rows).double()

    @torch.no_grad()
    def changes(self, texts: Sequence[Batch]) -> Tensor:
        """L without the head − L, of every text and head, [text head]."""
        rows = []
        for batch in texts:
            rerun = Rerun(self.subject, batch)
            with self.subject.tapped(), rerun.recording():
                whole = self.subject.run(batch, **rerun.options)
            intact, _ = text_losses(self.subject, "classification", batch, whole)
            together, columns = copies_together(batch), []
            for place in self.subject.anatomy.sites:
                for start in range(0, place.heads, together):
                    part = [Replacement(n, None) for n in range(start, min(start + together, place.heads))]
                    for whole.logits in rerun.logits(place.site, part):
                        columns.append(text_losses(self.subject, "classification", batch, whole)[0] - intact)
            rows.append(torch.stack(columns, -1).cpu())
        return torch.cat(rows).double()


def rankings(study: Study, examples: Sequence[Example]) -> dict[str, Callable[[], Scores]]:
    """Scores of the heads by each method; the lowest go first."""
    texts = study.collated(examples)
    slopes, changes = study.slopes(texts), study.changes(texts)
    values = {
        "change, signed": changes.mean(0),
        "abs. mean change": changes.mean(0).abs(),
        "mean abs. change": changes.abs().mean(0),
        "mean squared change": changes.square().mean(0),
        "slope, signed": -slopes.mean(0),
        "mean abs. slope": slopes.abs().mean(0),
        "mean squared slope (Fisher)": slopes.square().mean(0),
    }
    values["mean rank of abs. slope and abs. change"] = _ranks(values["mean abs. slope"]) + _ranks(
        values["mean abs. change"]
    )
    # What `prune` calls, so that the table is about `prune`.
    return {name: lambda one=one: dict(zip(study.heads, one.tolist(), strict=True)) for name, one in values.items()} | {
        CHOSEN: lambda: importance_scores(study.subject, examples),
        ONE_BY_ONE: lambda: importance_scores(study.subject, examples, turns=len(study.heads)),
        "agreement": lambda: agreement_scores(study.subject, examples),
    }


def _ranks(values: Tensor) -> Tensor:
    return values.argsort().argsort().double()


def lowest(scores: Scores, number: int) -> list[Head]:
    return sorted(scores, key=scores.__getitem__)[:number]


def matched(heads: Sequence[Head], like: Sequence[Head], seed: int) -> list[Head]:
    """A random set with as many heads of each layer as `like` has."""
    draw, out = random.Random(seed), []
    for site in dict.fromkeys(site for site, _ in heads):
        own = [head for head in heads if head[0] == site]
        out += draw.sample(own, sum(head[0] == site for head in like))
    return out


class Cell:
    """The accuracies of one model on one corpus: label → share → one number for each seed or set."""

    def __init__(self, file: Path, about: dict[str, Any]) -> None:
        self.file = file
        old = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        same = {name: value for name, value in old.items() if name not in ("accuracy", "seconds")} == about
        self.record: dict[str, Any] = old if same else {**about, "accuracy": {}, "seconds": 0.0}

    def measure(self, study: Study, label: str, share: float, place: int, gone: Sequence[Head]) -> None:
        """One accuracy, unless it is known already; written at once."""
        values = self.record["accuracy"].setdefault(label, {}).setdefault(str(share), [])
        if place < len(values):
            return
        start = time.perf_counter()
        values.append(study.accuracy(gone))
        self.record["seconds"] += time.perf_counter() - start
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(self.file) as partial:
            partial.write_text(json.dumps(self.record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def measure(cell: Cell, study: Study, pool: Sequence[Example], *, texts: int, seeds: int, draws: int) -> None:
    """Everything about one fine-tuned model."""
    sizes = {share: round(share * len(study.heads)) for share in SHARES}
    cell.measure(study, WHOLE, 0.0, 0, [])
    for share, size in sizes.items():
        for draw in range(draws):
            cell.measure(study, RANDOM, share, draw, random.Random(draw).sample(study.heads, size))
    for seed in range(seeds):
        examples = random.Random(seed).sample(list(pool), min(texts, len(pool)))
        for label, ranked in rankings(study, examples).items():
            known = cell.record["accuracy"].get(label, {}).get(str(SHARES[-1]), [])
            if (seed < len(known) and label != CHOSEN) or (label == ONE_BY_ONE and seed >= ONE_BY_ONE_SEEDS):
                continue
            scores = ranked()
            for share, size in sizes.items():
                cell.measure(study, label, share, seed, lowest(scores, size))
            if label == CHOSEN:
                _measure_matched(cell, study, scores, sizes, range(seed * draws // seeds, (seed + 1) * draws // seeds))


def _measure_matched(cell: Cell, study: Study, scores: Scores, sizes: dict[float, int], places: range) -> None:
    for share, size in sizes.items():
        for place in places:
            cell.measure(study, MATCHED, share, place, matched(study.heads, lowest(scores, size), place))


def fine_tuned(model: str, name: str, asked: argparse.Namespace) -> Subject:
    """Trained by the library itself, which goes on where it was interrupted."""
    from lorgnette.training import TrainingSettings, train

    folder = asked.out / "trained" / f"{Path(model).name}-{name}"
    train(
        TrainingSettings(
            model=model, corpus=name, out=folder, data=asked.data, epochs=asked.epochs, limit=asked.limit,
            learning_rate=asked.learning_rate, batch_size=32, warmup=0.1, test_limit=100, resume=True,
        )
    )  # fmt: skip
    subject = load(str(folder), device=asked.device)
    subject.model.eval()
    return subject


def run(model: str, name: str, asked: argparse.Namespace) -> None:
    start = time.perf_counter()
    subject = fine_tuned(model, name, asked)
    print(f"{Path(model).name} on {name}: fine-tuned, {time.perf_counter() - start:.0f} s", flush=True)
    test = list(corpus(name, split="test", data=asked.data).take(asked.test))
    pool = list(corpus(name, split="validation", data=asked.data))
    study = Study(subject, test, asked.batch_tokens)
    about = {"model": Path(model).name, "corpus": name, "heads": len(study.heads), "texts": asked.texts}
    about |= {"test": len(test), "seeds": asked.seeds, "epochs": asked.epochs, "limit": asked.limit}
    cell = Cell(asked.out / f"{Path(model).name}-{name}.json", about)
    measure(cell, study, pool, texts=asked.texts, seeds=asked.seeds, draws=asked.draws)
    print(f"{Path(model).name} on {name}: measured, {time.perf_counter() - start:.0f} s in all", flush=True)


def main() -> None:
    from benchmarks.head_ranking_table import table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--corpora", nargs="+", default=["sst2", "hatexplain"])
    parser.add_argument("--data", help="the folder of the corpora (default: LORGNETTE_DATA)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    for name, value in (("texts", 64), ("test", 2000), ("seeds", 4), ("draws", 20), ("epochs", 3), ("limit", 8000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--table", action="store_true", help="print the tables of OUT, measure nothing")
    asked = parser.parse_args()
    if asked.table:
        print(table(asked.out))
        return
    for model in asked.models:
        for name in asked.corpora:
            run(model, name, asked)


if __name__ == "__main__":
    main()
