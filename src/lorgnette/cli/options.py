"""What commands ask for, each in the same words everywhere."""

import dataclasses
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from lorgnette.constraints import Interval, is_list, members, plain
from lorgnette.errors import UserError
from lorgnette.texts.labels import mapping_of
from lorgnette.training.settings import MOST, Shown

if TYPE_CHECKING:
    from lorgnette.subject import Subject

_MODEL, _CORPUS, _RUN = "The model", "The corpus", "The run"


def _known_model(name: str) -> str:
    """A slip is said at once, before anything heavy is imported."""
    from lorgnette.model_names import known

    return known(name)


def _known_models(names: list[str]) -> list[str]:
    return [_known_model(name) for name in names]


def known_folder(name: str) -> str:
    """The same where a name may be a preset too: only what is written as a path must be there."""
    return _known_model(name) if name.startswith((".", "/", "~")) else name


def _run_folder(folder: Path) -> Path:
    from lorgnette.errors import UserError, near

    if not folder.is_dir():
        beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
        runs = [str(other) for other in beside if (other / "lorgnette.json").is_file()]
        hint = near(str(folder), runs)
        raise UserError(f"There is no results folder {folder}.{hint} `lorgnette look … --out {folder}` creates one.")
    return folder


Model = Annotated[
    str,
    typer.Argument(
        callback=_known_model,
        help="A folder with a model or adapter, a GGUF file, a folder name in LORGNETTE_MODELS, or a hub name.",
        metavar="MODEL",
    ),
]
Models = Annotated[
    list[str],
    typer.Argument(
        callback=_known_models,
        help="A folder with a model or adapter, a GGUF file, a folder name in LORGNETTE_MODELS, or a hub name; or the "
        "checkpoints of one training.",
        metavar="MODEL",
    ),
]
Run = Annotated[Path, typer.Argument(callback=_run_folder, help="A folder written by `look --out`.", metavar="RUN")]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32, float64, bfloat16, float16, or auto (the precision of the checkpoint).",
        rich_help_panel=_MODEL,
        metavar="TYPE",
        show_default="auto on a GPU, else float32",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, cuda:N, mps, or auto (spread over all GPUs, then CPU and disk).",
        rich_help_panel=_MODEL,
        metavar="DEVICE",
        show_default="a GPU if there is one",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(help="A branch, tag or commit of a model on the hub.", rich_help_panel=_MODEL, metavar="REVISION"),
]
Adapter = Annotated[
    str | None,
    typer.Option(help="The folder of a PEFT adapter to apply to the model.", rich_help_panel=_MODEL, metavar="FOLDER"),
]
AllowPickle = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Read weights from pytorch_model.bin. A pickle can run code: use this only for files you trust.",
        rich_help_panel=_MODEL,
    ),
]


@dataclasses.dataclass(frozen=True)
class Opening:
    """How a model is opened: options of every command that loads one."""

    dtype: Dtype = None
    device: Device = None
    allow_pickle: AllowPickle = False
    revision: Revision = None
    adapter: Adapter = None

    def load(self, model: str) -> "Subject":
        from lorgnette.subject import load

        return load(model, **vars(self))


