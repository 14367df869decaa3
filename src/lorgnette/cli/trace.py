"""`lorgnette trace MODEL TEXT`: what every head reads in one text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import explained, options, prompting, questions, trace_output
from lorgnette.cli.fields import unpacked
from lorgnette.errors import UserError

if TYPE_CHECKING:
    from lorgnette.explaining import Next
    from lorgnette.subject import Subject
    from lorgnette.subject.trace import Trace
    from lorgnette.texts.example import Example

_MATRIX = 60  # queries or keys of a matrix that is printed as one
_JSON = 60  # bytes that a weight takes as a number of Python and as text


@unpacked
def trace(
    model: options.Model,
    text: Annotated[str, typer.Argument(help="The text to analyse.", metavar="TEXT")],
    pair: Annotated[
        str | None, typer.Argument(help="A second text, for sentence-pair models.", metavar="[PAIR]")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The translation to use (translation models).", show_default="the model's own")
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(help="A picture that the text is about (models of pictures and text).", metavar="FILE"),
    ] = None,
    query: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --image and --figure: use the Nth token as the query.",
            show_default="the last",
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            help="encoder, decoder, cross, or vision: what patches of the picture read.",
            show_default="the model's first",
        ),
    ] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="With --head: show all weights of one head.")] = None,
    head: Annotated[int | None, typer.Option(min=1, help="With --layer: show all weights of one head.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="[STACK.]LAYER.HEAD", help="Switch a head off and show the effect; repeatable."),
    ] = None,
    pieces: Annotated[
        bool, typer.Option("--pieces", help="Show the model's tokens (word pieces) instead of words.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="Write all views of the text as one page that needs no network.", metavar="FILE"),
    ] = None,
    explain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="Explain the prediction with this method: the relevance of each word; repeatable.",
            show_default="with --html attnlrp and gradient_x_input",
        ),
    ] = None,
    class_name: Annotated[
        str | None,
        typer.Option("--class", help="The class to explain (classifiers).", show_default="the predicted class"),
    ] = None,
    generate: prompting.Generate = None,
    temperature: prompting.Temperature = None,
    top_k: prompting.TopK = None,
    top_p: prompting.TopP = None,
    seed: prompting.Seed = 0,
    said: prompting.Said = None,
    instead_of: prompting.InsteadOf = None,
    at: prompting.At = None,
    chat: prompting.Chat = False,
    system: prompting.System = None,
    logit_lens: questions.LogitLens = False,
    why: questions.WhyPair = None,
    paths: questions.StrongestPaths = False,
    against: questions.Against = None,
    count: questions.Count = None,
    among: questions.Among = None,
    figure: questions.FigureFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all weights as JSON.")] = False,
    *,
    opening: options.Opening,
) -> None:
    """Show what each head attends to in one text.

    Prints the word that each head attends to most, with its attention weight (mean over all queries), and the largest
    weights between two words. With --layer and --head, prints that head's weights: queries in rows, keys in columns.

    [bold]Examples[/bold]

      lorgnette trace bert-base-uncased "The cat sat on the mat."
      lorgnette trace bert-base-uncased "The cat sat." --layer 3 --head 7
      lorgnette trace ./my-nli-model "A man sleeps." "Nobody is awake."
      lorgnette trace Helsinki-NLP/opus-mt-en-fr "The cat sat." --stack cross
      lorgnette trace ./my-classifier "The cat sat." --without 3.7 --without 3.8
      lorgnette trace ./my-classifier "The cat sat." --explain attnlrp --explain rollout
      lorgnette trace ./my-classifier "The cat sat." --explain attnlrp --class positive
      lorgnette trace ./my-classifier "The cat sat." --html cat.html --explain attnlrp --explain rollout
      lorgnette trace ./my-llava "What is it?" --image cat.jpg --html cat.html
      lorgnette trace ./my-llava "What is it?" --image cat.jpg --layer 3 --head 7 --figure cat.png
      lorgnette trace ./my-llava "What is it?" --image cat.jpg --explain attnlrp --figure cat.png
      lorgnette trace bert-base-uncased "The cat sat." --json
      lorgnette trace ./my-language-model "The cat sat on the" --generate 20
      lorgnette trace ./my-language-model "Paris is in" --logit-lens
      lorgnette trace ./my-language-model "Paris is in" --layer 3 --head 7 --why 3,1
      lorgnette trace ./my-language-model "Paris is in" --paths --said " France" --figure paths.svg
      lorgnette trace ./my-language-model "Paris is in" --paths --against "Rome is in" --among heads --count 12
      lorgnette trace ./my-language-model "Paris is in" --explain attnlrp --said " France" --instead-of " Italy"
      lorgnette trace ./my-language-model "Who wrote Faust?" --chat --generate 40 --html faust.html
    """
    if (layer is None) != (head is None):
        raise typer.BadParameter("--layer and --head go together.")
    from lorgnette.cli.consoles import out

    if explain and html is None and (without or layer is not None):
        raise typer.BadParameter("--explain goes with --html, or without --without and --layer.")
    if (class_name, said, instead_of, at) != (None, None, None, None) and not (explain or paths) and html is None:
        raise typer.BadParameter("--class, --said, --instead-of and --at go with --explain, --paths or --html.")
    asked = [flag for flag, on in (("--logit-lens", logit_lens), ("--why", why is not None), ("--paths", paths)) if on]
    if len(asked) > 1:
        raise typer.BadParameter(f"{' and '.join(asked)}: one at a time.")
    if among not in (None, "all", "heads"):
        raise typer.BadParameter(f"--among is all or heads. Got {among!r} instead.")
    if (against, count, among) != (None, None, None) and not paths:
        raise typer.BadParameter("--against, --count and --among go with --paths.")
    located = layer is not None and head is not None
    drawn = figure is not None and image is not None and not asked
    if query is not None and not (drawn and located):
        raise typer.BadParameter("--query goes with --image, --layer, --head and --figure.")
    if drawn and (len(explain or ()) + located != 1 or html is not None or without):
        raise typer.BadParameter(
            "--figure with --image draws one head (--layer and --head) or one --explain, without --html and --without."
        )
    if figure is not None and not asked and not drawn:
        raise typer.BadParameter(
            "--figure goes with --logit-lens, --why or --paths; --html writes all views of a text."
        )
    if asked and (explain or without or html is not None or generate is not None or located != (why is not None)):
        others = "--explain, --without, --html and --generate"
        raise typer.BadParameter(
            f"--why goes with --layer and --head, without {others}."
            if why is not None
            else f"{asked[0]} cannot be combined with {others}, --layer and --head."
        )
    how = prompting.generation(generate, temperature, top_k, top_p, seed)
    from lorgnette.subject.trace import require_room

    subject = opening.load(model)
    wanted = prompting.explained(class_name, said, instead_of, at)
    example = prompting.example(subject, text, pair, target=target, image=image, chat=chat, system=system)
    if drawn and figure is not None:
        _drawn(subject, example, figure, (stack, layer, head, query), explain or [], wanted)
        return
    if asked:
        if why is not None and layer is not None and head is not None:
            answer = questions.why(subject, example, (stack, layer, head), why)
        else:
            more = {"against": against, "count": count, "among": among}
            answer = questions.paths(subject, example, wanted, more) if paths else questions.layers(subject, example)
        answer.show(subject, example, figure, as_json=as_json)
        return
    if html is not None and stack in {site.name for site in subject.tower_sites}:
        if explain or without or how is not None:
            raise typer.BadParameter(
                f"--stack {stack} with --html cannot be combined with --explain, --without and --generate."
            )
        typer.echo(subject.trace(example).tower().save(html))
        return
    if html is not None:
        from lorgnette.reporting.views import write_page
        from lorgnette.reporting.views.gather import gathered

        explained.say_cost(explain or ())
        shown = gathered(subject, example, methods=explain or None, without=without or [], target=wanted, generate=how)
        if shown["generated"] is not None:
            out().print(f"generated: {shown['generated']['text'].strip()}", markup=False)
        typer.echo(write_page(shown, html))
        return
    seen = subject.trace(example, without=without or (), generate=how)
    if stack in {site.name for site in seen.pictured}:
        if explain:
            raise typer.BadParameter(f"--explain traces what is said back to the text: leave --stack {stack} out.")
        seen = seen.tower()
    name = _stack(seen, stack)
    if explain:
        explained.say_cost(explain)
        explained.show(seen, name, explain, wanted, pieces=pieces, as_json=as_json)
        return
    one = None if layer is None or head is None else seen.head(layer, head, stack=name, words=not pieces)
    if as_json:
        if one is None:
            require_room(subject, seen.batch, _JSON, "printing them", name)
        weights = seen.data(stack=name, words=not pieces) if one is None else one
        typer.echo(json.dumps(trace_output.document(seen, weights, name, pieces), ensure_ascii=False))
        return
    for line in trace_output.about(seen, name):
        out().print(line, markup=False)
    if one is not None:
        small = max(one.shape) <= _MATRIX
        out(fold=not small).print(trace_output.matrix(one) if small else trace_output.strongest(one))
        return
    shares, links = trace_output.summary(seen, name, pieces)
    for line in shares.described():
        out().print(line, markup=False)
    for table in trace_output.overview(shares, out().width):
        out().print(table)
    if links is not None:
        out().print()
        out().print(links)


def _drawn(
    subject: "Subject",
    example: "Example",
    figure: Path,
    place: tuple[str | None, int | None, int | None, int | None],
    methods: list[str],
    target: "str | Next | None",
) -> None:
    """What a head reads of the picture, or the relevance of its patches, as a file; each tile as a file of its own."""
    from lorgnette.reporting.overlay import relevance_of

    (stack, layer, head, query), trace = place, subject.trace(example)
    tower = stack in {site.name for site in trace.pictured}
    patches = (trace.tower() if tower else trace).batch.source.patches
    if patches is None:
        raise UserError(f"Where the patches of {subject.name!r} lie is not known, so they cannot be drawn (--figure).")
    count = trace.tiles if tower else len(patches.tables())
    explained.say_cost(methods)
    for number in range(count):
        if layer is not None and head is not None:
            at = -1 if query is None else query - 1
            made = trace.overlay(layer, head, query=at, stack=stack, table=number)
        else:
            made = relevance_of(trace, methods[0], target, table=number)
        path = figure if count == 1 else figure.with_stem(f"{figure.stem}-{number + 1}")
        typer.echo(made.save(path))


def _stack(trace: "Trace", stack: str | None) -> str:
    from lorgnette.errors import UserError, near

    if stack is not None and stack not in trace.stacks:
        known = (*trace.stacks, *dict.fromkeys(site.name for site in trace.pictured))
        raise UserError(f"{trace.subject.name} has no stack {stack!r}.{near(stack, known)} It has: {', '.join(known)}.")
    return stack or trace.stacks[0]
