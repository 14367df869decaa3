"""Texts and what is known of them: files, `datasets`, named data sets, planted truth."""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path

from lorgnette.errors import UserError, near, shown, whole_number
from lorgnette.texts.columns import Columns
from lorgnette.texts.corpus import Corpus, SizedCorpus
from lorgnette.texts.example import Example
from lorgnette.texts.files import KINDS, File, existing, inner_suffix

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

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".tar")
TREEBANKS = (".conllu",)
NOT_READ = (
    *(".json", ".arrow", ".feather", ".orc", ".pkl", ".pickle", ".pt", ".pth", ".npz", ".npy"),
    *(".zip", ".tgz", ".7z", ".lz4", ".xlsx", ".pdf"),
)


def corpus_names() -> tuple[str, ...]:
    """The data sets that `corpus` knows by name."""
    from lorgnette.texts.named import NAMED

    return (*NAMED, "planted", "english")


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
    return {
        **known,
        "planted": f"{', '.join(SIZES)}; made on the spot, its truth is known",
        "english": "fifty short paragraphs; part of the package",
    }


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
    "hub:name") is a data set on the hub. A path is a file (text, .csv, .tsv, .jsonl, .parquet, .conllu, a WebDataset
    .tar; also .gz, .bz2, .xz or .zst), several files ("parts/*.parquet", "shard-{000..063}.tar") or a folder (a saved
    data set, or one with a file or shards per split); an address that fsspec opens ("s3://bucket/texts.jsonl.zst") is
    read like a path. A `datasets.Dataset`, a data frame, a dict of columns, or a list of dicts or texts also works, and
    so does a dict of these by split.
    `lo.look` takes whatever this function takes.
    """
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


def _opened(name: str, split: str | None, data: str | Path | None, columns: Columns, paragraphs: bool) -> Corpus:
    from lorgnette.texts.named import named_corpus
    from lorgnette.texts.remote import at_address, is_address
    from lorgnette.texts.several import expanded, is_pattern

    if is_pattern(name) and not Path(name).expanduser().is_file():
        return _several(name, expanded(name), split, columns, paragraphs)
    if is_address(name):
        return _begun(_file(at_address(name), split, columns, paragraphs))
    first, *parts = name.split(":")
    if first == "planted":
        from lorgnette.texts.planted import planted_corpus

        return planted_corpus(*_one_split(name, parts, split))
    if first == "english":
        if parts or split:
            wanted = ":".join(parts) or split
            raise UserError(f"english has no split {wanted!r}: leave it out, or choose a corpus with training texts.")
        return _english()
    if first in corpus_names():
        return named_corpus(first, parts, split, data)
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path, split, columns, paragraphs)
    if path.exists() or _looks_like_path(name):
        return _begun(_file(path, split, columns, paragraphs))
    from lorgnette.texts.hub import hub_corpus

    if name.startswith("hub:"):
        return hub_corpus(name.removeprefix("hub:"), split=split, columns=columns)
    meant = near(first, corpus_names())
    if "/" not in name and (meant or not re.fullmatch(r"[\w.-]+", name)):
        known = ", ".join(corpus_names())
        raise UserError(f"there is no corpus or file {name!r}.{meant} Named corpora: {known}; or give a path.")
    return hub_corpus(name, split=split, columns=columns)


def _english() -> Corpus:
    """The paragraphs that come with the package."""
    with resources.as_file(resources.files("lorgnette") / "demo_texts.txt") as path:
        return Corpus.of(list(_file(path, None, Columns(), paragraphs=True)), name="english")


def _one_split(name: str, parts: list[str], split: str | None) -> tuple[str | None]:
    asked = {*parts, *([split] if split else [])}
    if len(asked) > 1:
        raise UserError(f"{name} with split={split!r} names more than one split: give one.")
    return (next(iter(asked), None),)


def _looks_like_path(name: str) -> bool:
    known = (*TABLES, *TREEBANKS, *NOT_READ, ".txt", ".md", ".text")
    return name.startswith(("/", "./", "../", "~")) or "\\" in name or inner_suffix(Path(name)) in known


def _begun(corpus: Corpus) -> Corpus:
    """The same corpus. Its first example is read at once, so that a wrong file is told before any model loads."""
    next(iter(corpus), None)
    return corpus


def _several(name: str, files: list[str], split: str | None, columns: Columns, paragraphs: bool) -> Corpus:
    from lorgnette.texts.remote import at_address, is_address
    from lorgnette.texts.several import several_corpus

    def opened(file: str) -> Corpus:
        return _file(at_address(file) if is_address(file) else Path(file), split, columns, paragraphs)

    return _begun(several_corpus(name, files, opened))


def _file(path: File, split: str | None, columns: Columns, paragraphs: bool) -> Corpus:
    """A corpus of one file, on this machine or behind an address."""
    path, suffix = existing(path), inner_suffix(path)
    if split is not None:
        raise UserError(
            f"{path} is one file and has no split {split!r}: leave the split out, or give a folder with a file for "
            "each."
        )
    if suffix in NOT_READ:
        raise UserError(f"{path}: {suffix} files are not read; give {KINDS}.")
    if paragraphs and suffix in (*TABLES, *TREEBANKS):
        raise UserError(f"{path}: paragraphs=True is for plain text, not for {suffix} files.")
    if suffix in TABLES:
        from lorgnette.texts.tables import table_corpus

        return table_corpus(path, columns)
    if suffix in TREEBANKS:
        from lorgnette.texts.treebank import treebank_corpus

        return treebank_corpus(path)
    from lorgnette.texts.text import text_corpus

    return text_corpus(path, paragraphs=paragraphs)


def _folder(folder: Path, split: str | None, columns: Columns, paragraphs: bool) -> Corpus:
    from lorgnette.texts.hub import saved_corpus
    from lorgnette.texts.named import SAME_SPLIT

    if any((folder / sign).is_file() for sign in ("dataset_dict.json", "state.json", "dataset_info.json")):
        return saved_corpus(folder, split=split, columns=columns)
    readable = (*TABLES, *TREEBANKS, ".txt")
    present = [file for file in sorted(folder.iterdir()) if _suffix(file) in readable]
    files: dict[str, list[Path]] = {}
    for file in present:
        files.setdefault(re.sub(r"-\d+-of-\d+$", "", file.name.split(".")[0]), []).append(file)
    wanted = split or "train"
    stems = SAME_SPLIT if wanted in SAME_SPLIT else (wanted,)
    for stem in stems:
        if stem in files:
            return _split(folder, stem, files[stem], columns, paragraphs)
    names = ", ".join(file.name for file in present[:10]) or "nothing that is read here"
    more = f" and {len(present) - 10} more" if len(present) > 10 else ""
    raise UserError(
        f"{folder}: no file for split {wanted!r}; there is {names}{more}. Give another split, the path of a file, or a "
        f"pattern such as {folder / '*.parquet'}."
    )


def _split(folder: Path, stem: str, files: list[Path], columns: Columns, paragraphs: bool) -> Corpus:
    """A split in one file, or in all of its shards (train-00000-of-00002.parquet, …)."""
    shards = [found for file in files if (found := re.match(r".*-\d+-of-(\d+)\.", file.name))]
    if not shards:
        return _begun(_file(files[-1], None, columns, paragraphs))
    if len(shards) < len(files) or {int(found[1]) for found in shards} != {len(files)}:
        raise UserError(
            f"{folder}: {len(files)} files for split {stem!r}, {files[0].name} and others, are not the shards that "
            f"their names promise ({int(shards[0][1])}). Fetch the others, or give a pattern."
        )
    return _several(str(folder / f"{stem}-*"), [str(file) for file in files], None, columns, paragraphs)


def _suffix(file: Path) -> str:
    return inner_suffix(file) if file.is_file() else ""
