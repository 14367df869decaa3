"""A prompt and its answer as tokens: which tokens are in which part, and which are the answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lorgnette.errors import UserError, near
from lorgnette.subject import Subject
from lorgnette.subject.generation import Generation, can_generate, generated
from lorgnette.texts.batch import Batch
from lorgnette.texts.continuation import GENERATED, continued
from lorgnette.texts.example import TEMPLATE, Example
from lorgnette.texts.parts import ANSWERED, written
from lorgnette.texts.sides import Encoded


@dataclass(frozen=True)
class AnsweredPrompt:
    """A prompt in parts with its answer, as tokens."""

    batch: Batch
    """one text: the prompt, and the answer up to its last token"""
    names: tuple[str, ...]
    """the parts of the prompt, in order; one that comes again later is numbered (user, user 2)"""
    part: Int[Tensor, " token"]
    """the number of each token's part; −1 for what the template and the tokenizer add, and for the answer"""
    answer: range
    """where the answer's tokens are"""
    among: tuple[bool, ...]
    """whether each part is one of the sources that are compared"""
    said: str
    """the answer, as its tokens spell it"""

    @property
    def masks(self) -> Bool[Tensor, "part token"]:
        numbers = torch.arange(len(self.names), device=self.part.device)
        return self.part[None] == numbers[:, None]

    @property
    def ids(self) -> Int[Tensor, "1 token"]:
        return self.batch.source.ids


def refuse_silent(subject: Subject) -> None:
    """Refuse a model that does not generate from a prompt, and one whose layers mix tokens without attention."""
    if subject.encoder.translates:
        raise UserError(
            f"sources is for language models, which read prompt and answer as one text. {subject.name!r} is a "
            "translation model: use trace, or explain."
        )
    if not can_generate(subject):
        raise UserError(
            f"sources is for models that generate text. {subject.name!r} ({type(subject.model).__name__}) does not: "
            "load a causal language model with its output head."
        )
    config = subject.model.config
    layers = getattr(config, "num_hidden_layers", len(subject.sites))
    if len(subject.sites) < layers:
        raise UserError(
            f"{subject.name!r} has {layers} layers and only {len(subject.sites)} of them attend: the others would "
            "carry a part that is masked out to the answer all the same. Use a model all of whose layers attend."
        )


def answered_prompt(
    subject: Subject, example: Example, among: Sequence[str] | None = None, generation: Generation | None = None
) -> AnsweredPrompt:
    """The tokens of a prompt with its answer: the part "answer" of the example, or what the model says.

    `among`: names of the sources, or patterns such as "document *"; None is every part but the last, which asks.
    """
    refuse_silent(subject)
    encoded = subject.tokenize(example)
    parts = encoded.source.parts or []
    if ANSWERED not in parts:
        if any(span.name == ANSWERED for span in encoded.example.parts):
            raise UserError(f"The answer to {example.id!r} has no token of its own. Begin it with a space.")
        if not _numbered(parts)[0]:
            raise _unnamed(example)
        encoded = _continued(subject, encoded, generation or Generation(32))
    refuse_shared(subject, encoded.example)
    return tokens_of(subject, encoded, among)


def _unnamed(example: Example) -> UserError:
    return UserError(
        f"The prompt {example.id!r} has no named parts. Name them: lo.prompt(document=…, question=…), or lo.chat."
    )


@dataclass(frozen=True)
class Plan:
    """What it takes to measure a prompt: copies of so many tokens, each with other parts hidden."""

    tokens: int
    copies: int
    answered: bool


def cost(plans: Sequence[Plan]) -> str:
    """What it takes to measure these prompts, in a sentence."""
    answers, copies = sum(not plan.answered for plan in plans), sum(plan.copies for plan in plans)
    tokens = sum(plan.copies * plan.tokens for plan in plans)
    told = f"{answers:,} {'answer' if answers == 1 else 'answers'} to generate, " if answers else ""
    return (
        f"{len(plans):,} {'prompt' if len(plans) == 1 else 'prompts'}: {told}one pass for attention and norms and one "
        f"forward and backward for relevance each, {copies:,} copies with masked parts in all (at most {tokens:,} "
        "tokens, less what copies share)"
    )


