"""Which heads can go together? Rankings of heads against random sets, by the accuracy that is left without them.

    python -m benchmarks.head_ranking runs/minilm-sst2 sst2 --texts 64 --test 400 --seeds 3 --out ranking.json

For each seed the heads are ranked on other validation texts; a quarter, a half and three quarters of all heads are
taken away at once (their outputs are zero, nothing is trained), lowest first, and accuracy is measured on test texts.
Beside them: random sets of as many heads, and random sets with as many in each layer as the first ranking takes.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.lens.importance.ablation import Replacement, Rerun
from lorgnette.lens.importance.lens import Gates
from lorgnette.lens.losses import text_losses
from lorgnette.looking.texts import Counts, TokenizedTexts, batches
from lorgnette.subject import Subject, load
from lorgnette.subject.knockout import Knockout
from lorgnette.texts import corpus
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example

Head = tuple[Site, int]
SHARES = (0.25, 0.5, 0.75)
STEPS = 12
"""Re-estimations of a greedy ranking."""


class Study:
    """A classifier and its texts as batches."""

    def __init__(self, subject: Subject, test: Sequence[Example]) -> None:
        self.subject = subject
        self.heads: list[Head] = [(s.site, n) for s in subject.anatomy.sites for n in s.numbers]
        self.test = self.collated(test)

    def collated(self, examples: Sequence[Example]) -> list[Batch]:
        texts = TokenizedTexts(self.subject, examples, truncate=True)
        return [self.subject.collate(batch) for batch in batches(texts, 2048, Counts())]

    @contextmanager
    def without(self, heads: Sequence[Head]) -> Iterator[None]:
        names = [f"{site.name}.{site.layer + 1}.{number + 1}" for site, number in heads]
        with self.subject.tapped(*([Knockout.of(self.subject, names)] if names else [])):
            yield

    def accuracy(self, gone: Sequence[Head]) -> float:
        right = total = 0
        with torch.no_grad(), self.without(gone):
            for batch in self.test:
                labels = torch.tensor([example.label for example in batch.examples])
                right += int((self.subject.run(batch).logits.argmax(-1) == labels).sum())
                total += len(labels)
        return right / total

    def gradients(self, chosen: Sequence[Batch], gone: Sequence[Head] = ()) -> Tensor:
        """∂L/∂ξ of every text and head, [text head], with some heads gone."""
        rows = []
        for batch in chosen:
            gates = Gates()
            with torch.enable_grad(), self.without(gone), self.subject.tapped(gates):
                outputs = self.subject.run(batch)
                losses, _ = text_losses(self.subject, "classification", batch, outputs)
                slopes = gates.gradients(losses.sum())
            rows.append(torch.cat([slopes[s.site] for s in self.subject.anatomy.sites], -1).detach())
        return torch.cat(rows)

    def changes(self, chosen: Sequence[Batch]) -> Tensor:
        """L without the head − L, of every text and head, [text head]."""
        rows = []
        for batch in chosen:
            rerun = Rerun(self.subject, batch)
            with torch.no_grad(), rerun.recording():
                whole = self.subject.run(batch, **rerun.options)
            columns = []
            with torch.no_grad():
                intact, _ = text_losses(self.subject, "classification", batch, whole)
                for place in self.subject.anatomy.sites:
                    for number in range(place.heads):
                        (logits,) = rerun.logits(place.site, [Replacement(number, None)])
                        whole.logits = logits
                        columns.append(text_losses(self.subject, "classification", batch, whole)[0] - intact)
            rows.append(torch.stack(columns, -1))
        return torch.cat(rows)

    def ranking(self, scores: Tensor) -> list[Head]:
        """Heads, the lowest score first."""
        return [self.heads[int(k)] for k in scores.argsort(stable=True)]

    def greedy(self, chosen: Sequence[Batch]) -> list[Head]:
        """Lowest mean |∂L/∂ξ| first, estimated again after every twelfth of the heads has gone."""
        gone: list[Head] = []
        step = -(-len(self.heads) // STEPS)
        while len(gone) < len(self.heads):
            slopes = self.gradients(chosen, gone).abs().mean(0)
            left = [head for head in self.ranking(slopes) if head not in gone]
            gone += left[:step]
        return gone


def rankings(study: Study, chosen: Sequence[Batch]) -> dict[str, list[Head]]:
    slopes, changes = study.gradients(chosen), study.changes(chosen)
    scores: dict[str, Tensor] = {
        "signed change": changes.mean(0),
        "|mean change|": changes.mean(0).abs(),
        "mean |change|": changes.abs().mean(0),
        "mean change²": changes.square().mean(0),
        "signed slope": -slopes.mean(0),
        "mean |slope|": slopes.abs().mean(0),
        "mean slope² (Fisher)": slopes.square().mean(0),
    }
    scores["mean rank of |slope| and |change|"] = _ranks(scores["mean |slope|"]) + _ranks(scores["mean |change|"])
    out = {name: study.ranking(values) for name, values in scores.items()}
    return out | {"greedy |slope|": study.greedy(chosen)}


def _ranks(values: Tensor) -> Tensor:
    return values.argsort().argsort().double()


def random_sets(heads: Sequence[Head], number: int, seed: int) -> list[Head]:
    return random.Random(seed).sample(list(heads), number)


def matched_sets(heads: Sequence[Head], like: Sequence[Head], seed: int) -> list[Head]:
    """As many of each layer as `like` has."""
    draw, out = random.Random(seed), []
    for site in dict.fromkeys(site for site, _ in heads):
        own = [head for head in heads if head[0] == site]
        out += draw.sample(own, sum(head[0] == site for head in like))
    return out


def run(model: str, name: str, *, texts: int, test: int, seeds: int, draws: int, say: Callable[[str], None]) -> dict:
    subject = load(model)
    subject.model.eval()
    study = Study(subject, list(corpus(name, split="test").take(test)))
    pool = list(corpus(name, split="val" if name == "hatexplain" else "validation"))
    sizes = {share: round(share * len(study.heads)) for share in SHARES}
    found: dict[str, dict[str, list[float]]] = {}

    def note(label: str, share: float, gone: Sequence[Head]) -> None:
        value = study.accuracy(gone)
        found.setdefault(label, {}).setdefault(str(share), []).append(value)
        say(f"{label:36} {share:.0%} {value:.3f}")

    note("whole model", 0.0, [])
    for draw in range(draws):
        for share, size in sizes.items():
            note("random", share, random_sets(study.heads, size, draw))
    for seed in range(seeds):
        chosen = study.collated(random.Random(seed).sample(pool, texts))
        for label, order in rankings(study, chosen).items():
            for share, size in sizes.items():
                note(label, share, order[:size])
                if label == "mean |slope|":
                    for draw in range(draws // seeds):
                        note("random, same layers", share, matched_sets(study.heads, order[:size], 100 * seed + draw))
    return {"model": model, "corpus": name, "heads": len(study.heads), "texts": texts, "test": test, "found": found}


def table(found: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    lines = [f"{'':36}" + "".join(f"{share:>14.0%}" for share in SHARES)]
    for label, by_share in found.items():
        cells = [by_share.get(str(share)) for share in SHARES]
        lines.append(f"{label:36}" + "".join(f"{'':>14}" if cell is None else _cell(cell) for cell in cells))
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):8.3f} ±{spread:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("corpus")
    for name, value in (("texts", 64), ("test", 400), ("seeds", 3), ("draws", 9)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    result = run(
        asked.model, asked.corpus, texts=asked.texts, test=asked.test, seeds=asked.seeds, draws=asked.draws,
        say=lambda line: print(line, flush=True),
    )  # fmt: skip
    print(table(result["found"]))
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
