"""Options for language models: chats, and text that is generated."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lorgnette.explaining import Next
    from lorgnette.subject import Subject
    from lorgnette.subject.generation import Generation
    from lorgnette.subject.trace import Trace
    from lorgnette.texts.corpus import Corpus
    from lorgnette.texts.example import Example

_PANEL = "Language models"

Generate = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Generate N tokens and analyse them together with the text.", rich_help_panel=_PANEL
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(help="Sample at this temperature.", show_default="greedy", rich_help_panel=_PANEL),
]
TopK = Annotated[int | None, typer.Option(min=1, help="Sample from the K most likely tokens.", rich_help_panel=_PANEL)]
TopP = Annotated[
    float | None,
    typer.Option(help="Sample from the most likely tokens whose probabilities add up to P.", rich_help_panel=_PANEL),
]
Seed = Annotated[int, typer.Option(help="Random seed for sampling.", rich_help_panel=_PANEL)]
Chat = Annotated[
    bool,
    typer.Option(
        "--chat", help="Treat TEXT as a user message and apply the model's chat template.", rich_help_panel=_PANEL
    ),
]
System = Annotated[str | None, typer.Option(help="With --chat: the system message.", rich_help_panel=_PANEL)]
Said = Annotated[
    str | None,
    typer.Option(help="With --explain: the token to explain.", show_default="the most likely", rich_help_panel=_PANEL),
]
InsteadOf = Annotated[
    str | None, typer.Option(help="With --explain: the token to contrast it with.", rich_help_panel=_PANEL)
]
At = Annotated[
    int | None,
    typer.Option(
        min=2,
        metavar="N",
        help="With --explain: the position to explain, the Nth token of prompt and continuation.",
        show_default="after the text",
        rich_help_panel=_PANEL,
    ),
]


def generation(
    tokens: int | None, temperature: float | None, top_k: int | None, top_p: float | None, seed: int
) -> "Generation | None":
    """How to go on with the text; None if nobody asked for it."""
    if tokens is None:
        if (temperature, top_k, top_p) != (None, None, None):
            raise typer.BadParameter("--temperature, --top-k and --top-p go with --generate.")
        return None
    from lorgnette.subject.generation import Generation

    return Generation(tokens, temperature, top_k, top_p, seed)


def example(
    subject: "Subject",
    text: str,
    pair: str | None,
    *,
    target: str | None,
    image: Path | None,
    chat: bool,
    system: str | None,
) -> "Example":
    """What is to be looked at: a text, a pair, a text with a picture, or a chat of one message."""
    if not chat:
        if system is not None:
            raise typer.BadParameter("--system goes with --chat.")
        return subject.example(text, pair, target=target, image=image)
    if pair is not None or target is not None:
        raise typer.BadParameter("--chat is for one text, without PAIR and --target.")
    from lorgnette.texts import parts

    said = [] if system is None else [{"role": "system", "content": system}]
    made = parts.chat([*said, {"role": "user", "content": text}])
    return replace(made, image=None if image is None else subject.example(text, image=image).image)


def explained(class_name: str | None, said: str | None, instead_of: str | None, at: int | None) -> "str | Next | None":
    """What is to be explained: a class by its name, or a token of a language model."""
    if (said, instead_of, at) == (None, None, None):
        return class_name
    if class_name is not None:
        raise typer.BadParameter("--class is for classifiers; --said, --instead-of and --at for language models.")
    from lorgnette.explaining import Next

    return Next(said, instead_of, None if at is None else at - 1)


def shares(trace: "Trace", stack: str) -> Iterator[str]:
    """The mean share of weight that each part of the text gets from each, over all heads.

    A part that attends to nothing but itself, such as the beginning of a causal model's text, is left out.
    """
    from lorgnette.figures.cells import weight
    from lorgnette.subject.by_part import by_part

    shares_by_part = by_part(trace, stack=stack).mean(("layer", "head"))
    for part in shares_by_part["query_part"].values:
        row = shares_by_part.sel(query_part=part)
        present = [name for name in row["key_part"].values if row.sel(key_part=name) > 0.005]
        if set(present) - {part}:
            named = (f"{name} {weight(float(row.sel(key_part=name)))}" for name in present)
            yield f"  {part} attends to: {', '.join(named)}"


def chats(texts: "Corpus") -> "Corpus":
    """The texts of a corpus as chats."""
    from lorgnette.texts.parts import chatting

    return chatting(texts)


def by_speaker(lens: str, chat: bool) -> dict[str, tuple[str, ...]]:
    """What tells a lens who speaks, if it can be told by it."""
    from lorgnette.texts.parts import SPEAKERS

    return {"parts": SPEAKERS} if chat and lens.partition(":")[0] in ("weights", "norms") else {}
