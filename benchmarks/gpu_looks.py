"""What every lens costs on a GPU, over the plain sdpa pass of the same batches: the tables of benchmarks/TARGETS.md.

Ratios are of wall-clock times and everything is included: medians of repeats after a first look, which compiles kernels
and is a figure of its own. Weights are random, which costs as much as any.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from benchmarks.harness import Figure
from benchmarks.shapes import BERT_BASE, LLAMA_1B, LLAMA_8B, subject, texts
from lorgnette.errors import UserError
from lorgnette.looking.look import look
from lorgnette.looking.texts import TokenizedTexts, batches
from lorgnette.subject import Subject

DECODER_BOUNDS = {"weights": 1.1, "norms:sample=0": 2.0, "norms": 2.2, "sinks": 1.15, "geometry": 2.0}
DECODER_FEW_BOUNDS = {"weights": 1.4, "norms:sample=0": 2.5, "norms": 3.0, "sinks": 1.5}
LENS_BOUNDS = {
    "sinks": 1.6, "rollout": 3.0, "distances": 30.0, "norms:contribution=true": 5.0, "roles": 4.0, "frequency": 4.0,
    "relevance": 5.0, "gradients": 5.0, "convexity": 3.0, "cones": 3.0, "synthetic": 4.0, "circuits": 4.0,
}  # fmt: skip


def _seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


class Looked:
    """A model with some texts: times of the plain pass and of looks, taken in turn."""

    def __init__(self, watched: Subject, corpus: Any, batch_tokens: int) -> None:
        self.watched, self.corpus, self.batch_tokens = watched, corpus, batch_tokens
        tokenized = TokenizedTexts(watched, corpus)
        self.batches = [watched.collate(some) for some in batches(tokenized, batch_tokens, "cuda")]

    def plain(self) -> None:
        with torch.no_grad():
            for batch in self.batches:
                self.watched.run(batch)

    def look(self, lenses: str) -> None:
        look(self.watched, self.corpus, lenses.split(","), batch_tokens=self.batch_tokens, progress=False)

    def figure(self, name: str, lenses: str, bound: float, repeats: int = 3) -> Figure:
        """The ratio, with the first look, the peak of memory and what is still taken after it."""
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        first = _seconds(lambda: self.look(lenses))
        self.plain()
        pairs = [(_seconds(self.plain), _seconds(lambda: self.look(lenses))) for _ in range(repeats)]
        memory = {
            "gib_before": before, "gib_peak": torch.cuda.max_memory_allocated(),
            "gib_reserved_after": torch.cuda.memory_reserved(),
        }  # fmt: skip
        details = {
            "first_s": round(first, 3),
            "seconds": [(round(plain, 4), round(mine, 4)) for plain, mine in pairs],
            **{key: round(size / 2**30, 2) for key, size in memory.items()},
        }
        return Figure(
            f"{name}_{lenses}", statistics.median(mine / plain for plain, mine in pairs), bound, details=details
        )


def _figures(looked: Looked, name: str, bounds: dict[str, float], repeats: int = 3) -> Iterator[Figure]:
    for lenses, bound in bounds.items():
        try:
            yield looked.figure(name, lenses, bound, repeats)
        except (UserError, torch.OutOfMemoryError) as error:
            yield Figure(f"{name}_{lenses}", float("nan"), bound, details={"refused": str(error)[:200]})


def decoder_8b(
    lengths: Sequence[tuple[int, int]] = ((512, 64), (1024, 64), (2048, 32)), lenses: Sequence[str] = ()
) -> Iterator[Figure]:
    """An 8B decoder: texts of 512, 1,024 and 2,048 tokens in batches of 8,192, then four texts in one batch."""
    watched = subject(LLAMA_8B, longest=4096)
    chosen = lambda bounds: {name: bounds[name] for name in bounds if not lenses or name in lenses}  # noqa: E731
    for tokens, count in lengths:
        yield from _figures(Looked(watched, texts(count, tokens), 8192), f"gpu_8b_{tokens}", chosen(DECODER_BOUNDS))
        few = Looked(watched, texts(4, tokens), 4 * tokens)
        yield from _figures(few, f"gpu_8b_{tokens}_four_texts", chosen(DECODER_FEW_BOUNDS))


def decoder_8b_long() -> Iterator[Figure]:
    """16 texts of 4,096 tokens."""
    looked = Looked(subject(LLAMA_8B, longest=4096), texts(16, 4096), 8192)
    yield from _figures(looked, "gpu_8b_4096", {"weights": 1.2, "norms:sample=0": 2.2})


def decoder_1b() -> Iterator[Figure]:
    """A 1B decoder and one text of 131,072 tokens."""
    looked = Looked(subject(LLAMA_1B, longest=131_072), texts(1, 131_072), 131_072)
    yield from _figures(looked, "gpu_1b_131072", {"weights": 2.0, "norms:sample=0": 5.0}, repeats=1)


def bert_lenses(lenses: Sequence[str] = ()) -> Iterator[Figure]:
    """Lenses on BERT-base with a classifier: 128 texts of 512 tokens, in batches of 64."""
    watched = subject(BERT_BASE, classes=2)
    watched.model.to("cuda", torch.bfloat16)
    looked = Looked(watched, texts(128, 512), 64 * 512)
    bounds = {name: bound for name, bound in LENS_BOUNDS.items() if not lenses or name in lenses}
    yield from _figures(looked, "gpu_bert_128", bounds)


def voita2019() -> Iterator[Figure]:
    """The explanation of Voita et al. over forward and backward, float32."""
    import lorgnette as lo

    watched = subject(BERT_BASE, classes=2)
    watched.model.to("cuda")
    corpus = texts(64, 256)
    batch = watched.collate([watched.tokenize(example) for example in corpus])

    def both() -> None:
        with torch.enable_grad():
            watched.run(batch).logits.sum().backward()
        watched.model.zero_grad()

    lo.explain(watched, corpus, "voita2019")
    both()
    pairs = [(_seconds(both), _seconds(lambda: lo.explain(watched, corpus, "voita2019"))) for _ in range(3)]
    details = {"seconds": [(round(plain, 4), round(mine, 4)) for plain, mine in pairs]}
    yield Figure("gpu_voita2019_64x256", statistics.median(mine / plain for plain, mine in pairs), 4.0, details=details)


LOOKS = {
    "decoder_8b": decoder_8b,
    "decoder_8b_long": decoder_8b_long,
    "decoder_1b": decoder_1b,
    "bert_lenses": bert_lenses,
    "voita2019": voita2019,
}
