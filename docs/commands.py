"""The command reference, generated from the commands."""

import re

import typer

from lorgnette.cli.app import app

INTRODUCTION = """# Commands

This page is generated from the text that each command prints with `--help`. Invalid input ends with a one-line message
and exit status 1 (2 for an invalid option); `LORGNETTE_DEBUG=1` shows the traceback.
"""


def command_reference() -> str:
    """A page with one section per command."""
    group = typer.main.get_command(app)
    parts = [INTRODUCTION]
    for name in sorted(group.commands):
        command = group.commands[name]
        if not command.hidden:
            parts.append(_section(name, command))
    return "\n".join(parts)


def _section(name: str, command) -> str:
    about, _, examples = (command.help or "").partition("[bold]Examples[/bold]")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(["lorgnette", name, *(_metavar(a) for a in arguments), "[OPTIONS]"])
    lines = [f"## `{name}`", "", _plain(about), "", f"```text\n{usage}\n```", ""]
    if examples.strip():
        calls = [f"$ {line.strip()}" for line in examples.strip().splitlines() if line.strip()]
        lines += ["```console", *calls, "```", ""]
    rows = [_row(p) for p in command.params if not getattr(p, "hidden", False) and "--help" not in p.opts]
    if rows:
        lines += ["| argument or option | what it does |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(parameter) -> str:
    """Name, meaning and default of one parameter."""
    options = parameter.opts + parameter.secondary_opts
    names = _metavar(parameter) if parameter.param_type_name == "argument" else ", ".join(options)
    about = _plain(getattr(parameter, "help", None) or "")
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):  # words, not a value
        about += f" Default: {shown}."
    elif parameter.default is True:
        about += f" Default: `{options[0]}`."
    elif parameter.default not in (None, False, (), []) and not callable(parameter.default):
        about += f" Default: `{parameter.default}`."
    return f"| `{names}` | {about} |".replace("\n", " ")


def _metavar(parameter) -> str:
    return (parameter.metavar or parameter.name.upper()).replace("|", r"\|")


def _plain(text: str) -> str:
    """Without the markup of the terminal."""
    text = re.sub(r"\[/?(bold|dim|italic)\]", "", text).replace("\\[", "[")
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"\n[ \t]+", "\n", text)).strip().replace("|", r"\|")
