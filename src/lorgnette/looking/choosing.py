"""The lenses of a look: those named, those that they need, or all that work on this model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from lorgnette.errors import UserError, shown
from lorgnette.lens import ALL, get, registered
from lorgnette.lens.base import Lens
from lorgnette.lens.losses import classifies
from lorgnette.lens.whole_model import WholeModel
from lorgnette.looking.driver import looks, refuse_used
from lorgnette.looking.texts import TokenizedTexts
from lorgnette.subject import Subject
from lorgnette.texts.sides import Encoded

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
        raise UserError("Running all lenses reads the corpus more than once. Pass a Corpus or a list of texts.")
    first = list(islice((text for text in texts if len(text.source) > 0), _FEW))
    fit: list[Lens | str] = []
    left_out: dict[str, str] = {}
    for lens in in_order(map(get, registered())):
        name = lens.name
        try:
            if "labels" in lens.reads:
                texts.match_labels(labels)
            if looks(lens):
                attempt(texts.subject, first, lens)
            elif missing := [need for need in lens.needs() if isinstance(need, str) and need not in fit]:
                raise UserError(f"it is computed from {', '.join(missing)}")
            else:
                lens.bind(texts.subject)
            fit.append(name)
        except UserError as error:
            left_out[name] = str(error)
    return fit, left_out


def wants_all(lenses: Sequence[Lens | str] | Lens | str) -> bool:
    parts = (part.strip() for one in _given(lenses) if isinstance(one, str) for part in one.split(","))
    return ALL in parts


def _given(lenses: Sequence[Lens | str] | Lens | str) -> Sequence[Lens | str]:
    given = [lenses] if isinstance(lenses, Lens | str) else lenses
    if not isinstance(given, Sequence) or not all(isinstance(one, Lens | str) for one in given):
        raise UserError(f"lenses must be names or lenses, such as ['weights']. Got {shown(lenses)} instead.")
    return given


def chosen_lenses(lenses: Sequence[Lens | str] | Lens | str) -> list[Lens]:
    """Lenses in the order in which they were given; a name that comes twice counts once."""
    from lorgnette.lens.options import split

    out: list[Lens] = []
    texts: set[str] = set()
    for one in _given(lenses):
        fresh = [one] if isinstance(one, Lens) else [text for text in split(one) if text not in texts]
        texts.update(text for text in fresh if isinstance(text, str))
        out += map(_lens, fresh)
    names = [lens.name for lens in out]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"The lens {twice!r} is listed twice: run one, then the other.")
    return out


def with_needed(lenses: Sequence[Lens]) -> list[Lens]:
    """The lenses, and those from whose results one of them is made in the same pass; each comes after what it needs."""
    return in_order([*needed_by([lens for lens in lenses if not looks(lens)], besides=lenses), *lenses])


def waiting(lenses: Sequence[Lens]) -> list[Lens]:
    """The lenses that need results of the whole corpus before their first batch."""
    return [lens for lens in lenses if looks(lens) and lens.needs()]


def needed_by(lenses: Sequence[Lens], besides: Sequence[Lens] = ()) -> list[Lens]:
    """The lenses that these need, each once; for one that is made from results alone, also what it needs itself."""
    out = {lens.name: lens for lens in besides}
    needing = list(lenses)
    for lens in needing:
        for need in map(_lens, lens.needs()):
            if need.name not in out:
                out[need.name] = need
                needing += [] if looks(need) else [need]
    return list(out.values())[len(besides) :]


def rounds_before(subject: Subject, lenses: Sequence[Lens]) -> list[list[Lens]]:
    """The lenses of each round before this one, bound to the model; each round needs the results of the one before."""
    needed = in_order(needed_by(waiting(lenses)))
    for lens in needed:
        refuse_used(lens, subject)
        lens.bind(subject)
    return [*rounds_before(subject, needed), needed] if needed else []


def in_order(lenses: Iterable[Lens]) -> list[Lens]:
    """Lenses that read batches first, then those made from results, each after those that it needs."""
    there = {lens.name: lens for lens in lenses}
    for lens in there.values():
        _refuse_circle(lens)

    def depth(lens: Lens) -> int:
        if looks(lens):
            return 0
        needs = [there[name] for name in map(_name, lens.needs()) if name in there]
        return 1 + bool(lens.needs()) + max(map(depth, needs), default=0)

    return sorted(there.values(), key=depth)


def _refuse_circle(lens: Lens, path: tuple[str, ...] = ()) -> None:
    """UserError if a lens needs itself, directly or through others."""
    path = (*path, lens.name)
    for need in map(_lens, lens.needs()):
        if need.name in path:
            raise UserError(f"The lens {need.name!r} needs itself: {' needs '.join((*path, need.name))}.")
        _refuse_circle(need, path)


def _name(lens: Lens | str) -> str:
    return lens.partition(":")[0] if isinstance(lens, str) else lens.name


def _lens(lens: Lens | str) -> Lens:
    return get(lens) if isinstance(lens, str) else lens


def whole_model(texts: TokenizedTexts, lenses: Sequence[Lens], labels: Mapping[str, str] | None) -> list[WholeModel]:
    """The lens that measures accuracy and loss, on labelled texts; labels that a lens uses must match the classes."""
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
