"""What the slides say of single items and of BERT's embeddings; bounds fixed before anything of it was measured."""

from typing import Any

import numpy as np

from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import mean_of, paired

EXACT = 1e-5
"""What rounding may leave."""
MOVED = 0.1
"""A shuffle moves a word at least this part of the way that another sentence moves it."""
_SLIDES = "slides, “some counter-intuitive facts” [seed]"
_BLOCKS = "blocks of sentences"


def contexts(cells: Finished) -> list[Claim]:
    out = []
    for cell in cells.of(kind="contexts"):
        out += _of(str(cell.labels["model"]), cell.result)
    return out


def last(result: Any, name: str) -> np.ndarray:
    """A similarity in the last layer, by block."""
    return np.array(result["by_block"][name], dtype=float)[:, -1]


def _of(model: str, result: Any) -> list[Claim]:
    told = "opus" not in model  # the slides speak of BERT, and these are of its make

    def claim(name: str, text: str, estimate: Estimate, bound: Bound, said: str, note: str, *, general: bool) -> Claim:
        public = Published(said, _SLIDES) if told or general else None
        return Claim(id=f"{name}-{model}", text=f"{model}: {text}", estimate=estimate, bound=bound, published=public,
                     note=note, ours=public is None)  # fmt: skip

    same, sentence, alone = (last(result, name) for name in ("same_word", "same_sentence", "alone"))
    moved = (1 - last(result, "order")) / (1 - same)
    gap = float(result["singleton"]["context_gap"])
    out = [
        claim("singleton-linear", "attention over a single item gives its value: the largest difference is rounding",
              Estimate(value=gap), Bound(high=EXACT, of_value=True), "devolves into a linear transformation",
              "every head of every layer, words of one piece without special tokens", general=True),
        claim("singleton-differs", "a word without anything around it is less like itself in a sentence than two of "
              "its occurrences are alike: difference of cosines < 0", paired(alone, same, _BLOCKS), Bound.below(0),
              "sequences and singletons do not behave alike", f"{alone.mean():.3f} against {same.mean():.3f}",
              general=True),
        claim("sentence-like", "last states are more alike within a sentence than for one word in two sentences: "
              "difference of cosines > 0", paired(sentence, same, _BLOCKS), Bound.above(0),
              "behave like sentence representations rather than word embeddings",
              f"{sentence.mean():.3f} against {same.mean():.3f}; unrelated words: {last(result, 'other').mean():.3f}",
              general=False),
        claim("order", f"shuffling the sentence moves a word's last state more than {MOVED:g} of the way to another "
              "sentence", mean_of(moved, _BLOCKS), Bound.above(MOVED), "sensitive to order",
              "(1 − cosine with it in the shuffled sentence) over (1 − cosine with it in another sentence)",
              general=False),
    ]  # fmt: skip
    if result["by_block"]["analogy_state"] is not None:
        state, given = (np.array(result["by_block"][f"analogy_{name}"]) for name in ("state", "input"))
        out.append(
            claim("analogy", "analogies of singular and plural are solved less often by last states than by input "
                  "embeddings", paired(state, given, "blocks of nouns"), Bound.below(0),
                  "not usable for formal analogy",
                  f"{state.mean():.3f} against {given.mean():.3f}; {result['by_block']['analogy_pairs']} nouns",
                  general=False)
        )  # fmt: skip
    return out
