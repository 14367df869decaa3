"""Random tokens, once and again: what a head reads at the second time that a token comes, and without a first time."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Recorder, Site
from lorgnette.errors import UserError
from lorgnette.lens.roles.formulas import after_same_word, same_word
from lorgnette.subject import Subject

REPEATED = ("induction", "duplicate", "previous")
FEWEST = 4


@dataclass(frozen=True)
class RepeatedSequences:
    """Some random tokens twice, and the control: the same second half behind other tokens, so that nothing repeats."""

    repeated: Int[Tensor, "sequence token"]
    control: Int[Tensor, "sequence token"]
    inner: slice
    """where the random tokens are; what the tokenizer puts around a text is outside"""

    def pairs(self) -> dict[str, Bool[Tensor, "sequence query key"]]:
        """The pairs that each test is about; those of the control stand at the same places."""
        ids = self.repeated.clone()
        ids[:, : self.inner.start] = ids[:, self.inner.stop :] = -1
        outside = ids < 0
        ids = torch.where(outside, -1 - torch.arange(ids.shape[1]), ids)  # a special token repeats nothing
        earlier = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril(-1)
        before = torch.zeros_like(earlier)
        before[1:, :-1] = torch.eye(ids.shape[1] - 1, dtype=torch.bool)
        inside = ~outside[:, :, None] & ~outside[:, None, :]
        return {
            "induction": after_same_word(ids) & inside,
            "duplicate": same_word(ids, ids, itself=False) & earlier & inside,
            "previous": before & inside,
        }


def sequences(subject: Subject, count: int, length: int, seed: int) -> RepeatedSequences:
    """`count` sequences of `length` different random tokens and the same again, as the tokenizer closes a text."""
    tokenizer = subject.tokenizer
    specials = tokenizer("")["input_ids"]
    behind = len(specials) // 2 if len(specials) > 1 else int(specials[-1:] == [tokenizer.eos_token_id])
    front, back = specials[: len(specials) - behind], specials[len(specials) - behind :]
    table = subject.model.get_input_embeddings()
    size = min(len(tokenizer), table.weight.shape[0] if table is not None else len(tokenizer))
    plain = torch.tensor([number for number in range(size) if number not in set(tokenizer.all_special_ids)])
    room = length if subject.limit is None else min(length, (subject.limit - len(specials)) // 2)
    room = min(room, len(plain) // 2)
    if room < FEWEST:
        raise UserError(f"{subject.name!r} takes too few tokens for synthetic tests: expected at least {2 * FEWEST}.")
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.stack([plain[torch.randperm(len(plain), generator=generator)[: 2 * room]] for _ in range(count)])
    first, other = drawn[:, :room], drawn[:, room:]
    ends = [torch.tensor(ids, dtype=torch.int64).expand(count, -1) for ids in (front, back)]
    repeated, control = (torch.cat([ends[0], half, first, ends[1]], 1) for half in (first, other))
    return RepeatedSequences(repeated, control, slice(len(front), len(front) + 2 * room))


def repeat_scores(subject: Subject, made: RepeatedSequences) -> dict[Site, Float[Tensor, "sequence head test both"]]:
    """Mean weight on the pairs of each test, of the repeated sequences and of their control, for every self-attention.

    The control of `previous`, which random tokens have as well, is an even share of what a query sees.
    """
    pairs = made.pairs()
    scores = [_scores(subject, ids, pairs) for ids in (made.repeated, made.control)]
    out = {}
    for site, own in scores[0].items():
        control = scores[1][site].clone()
        control[..., REPEATED.index("previous")] = own[..., -1]
        out[site] = torch.stack([own[..., :-1], control[..., :-1]], -1)
    return out


def _scores(
    subject: Subject, ids: Int[Tensor, "sequence token"], pairs: dict[str, Bool[Tensor, "sequence query key"]]
) -> dict[Site, Float[Tensor, "sequence head test"]]:
    """The three scores, and behind them the even share of the previous token."""
    masks = torch.stack([pairs[name] for name in REPEATED], -1)
    counted_queries = masks.any(2)

    def measured(call: Call) -> Tensor:
        weights = call.weights.cpu().double()
        before = weights.shape[2] - masks.shape[1]  # the token that a decoder starts with
        each = torch.einsum("bhqk,bqkt->bhqt", weights[:, :, before:, before:], masks.double())
        visible = call.scores.visible_keys().cpu().expand(weights.shape).sum(-1).clamp(min=1)  # [sequence head query]
        each = torch.cat([each, (1.0 / visible[..., before:].double())[..., None]], -1)
        counted = torch.cat([counted_queries, counted_queries[..., -1:]], -1).double()[:, None]
        return (each * counted).sum(2) / counted.sum(2)

    recorder = Recorder(measured, [site for site in subject.sites if site.kind == "self"])
    inputs = {"input_ids": ids.to(subject.device), "attention_mask": torch.ones_like(ids, device=subject.device)}
    if subject.encoder.translates:
        start = torch.full_like(inputs["input_ids"][:, :1], subject.encoder.decoder_start)
        inputs["decoder_input_ids"] = torch.cat([start, inputs["input_ids"]], 1)
    with torch.no_grad(), subject.tapped(recorder):
        subject.model(**inputs)
    return recorder.records
