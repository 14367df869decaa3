"""`lorgnette train MODEL --corpus C --out DIR`: a classifier or translator, trained, as an ordinary checkpoint."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lorgnette.cli import options
from lorgnette.cli.options import command_line, option, unpacked
from lorgnette.types import Json

if TYPE_CHECKING:
    from lorgnette.training.functions import Runs

_SHAPE, _LOSS, _TEXTS, _RUN = "The model (presets)", "The loss", "The corpus", "The run"


@dataclass(frozen=True)
class TrainOptions:
    """What `lorgnette train` is told: what `lo.train` is told, under the same names; lists are words with commas."""

    model: Annotated[
        str,
        typer.Argument(
            help="A preset (lorgnette list presets), or a model to fine-tune.", callback=options.known_folder
        ),
    ]
    corpus: options.Corpus
    out: Annotated[Path, option(_RUN, "--out", "-o", help="The folder for the trained model.")]
    layers: Annotated[int | None, option(_SHAPE, help="Attention layers.", min=0)] = None
    heads: Annotated[int | None, option(_SHAPE, help="Heads per layer.", min=1)] = None
    width: Annotated[int | None, option(_SHAPE, help="Width of the hidden states.", min=1)] = None
    positions: Annotated[str | None, option(_SHAPE, help="none, sinusoidal, learnt or relative.")] = None
    pooling: Annotated[str | None, option(_SHAPE, help="mean, cls, cls-zero, attention, query …")] = None
    dropout: Annotated[float | None, option(_SHAPE, help="Dropout.", min=0)] = None
    override: Annotated[
        list[str], option(_SHAPE, "--set", help="Set any other field of the config.", metavar="NAME=VALUE")
    ] = field(default_factory=list)
    embeddings: Annotated[str | None, option(_SHAPE, help="glove, random, a vectors file, or model:NAME.")] = None
    freeze: Annotated[
        bool | None, option(_SHAPE, "--freeze/--train-embeddings", help="Freeze the word vectors, or train them.")
    ] = None
    style: Annotated[str, option(_SHAPE, help="Tokenizer: default, or whitespace (as in the TP 9 starter code).")] = (
        "default"
    )
    vocabulary: Annotated[
        str | None,
        option(_SHAPE, help="Vocabulary: the words of the training texts (train) or of the vectors (vectors)."),
    ] = None
    entropy: Annotated[
        float | None, option(_LOSS, help="Weight of the penalty on the normalised attention entropy.")
    ] = None
    entropy_rows: Annotated[str, option(_LOSS, help="Rows that the entropy penalty uses: cls or all.")] = "cls"
    entropy_layers: Annotated[
        str | None,
        option(_LOSS, help="Layers that the entropy penalty uses, from 1, for example 1,3.", show_default="all"),
    ] = None
    rationale_weight: Annotated[float | None, option(_LOSS, help="Weight of the rationale penalty.")] = None
    rationale_loss: Annotated[str, option(_LOSS, help="Rationale penalty: jaccard or kl.")] = "jaccard"
    heuristic_weight: Annotated[
        float | None, option(_LOSS, help="Weight of the heuristic penalty (sentence pairs).")
    ] = None
    learning_rate: Annotated[
        float | None, option(_LOSS, help="Learning rate.", show_default="1e-3, pretrained 2e-5")
    ] = None
    warmup: Annotated[
        float | None,
        option(_LOSS, help="Warm-up steps; below 1, a fraction of all steps.", show_default="pretrained 0.1", min=0),
    ] = None
    label_smoothing: Annotated[
        float | None, option(_LOSS, help="Label smoothing (translation).", show_default="0.1", min=0, max=1)
    ] = None
    weight_decay: Annotated[float, option(_LOSS, help="Decoupled weight decay.", min=0)] = 0.0
    seeds: Annotated[str, option(_RUN, help="One seed, or several, comma-separated.")] = "0"
    epochs: Annotated[
        int | None, option(_RUN, help="Maximum number of epochs.", show_default="20, pretrained 3", min=1)
    ] = None
    batch_size: options.BatchSize = 64
    patience: Annotated[int, option(_RUN, help="Stop after this many evaluations without improvement.", min=1)] = 5
    select: Annotated[
        str, option(_RUN, help="Metric that selects the best epoch: loss, cross_entropy, accuracy or bleu.")
    ] = "loss"
    keep_last: Annotated[bool, option(_RUN, "--keep-last", help="Keep the last weights instead of the best.")] = False
    keep_checkpoints: Annotated[
        bool,
        option(
            _RUN,
            "--keep-checkpoints",
            help="Keep the weights of every evaluation too, in OUT/checkpoint-STEP, for look OUT/checkpoint-*.",
        ),
    ] = False
    evaluate_every: Annotated[
        int | None, option(_RUN, help="Steps between evaluations (and checkpoints).", show_default="an epoch", min=1)
    ] = None
    beams: options.Beams = 1
    allow_pickle: options.Pickled = False
    bf16: Annotated[bool, option(_RUN, "--bf16", help="Train in bfloat16.")] = False
    fp16: Annotated[bool, option(_RUN, "--fp16", help="Train in float16 (GPU).")] = False
    resume: options.Resume = False
    max_length: Annotated[
        int | None,
        option(
            _TEXTS, help="Truncate longer texts (the count is reported).", show_default="500, or the model's", min=1
        ),
    ] = None
    validation: Annotated[
        float, option(_TEXTS, help="Fraction of the training texts to validate on if there is no validation split.")
    ] = 0.1
    test_split: options.TestSplit = "test"
    limit: options.TrainingLimit = None
    test_limit: options.TestLimit = None
    stream: Annotated[bool, option(_TEXTS, "--stream", help="Stream the texts instead of loading them all.")] = False
    text_column: options.TextColumn = "text"
    label_column: options.LabelColumn = None
    labels: options.Labels = None
    data: options.Data = None

    def given(self) -> Json:
        """The same for `lo.train`."""
        from lorgnette.texts.labels import mapping_of

        given = dict(vars(self)) | {"labels": mapping_of(self.labels)}
        given["overrides"] = dict(map(_assigned, given.pop("override")))
        given["seeds"] = _numbers(self.seeds, "--seeds")
        if self.entropy_layers is not None:
            given["entropy_layers"] = _numbers(self.entropy_layers, "--entropy-layers")
        return given


@unpacked
def train(options: TrainOptions) -> None:
    """Train a classifier or a translation model, or fine-tune one.

    Writes an ordinary Hugging Face checkpoint with its tokenizer and training.json; with several seeds, one folder for
    each. The best validation epoch is kept, and the test texts are read only once. --resume continues an interrupted
    run.

    [bold]Examples[/bold]

      lorgnette train tp9-residual --corpus imdb --out runs/residual --seeds 0,1,2
      lorgnette train pure-attention --corpus hatexplain --out runs/pure --entropy 0.01
      lorgnette train tp9-cls --corpus planted --embeddings random --positions relative --out runs/planted
      lorgnette train minilm --corpus sst2 --out runs/minilm-sst2
      lorgnette train marian-small --corpus multi30k:en-fr --out runs/en-fr --batch-size 256
    """
    given = options.given()
    from lorgnette import train

    _show(train(**given, progress=True, command=command_line()), options)


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} wants whole numbers between commas (0,1,2); got {text!r}.") from None


def _assigned(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value read as JSON where it is JSON (numbers, true, null), else as text."""
    import json

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--set wants NAME=VALUE; got {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _show(runs: "Runs", options: TrainOptions) -> None:
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.cli.consoles import out

    first = runs[0].record
    console, tested = out(), first["metrics"]["test"] is not None
    table = Table(box=None, pad_edge=False)
    translated = runs[0].bleu is not None
    scores = ("BLEU",) if translated else ("test", "macro F1") if tested else ()
    columns = ("seed", "epochs", "kept", "train s", "validation", *scores)
    for column in columns:
        table.add_column(column, justify="right")
    for run in runs:
        record, metrics = run.record, run.metrics
        epoch = record["epochs"] if options.keep_last else record["best"]["epoch"]
        row = [str(record["seed"]), f"{record['epochs']:g}", f"{epoch:g}"]
        row += [f"{record['seconds']['training']:.1f}", f"{metrics['validation']['accuracy']:.4f}"]
        if translated:
            row.append(f"{run.bleu:.2f}")
        elif metrics["test"] is not None:
            row += [f"{metrics['test']['accuracy']:.4f}", f"{metrics['test']['macro_f1']:.4f}"]
        table.add_row(*row)
    sizes, counts = first["texts"], first["parameters"]
    console.print(
        f"{escape(options.model)} on {escape(first['corpus'])}: {sizes['train']:,} texts to train on, "
        f"{sizes['validation']:,} to validate, {sizes['test'] or 0:,} to test; {counts['trained']:,} of "
        f"{counts['total']:,} parameters trained"
    )
    console.print(table)
    which = "test" if tested else "validation"
    if translated:
        console.print(f"{which} BLEU {_mean([run.bleu or 0.0 for run in runs], digits=2)}")
        console.print(
            f"[dim]{escape(first['metrics'][which]['signature'])}, beam {first['metrics'][which]['beams']}[/dim]"
        )
    else:
        console.print(f"{which} accuracy {_mean([run.accuracy for run in runs])}{_interval(runs)}")
    for note in dict.fromkeys(note for run in runs for note in run.record["notes"]):
        console.print(f"note: {escape(note)}")
    console.print(f"The model is in {escape(str(runs.folder))}.")


def _interval(runs: "Runs") -> str:
    """How far chance in the choice of texts reaches: of one run, or of each of several."""
    texts = (runs[0].metrics["test"] or runs[0].metrics["validation"])["texts"]
    bounds = [run.accuracy_interval for run in runs]
    said = [f"{bound[0]:.4f} to {bound[1]:.4f}" for bound in bounds if bound is not None]
    if not said:
        return ""
    which = "95 % interval" if len(said) == 1 else "95 % intervals of the seeds"
    return f" ({which} over {texts:,} texts: {', '.join(said)})"


def _mean(values: list[float], digits: int = 4) -> str:
    from statistics import mean, stdev

    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f} (mean ± sd of {len(values)} seeds)"
