"""What commands ask for, each in the same words everywhere."""

from pathlib import Path
from typing import Annotated

import typer

_MODEL, _CORPUS, _RUN = "The model", "The corpus", "The run"

Model = Annotated[
    str,
    typer.Argument(
        help="A folder with a model, the name of one in LORGNETTE_MODELS, or a name on the Hugging Face hub.",
        metavar="MODEL",
    ),
]
Dtype = Annotated[
    str, typer.Option(help="Compute in float32, float64, bfloat16 or float16.", rich_help_panel=_MODEL, metavar="TYPE")
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda or cuda:N.", rich_help_panel=_MODEL, metavar="DEVICE", show_default="a GPU if there is one"
    ),
]
AllowPickle = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Read weights from pytorch_model.bin. A pickle can run code: only for files you trust.",
        rich_help_panel=_MODEL,
    ),
]

Corpus = Annotated[
    str,
    typer.Option(
        "--corpus",
        "-c",
        help="A file (.txt .csv .tsv .jsonl .conllu, also .gz .xz), a named corpus, or a data set of the hub.",
        rich_help_panel=_CORPUS,
    ),
]
Split = Annotated[str | None, typer.Option(help="The split of the corpus.", rich_help_panel=_CORPUS)]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N texts.", rich_help_panel=_CORPUS, metavar="N")]
Data = Annotated[
    Path | None,
    typer.Option(envvar="LORGNETTE_DATA", help="The folder that holds the named corpora.", rich_help_panel=_CORPUS),
]
LabelColumn = Annotated[
    str | None, typer.Option(help="The column of a table that holds the label.", rich_help_panel=_CORPUS)
]
WordsColumn = Annotated[
    str | None, typer.Option(help="The column of a table with the words, a list.", rich_help_panel=_CORPUS)
]
RationaleColumn = Annotated[
    str | None, typer.Option(help="… and the one with 0 or 1 for each word: marked.", rich_help_panel=_CORPUS)
]
TextColumn = Annotated[str, typer.Option(help="The column of a table that holds the text.", rich_help_panel=_CORPUS)]
Paragraphs = Annotated[
    bool,
    typer.Option(
        "--paragraphs", help="In a plain text file, a text is a paragraph, not a line.", rich_help_panel=_CORPUS
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate",
        help="Cut texts that are longer than the model takes (the provenance counts them).",
        rich_help_panel=_CORPUS,
    ),
]

Lenses = Annotated[
    list[str], typer.Option("--lens", "-l", help="What to measure; repeat it for several.", rich_help_panel=_RUN)
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The folder for the results.", rich_help_panel=_RUN)]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on where an interrupted run into --out stopped.", rich_help_panel=_RUN)
]
BatchTokens = Annotated[int, typer.Option(min=1, metavar="N", help="Tokens in a batch.", rich_help_panel=_RUN)]
Seed = Annotated[int, typer.Option(help="For whatever is drawn at random.", rich_help_panel=_RUN)]
