"""`lorgnette look MODEL --corpus C`: every head, over a corpus, in one pass."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lorgnette.cli import options, prompting
from lorgnette.cli.fields import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lorgnette.lens.base import Lens
    from lorgnette.reporting import Report
    from lorgnette.results import Results
    from lorgnette.subject import Subject
    from lorgnette.texts.corpus import Corpus
    from lorgnette.texts.example import Example


@unpacked
def look(
    model: options.Models,
    corpus: options.Corpus,
    lens: options.Lenses = None,
    out: options.Out = None,
    resume: options.Resume = False,
    keep: options.Keep = None,
    shard: options.Shard = None,
    first: options.First = None,
    batch_tokens: options.BatchTokens = 4096,
    seed: options.Seed = 0,
    split: options.Split = None,
    limit: options.Limit = None,
    truncate: options.Truncate = False,
    chat: options.Chat = False,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = None,
    words_column: options.WordsColumn = None,
    rationale_column: options.RationaleColumn = None,
    labels: options.Labels = None,
    paragraphs: options.Paragraphs = False,
    data: options.Data = None,
    *,
    opening: options.Opening,
) -> None:
    """Analyse every head of a model over a corpus.

    Prints the findings. With --out, writes the results to a folder: a JSON file per lens with its provenance, a few
    short texts in examples.json, and report.html. Another lens on the same model and texts is added to the folder.
    Ctrl-C stops cleanly; --resume continues and gives the same numbers. Pass several checkpoints to get every
    number per training step, with curves in the report.

    [bold]Examples[/bold]

      lorgnette look bert-base-uncased -c texts.txt --out runs/bert
      lorgnette look bert-base-uncased -c texts.txt --out runs/bert --resume
      lorgnette look ./my-model -c reviews.csv --text-column review --limit 500 --keep texts --out runs/mine
      lorgnette look bert-base-uncased -c texts.txt --lens weights,norms:sample=0
      lorgnette look ./my-classifier -c sst2 --lens all --limit 200 --out runs/everything
      lorgnette look ./my-classifier -c reviews.csv --label-column stars --lens importance
      lorgnette look ./my-classifier -c yelphat:test50 --lens rationales:methods=all,share=yelphat:val --out runs/hats
      lorgnette look ./my-chat-model -c chats.jsonl --chat --lens weights --lens norms
      lorgnette look run/checkpoint-* -c texts.txt --lens weights,roles --out runs/curves
      torchrun --nproc-per-node 2 -m lorgnette look ./my-model -c texts.txt
      lorgnette look ./my-model -c texts.txt --shard 3/64 --out parts/3
      lorgnette look ./my-model -c texts.txt --lens roles --shard 3/64 --first runs/first --out second/3
    """
    if resume and out is None:
        raise typer.BadParameter("--resume needs the --out of the run that was interrupted.")
    if len(model) > 1 and keep is not None:
        raise typer.BadParameter("--keep is for one model, not for several checkpoints.")
    if first is not None and shard is None:
        raise typer.BadParameter("--first is for the later rounds of shards: it needs --shard.")
    share = None if shard is None else _share(shard, out, model)
    from lorgnette import lens as lenses
    from lorgnette.lens.options import split as lenses_in
    from lorgnette.texts import corpus as open_corpus
    from lorgnette.texts.labels import mapping_of
    from lorgnette.texts.tables import unread_labels

    # Names and files first: they are checked at once, while a model takes seconds.
    names = lenses_in(lens or lenses.DEFAULT)
    every = lenses.ALL in names

    def made() -> "list[Lens] | str":
        return lenses.ALL if every else [lenses.get(one, **prompting.by_speaker(one, chat)) for one in names]

    chosen = made()
    renamed = mapping_of(labels)
    texts = open_corpus(corpus, split=split, data=data, limit=limit, paragraphs=paragraphs, text_column=text_column,
                        label_column=label_column, words_column=words_column,
                        rationale_column=rationale_column)  # fmt: skip
    texts = prompting.chats(texts) if chat else texts
    import torch

    from lorgnette.looking.look import LookOptions
    from lorgnette.looking.look import look as run
    from lorgnette.looking.texts import TokenizedTexts

    torch.manual_seed(seed)
    how: LookOptions = {"batch_tokens": batch_tokens, "truncate": truncate, "labels": renamed, "resume": resume,
                        "seed": seed, "command": options.command_line()}  # fmt: skip
    if len(model) > 1:
        _look_by_step(model, texts, made, opening.load, out, **how)
        return
    how |= {"out": out, "keep": keep}
    subject = opening.load(model[0])
    if label_column is None and subject.labels is not None and (unread := unread_labels(corpus)):
        typer.echo(
            f"The column {unread!r} of {corpus} is not read: with --label-column {unread}, the results open with the "
            "accuracy, and lenses know the classes.", err=True,
        )  # fmt: skip
    if share is not None:
        written = run(subject, texts, chosen, shard=share, first=first, **how)
        counts = written.counts
        from lorgnette.figures.sentences import counted_texts

        typer.echo(f"Shard {shard}: {counted_texts(counts.texts)}, {counts.tokens:,} tokens, in {out}")
        if written.look.needed:
            needed = ", ".join(each.name for each in written.look.needed)
            typer.echo(
                f"Another round follows: some lenses first need {needed} on all texts. When all shards are there, "
                "`lorgnette merge` says how to continue."
            )
        return
    tokenized = TokenizedTexts(subject, texts, truncate=truncate)
    results = run(subject, tokenized, chosen, **how)
    from lorgnette.looking.processes import is_first
    from lorgnette.looking.short_texts import short_texts
    from lorgnette.reporting import Report

    page = Report(results)
    show(results, page)
    if out is not None and is_first():  # under torchrun, once
        write_report(page, subject, lambda: short_texts(tokenized), out)


def _share(shard: str, out: Path | None, models: list[str]) -> tuple[int, int]:
    """3/64 as numbers."""
    from lorgnette.errors import UserError
    from lorgnette.looking.texts import Share

    number, _, of = shard.partition("/")
    if not all(part.isascii() and part.isdigit() for part in (number, of)):
        raise UserError(f"--shard is written as 3/64, the third of 64 shards. Got {shard[:40]!r} instead.")
    if out is None:
        raise typer.BadParameter("--shard needs --out, the folder of this shard.")
    if len(models) > 1:
        raise typer.BadParameter("--shard is for one model, not for several checkpoints.")
    share = Share.given((int(number), int(of)))
    return share.number, share.of


def _look_by_step(
    models: list[str],
    texts: "Corpus",
    lenses: "Callable[[], list[Lens] | str]",
    opened: "Callable[[str], Subject]",
    folder: Path | None,
    **options: Any,
) -> None:
    """The checkpoints of one training: every number by step, printed, and with --out written with its curves."""
    from rich.markup import escape

    from lorgnette.cli.consoles import out
    from lorgnette.figures.drawing import NOT_DRAWN, can_draw
    from lorgnette.looking.processes import is_first
    from lorgnette.looking.steps import drop_steps, look_by_step, steps_of
    from lorgnette.reporting import Report
    from lorgnette.results.folder import refuse_other_folder

    steps = steps_of(models)
    if folder is not None:
        refuse_other_folder(folder, [])
    results = look_by_step(steps, texts, lenses, opened, out=folder, **options)
    page = Report(results)
    show(results, page, table=False)
    if folder is not None and is_first():  # under torchrun, once
        results.save(folder)
        drop_steps(folder)
        file = page.write(folder / "report.html")
        if not can_draw():
            typer.echo(NOT_DRAWN, err=True)
        out().print(f"Results are in {escape(str(folder))}; to read: {escape(str(file))}", soft_wrap=True)


def write_report(page: "Report", subject: "Subject", texts: "Callable[[], Sequence[Example]]", folder: Path) -> None:
    """The page and a few texts for it, from what is in memory. Without examples the run is whole, and says so."""
    from rich.markup import escape

    from lorgnette.cli.consoles import out
    from lorgnette.errors import UserError
    from lorgnette.figures.drawing import NOT_DRAWN, can_draw
    from lorgnette.reporting.examples import documents_of, save_examples

    try:
        examples = documents_of(subject, texts())
    except UserError as error:
        typer.echo(f"The report shows no text: {error}", err=True)
        examples = []
    save_examples(examples, folder, subject.weights_hash)
    page.examples = {next(iter(page.subjects)): examples}
    file = page.write(folder / "report.html")
    if not can_draw():
        typer.echo(NOT_DRAWN, err=True)
    out().print(f"Results are in {escape(str(folder))}; to read: {escape(str(file))}", soft_wrap=True)


def show(results: "Results", page: "Report", *, table: bool = True) -> None:
    from rich.markup import escape

    from lorgnette import lens as lenses
    from lorgnette.cli.consoles import out
    from lorgnette.cli.summary import show_table, summary
    from lorgnette.figures.sentences import counted_texts
    from lorgnette.reporting.contents import DECISIONS, whole_model

    origin = list(results.values())[-1].provenance  # of this look, if others were there before
    cut = f" ({origin.truncated:,} cut)" if origin.truncated else ""
    out().print(
        f"{escape(origin.model)} on {escape(str(origin.corpus))}: {counted_texts(origin.texts)}{cut}, "
        f"{origin.tokens:,} tokens"
    )
    for note in origin.notes:
        out().print(f"Note: {escape(note)}", highlight=False)
    if (whole := whole_model(results)) is not None:
        out().print(escape(whole.text), highlight=False)
        if not any(lens in results for lens in DECISIONS):
            out().print(
                f"To see which words and heads its predictions depend on, add --lens {','.join(DECISIONS)}",
                highlight=False,
            )
    for sentences in page.findings.values():
        for finding in [finding for some in sentences.values() for finding in some]:
            out().print(f"- {escape(finding.text)}", highlight=False)
    if not table:
        return
    tables = {name: lenses.report_of(result.lens).table for name, result in results.items()}
    by_head = {name: result for name, result in results.items() if tables[name] is None}
    if by_head:
        out().print(summary(by_head))
    for name, make in tables.items():
        if make is not None:
            show_table(make(results[name]))
