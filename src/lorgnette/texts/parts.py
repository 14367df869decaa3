"""Texts in named parts: a chat by who speaks, a prompt by what its parts are for.

A part's name is a kind of token: `tokens.categories["user"]` says which tokens the user spoke, beside cls, sep and the
other kinds. A pair has the parts "text" and "pair".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from lorgnette.constraints import check
from lorgnette.errors import UserError, outside, refuse_no_mapping, shown
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import TEMPLATE, Example, Span
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.types import Json, ProcessorMixin

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PAIR = ("text", "pair")
SPEAKERS = ("system", "user", "assistant", TEMPLATE)
"""The usual roles in a chat."""
MESSAGES, ANSWER = "messages", "answer"
"""The keys in `extra` for a chat's messages and answer, until the template formats them."""
ANSWERED = "answer"
"""The part of a text that is the answer to its prompt."""
Message = Mapping[str, str]
_PARTS = "parts"


def prompt(parts: Mapping[str, str] | None = None, /, *, separator: str = "\n", **more: str) -> Example:
    """One text made of named parts, in order, with a separator between them: an instruction, examples, a question.

        >>> example = lo.prompt(instruction="Translate.", example="cat → chat", question="dog →")
        >>> [part.name for part in example.parts]
        ['instruction', 'example', 'question']

    The name of a part is the category of its tokens. The separator belongs to the part after it.
    """
    check(separator, str, "The separator of a prompt")
    if parts is not None:
        refuse_no_mapping(parts, "The parts of a prompt", "{'document': '…', 'question': '…'}")
    named = {**(parts or {}), **more}
    if not named:
        raise UserError("A prompt needs at least one part: prompt(instruction=…, question=…).")
    text, spans = _joined(named, separator)
    return Example("prompt", text, parts=spans)


def _joined(named: Mapping[str, str], separator: str = "\n") -> tuple[str, tuple[Span, ...]]:
    text, spans = "", []
    for name, part in named.items():
        refuse_name(name)
        if not isinstance(part, str) or not part.strip():
            raise UserError(f"The part {name!r} of a prompt must be a text that is not empty. Got {shown(part)}.")
        start = len(text)
        text += part if not text else f"{separator}{part}"
        spans.append(Span(name, start, len(text)))
    return text, tuple(spans)


