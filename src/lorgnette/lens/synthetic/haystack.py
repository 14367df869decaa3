"""A needle in a haystack: which heads read, in a long text, the token that the model is about to copy out of it.

Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality" (arXiv 2404.15574). The filler and the
needles are made here, from a few words.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.errors import UserError
from lorgnette.subject import Subject
from lorgnette.subject.generation import Generation, generate, refuse_silent

WHO = ("The baker", "The teacher", "A young doctor", "The old farmer", "My neighbour", "A quiet student", "The captain")
DID = ("walked to", "looked at", "wrote about", "painted", "cleaned", "returned to", "talked about", "visited")
WHAT = (
    "the small market",
    "the wooden bridge",
    "the garden",
    "the library",
    "the station",
    "the long road",
    "the shop",
)
WHEN = ("in the morning", "after lunch", "before the rain", "on Sunday", "with a friend", "in the winter", "at night")
NAMES = ("Anna", "Peter", "Maria", "David", "Laura", "Simon", "Clara", "Victor")
CODES = (
    "silver", "tiger", "mountain", "seven", "orange", "violin", "harbor", "pencil", "cloud", "copper", "island",
    "rocket",
)  # fmt: skip
WORDS = 6
"""Words of a needle's answer."""
LEAST_RECALL = 0.5
"""Share of the needle that the model must say for a trial to count, as in the paper's code."""


@dataclass(frozen=True)
class Haystack:
    """A prompt, and where in it the tokens are that should follow."""

    ids: tuple[int, ...]
    start: int
    answer: tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """What came of one haystack: how much of the needle was said, and what every head copied of it."""

    length: int
    depth: int
    recall: float
    copied: dict[Site, Float[Tensor, "head both"]]
    """share of the needle's tokens that the head read as they were said; and, its control, others of the needle"""


def filler(draw: random.Random) -> Iterator[str]:
    """Sentences without end; none has a colon, a name or a code."""
    while True:
        yield f"{draw.choice(WHO)} {draw.choice(DID)} {draw.choice(WHAT)} {draw.choice(WHEN)}."


def haystack(subject: Subject, length: int, depth: int, seed: int) -> Haystack:
    """About `length` tokens of filler with a needle at `depth` percent, and the beginning of the needle behind it."""
    draw = random.Random(f"{length} {depth} {seed}")
    tokenizer = subject.tokenizer
    begin = f"The secret code of {draw.choice(NAMES)} is:"
    code = " ".join(draw.sample(CODES, WORDS))
    sentences: list[str] = []
    for sentence in filler(draw):
        sentences.append(sentence)
        if len(tokenizer(" ".join(sentences), add_special_tokens=False)["input_ids"]) >= length:
            break
    place = round(depth / 100 * len(sentences))
    before = " ".join([*sentences[:place], begin])
    text = " ".join([before, code + ".", *sentences[place:]]) + f"\n\n{begin}"
    cut = tokenizer(text, return_offsets_mapping=True)
    span = (len(before) + 1, len(before) + 1 + len(code))
    inside = [n for n, (start, end) in enumerate(cut["offset_mapping"]) if start < span[1] and end > span[0]]
    ids = tuple(cut["input_ids"])
    return Haystack(_open(subject, ids), inside[0], tuple(ids[number] for number in inside))


def _open(subject: Subject, ids: tuple[int, ...]) -> tuple[int, ...]:
    """Drop the token that closes a text, which would end it before the answer."""
    return ids[:-1] if ids[-1] == subject.tokenizer.eos_token_id else ids


class _LastRows(Tap):
    """The key that every head's last row gives most weight, pass by pass."""

    def __init__(self) -> None:
        self.peaks: dict[Site, list[Tensor]] = {}
        self.keys: dict[Site, list[int]] = {}

    def see(self, call: Call) -> None:
        last = call.query.shape[2] - 1
        row = call.block(rows=slice(last, last + 1))[0, :, 0]
        self.peaks.setdefault(call.site, []).append(row.argmax(-1).cpu())
        self.keys.setdefault(call.site, []).append(row.shape[-1])


def tried(subject: Subject, length: int, depth: int, seed: int) -> Trial:
    """Generate as many tokens as the needle's answer has, and see which heads read each as it is said.

        score_h = |{j in the needle: x_j is said at some step, and h's largest weight is at j then}| / |needle|

    The control counts steps whose largest weight is at another token of the needle, over the number of others.
    """
    made, tap = haystack(subject, length, depth, seed), _LastRows()
    ids = torch.tensor([made.ids], device=subject.device)
    prompt = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    whole = generate(subject, prompt, Generation(len(made.answer)), tap)[0].tolist()
    said = whole[len(made.ids) :]
    recall = len([token for token in set(made.answer) if token in said]) / len(set(made.answer))
    copied = {}
    for site, peaks in tap.peaks.items():
        hits = torch.zeros(len(peaks[0]), len(made.answer))
        others = torch.zeros(len(peaks[0]))
        for step, token in enumerate(said):
            if token in made.answer:
                shift = len(made.ids) + step - tap.keys[site][step]  # a window has lost the first keys
                place = peaks[step] + shift - made.start
                inside = (place >= 0) & (place < len(made.answer))
                at = place.clamp(0, len(made.answer) - 1)
                right = inside & (torch.tensor(made.answer)[at] == token)
                hits[right.nonzero()[:, 0], at[right]] = 1.0
                others += (inside & ~right).float()
        most = len(made.answer)
        copied[site] = torch.stack([hits.mean(-1), others / most / max(1, most - 1)], -1)
    return Trial(length, depth, recall, copied)


def refuse(subject: Subject) -> None:
    """Refuse, in one line, a model that cannot be given a haystack."""
    refuse_silent(subject)
    if not subject.tokenizer.is_fast:
        raise UserError(f"{type(subject.tokenizer).__name__} has no character offsets, which a needle needs.")


def fits(subject: Subject, made: Haystack) -> bool:
    """Whether the model has room for the whole prompt, question included, and for the answer that it generates."""
    return subject.limit is None or len(made.ids) + len(made.answer) <= subject.limit
