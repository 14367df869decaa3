"""Accuracy and loss of the whole model, beside whatever lenses look at a classifier."""

from collections.abc import Mapping, Sequence

from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.losses import classifies
from lorgnette.lens.whole_model import WholeModel
from lorgnette.looking.driver import looks
from lorgnette.looking.texts import TokenizedTexts


def whole_model(texts: TokenizedTexts, lenses: Sequence[Lens], labels: Mapping[str, str] | None) -> list[WholeModel]:
    """The lens that measures both, on labelled texts; labels that a lens uses must match the classes by name."""
    needed = bool(labels) or any("labels" in lens.reads for lens in lenses)
    runs = any(looks(lens) and "tokens" not in lens.reads for lens in lenses)
    if not needed and not (runs and classifies(texts.subject)):
        return []
    try:
        texts.match_labels(labels)
    except UserError:
        if needed:
            raise
        return []  # the labels are not this model's: it has no accuracy on them
    if not needed:
        texts.classes = None  # no lens uses them: labels of other classes only mean that there is no accuracy
    return [WholeModel()] if classifies(texts.subject) else []
