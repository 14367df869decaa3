"""`lorgnette train MODEL --corpus C --out DIR`: a classifier or translator, trained, as an ordinary checkpoint."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lorgnette.cli.fields import unpacked
from lorgnette.cli.options import command_line
from lorgnette.training.settings import TrainKeywords

if TYPE_CHECKING:
    from lorgnette.training.functions import Runs


@unpacked
def train(options: TrainKeywords) -> None:
    """Train a classifier or a translation model, or fine-tune one.

    Writes an ordinary Hugging Face checkpoint with its tokenizer and training.json; with several seeds, one folder for
    each. The best validation epoch is kept, and the test texts are read only once. --resume continues an interrupted
    run.

    [bold]Examples[/bold]

      lorgnette train tp9-residual --corpus imdb --embeddings glove.6B.100d.txt --out runs/residual --seeds 0,1,2
      lorgnette train pure-attention --corpus hatexplain --out runs/pure --entropy 0.01
      lorgnette train tp9-cls --corpus planted --embeddings random --positions relative --out runs/planted
      lorgnette train minilm --corpus sst2 --out runs/minilm-sst2
      lorgnette train marian-small --corpus multi30k:en-fr --out runs/en-fr --batch-size 256
    """
    from lorgnette.training.functions import trained

    _show(trained(replace(options, progress=True, command=command_line())), options)


def _show(runs: "Runs", options: TrainKeywords) -> None:
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
