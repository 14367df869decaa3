"""`lorgnette check MODEL`: can its attention be watched exactly?"""

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked


@unpacked
def check(model: options.Model, *, opening: options.Opening) -> None:
    """Verify that a model's attention is captured exactly, in every way that the model can be run.

    Runs a few short texts with padding on either side, one without padding, one without a mask, one token, and a cache
    if the model has one. Prints one line per check: the outputs are unchanged, outputs and weights equal those of the
    model's eager attention, weights times values equal the context, the heads' contexts times W_O equal the output of
    the projection, rows sum to one, padding receives no attention, every attention layer is captured once. A line
    begins with ok, FAIL, or skip where the model offers nothing to compare with. The exit status is 1 if a check
    fails.

    [bold]Examples[/bold]

      lorgnette check bert-base-uncased
      lorgnette check ./my-model --dtype float64
      lorgnette check Helsinki-NLP/opus-mt-en-fr --allow-pickle
    """
    from rich.markup import escape

    from lorgnette.cli.consoles import out

    console = out()
    checks = opening.load(model).check()
    for one in checks:
        mark = "[red]FAIL[/red]" if not one.ok else "[green]ok[/green]  " if one.made else "skip"
        console.print(f"{mark} {escape(one.name)}: {escape(one.detail)}", soft_wrap=True)
    failed = [one.name for one in checks if not one.ok]
    if failed:
        from lorgnette.errors import CaptureError

        raise CaptureError(
            f"{model} cannot be captured exactly ({', '.join(failed)}); its results would be wrong. "
            f"Try --dtype float64; if it still fails, please report the model's class and this output."
        )
