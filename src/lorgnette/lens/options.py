"""Options of lenses as text, everywhere the same: `norms:sample=0,by=token`, `rationales:methods=attnlrp+ah`.

Names, types and defaults are those of the lens's own signature; lenses stand between commas, and a part with an equals
sign belongs to the lens before it. Several values of one option stand between plus signs.
"""

import inspect
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union, get_args, get_origin, get_type_hints

from lorgnette.errors import UserError, near

if TYPE_CHECKING:
    from lorgnette.lens.base import Lens

Value = str | int | float | bool | None | tuple[str, ...] | tuple[int, ...] | tuple[float, ...]


def split(texts: str | Iterable[str]) -> list[str]:
    """Each lens with its options, from "weights,norms:sample=0" or several such texts; what comes twice counts once."""
    out: list[str] = []
    for text in [texts] if isinstance(texts, str) else texts:
        first = True
        for part in filter(None, (part.strip() for part in text.split(","))):
            if "=" in part.partition(":")[0] and not first:
                out[-1] += f"{',' if ':' in out[-1] else ':'}{part}"
            else:
                out.append(part)
            first = False
    return list(dict.fromkeys(out))


def parse(kind: "type[Lens]", text: str) -> dict[str, Value]:
    """The options in "sample=0,by=token" as the lens takes them."""
    known = parameters(kind)
    out: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if name not in known:
            options = f"It has: {', '.join(known)}." if known else "It has none."
            raise UserError(f"The lens {kind.name!r} has no option {name!r}.{near(name, known)} {options}")
        if not equals or not value:
            raise UserError(f"The option {name!r} of the lens {kind.name!r} needs a value: {name}=…")
        out[name] = _value(kind, name, value, known[name])
    return out


def parameters(kind: "type[Lens]") -> Mapping[str, inspect.Parameter]:
    """The options of a lens, with their defaults; annotations are types."""
    hints = get_type_hints(kind.__init__)
    own = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return {each.name: each.replace(annotation=hints.get(each.name, str)) for each in own}


def shown(value: object) -> str:
    """A value as it is written in an option."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _value(kind: "type[Lens]", name: str, text: str, parameter: inspect.Parameter) -> Value:
    members = _members(parameter.annotation)
    lists = [member for member in members if _is_list(member)]
    if text == "none" and (type(None) in members or lists):
        return None if type(None) in members else ()
    if bool in members and text in ("true", "false"):
        return text == "true"
    for number in (int, float):
        if number in members:
            try:
                return number(text)
            except ValueError:
                continue
    if lists and (str not in members or "+" in text):
        return _values(kind, name, text, lists[0])
    if str in members or Path in members:
        return text
    wanted = words(parameter.annotation)
    raise UserError(f"The option {name!r} of the lens {kind.name!r} is {wanted}; got {text!r}.")


def words(annotation: object) -> str:
    """What can be written for an option of this type."""
    named = {_WORDS.get(m, "numbers between +" if get_args(m)[:1] in ((int,), (float,)) else "words between +"): m
             for m in _members(annotation) if m in _WORDS or _is_list(m)}  # fmt: skip
    return " or ".join(named) or "from Python only"


_WORDS: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a word",
                          Path: "a path", type(None): "none"}  # fmt: skip


def _values(
    kind: "type[Lens]", name: str, text: str, member: object
) -> tuple[str, ...] | tuple[int, ...] | tuple[float, ...]:
    parts = [part.strip() for part in text.split("+")]
    number = next((each for each in (int, float) if get_args(member)[:1] == (each,)), None)
    if number is None:
        return tuple(parts)
    try:
        return tuple(map(number, parts))
    except ValueError:
        which = "whole numbers" if number is int else "numbers"
        raise UserError(
            f"The option {name!r} of the lens {kind.name!r} takes {which} separated by +; got {text!r}."
        ) from None


def _members(annotation: object) -> tuple[object, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for each in get_args(annotation) for member in _members(each))
    return (annotation,)


def _is_list(member: object) -> bool:
    origin = get_origin(member) or member
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin is not str