Corpus = Annotated[
    str,
    typer.Option(
        "--corpus",
        "-c",
        help="A file (.txt .csv .tsv .jsonl .parquet .tar .conllu, also .gz .bz2 .xz .zst), several files "
        "('parts/*.parquet'), an address (s3://…), a named corpus, or a data set on the hub.",
        rich_help_panel=_CORPUS,
    ),
]
Split = Annotated[str | None, typer.Option(help="The split of the corpus.", rich_help_panel=_CORPUS)]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Use only the first N texts.", rich_help_panel=_CORPUS, metavar="N")
]
Data = Annotated[
    Path | None,
    typer.Option(envvar="LORGNETTE_DATA", help="The folder with the named corpora.", rich_help_panel=_CORPUS),
]
LabelColumn = Annotated[str | None, typer.Option(help="The column with the label.", rich_help_panel=_CORPUS)]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        help="Maps labels of the corpus to classes of the model where their names differ.",
        metavar="LABEL=CLASS,…",
        rich_help_panel=_CORPUS,
    ),
]
WordsColumn = Annotated[str | None, typer.Option(help="The column with the list of words.", rich_help_panel=_CORPUS)]
RationaleColumn = Annotated[
    str | None,
    typer.Option(help="The column with 0 or 1 for each word (1: part of the rationale).", rich_help_panel=_CORPUS),
]
TextColumn = Annotated[str, typer.Option(help="The column with the text.", rich_help_panel=_CORPUS)]
Paragraphs = Annotated[
    bool,
    typer.Option(
        "--paragraphs",
        help="In a plain text file, treat each paragraph as a text, not each line.",
        rich_help_panel=_CORPUS,
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate",
        help="Truncate texts that are too long for the model (the provenance counts them).",
        rich_help_panel=_CORPUS,
    ),
]

Chat = Annotated[
    bool,
    typer.Option(
        "--chat",
        help="Apply the model's chat template: texts are chats (a column `messages`) or user messages.",
        rich_help_panel=_CORPUS,
    ),
]

Lenses = Annotated[
    list[str] | None,
    typer.Option(
        "--lens",
        "-l",
        help="Lenses to run, with their options: weights,norms:sample=0 …; `all` runs every applicable lens.",
        rich_help_panel=_RUN,
        show_default="weights,norms",
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        help="'texts' keeps the numbers of each text (Parquet, in --out), for paired comparisons and outliers.",
        metavar="texts",
        rich_help_panel=_RUN,
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The folder for the results.", rich_help_panel=_RUN)]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the interrupted run in --out.", rich_help_panel=_RUN)]
Shard = Annotated[
    str | None,
    typer.Option(
        help="Analyse this share of the texts (3/64: the third of 64) and write it to --out; `merge` joins all shares.",
        metavar="I/N",
        rich_help_panel=_RUN,
    ),
]
BatchTokens = Annotated[int, typer.Option(min=1, metavar="N", help="Tokens per batch.", rich_help_panel=_RUN)]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.", rich_help_panel=_RUN)]


def command_line() -> str:
    """What was typed, for provenance."""
    return shlex.join(["lorgnette", *sys.argv[1:]])


def unpacked(command: Callable[..., None]) -> Callable[..., None]:
    """A parameter that is a dataclass becomes its fields: each, with its annotation, is an option of the command."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
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


def _option(field: "dataclasses.Field[object]", command: str) -> object:
    """What typer needs to know of a field; None for one that the command does not show."""
    said = getattr(field.type, "__metadata__", ())
    shown = next((each for each in said if isinstance(each, Shown)), None)
    if shown is None:
        return field.type if any(isinstance(each, ParameterInfo) for each in said) else None
    if shown.only not in (None, command):
        return None
    if not shown.panel:
        return Annotated[str, typer.Argument(help=shown.help, callback=known_folder)]
    named = typer.Option(
        *(shown.names or (_flag(field),)),
        help=shown.help,
        rich_help_panel=shown.panel,
        metavar=shown.metavar if _is_words(field.type) else _metavar(field.type, shown.metavar),
        envvar=shown.variable,
        show_default=shown.default or True,
    )
    return Annotated[_typed(field.type), named]


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


def _flag(field: "dataclasses.Field[object]") -> str:
    """The option of a field."""
    names = [name for each in getattr(field.type, "__metadata__", ()) if isinstance(each, Shown) for name in each.names]
    return names[0].partition("/")[0] if names else f"--{field.name.replace('_', '-')}"


def _made(kind: Any, given: dict[str, Any]) -> object:
    """The dataclass of what was given; an error speaks of options, not of fields."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    try:
        return kind(**{name: _read(fields[name], value) for name, value in given.items()})
    except UserError as error:
        said = str(error)
        for name, field in fields.items():
            said = said.replace(f"`{name}`", _flag(field))
        raise UserError(said) from error


def _read(field: "dataclasses.Field[object]", value: Any) -> object:
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
