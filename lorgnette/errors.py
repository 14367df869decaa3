"""What goes wrong because of the input, said in one line."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType


class UserError(Exception):
    """The user's input is wrong: the message says what, what was expected, and what to do.

    The command line prints that one line and exits with status 1; no traceback.
    """


class CaptureError(UserError):
    """A model whose attention cannot be watched exactly."""


def near(name: str, names: Iterable[str]) -> str:
    """The "did you mean" tail of a message: the known name nearest to `name`, or nothing when none is near."""
    by_folded = {known.casefold(): known for known in names}
    found = get_close_matches(name.casefold(), by_folded, n=1)
    return f" Did you mean {by_folded[found[0]]!r}?" if found else ""


def optional(module: str, extra: str) -> ModuleType:
    """A package that only some installations have, or one line that says which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module.split(".")[0]:
            raise  # the package is there, and something that it needs itself is not
        package = module.split(".")[0]
        raise UserError(f"This needs the package {package!r}. Install it: pip install 'lorgnette[{extra}]'") from None
