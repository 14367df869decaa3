"""`lorgnette serve MODEL`: the live page."""

from typing import Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked


@unpacked
def serve(
    models: Annotated[
        list[str],
        typer.Argument(help="Model folders or hub names; name two to compare them.",
                       metavar="MODEL..."),
    ],
    corpus: Annotated[
        str | None, typer.Option("--corpus", "-c", help="Texts to choose from: a file or a named corpus.")
    ] = None,
    split: options.Split = None,
    data: options.Data = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Truncate texts that are too long for the model; the page says so.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Beyond this machine, a token is required.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 chooses a free one.")] = 8765,
    public: Annotated[
        bool,
        typer.Option("--public", help="A public demo: no token, one model, shorter texts."),
    ] = False,
    proxy: Annotated[
        str | None,
        typer.Option(help="Address or network of your proxy: the limit per address then counts the addresses in its "
                     "X-Forwarded-For header.", metavar="ADDRESS"),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    *,
    opening: options.Opening,
) -> None:  # fmt: skip
    """Explore a model live, in the browser.

    Type a sentence and see what each head attends to, which words the prediction is based on, and what changes when
    heads are switched off. Only this machine can open the page, unless --host says otherwise; then a token is required
    and printed. Stop with Ctrl-C.

    [bold]Examples[/bold]

      lorgnette serve minilm
      lorgnette serve ./my-classifier --corpus texts.csv
      lorgnette serve bert-base-uncased ./my-fine-tuned-bert
      lorgnette serve minilm --host 0.0.0.0 --no-open
      lorgnette serve minilm --host 0.0.0.0 --no-open --public
    """
    from lorgnette.errors import optional
    from lorgnette.texts import corpus as open_corpus

    for package in ("fastapi", "uvicorn"):
        optional(package, "serve")
    from lorgnette.serve.run import run

    texts = None if corpus is None else open_corpus(corpus, split=split, data=data)
    run(
        models,
        opening.load,
        corpus=texts,
        host=host,
        port=port,
        browser=not no_open,
        public=public,
        truncate=truncate,
        proxy=proxy,
    )
