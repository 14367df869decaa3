"""What commands ask for, each in the same words everywhere."""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli.fields import as_in_training

if TYPE_CHECKING:
    from lorgnette.subject import Subject

_MODEL, _CORPUS, _RUN = "The model", "The corpus", "The run"


def _known_model(name: str) -> str:
    """A slip is said at once, before anything heavy is imported."""
    from lorgnette.model_names import known

    return known(name)


def _known_models(names: list[str]) -> list[str]:
    return [_known_model(name) for name in names]


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

Packed = Annotated[
    bool,
    typer.Option(
        "--packed",
        help="Keep the blocks of a GGUF file, where transformers has a kernel for them.",
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
    packed: Packed = False

    def load(self, model: str) -> "Subject":
        from lorgnette.subject import load

        return load(model, **vars(self))


Corpus = Annotated[str, as_in_training("corpus")]
Split = Annotated[str | None, typer.Option(help="The split of the corpus.", rich_help_panel=_CORPUS)]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Use only the first N texts.", rich_help_panel=_CORPUS, metavar="N")
]
Data = Annotated[Path | None, as_in_training("data")]
LabelColumn = Annotated[str | None, as_in_training("label_column")]
Labels = Annotated[str | None, as_in_training("labels")]
WordsColumn = Annotated[str | None, typer.Option(help="The column with the list of words.", rich_help_panel=_CORPUS)]
RationaleColumn = Annotated[
    str | None,
    typer.Option(help="The column with 0 or 1 for each word (1: part of the rationale).", rich_help_panel=_CORPUS),
]
TextColumn = Annotated[str, as_in_training("text_column")]
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
Resume = Annotated[bool, as_in_training("resume")]
Shard = Annotated[
    str | None,
    typer.Option(
        help="Analyse this share of the texts (3/64: the third of 64) and write it to --out; `merge` joins all shares.",
        metavar="I/N",
        rich_help_panel=_RUN,
    ),
]
First = Annotated[
    Path | None,
    typer.Option(
        help="For a later round of shards: the folder that `merge` wrote from the round before.",
        metavar="RUN",
        rich_help_panel=_RUN,
    ),
]
BatchTokens = Annotated[int, typer.Option(min=1, metavar="N", help="Tokens per batch.", rich_help_panel=_RUN)]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.", rich_help_panel=_RUN)]


def command_line() -> str:
    """The command as it was typed, for the provenance."""
    return shlex.join(["lorgnette", *sys.argv[1:]])