def chat(messages: object, *, answer: bool = True, id: str = "chat") -> Example:
    """A chat as one example: messages with `role` and `content`, formatted by the tokenizer's chat template.

        >>> example = lo.chat([{"role": "user", "content": "Who wrote Faust?"}])  # subject.trace(example, generate=20)
        >>> example.text
        'Who wrote Faust?'

    The speaker is a category of token: system, user, assistant, or whatever the roles are called, and "template" for
    what the template adds, including a system message of its own. With `answer`, unless the last message is the
    assistant's, the template opens the assistant's turn. A content may be given in named parts, which are joined by
    line ends: {"role": "user", "content": {"document 1": "…", "question": "…"}}.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise UserError('A chat is a list of messages: [{"role": "user", "content": "…"}, …].')
    said = tuple(_message(message, place) for place, message in enumerate(messages, 1))
    text = "\n".join(message["content"] for message in said)
    return Example(id, text, extra={MESSAGES: said, ANSWER: answer})


def _message(message: object, place: int = 1) -> Json:
    """A message with its content as one text; where that was given in parts, `parts` says where they are."""
    if isinstance(message, Mapping) and isinstance(message.get("content"), Mapping) and message["content"]:
        text, spans = _joined(message["content"])
        message = {**message, "content": text, _PARTS: spans}
    _refuse_message(message, place)
    assert isinstance(message, Mapping)
    return dict(message)


def answered(example: Example, answer: str) -> Example:
    """A prompt with its answer behind it, as the part "answer": one text, which is cut into tokens as a whole.

    To a chat the answer is added as the assistant's message; to any other text as it is typed, without a space.
    """
    if not isinstance(answer, str) or not answer.strip():
        raise UserError(f"The answer to {example.id!r} is empty. Give a text, or leave it out to let the model answer.")
    if example.extra.get(MESSAGES) is not None and ANSWER in example.extra:
        messages = example.extra[MESSAGES]
        if messages[-1]["role"] == "assistant":
            raise UserError(
                f"The chat {example.id!r} ends with the assistant's message, so there is nothing to answer. Take that "
                "message out of the chat and pass it as the answer."
            )
        said = _message({"role": "assistant", "content": {ANSWERED: answer}})
        text = f"{example.text}\n{answer}"
        return replace(example, text=text, extra={**example.extra, MESSAGES: (*messages, said)})
    if any(span.name == ANSWERED for span in example.parts):
        raise UserError(f"The prompt {example.id!r} has a part called {ANSWERED!r} already. Give it another name.")
    text = example.text + answer
    behind = Span(ANSWERED, len(example.text), len(text))
    return replace(example, text=text, words=None, parts=(*example.parts, behind))


def _refuse_message(message: object, place: int) -> None:
    """Refuse a chat message without a role and a content, both strings."""
    which, expected = f"Message {place} of the chat", 'expected {"role": "user", "content": "…"}'
    if isinstance(message, str):
        raise UserError(f"{which} is a text without a role; {expected}. Got {shown(message)}.")
    if not isinstance(message, Mapping):
        raise UserError(f"{which} is {_kind(message)}; {expected}.")
    for name in ("role", "content"):
        if name not in message:
            raise UserError(f"{which} has no {name}; {expected}.")
        if isinstance(message[name], Example):
            raise UserError(
                f"{which} has a prompt as its {name}, but a chat template takes strings only: pass the text of the "
                "prompt (prompt.text), or trace the prompt without a chat to keep its parts."
            )
        if not isinstance(message[name], str):
            raise UserError(f"{which} has {_kind(message[name])} as its {name}; {expected}.")
    refuse_name(message["role"])


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def chatting(corpus: Corpus) -> Corpus:
    """Every example as a chat: of its `messages` (a column of a table), or of its text as the user's."""

    def read() -> Iterator[Example]:
        for example in corpus:
            messages = example.extra.get(MESSAGES) or [{"role": "user", "content": example.text}]
            _refuse_annotated(example)
            made = chat(messages, answer=False, id=example.id)
            yield replace(example, text=made.text, words=None, extra={**example.extra, **made.extra})

    return corpus.derived(read, "chat")


def _refuse_annotated(example: Example) -> None:
    if any((example.heads, example.relations, example.rationale, example.tags)):
        raise UserError(
            f"The text {example.id!r} has annotations of its words, but a chat template adds words of its own. "
            "Leave out --chat (or lo.chat), or give texts without annotations."
        )


def written(example: Example, tokenizer: "PreTrainedTokenizerBase | ProcessorMixin") -> Example:
    """A chat as the template writes it, with its parts; any other example as it is.

    A picture stands at the beginning of the first message of the user.

    Where the contents stand is proved: the template is written once with marks in their place, and what stands between
    the marks, with the contents put in, must be the whole.
    """
    messages = example.extra.get(MESSAGES)
    if messages is None or ANSWER not in example.extra:
        return example
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"{type(tokenizer).__name__} has no chat template. Pass the prompt as text, or in parts (lo.prompt)."
        )
    _refuse_annotated(example)
    opens, pictured = bool(example.extra[ANSWER]) and messages[-1]["role"] != "assistant", example.image is not None
    marks = [f"\u2063{number}\u2063" for number in range(len(messages))]
    whole = _written(tokenizer, messages, opens, pictured)
    in_marks = [{**message, "content": mark} for message, mark in zip(messages, marks, strict=True)]
    marked = _written(tokenizer, in_marks, opens, pictured)
    for contents in ([m["content"] for m in messages], [m["content"].strip() for m in messages]):
        spans = _filled(marked, marks, contents, [m["role"] for m in messages])
        if spans is not None and "".join(text for _, text in spans) == whole:
            return replace(example, text=whole, words=None, parts=_divided(_placed(spans), messages, contents))
    raise UserError(
        f"The chat template of {type(tokenizer).__name__} rewrites messages, so it is unknown who speaks "
        "where. Write the prompt yourself, in parts: lo.prompt(user=…)."
    )