def planned(subject: Subject, example: Example, among: Sequence[str] | None = None) -> Plan:
    """What a prompt will take; refused where it cannot be measured, before any pass."""
    refuse_silent(subject)
    encoded = subject.tokenize(example)
    refuse_shared(subject, encoded.example)
    of = encoded.source.parts or []
    is_answered = ANSWERED in of
    names, _ = _numbered(of[: of.index(ANSWERED)] if is_answered else of)
    if not names:
        raise _unnamed(example)
    return Plan(len(of), len(names) + sum(_among(example, names, among)) + 1, is_answered)


def tokens_of(subject: Subject, encoded: Encoded, among: Sequence[str] | None = None) -> AnsweredPrompt:
    """The parts of a text that has its answer."""
    of = encoded.source.parts or []
    said = [place for place, name in enumerate(of) if name in (ANSWERED, GENERATED)]
    example = encoded.example
    if not said:
        raise UserError(f"The prompt {example.id!r} has no answer.")
    answer = range(said[0], said[-1] + 1)
    if answer.start == 0:
        raise UserError(f"The prompt {example.id!r} has no token before the answer, so there is nothing to answer.")
    names, numbers = _numbered(of[: answer.start])
    if not names:
        raise _unnamed(example)
    end = answer.stop
    encoded = replace(encoded, source=encoded.source.at(list(range(end))))
    part = torch.tensor([*numbers, *[-1] * len(answer)], device=subject.device)
    text = str(subject.tokenizer.decode(encoded.source.ids[answer.start :].tolist()))
    return AnsweredPrompt(subject.collate([encoded]), names, part, answer, _among(example, names, among), text)


def _continued(subject: Subject, encoded: Encoded, generation: Generation) -> Encoded:
    """The prompt and what the model says behind it; the tokens are those that it said."""
    trace = generated(subject, encoded.example, generation)
    assert trace.generated is not None
    ids = trace.batch.source.ids[0].tolist()[trace.generated.start :]
    if trace.generated.ended:
        ids = ids[:-1]  # the token that closes the text is no part of the answer
    if not ids:
        raise UserError(f"{subject.name!r} generates nothing after the prompt {encoded.example.id!r}. Give an answer.")
    return continued(subject.encoder, encoded, ids)


def _numbered(of: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """The runs of tokens with one name as parts, and the part of each token; a name that comes again gets a number."""
    names: list[str] = []
    numbers: list[int] = []
    counts: dict[str, int] = {}
    for name, run in groupby(of):
        tokens = len(list(run))
        if name in ("", TEMPLATE):
            numbers += [-1] * tokens
            continue
        counts[name] = counts.get(name, 0) + 1
        numbers += [len(names)] * tokens
        names.append(name if counts[name] == 1 else f"{name} {counts[name]}")
    return tuple(names), numbers


def _among(example: Example, names: Sequence[str], wanted: Sequence[str] | None) -> tuple[bool, ...]:
    if wanted is None:
        return tuple(place < len(names) - 1 or len(names) == 1 for place in range(len(names)))
    patterns = [wanted] if isinstance(wanted, str) else list(wanted)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"The prompt {example.id!r} has no part {pattern!r}.{near(pattern, names)} It has: {', '.join(names)}."
            )
    return tuple(any(fnmatchcase(name, pattern) for pattern in patterns) for name in names)


def refuse_shared(subject: Subject, example: Example) -> None:
    """Refuse a text with a token that has letters of two parts: it could not be hidden with one of them alone."""
    example = written(example, subject.tokenizer)
    text, spans = example.text, example.parts
    owner: list[str | None] = [None] * len(text)
    for span in spans:
        owner[span.start : span.end] = [f"{span.name}\0{span.start}"] * (span.end - span.start)
    if not subject.tokenizer.is_fast:
        raise UserError(f"{type(subject.tokenizer).__name__} has no character offsets, so parts have no tokens.")
    for start, end in subject.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]:
        here = dict.fromkeys(owner[at] for at in range(start, end) if not text[at].isspace() and owner[at] is not None)
        if len(here) > 1:
            first, second = (str(name).partition("\0")[0] for name in list(here)[:2])
            raise UserError(
                f"The parts {first!r} and {second!r} of {example.id!r} share the token {text[start:end]!r}. Put a "
                "space or a line end between them."
            )
