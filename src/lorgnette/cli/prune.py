"""`lorgnette prune MODEL --corpus C --out DIR`: the same model with fewer parts, really smaller."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lorgnette.cli.fields import unpacked
from lorgnette.cli.options import command_line
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.types import Json

if TYPE_CHECKING:
    from lorgnette.training.pruning.prune import Pruned


@unpacked
def prune(settings: PruningSettings) -> None:
    """Make a trained model smaller and faster, and report the cost in accuracy and the gain in size and speed.

    Fine-tunes with gates on heads, feed-forward units and layers under one budget (or ranks them), removes those whose
    gates closed, distils the whole model into the rest, and writes a smaller checkpoint, its tokenizer,
    training.json and model.onnx. `lorgnette.load` opens it; so does AutoModel after `import lorgnette.models` (with
    --uniform or --format stock, without it). It first prints the most that each kind can save. --resume continues an
    interrupted run.

    [bold]Examples[/bold]

      lorgnette prune runs/minilm-sst2 --corpus sst2 --keep 0.5 --out runs/small
      lorgnette prune runs/minilm-sst2 --corpus sst2 --speed 1.5 --uniform --out runs/fast
      lorgnette prune runs/minilm-sst2 --corpus sst2 --sweep 0.75,0.5,0.25 --seeds 0,1,2 --out runs/sweep
      lorgnette prune runs/minilm-sst2 --corpus sst2 --only heads --keep 0.3 --out runs/few-heads
      lorgnette prune runs/minilm-sst2 --corpus sst2 --lambda 0.05 --out runs/found
      lorgnette prune runs/en-fr --corpus multi30k:en-fr --stacks encoder --train gated --out runs/en-fr-small
    """
    from lorgnette.training.pruning.prune import prune

    settings = replace(settings, progress=True, command=command_line())
    runs = settings.runs
    if len(runs) == 1:
        _show(prune(runs[0]))
        return
    from lorgnette.cli.consoles import out
    from lorgnette.training.pruning.sweep import FIGURE, TABLE, sweep, table

    done = sweep(settings)
    out().print(table(done.record["sweep"]), markup=False, soft_wrap=True)
    out().print(f"The table is in {done.folder / TABLE}, the figure in {done.folder / FIGURE}.", markup=False)


def _show(pruned: "Pruned") -> None:
    from rich.markup import escape

    from lorgnette.cli.consoles import out
    from lorgnette.training.pruning.compared import comparison_lines
    from lorgnette.training.pruning.sentences import parts_lines, savings_lines

    record, console = pruned.record, out()
    console.print(f"{escape(record['model'])} on {escape(record['corpus'])}")
    if "parts" in record:
        console.print("\n".join(map(escape, parts_lines(record))))
    else:
        console.print(_heads(record["heads"]))
    console.print(_metric(record))
    for line in comparison_lines(record):
        console.print(escape(line))
    if "signature" in record["before"]:
        beams = record["settings"]["beams"]
        console.print(f"sacrebleu {record['before']['signature']}, {'greedy' if beams == 1 else f'beam {beams}'}")
    if (controls := record.get("controls")) and controls["random"]:
        console.print(_beside_random(controls))
    for line in savings_lines(record):
        console.print(escape(line))
    for note in record["notes"]:
        console.print(f"note: {escape(note)}")
    onnx = ", with model.onnx" if (pruned.folder / "model.onnx").is_file() else ""
    console.print(f"The model is in {escape(str(pruned.folder))}{onnx}; its README.md says how to open it.")


def _heads(heads: dict[str, dict[str, list[int]]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("heads per layer")
    deepest = max(map(len, heads["before"].values()))
    for number in range(deepest):
        table.add_column(str(number + 1), justify="right")
    table.add_column("all", justify="right")
    for name, before in heads["before"].items():
        for when, counts in ((name, before), (" → kept", heads["after"][name])):
            gaps = [""] * (deepest - len(counts))
            table.add_row(when, *map(str, counts), *gaps, str(sum(counts)))
    return table


def _metric(record: Json) -> str:
    from lorgnette.training.pruning.score import metric_of

    before = record["before"]
    after, change = record["metrics"][before["split"]], record["difference"]
    name, digits = metric_of(before)
    said = [f"{each[name]:.{digits}f} [{_span(each['interval'], digits)}]" for each in (before, after)]
    return (
        f"{name} on {before['texts']:,} {before['split']} texts {said[0]} → {said[1]}, difference "
        f"{change['value']:+.{digits}f} [{_span(change['interval'], digits, sign='+')}]"
    ).replace("[", r"\[")


def _beside_random(controls: Json) -> str:
    from lorgnette.training.pruning.score import METRICS

    values, metric = controls["random"], controls["metric"]
    digits = METRICS[metric]

    def change(name: str) -> str:
        found = controls["difference"][name]
        return rf"{found['value']:+.{digits}f} \[{_span(found['interval'], digits, sign='+')}]"

    chosen, mean, low, high, magnitude = (
        f"{value:.{digits}f}"
        for value in (
            controls["chosen"], sum(values) / len(values), min(values), max(values), controls["magnitude"],
        )
    )  # fmt: skip
    equal = f"; {controls['free']:.{digits}f} without the condition of equal layers" if "free" in controls else ""
    return (
        f"before any training, on {controls['texts']:,} {controls['split']} texts: {metric} {chosen}; {mean} ({low} to "
        f"{high}) of {len(values)} random choices, difference {change('random')}; {magnitude} by magnitude, difference "
        f"{change('magnitude')}{equal}"
    )


def _span(interval: list[float], digits: int, sign: str = "") -> str:
    return ", ".join(f"{value:{sign}.{digits}f}" for value in interval)
