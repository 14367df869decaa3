"""Texts and what is known of them: files, `datasets`, named data sets, planted truth."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError, near, shown, whole_number
from lorgnette.texts.corpus import Corpus, SizedCorpus
from lorgnette.texts.example import Example

__all__ = [
    "Corpus",
    "Example",
    "SizedCorpus",
    "as_examples",
    "corpora",
    "corpus",
    "corpus_names",
    "refuse_no_text",
    "texts_of",
]

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
TREEBANKS = (".conllu",)
NOT_READ = (".json", ".parquet", ".arrow", ".pkl", ".pickle", ".pt", ".npz", ".npy", ".zip", ".tar", ".xlsx", ".pdf")


def corpus_names() -> tuple[str, ...]:
    """The data sets that `corpus` knows by name."""
    from lorgnette.texts.named import NAMED

    return (*NAMED, "planted")


def corpora() -> dict[str, str]:
    """Every corpus that can be loaded by name, with its splits and annotations.

        >>> import lorgnette as lo
        >>> lo.corpora()["sst2"]
        'train, dev, test; classes negative, positive'

    What it does not tell you: whether the files are on this machine; `lo.corpus` does.
    """
    from lorgnette.texts.named import NAMED
    from lorgnette.texts.planted import SIZES

    known = {name: named.about() for name, named in NAMED.items()}
    return {**known, "planted": f"{', '.join(SIZES)}; made on the spot, its truth is known"}


def corpus(
    name_or_path: object,
    *,
    split: str | None = None,
    data: str | Path | None = None,
    text_column: str = "text",
    label_column: str | None = None,
    pair_column: str | None = None,
    id_column: str | None = None,
    words_column: str | None = None,
    rationale_column: str | None = None,
    target_column: str | None = None,
    paragraphs: bool = False,
    limit: int | None = None,
) -> Corpus:
    """The corpus of that name or in that file; `limit` keeps the first n examples.

        >>> [example.label for example in lo.corpus("planted", split="test", limit=2)]
        [1, 1]

    A name is one of `lo.corpora()`, optionally with a variant or split ("hatexplain:test", "multi30k:en-fr:val"). It is
    read from the folder `data` (or LORGNETTE_DATA), else from the Hugging Face hub. Any other "owner/name" (or
    "hub:name") is a data set on the hub. A path is a file (text, .csv, .tsv, .jsonl, .conllu, also .gz or .xz) or a
    folder (a saved data set, or one with a file per split). A `datasets.Dataset`, a data frame, a dict of columns, or a
    list of dicts or texts also works. `lo.look` takes whatever this function takes.
    """
    from lorgnette.texts.columns import Columns

    columns = Columns(text_column, label_column, pair_column, id_column, words_column, rationale_column, target_column)
    if isinstance(name_or_path, Corpus):
        opened = name_or_path
    elif isinstance(name_or_path, str | Path):
        opened = _opened(str(name_or_path), split, data, columns, paragraphs)
    else:
        from lorgnette.texts.hub import dataset_corpus

        opened = dataset_corpus(name_or_path, split=split, columns=columns)
    return opened if limit is None else opened.take(whole_number(limit, "limit", at_least=0))


def texts_of(given: object) -> "Corpus | Iterable[Example | str]":
    """What is given as a corpus, anywhere: texts and examples as they are, anything else as `corpus` reads it.

    A list keeps its own examples and their ids. An iterator stays one: it can be read once.
    """
    if isinstance(given, Corpus | Iterator):
        return given
    if isinstance(given, list | tuple) and not any(isinstance(item, Mapping) for item in given):
        for number, item in enumerate(given, 1):
            refuse_no_text(item, number)
        return given
    if given is None or isinstance(given, bytes | bytearray | int | float | Example):
        hint = " For one text, pass [text]." if isinstance(given, Example) else ""
        raise UserError(
            f"corpus must be a name, a path, a Corpus, a data set or a list of texts. Got {shown(given)} instead.{hint}"
        )
    return corpus(given)


def as_examples(items: "Iterable[Example | str]") -> list[Example]:
    """Texts as examples; plain strings get their number as id."""
    out = []
    for number, item in enumerate(items, 1):
        refuse_no_text(item, number)
        out.append(item if isinstance(item, Example) else Example(f"text {number}", item))
    return out


def refuse_no_text(item: object, number: int) -> None:
    """Refuse an item that is neither a text nor an example."""
    if not isinstance(item, str | Example):
        raise UserError(f"Text {number} of the corpus must be a string or an Example. Got {shown(item)} instead.")


def _opened(name: str, split: str | None, data: str | Path | None, columns: Any, paragraphs: bool) -> Corpus:
    from lorgnette.texts.named import named_corpus

    first, *parts = name.split(":")
    if first == "planted":
        from lorgnette.texts.planted import planted_corpus

        return planted_corpus(*_one_split(name, parts, split))
    if first in corpus_names():
        return named_corpus(first, parts, split, data)
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path, split, columns, paragraphs)
    if path.is_file() or _looks_like_path(name):
        return _file(path, split, columns, paragraphs)
    from lorgnette.texts.hub import hub_corpus

    if name.startswith("hub:"):
        return hub_corpus(name.removeprefix("hub:"), split=split, columns=columns)
    meant = near(first, corpus_names())
    if "/" not in name and (meant or not re.fullmatch(r"[\w.-]+", name)):
        known = ", ".join(corpus_names())
        raise UserError(f"there is no corpus or file {name!r}.{meant} Named corpora: {known}; or give a path.")
    return hub_corpus(name, split=split, columns=columns)


def _one_split(name: str, parts: list[str], split: str | None) -> tuple[str | None]:
    asked = {*parts, *([split] if split else [])}
    if len(asked) > 1:
        raise UserError(f"{name} with split={split!r} names more than one split: give one.")
    return (next(iter(asked), None),)


def _looks_like_path(name: str) -> bool:
    from lorgnette.texts.files import inner_suffix

    known = (*TABLES, *TREEBANKS, *NOT_READ, ".txt", ".md", ".text")
    return name.startswith(("/", "./", "../", "~")) or "\\" in name or inner_suffix(Path(name)) in known


def _file(path: Path, split: str | None, columns: Any, paragraphs: bool) -> Corpus:
    """A corpus of one file. Its first example is read at once, so that a wrong file is told before any model loads."""
    from lorgnette.texts.files import existing_file, inner_suffix

    path, suffix = existing_file(path), inner_suffix(path)
    if split is not None:
        raise UserError(
            f"{path} is one file and has no split {split!r}: leave the split out, or give a folder with a file for "
            "each."
        )
    if suffix in NOT_READ:
        raise UserError(
            f"{path}: {suffix} files are not read; give .txt, .csv, .tsv, .jsonl or .conllu (also .gz, .xz)."
        )
    if paragraphs and suffix in (*TABLES, *TREEBANKS):
        raise UserError(f"{path}: paragraphs=True is for plain text, not for {suffix} files.")
    opened: Corpus
    if suffix in TABLES:
        from lorgnette.texts.tables import table_corpus

        opened = table_corpus(path, columns)
    elif suffix in TREEBANKS:
        from lorgnette.texts.treebank import treebank_corpus

        opened = treebank_corpus(path)
    else:
        from lorgnette.texts.text import text_corpus

        opened = text_corpus(path, paragraphs=paragraphs)
    next(iter(opened), None)
    return opened


def _folder(folder: Path, split: str | None, columns: Any, paragraphs: bool) -> Corpus:
    from lorgnette.texts.hub import saved_corpus
    from lorgnette.texts.named import SAME_SPLIT

    if any((folder / sign).is_file() for sign in ("dataset_dict.json", "state.json", "dataset_info.json")):
        return saved_corpus(folder, split=split, columns=columns)
    readable = (*TABLES, *TREEBANKS, ".txt")
    files = {file.name.split(".")[0]: file for file in sorted(folder.iterdir()) if _suffix(file) in readable}
    wanted = split or "train"
    stems = SAME_SPLIT if wanted in SAME_SPLIT else (wanted,)
    for stem in stems:
        if stem in files:
            return _file(files[stem], None, columns, paragraphs)
    names = ", ".join(file.name for file in files.values()) or "nothing that is read here"
    raise UserError(
        f"{folder}: no file for split {wanted!r}; there is {names}. Give another split, or the path of a file."
    )


def _suffix(file: Path) -> str:
    from lorgnette.texts.files import inner_suffix

    return inner_suffix(file) if file.is_file() else ""
