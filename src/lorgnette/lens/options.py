"""Options of lenses as text, everywhere the same: `norms:sample=0,by=token`, `rationales:methods=attnlrp+ah`.

Names, types and defaults are those of the lens's own signature; lenses stand between commas, and a part with an equals
sign belongs to the lens before it. Several values of one option stand between plus signs.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin, get_type_hints

from lorgnette.constraints import expected, is_list, members, plain
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
    """The options of a lens, with their defaults; annotations are types, with what they allow."""
    own = list(inspect.signature(kind.__init__).parameters.values())[1:]
    try:
        hints = get_type_hints(kind.__init__, include_extras=True)
    except NameError:  # a type that a lens of somebody else imports for type checkers alone
        hints = {}
    return {each.name: each.replace(annotation=hints.get(each.name, object)) for each in own}


def shown(value: object) -> str:
    """A value as it is written in an option."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _value(kind: "type[Lens]", name: str, text: str, parameter: inspect.Parameter) -> Value:
    """The written value as the first type of the option that can be read from it; the lens checks its bounds."""
    kinds = [plain(member)[0] for member in members(parameter.annotation)]
    lists = [each for each in kinds if is_list(each)]
    if text == "none" and (type(None) in kinds or lists):
        return None if type(None) in kinds else ()
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    for number in (int, float):
        if number in kinds or any(isinstance(each, number) for each in _literals(kinds)):
            try:
                return number(text)
            except ValueError:
                continue
    words = {str, Path, object} & set(kinds) or _literals(kinds)
    if lists and (not words or "+" in text):
        parts = [part.strip() for part in text.split("+")]
        one = plain(get_args(lists[0])[0])[0]
        try:
            return tuple(map(int, parts)) if one is int else tuple(map(float, parts)) if one is float else tuple(parts)
        except ValueError:
            words = set()
    if words:
        return text
    wanted = expected(parameter.annotation, as_text=True) or "only for Python"
    raise UserError(f"The option {name!r} of the lens {kind.name!r} must be {wanted}. Got {text!r} instead.")


def _literals(kinds: list[object]) -> list[object]:
    return [value for each in kinds if get_origin(each) is Literal for value in get_args(each)]
