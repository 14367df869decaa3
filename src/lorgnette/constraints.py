"""What an option may be, said in its annotation and checked in one place.

    by: Literal["text", "token"] = "text"
    draws: Annotated[int, Interval(1)] = 20
    shares: Annotated[Sequence[Annotated[float, Interval(0, 1, "neither")]], NotEmpty()] = (0.25, 0.5)

`check` refuses a value that does not fit, and `expected` says in words what fits: in error messages and in help.
`checked` does so for all arguments of a function.
"""

import inspect
import math
import operator
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from lorgnette.errors import UserError, listed, near, shown


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`; `closed` says which ends belong to it. Neither NaN nor infinity is ever inside."""

    low: float | int
    high: float | int = math.inf
    closed: Literal["both", "left", "right", "neither"] = "both"

    def holds(self, value: object) -> bool:
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:
            return False
        above = number >= self.low if self.closed in ("both", "left") else number > self.low
        below = number <= self.high if self.closed in ("both", "right") else number < self.high
        return above and below and math.isfinite(number)

    def __str__(self) -> str:
        above = "of at least" if self.closed in ("both", "left") else "above"
        if self.high == math.inf:
            return f"{above} {self.low:g}"
        if self.closed == "both":
            return f"from {self.low:g} to {_number(self.high)}"
        return f"{above} {self.low:g} and {'at most' if self.closed == 'right' else 'below'} {_number(self.high)}"


class OneOf:
    """A string among these names."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def holds(self, value: object) -> bool:
        return value in self.names


class NotEmpty:
    """A list with at least one value."""

    def holds(self, value: object) -> bool:
        return bool(listed(value))


Constraint = Interval | OneOf | NotEmpty
Seed = Annotated[int, Interval(0, 2**32 - 1)]
"""NumPy's seeds have 32 bits."""
Share = Annotated[float, Interval(0, 1, "neither")]


def check(value: object, annotation: object, name: str) -> None:
    """Refuse a value that its annotation excludes; `name` is the option as the user knows it."""
    if not fits(value, annotation):
        raise UserError(f"{name} must be {expected(annotation)}. Got {shown(value)} instead.{_hint(value, annotation)}")


Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def checked(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """The function, with arguments that their annotations exclude refused by name; quoted annotations are not read."""
    signature = inspect.signature(function)

    @wraps(function)
    def called(*given: Given.args, **named: Given.kwargs) -> Answer:
        for name, value in signature.bind(*given, **named).arguments.items():
            parameter = signature.parameters[name]
            if parameter.annotation is inspect.Parameter.empty:
                continue
            each = value if parameter.kind is inspect.Parameter.VAR_KEYWORD else {name: value}
            for key, one in each.items():
                check(one, parameter.annotation, key)
        return function(*given, **named)

    return called


def _hint(value: object, annotation: object) -> str:
    """The known word nearest to one that is not, alone or in a list."""
    kinds = members(annotation)
    if not isinstance(value, str):
        kinds = tuple(get_args(bare)[0] for kind in kinds if is_list(bare := plain(kind)[0]))
    known = [name for kind in kinds for name in _choices(kind) if isinstance(name, str)]
    given = [value] if isinstance(value, str) else (listed(value) or []) if known else []
    wrong = [word for word in given if isinstance(word, str) and word not in known]
    return near(wrong[0], known) if wrong else ""


def fits(value: object, annotation: object) -> bool:
    """Whether a value is of a type, and within its constraints."""
    if annotation is Any or annotation is object:
        return True
    if annotation is None or annotation is type(None):
        return value is None
    if (origin := get_origin(annotation)) is not None:
        return _fits_generic(value, annotation, origin)
    if annotation is int:
        return not isinstance(value, bool) and _succeeds(operator.index, value)
    if annotation is float:
        return not isinstance(value, str | bytes | bool) and _succeeds(float, value) and math.isfinite(float(value))  # type: ignore[arg-type]
    if annotation is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")  # NumPy's, which is not loaded here
    if annotation is Path:
        return isinstance(value, str | os.PathLike)
    return not isinstance(annotation, type) or isinstance(value, annotation)


def _fits_generic(value: object, annotation: object, origin: object) -> bool:
    inner = get_args(annotation)
    if origin is Annotated:
        rules = (rule for rule in inner[1:] if isinstance(rule, Constraint))
        return fits(value, inner[0]) and (value is None or all(rule.holds(value) for rule in rules))
    if origin in (Union, types.UnionType):
        return any(fits(value, member) for member in inner)
    if origin is Literal:
        return any(_is_same_type(value, each) and value == each for each in inner)
    if is_list(annotation):
        values = None if isinstance(value, str | bytes | Mapping | Iterator) else listed(value)
        of_several_types = origin is tuple and Ellipsis not in inner
        return values is not None and (of_several_types or all(fits(each, inner[0]) for each in values))
    return not isinstance(origin, type) or isinstance(value, origin)


def _is_same_type(value: object, other: object) -> bool:
    return isinstance(value, type(other)) and isinstance(value, bool) is isinstance(other, bool)


def _succeeds(function: Callable[..., object], value: object) -> bool:
    try:
        function(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def expected(annotation: object, *, as_text: bool = False) -> str:
    """What fits, in words; `as_text` as it is written on the command line, where lists stand between plus signs."""
    said: list[str] = []
    for member in members(annotation):
        bare, rules = plain(member)
        if is_list(bare):
            said.append(_list(bare, NotEmpty in map(type, rules), as_text))
        elif choices := _choices(member):
            said += [str(each).lower() if as_text else repr(each) for each in choices]
        elif bare in _WORDS or not as_text:
            said.append(" ".join([_word(bare), *map(str, rules)]))
    return _either(dict.fromkeys(said))


_WORDS: dict[object, str] = {
    int: "a whole number", float: "a number", str: "a word", Path: "a path", os.PathLike[str]: "a path",
}  # fmt: skip
_SEVERAL: dict[object, str] = {int: "whole numbers", float: "numbers", str: "words"}


def _choices(annotation: object) -> tuple[object, ...]:
    """The values of a type that has only few."""
    bare, rules = plain(annotation)
    if get_origin(bare) is Literal:
        return get_args(bare)
    if bare is None or bare is type(None):
        return (None,)
    return (
        (True, False)
        if bare is bool
        else tuple(name for rule in rules if isinstance(rule, OneOf) for name in rule.names)
    )


def _word(kind: object) -> str:
    return _WORDS.get(kind) or str(getattr(get_origin(kind) or kind, "__name__", kind))


def _list(annotation: object, some: bool, as_text: bool) -> str:
    (one, *_) = get_args(annotation)
    bare, rules = plain(one)
    choices = [str(each) if as_text else repr(each) for each in _choices(one)]
    several = f"any of {', '.join(choices)}" if choices else " ".join([_SEVERAL.get(bare, "values"), *map(str, rules)])
    if as_text:
        return f"{several}{',' if rules or choices else ''} between +"
    return f"a list of {several}{', not an empty one' if some else ''}"


def members(annotation: object) -> tuple[object, ...]:
    """The members of a union; of any other type, itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for each in get_args(annotation) for member in members(each))
    if get_origin(annotation) is Annotated and len(parts := members(get_args(annotation)[0])) > 1:
        return tuple(Annotated[each, *get_args(annotation)[1:]] if each is not type(None) else each for each in parts)
    return (annotation,)


def plain(annotation: object) -> tuple[object, tuple[Constraint, ...]]:
    """A type without its constraints, and the constraints."""
    if get_origin(annotation) is not Annotated:
        return annotation, ()
    inner, *rules = get_args(annotation)
    return inner, tuple(rule for rule in rules if isinstance(rule, Constraint))


def is_list(annotation: object) -> bool:
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin is not str


def _either(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _number(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
