"""The commands put together, and how they fail: one line, exit 1; usage 2; interrupted 130."""

import errno
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lorgnette import __version__
from lorgnette.cli import Terminated
from lorgnette.cli.align import align
from lorgnette.cli.check import check
from lorgnette.cli.compare import compare
from lorgnette.cli.demo import demo
from lorgnette.cli.export import export
from lorgnette.cli.induced import induced
from lorgnette.cli.lens import lens
from lorgnette.cli.list import list_
from lorgnette.cli.look import look
from lorgnette.cli.merge import merge
from lorgnette.cli.new import new
from lorgnette.cli.probe import probe
from lorgnette.cli.prune import prune
from lorgnette.cli.rationales import rationales
from lorgnette.cli.report import report
from lorgnette.cli.reproduce import reproduce
from lorgnette.cli.serve import serve
from lorgnette.cli.sources import sources
from lorgnette.cli.stream import stream
from lorgnette.cli.trace import trace
from lorgnette.cli.train import train
from lorgnette.errors import UserError

HELP = """
Analyse self-attention: what each head attends to, how much each token contributes, and which heads can be pruned.

[bold]Start here[/bold]

  lorgnette demo                                    [dim]two models, one report[/dim]
  lorgnette check bert-base-uncased                 [dim]is the model supported?[/dim]
  lorgnette look bert-base-uncased -c texts.txt     [dim]every head, over a corpus[/dim]
  lorgnette trace bert-base-uncased "The cat sat."  [dim]one text, word by word[/dim]
  lorgnette serve bert-base-uncased                 [dim]live, in the browser[/dim]

A model is a folder or a name on the Hugging Face hub. Data goes to stdout, progress to stderr.

Exit status: 0 success, 1 invalid input (one line says what to do), 2 usage error. LORGNETTE_DEBUG=1 shows tracebacks.
"""


class Speaking(TyperGroup):
    """Turns what the user did wrong into one line on stderr."""

    def make_context(self, *given: Any, **options: Any) -> Any:
        """Parsing imports libraries, which takes long enough to be interrupted."""
        try:
            return super().make_context(*given, **options)
        except KeyboardInterrupt as interrupt:
            raise _stopped(interrupt) from interrupt

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            if os.environ.get("LORGNETTE_DEBUG") == "1":
                raise
            print_error(str(error))
            raise typer.Exit(1) from error
        except KeyboardInterrupt as interrupt:
            raise _stopped(interrupt) from interrupt
        except OSError as error:
            # The disk, wherever it is met; whatever else the system refuses is a bug of ours, and seen as one.
            from lorgnette.files import trouble

            what = trouble(error)
            if what is None or error.errno in _OURS or os.environ.get("LORGNETTE_DEBUG") == "1":
                raise
            print_error(f"{error.filename or 'the output'}: {what}.")
            raise typer.Exit(1) from error
        except Exception as error:
            if (name := _unwritable_name(error)) is None or os.environ.get("LORGNETTE_DEBUG") == "1":
                raise
            locale = sys.getfilesystemencoding()
            print_error(f"{name!r} cannot name a file here: file names are {locale} in this locale. Set a UTF-8 locale "
                 "(LC_ALL=C.UTF-8, without PYTHONUTF8=0) and run it again.")  # fmt: skip
            raise typer.Exit(1) from error


def _unwritable_name(error: Exception) -> str | None:
    """The argument that cannot name a file in this locale, if that is the matter; the parser hides its error."""
    if "codec can't encode" not in str(error):
        return None
    for argument in sys.argv[1:]:
        try:
            os.fsencode(argument)
        except UnicodeEncodeError:
            return argument
    return None


def _stopped(interrupt: KeyboardInterrupt) -> typer.Exit:
    """Says what was kept; the exit status is that of the signal."""
    print_error(str(interrupt) or "interrupted.")
    terminated = any(isinstance(each, Terminated) for each in (interrupt, interrupt.__cause__))
    return typer.Exit(143 if terminated else 130)


_OURS = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EINVAL)
"""Errors that show a bug of ours: every path is checked before it is opened, so these keep their traceback."""


_LONGEST = 1500
"""Characters of a message; it may quote what somebody gave, of any length."""


def print_error(message: str) -> None:
    """One line, without the escape codes of what it quotes; of a long one the beginning, and the end: what to do."""
    line = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(message.split())
    )
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
    print("lorgnette:", line, file=sys.stderr)


app = typer.Typer(
    cls=Speaking,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"lorgnette {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def _flowing(text: str) -> str:
    """Paragraphs on one line each, so that they fill any terminal; indented lines (the examples) stay as they are."""
    paragraphs = (part.strip("\n") for part in text.split("\n\n"))
    return "\n\n".join(part if part.startswith("  ") else " ".join(part.split("\n")) for part in paragraphs)


_COMMANDS: dict[Callable[..., None], str] = {
    check: "Look",
    look: "Look",
    merge: "Look",
    lens: "Look",
    trace: "Look",
    induced: "Look",
    probe: "Look",
    rationales: "",
    sources: "Look",
    align: "Look",
    stream: "Look",
    train: "Train",
    prune: "Train",
    report: "Show",
    compare: "Show",
    export: "Show",
    serve: "Show",
    demo: "Show",
    reproduce: "Show",
    list_: "Show",
    new: "Build",
}


def _add(command: Callable[..., None], panel: str) -> None:
    text = _flowing(inspect.getdoc(command) or "")
    # `lens NAME --help` is about the lens; an old name, without a panel, still works.
    app.command(command.__name__.strip("_"), help=text, rich_help_panel=panel, hidden=not panel,
                add_help_option=command is not lens)(command)  # fmt: skip


for _command, _panel in _COMMANDS.items():
    _add(_command, _panel)
