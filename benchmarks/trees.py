"""Trees of every head for a thousand sentences: what they cost beyond the forward pass."""

import random
from collections.abc import Iterator

import torch

from benchmarks.harness import Figure, side_by_side
from benchmarks.shapes import WORDS, subject
from lorgnette.looking.look import look
from lorgnette.looking.texts import TokenizedTexts, batches
from lorgnette.texts.example import Example

SENTENCES, HEADS = 1000, 8
MARIAN_ENCODER = {
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": HEADS,
    "intermediate_size": 2048,
}


def sentences(count: int, seed: int = 0) -> list[Example]:
    """Random trees over random words, as long as English PUD's sentences: 21 words on average, 6 to 50."""
    rng = random.Random(seed)
    out = []
    for number in range(count):
        size = min(50, max(6, round(rng.lognormvariate(2.96, 0.42))))
        order = rng.sample(range(size), size)
        heads = [0] * size
        for place, word in enumerate(order[1:], 1):
            heads[word] = order[rng.randrange(place)] + 1
        relations = ["root" if head == 0 else "dep" for head in heads]
        chosen = tuple(f"w{rng.randrange(WORDS)}" for _ in range(size))
        out.append(Example(f"{number}", " ".join(chosen), words=chosen, heads=tuple(heads), relations=tuple(relations)))
    return out


def trees_over_forward() -> Iterator[Figure]:
    """`look` with `trees` (both ways, layers and baselines too) over the plain `sdpa` pass over the same batches."""
    watched = subject(MARIAN_ENCODER)
    corpus = sentences(SENTENCES)
    encoded = list(batches(TokenizedTexts(watched, corpus), 4096))
    tokens = sum(e.tokens for batch in encoded for e in batch)
    collated = [watched.collate(batch) for batch in encoded]

    def forward() -> None:
        with torch.no_grad():
            for batch in collated:
                watched.run(batch)

    def trees() -> None:
        look(watched, corpus, ["trees"], progress=False)

    ratio = side_by_side(forward, trees, seconds=60, least=2, most=3)
    speed = {"tokens_per_s": round(tokens / ratio.candidate), "sentences": SENTENCES, "heads": 6 * HEADS}
    yield Figure("trees_1000_sentences", ratio.value, 10.0, details=ratio.details(**speed))


BENCHES = {"trees": trees_over_forward}
