"""`lorgnette prune MODEL --corpus C --out DIR`: the same model with fewer heads, really smaller."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lorgnette.cli import options
from lorgnette.cli.options import command_line, option, unpacked
from lorgnette.types import Json

if TYPE_CHECKING:
    from lorgnette.training.pruning.prune import Pruned

_HEADS, _RUN, _TEXTS = "Which heads", "The run", "The corpus"


@dataclass(frozen=True)
class PruneOptions:
    """What `lorgnette prune` is told: what `lo.prune` is told, under the same names."""

    model: Annotated[
        str,
        typer.Argument(
            help="A trained classifier or translation model: a folder, or a hub name.", callback=options.known_folder
        ),
    ]
    corpus: options.Corpus
    out: Annotated[Path, option(_RUN, "--out", "-o", help="The folder for the pruned model.")]
    method: Annotated[
        str, option(_HEADS, help="gates (learnt), importance (|∂loss/∂gate|) or agreement (mean rank of all signals).")
    ] = "gates"
    keep: Annotated[float | None, option(_HEADS, help="Fraction of heads to keep.", metavar="SHARE")] = None
    weight: Annotated[
        float | None,
        option(
            _HEADS,
            "--lambda",
            help="Instead of --keep: weight λ of the penalty on open gates.",
            metavar="λ",
            show_default="0.1 without --keep",
        ),
    ] = None
    stacks: Annotated[
        str | None,
        option(_HEADS, help="Stacks to prune, comma-separated: encoder, decoder, cross.", show_default="all"),
    ] = None
    temperature: Annotated[
        float, option(_HEADS, help="Gate temperature: 0.33 (Voita et al.) or 0.667 (Louizos et al.).")
    ] = 0.33
    over: Annotated[str, option(_HEADS, help="Penalty: mean or sum over layers.")] = "mean"
    rule: Annotated[
        str, option(_HEADS, help="When a gate counts as closed: as in Voita's code, or as in the paper.")
    ] = "code"
    train: Annotated[
        str, option(_HEADS, "--train", help="Weights to train: all, gated (the stacks being pruned) or none.")
    ] = "all"
    gates_learning_rate: Annotated[
        float | None, option(_HEADS, help="Learning rate of the gates.", show_default="from the number of steps")
    ] = None
    controls: Annotated[
        int, option(_HEADS, help="Number of random head sets (same heads per layer) to compare with.", min=0)
    ] = 5
    allow_empty: Annotated[bool, option(_HEADS, "--allow-empty", help="Allow layers that lose all their heads.")] = (
        False
    )
    epochs: Annotated[int, option(_RUN, help="Epochs of training with gates.", min=1)] = 3
    settle: Annotated[
        int | None, option(_RUN, help="Epochs of fine-tuning after removal.", show_default="1 with --keep", min=0)
    ] = None
    learning_rate: Annotated[
        float | None, option(_RUN, help="Learning rate of the model weights.", show_default="5e-5")
    ] = None
    batch_size: options.BatchSize = 32
    beams: options.Beams = 1
    seed: options.Seed = 0
    onnx: Annotated[bool, option(_RUN, "--onnx/--no-onnx", help="Also write model.onnx.")] = True
    format: Annotated[
        str, option(_RUN, help="pruned (smaller) or stock (removed heads are zero; opens in plain transformers).")
    ] = "pruned"
    allow_pickle: options.Pickled = False
    resume: options.Resume = False
    max_length: Annotated[int | None, option(_TEXTS, help="Truncate longer texts (the count is reported).", min=1)] = (
        None
    )
    limit: options.TrainingLimit = None
    test_limit: options.TestLimit = None
    test_split: options.TestSplit = "test"
    text_column: options.TextColumn = "text"
    label_column: options.LabelColumn = None
    labels: options.Labels = None
    data: options.Data = None

    def given(self) -> Json:
        """The same for `lo.prune`."""
        from lorgnette.texts.labels import mapping_of

        stacks = None if self.stacks is None else tuple(part.strip() for part in self.stacks.split(","))
        return {**vars(self), "stacks": stacks, "labels": mapping_of(self.labels)}


@unpacked
def prune(options: PruneOptions) -> None:
    """Permanently remove heads from a trained model, and report the cost in accuracy and the gain in size and speed.

    Fine-tunes with gates on the heads (or ranks them), removes the heads whose gates closed, and writes a checkpoint
    with smaller projections, its tokenizer, training.json and model.onnx. `lorgnette.load` opens it; so does AutoModel
    after `import lorgnette.models` (with --format stock, without it). A forecast of the largest possible saving comes
    first. --resume continues an interrupted run.

    [bold]Examples[/bold]

      lorgnette prune runs/minilm-sst2 --corpus sst2 --keep 0.3 --out runs/small
      lorgnette prune runs/minilm-sst2 --corpus sst2 --lambda 0.05 --out runs/found
      lorgnette prune runs/en-fr --corpus multi30k:en-fr --stacks encoder --train gated --out runs/en-fr-small
    """
    from lorgnette import prune

    _show(prune(**options.given(), progress=True, command=command_line()))


def _show(pruned: "Pruned") -> None:
    from rich.markup import escape

    from lorgnette.cli.consoles import out
    from lorgnette.training.pruning.sentences import savings_lines

    record, console = pruned.record, out()
    console.print(f"{escape(record['model'])} on {escape(record['corpus'])}")
    console.print(_heads(record["heads"]))
    console.print(_metric(record))
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
    before = record["before"]
    after, change = record["metrics"][before["split"]], record["difference"]
    name = "bleu" if "bleu" in before else "accuracy"
    digits = 2 if name == "bleu" else 4
    said = [f"{each[name]:.{digits}f} [{_span(each['interval'], digits)}]" for each in (before, after)]
    return (
        f"{name} on {before['texts']:,} {before['split']} texts {said[0]} → {said[1]}, difference "
        f"{change['value']:+.{digits}f} [{_span(change['interval'], digits, sign='+')}]"
    ).replace("[", r"\[")


def _beside_random(controls: Json) -> str:
    values = controls["random"]
    return (
        f"before any training, on {controls['texts']:,} {controls['split']} texts: accuracy {controls['chosen']:.4f} "
        f"without those heads; {sum(values) / len(values):.4f} ({min(values):.4f} to {max(values):.4f}) without random "
        f"ones, {len(values)} sets with as many in each layer"
    )


def _span(interval: list[float], digits: int, sign: str = "") -> str:
    return ", ".join(f"{value:{sign}.{digits}f}" for value in interval)
