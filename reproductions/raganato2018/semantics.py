"""What stands in for semantic tags: the entity type and the information status of the mention that a word heads."""

from dataclasses import replace

from lorgnette.errors import UserError
from lorgnette.texts.example import Example

NONE = "O"
_TYPE, _STATUS = 1, 2
"""Where GUM's Entity brackets hold the type and the status: GRP-etype-infstat-…"""


def with_semantics(example: Example) -> Example:
    """Adds the tags `etype` and `infstat`: of the smallest mention that the word heads, `O` if it heads none.

    The head of a mention is the word that hangs on a word outside of it. A mention that goes on in another sentence,
    or comes in several pieces, is left out.
    """
    if "misc" not in example.extra or example.heads is None or example.words is None:
        raise UserError(f"The text {example.id!r} has no Entity brackets. Give a treebank that has them: 'ud_en_gum'.")
    kinds, statuses = [NONE] * len(example.words), [NONE] * len(example.words)
    # The smallest mention of a word is told last.
    for first, end, parts in sorted(_spans(example.extra["misc"]), key=lambda span: span[0] - span[1]):
        head = next((word for word in range(first, end) if not first <= example.heads[word] - 1 < end), first)
        kinds[head], statuses[head] = parts[_TYPE], parts[_STATUS]
    return replace(example, tags={**example.tags, "etype": tuple(kinds), "infstat": tuple(statuses)})


def _spans(misc: tuple[str, ...]) -> list[tuple[int, int, list[str]]]:
    """(first word, word behind the last, the bracket's parts) of every mention that ends in the sentence."""
    import re

    out: list[tuple[int, int, list[str]]] = []
    open_: list[tuple[int, list[str]]] = []
    for word, column in enumerate(misc):
        value = next((item.removeprefix("Entity=") for item in column.split("|") if item.startswith("Entity=")), "")
        for start, closed, alone in re.findall(r"\(([^()]+)(\)?)|([^()]+)\)", value):
            parts = (start or alone).split("-")
            if "[" in parts[0]:
                continue
            if start and closed:
                out.append((word, word + 1, parts))
            elif start:
                open_.append((word, parts))
            else:
                at = next((i for i in reversed(range(len(open_))) if open_[i][1][0] == parts[0]), None)
                if at is not None:
                    first, opened = open_.pop(at)
                    out.append((first, word + 1, opened))
    return out
