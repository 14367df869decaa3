"""What goes wrong because of the input, said in one line."""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType


class UserError(Exception):
    """Invalid input: the message says what is wrong, what was expected, and what to do.

    The command line prints that one line and exits with status 1; no traceback. What a message quotes may have several
    lines (a tensor, a table); the message has one.
    """

    def __str__(self) -> str:
        return " ".join(line.strip() for line in super().__str__().splitlines())


class Unreplayable(Exception):
    """A pass cannot be recorded, or not be replayed for this batch, which then goes through the model as usual."""


class CaptureError(UserError):
    """The attention of a model cannot be captured exactly."""


def near(name: str, names: Iterable[str]) -> str:
    """The "did you mean" tail of a message: the known name nearest to `name`, or nothing when none is near."""
    by_folded = {known.casefold(): known for known in names if known != name}
    close = get_close_matches(name[:256].casefold(), by_folded, n=1)
    return f" Did you mean {by_folded[close[0]]!r}?" if close else ""


def whole_number(value: object, argument: str, *, at_least: int | None = None) -> int:
    """A whole number of any type (NumPy's and torch's too) as an int; a `UserError` that names the argument."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or (at_least is not None and number < at_least):
        least = "" if at_least is None else f", at least {at_least}"
        raise UserError(f"{argument} must be a whole number{least}. Got {shown(value)} instead.")
    return number


def flag(value: object, argument: str) -> bool:
    """True or False, and nothing that may count as one of them."""
    if not isinstance(value, bool):
        raise UserError(f"{argument} must be True or False. Got {shown(value)} instead.")
    return value


def whole_numbers(values: object, argument: str, *, at_least: int | None = None) -> list[int]:
    """Several of them."""
    given = None if isinstance(values, str | bytes | Mapping | Set) else listed(values)
    if given is None:
        raise UserError(f"{argument} must be a list of whole numbers. Got {shown(values)} instead.")
    return [whole_number(value, argument, at_least=at_least) for value in given]


def listed(values: object) -> list[object] | None:
    """The values as a list; None for what has none, such as a tensor of one number."""
    try:
        return list(values)  # type: ignore[call-overload]
    except TypeError:
        return None


def refuse_no_mapping(value: object, argument: str, example: str) -> None:
    """What is no mapping, in the place of one."""
    if not isinstance(value, Mapping):
        raise UserError(f"{argument} must be a mapping, such as {example}. Got {shown(value)} instead.")


def shown(value: object) -> str:
    """A wrong value in a message, cut if it is long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:59]}…"


def optional(module: str, extra: str) -> ModuleType:
    """A package that only some installations have, or one line that says which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module.split(".")[0]:
            raise  # the package is there, and something that it needs itself is not
        package = module.split(".")[0]
        raise UserError(f"This needs the package {package!r}. Install it: pip install 'lorgnette[{extra}]'") from None


@contextmanager
def outside(what: str, to_do: str) -> Iterator[None]:
    """The gate for what comes from outside: what a library throws at it becomes "WHAT: why. TO DO.", with its cause.

    The block holds calls into libraries that read the user's files and values. What such a call throws is the input's
    fault. What is thrown by a line of ours below the block is a bug of ours, and comes out as it is.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # of a GPU, which the input did not choose
            raise
        if _is_our_bug(error.__traceback__):
            raise
        raise UserError(f"{what}: {reason(error)}. {to_do}") from error


_PACKAGE = Path(__file__).parent


def _is_our_bug(traceback: TracebackType | None) -> bool:
    """Whether the error came from a line of this package other than the block itself."""
    frames: list[str] = []
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    behind = frames[2:]  # the gate, then the block: an extension module has no frame of its own
    return bool(behind) and Path(behind[-1]).is_relative_to(_PACKAGE)


LONGEST_REASON = 200
_TERSE: tuple[tuple[type[Exception], Callable[[str], str]], ...] = (
    (KeyError, lambda said: f"there is no {said}"),
    (IndexError, lambda said: f"a number points beyond the end ({said})"),
    (ZeroDivisionError, lambda said: "a division by zero"),
    (RecursionError, lambda said: "it is nested too deeply"),
    (MemoryError, lambda said: "it needs more memory than there is"),
    (UnicodeError, lambda said: f"it is not UTF-8 text ({said})"),
)


def reason(error: BaseException) -> str:
    """What an error says, in one short line without a full stop; its kind where it says nothing by itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = max(lines[:3], key=len).rstrip(".:(") if lines else ""
    said = said if len(said) <= LONGEST_REASON else f"{said[:LONGEST_REASON]} …"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.strerror} ({error.filename})"
    for kind, put in _TERSE:
        if isinstance(error, kind):
            return put(said)
    kind_name = type(error).__name__
    return (
        said if kind_name in ("Exception", "RuntimeError") and said else f"{kind_name}: {said}" if said else kind_name
    )
