"""`lorgnette lens NAME`: what a lens measures, and its options."""

import inspect
from typing import Annotated

import typer


def lens(
    name: Annotated[
        str | None, typer.Argument(help="The lens; without a name, all are listed.", metavar="[NAME]")
    ] = None,
    help_: Annotated[bool, typer.Option("--help", "-h", help="The same: what the lens is, and its options.")] = False,
) -> None:
    """Show what a lens measures, and its options with their defaults.

    Options follow the name: [bold]--lens norms:sample=0,by=token[/bold]. Several values of one option are joined by
    plus signs.

    [bold]Examples[/bold]

      lorgnette lens
      lorgnette lens norms
      lorgnette look bert-base-uncased -c texts.txt --lens norms:sample=0
      lorgnette look ./my-classifier -c hatexplain --lens rationales:methods=attnlrp+ah,top=5
    """
    if name is None:
        from lorgnette.cli.list import Kind, list_

        typer.echo("Usage: lorgnette lens NAME\n")
        return list_(Kind.lenses)
    from lorgnette.cli.consoles import out
    from lorgnette.lens import find

    kind = find(name)
    console = out()
    console.print(f"{name}: {kind.summary}", markup=False)
    console.print(f"\n{inspect.getdoc(kind) or ''}\n", markup=False)
    for line in _options(kind):
        console.print(line, markup=False, soft_wrap=True)


def _options(kind: type) -> list[str]:
    from lorgnette.constraints import expected
    from lorgnette.lens.options import parameters, shown

    known = parameters(kind)
    if not known:
        return ["No options."]
    written = {f"{option}={shown(each.default)}": each.annotation for option, each in known.items()}
    widest = max(map(len, written))
    lines = ["Options, with their defaults:"]
    for text, annotation in written.items():
        lines.append(f"  {text:<{widest}}  {expected(annotation, as_text=True) or 'only from Python'}")
    about = getattr(vars(kind).get("__init__"), "__doc__", None)
    return [*lines, *(["", inspect.cleandoc(about)] if about else [])]