def _written(
    tokenizer: "PreTrainedTokenizerBase | ProcessorMixin", messages: Sequence[Message], opens: bool, pictured: bool
) -> str:
    said = [{name: value for name, value in m.items() if name != _PARTS} for m in messages]
    if pictured:
        said = _with_picture(said)
    with outside("The chat template cannot be used on these messages", "Give the roles and the order that it takes."):
        return str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=opens))


def _with_picture(messages: Sequence[Message]) -> list[Json]:
    """Contents as processors take them, with the picture before what the user says first."""
    first = next((place for place, message in enumerate(messages) if message["role"] == "user"), None)
    if first is None:
        raise UserError("A chat with a picture needs a message of the user, where the picture stands.")
    typed = [[{"type": "text", "text": message["content"]}] for message in messages]
    typed[first] = [{"type": "image"}, *typed[first]]
    return [{**message, "content": content} for message, content in zip(messages, typed, strict=True)]


def _filled(
    marked: str, marks: Sequence[str], contents: Sequence[str], roles: Sequence[str]
) -> list[tuple[str, str]] | None:
    """Parts in order, by name; None if a content does not come exactly once, in order."""
    out, rest = [], marked
    for mark, content, role in zip(marks, contents, roles, strict=True):
        before, separator, rest = rest.partition(mark)
        if not separator or mark in rest:
            return None
        out += [(TEMPLATE, before), (role, content)]
    return [*out, (TEMPLATE, rest)]


def _placed(parts: Sequence[tuple[str, str]]) -> tuple[Span, ...]:
    out, at = [], 0
    for name, text in parts:
        if text:
            out.append(Span(name, at, at + len(text)))
        at += len(text)
    return tuple(out)


def _divided(spans: Sequence[Span], messages: Sequence[Json], contents: Sequence[str]) -> tuple[Span, ...]:
    """The spans of the messages, each divided into its named parts where it was given in parts."""
    out: list[Span] = []
    said = iter(zip(messages, contents, strict=True))
    for span in spans:
        if span.name == TEMPLATE:
            out.append(span)
            continue
        message, content = next(pair for pair in said if pair[1])  # an empty one has no span
        shift = span.start - message["content"].find(content)  # a template may strip what it is given
        inside = [Span(name, start + shift, end + shift) for name, start, end in message.get(_PARTS, ())]
        clipped = [Span(name, max(start, span.start), min(end, span.end)) for name, start, end in inside]
        out += clipped or [span]
    return tuple(out)


def refuse_name(name: str) -> None:
    if not isinstance(name, str) or not name or name in (*CATEGORIES, TEMPLATE):
        raise UserError(
            f"A part cannot be called {name!r}: that is the name of a category of token. Choose another name."
        )


def parts_of(
    offsets: Sequence[tuple[int, int]], owner: Sequence[int | None], spans: Sequence[Span], text: str
) -> list[str] | None:
    """The part of each piece: the one its last character that is no white space is in; "" for what is added."""
    if not spans and 1 not in owner:
        return None
    if not spans:
        return ["" if number is None else PAIR[number] for number in owner]
    of_character = [""] * len(text)
    for span in spans:
        of_character[span.start : span.end] = [span.name] * (span.end - span.start)
    out = []
    for (start, end), number in zip(offsets, owner, strict=True):
        inside = [at for at in range(start, end) if not text[at].isspace()] or list(range(start, end))
        out.append(of_character[inside[-1]] if number == 0 and inside else "")
    return out


def part_masks(parts: Sequence[Sequence[str] | None], width: int) -> dict[str, Bool[Tensor, "text token"]]:
    """Each part's name as a kind of token, in the order in which they first come."""
    given = [np.array(text or (), dtype=object) for text in parts]
    names = dict.fromkeys(name for text in parts if text for name in text if name)
    masks = {name: torch.zeros(len(parts), width, dtype=torch.bool) for name in names}
    for name, mask in masks.items():
        for row, text in enumerate(given):
            mask[row, : len(text)] = torch.from_numpy((text == name).astype(bool))
    return masks
