"""The command line says what it found, and fails in one line with the right exit status."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import click
import numpy as np
import pytest
import typer
import xarray as xr
from rich.text import Text
from typer.testing import CliRunner

from lorgnette.cli import summary
from lorgnette.cli.app import app
from lorgnette.results import Result, Results
from lorgnette.results.provenance import Provenance

COMMANDS = ("check", "look", "trace", "train", "report", "demo", "list")


def run(*arguments: str, code: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """A real process: `python -m lorgnette …`, or `code` in front of the command line's main()."""
    start = ["-c", textwrap.dedent(code)] if code else ["-m", "lorgnette"]
    environment = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *start, *arguments], capture_output=True, text=True, env=environment, timeout=120
    )


def one_line(stderr: str) -> str:
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("lorgnette: ")
    return lines[0]


def test_help_teaches():
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    for word in (*COMMANDS, "Start here", "Exit status"):
        assert word in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(command):
    done = CliRunner().invoke(app, [command, "--help"])
    assert done.exit_code == 0
    assert "Example" in done.stdout
    assert f"lorgnette {command}" in done.stdout.split("Example")[1]


def every_command(group: click.Group, name: str = "lorgnette") -> Iterator[tuple[str, click.Command]]:
    for word, command in group.commands.items():
        yield f"{name} {word}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{name} {word}")


def test_help_swallows_no_brackets():
    """Rich takes "[name, start]" for a style, and prints nothing in its place."""
    commands = dict(every_command(typer.main.get_command(app)))
    assert {"lorgnette look", "lorgnette sources"} <= commands.keys()
    for name, command in commands.items():
        helps = [command.help or "", *(getattr(one, "help", None) or "" for one in command.params)]
        styles = {str(span.style) for text in helps for span in Text.from_markup(text).spans}
        assert styles <= {"bold"}, (name, styles)


def test_every_command_that_writes_takes_the_same_short_option():
    commands = {**typer.main.get_command(app).commands}
    for group in [command for command in commands.values() if hasattr(command, "commands")]:
        commands |= group.commands
    places = {
        name: parameter.opts
        for name, command in commands.items()
        for parameter in command.params
        if "--out" in parameter.opts
    }
    assert {"look", "train", "prune", "compare", "export", "report", "demo", "merge"} <= places.keys()
    assert {name for name, options in places.items() if "-o" not in options} == set()


def test_version():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, "lorgnette 0.2.0\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lok"], "Did you mean 'look'"),
        (["look", "minilm"], "--corpus"),
        (["look", "minilm", "--corpus", "planted", "--resume"], "--resume needs the --out"),
        (["look", "minilm", "--corpus", "planted", "--limit", "0"], "--limit"),
        (["trace", "minilm", "A text.", "--layer", "1"], "--layer and --head go together"),
        (["list", "colours"], "colours"),
        (["report"], "RUN"),
    ],
)
def test_wrong_usage_is_2(arguments, said):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_user_error_is_one_line_and_1(tmp_path):
    done = run("report", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "There is no results folder" in one_line(done.stderr)
    assert "--out" in done.stderr


def test_debug_shows_the_traceback(tmp_path):
    done = run("report", str(tmp_path / "nowhere"), LORGNETTE_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "UserError" in done.stderr


# A command that needs nothing else, to see how the group treats what a command raises.
RAISES = """
    import sys, typer
    from lorgnette.cli.app import app
    from lorgnette.errors import UserError
    @app.command()
    def fail(how: str):
        if how == "user":
            raise UserError("wrong\\n  in two lines")
        if how == "interrupt":
            raise KeyboardInterrupt("stopped after 3 batches; --resume goes on.")
        if how == "bug":
            raise ZeroDivisionError("ours")
        if how == "wait":
            import time
            print("ready", flush=True)
            time.sleep(60)
    app(sys.argv[1:], prog_name="lorgnette")
"""


def test_exit_statuses():
    user, interrupt, bug = (run("fail", how, code=RAISES) for how in ("user", "interrupt", "bug"))
    assert (user.returncode, one_line(user.stderr)) == (1, "lorgnette: wrong in two lines")
    assert interrupt.returncode == 130
    assert one_line(interrupt.stderr) == "lorgnette: stopped after 3 batches; --resume goes on."
    assert bug.returncode == 1
    assert "Traceback" in bug.stderr


def test_ctrl_c_is_one_line_and_130():
    # A shell that runs the tests in the background ignores Ctrl-C, and its children inherit that.
    heeded = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heeded + textwrap.dedent(RAISES), "fail", "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert one_line(stderr) == "lorgnette: interrupted."


def found() -> Results:
    """Two stacks, two layers, three heads; one head is missing and one is the most peaked."""
    axes = {"stack": ["encoder", "cross"], "layer": [1, 2], "head": [1, 2, 3]}
    entropy = np.arange(12.0).reshape(2, 2, 3)
    count = np.ones((2, 2, 3), dtype=int)
    entropy[0, 0, 0], count[0, 0, 0] = np.nan, 0
    mass = np.zeros((2, 2, 3, 2))
    mass[1, 1, 2, 0] = 1.0
    data = xr.Dataset(
        {
            "entropy": (tuple(axes), entropy),
            "entropy_count": (tuple(axes), count),
            **{name: (tuple(axes), count / 9) for name in ("entropy_top_q", "entropy_pairs", "q")},
            "mass": ((*axes, "category"), mass),
            "texts": 3,
        },
        {**axes, "category": ["cls", "[bold]odd"]},
    )
    return Results([Result("weights", data, Provenance(model="minilm", corpus="planted", texts=3, tokens=17))])


def test_summary_of_many_lenses_stays_short():
    (one,) = found().values()
    several = {f"lens {number}": one for number in range(20)}
    assert summary.summary(found()).row_count == 3
    assert summary.summary(several).row_count == 60
    wide = Result("weights", one.data.isel(category=[0] * 30), one.provenance)
    assert summary.summary({"weights": wide}).row_count == 31
    assert summary.summary({"weights": wide, "norms": wide, "sinks": wide}).row_count == 3 * 13


def test_summary_names_the_heads_at_both_ends():
    from rich.console import Console

    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        console.print(summary.summary(found()))
    lines = [line.split() for line in capture.get().splitlines()]
    assert lines[1] == ["weights", "entropy", "6.000", "1.000", "encoder", "1.2", "11.000", "cross", "2.3"]
    assert lines[2][:3] == ["weights", "mass", "cls"]
    assert lines[2][-3:] == ["1.000", "cross", "2.3"]
    assert lines[3][2] == "[bold]odd"
    assert len(lines) == 4
