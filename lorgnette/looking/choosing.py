"""All lenses that can look at a model and a corpus."""

from collections.abc import Callable, Mapping
from itertools import islice

from lorgnette import lens as lenses
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.texts import TokenizedTexts
from lorgnette.subject import Subject
from lorgnette.texts.encoding import Encoded

_FEW = 4  # texts on which every lens is tried


def every_lens(
    texts: TokenizedTexts,
    labels: Mapping[str, str] | None,
    attempt: Callable[[Subject, list[Encoded], Lens], None],
) -> tuple[list[Lens | str], dict[str, str]]:
    """The names of all lenses that can look at this model and these texts, and why the others cannot.

    Each is tried on a few texts. What it lacks may also be missed only when it concludes: `look` leaves it out then.
    """
    if texts.once:
        raise UserError("All lenses go through the corpus more than once. Give a Corpus or a list of texts.")
    first = list(islice((text for text in texts if len(text.source) > 0), _FEW))
    fit: list[Lens | str] = []
    left_out: dict[str, str] = {}
    made = {name: lenses.get(name) for name in lenses.registered()}
    for name, lens in sorted(made.items(), key=lambda item: not item[1].looks):  # what is made from others comes last
        try:
            if lens.uses_labels:
                texts.match_labels(labels)
            if lens.looks:
                attempt(texts.subject, first, lens)
            elif missing := [need for need in lens.needs() if isinstance(need, str) and need not in fit]:
                raise UserError(f"it is made from {', '.join(missing)}")
            fit.append(name)
        except UserError as error:
            left_out[name] = str(error)
    return fit, left_out
