"""The fields of a dataclass as the options of a command."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from lorgnette.constraints import Interval, is_list, members, plain
from lorgnette.errors import UserError
from lorgnette.texts.labels import mapping_of
from lorgnette.training.settings import MOST, Shown, TrainingSettings

Kind = TypeVar("Kind")
Field = dataclasses.Field[Any]


def unpacked(command: Callable[..., None]) -> Callable[..., None]:
    """A parameter that is a dataclass becomes its fields: each, with its annotation, is an option of the command."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, object] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        alone = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])]
        options += alone if group is None else _options(group, command.__name__).values()

    def called(**given: object) -> None:
        for name, group in groups.items():
            given[name] = _made(group, {each: given.pop(each) for each in _options(group, command.__name__)})
        command(**given)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    called.__annotations__ = {option.name: option.annotation for option in options}
    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return called


def _options(kind: Any, command: str) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass that a command shows: what it needs first, then what is its own, then the rest."""
    fields, out = dataclasses.fields(kind), {}
    needed = [each for each in fields if each.default is each.default_factory is dataclasses.MISSING]
    own = [each for each in fields if each.name in inspect.get_annotations(kind)]
    for field in dict.fromkeys((*needed, *own, *fields)):
        annotation = _option(field, command)
        if annotation is not None:
            default = inspect.Parameter.empty if field in needed else None if _is_words(field.type) else field.default
            way = inspect.Parameter.KEYWORD_ONLY
            out[field.name] = inspect.Parameter(field.name, way, default=default, annotation=annotation)
    return out


def _option(field: Field, command: str) -> object:
    """What typer needs to know of a field; None for one that the command does not show."""
    shown = _said(field, Shown)
    if shown is None:
        return None if _said(field, ParameterInfo) is None else field.type
    if shown.only not in (None, command):
        return None
    if not shown.panel:
        return Annotated[str, typer.Argument(help=shown.help, callback=_known_folder)]
    return Annotated[_typed(field.type), _named(field, shown)]


def as_in_training(name: str) -> Any:
    """An option that `train` has too, in the same words."""
    field = TrainingSettings.__dataclass_fields__[name]
    shown = _said(field, Shown)
    assert shown is not None
    return _named(field, shown)


def _said(field: Field, kind: type[Kind]) -> Kind | None:
    """The metadata in a field's annotation."""
    return next((each for each in getattr(field.type, "__metadata__", ()) if isinstance(each, kind)), None)


def _named(field: Field, shown: Shown) -> Any:
    return typer.Option(
        *(shown.names or (_flag(field),)),
        help=shown.help,
        rich_help_panel=shown.panel,
        metavar=shown.metavar if _is_words(field.type) else _metavar(field.type, shown.metavar),
        envvar=shown.variable,
        show_default=shown.default or True,
    )


def _known_folder(name: str) -> str:
    """A slip in a path is said at once; a name may be that of a preset."""
    from lorgnette.model_names import known

    return known(name) if name.startswith((".", "/", "~")) else name


def _metavar(annotation: object, name: str | None) -> str | None:
    """What stands for a value in the help, with its bounds; the settings refuse what is beyond them."""
    rules = [
        (getattr(bare, "__name__", "value"), rule)
        for bare, constraints in map(plain, members(annotation))
        for rule in constraints
        if isinstance(rule, Interval)
    ]
    if not rules:
        return name
    kind, rule = rules[0]
    above, below = ("<=" if rule.closed in ("both", end) else "<" for end in ("left", "right"))
    if rule.high in (MOST, inf):
        bounds = f"x{above.replace('<', '>')}{rule.low}"
    else:
        bounds = f"{rule.low}{above}x{below}{rule.high}"
    return f"{name or f'<{kind}>'} [{bounds}]"


def _typed(annotation: object) -> Any:
    """The type that typer reads: lists, mappings and choices are words."""
    kinds = [plain(member)[0] for member in members(annotation)]
    if get_args(kinds[0])[1:] == (Any,):  # NAME=VALUE, repeated
        return list[str] | None
    known = next((kind for kind in (bool, int, float, Path) if kind in kinds), str)
    return known | None if type(None) in kinds or _is_words(annotation) else known


def _is_words(annotation: object) -> bool:
    """Whether an option is written as words between commas."""
    kinds = [plain(member)[0] for member in members(annotation)]
    return any(is_list(kind) or get_origin(kind) is Mapping for kind in kinds)


def _flag(field: Field) -> str:
    """The option of a field."""
    shown = _said(field, Shown)
    return shown.names[0].partition("/")[0] if shown and shown.names else f"--{field.name.replace('_', '-')}"


def _made(kind: Any, given: dict[str, object]) -> object:
    """The dataclass of what was given; an error speaks of options, not of fields."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    try:
        return kind(**{name: _read(fields[name], value) for name, value in given.items()})
    except UserError as error:
        said = str(error)
        for name, field in fields.items():
            said = said.replace(f"`{name}`", _flag(field))
        raise UserError(said) from error


def _read(field: Field, value: Any) -> object:
    """What was written, as the field takes it."""
    if not _is_words(field.type):
        return value
    kind = plain(members(field.type)[0])[0]
    if get_origin(kind) is Mapping:
        return dict(map(_assigned, value or ())) if get_args(kind)[1] is Any else mapping_of(value)
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if plain(get_args(kind)[0])[0] is not int:
        return parts
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise UserError(f"`{field.name}` takes whole numbers between commas (0,1,2). Got {value!r} instead.") from None


def _assigned(text: str) -> tuple[str, object]:
    """NAME=VALUE, the value read as JSON where it is JSON (numbers, true, null), else as text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"--set takes NAME=VALUE. Got {text!r} instead.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
