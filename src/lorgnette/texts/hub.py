"""Objects of the `datasets` library, and data sets of the Hugging Face hub."""

from collections.abc import Iterable, Iterator, Mapping, Sized
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError, near, optional
from lorgnette.texts.columns import Columns
from lorgnette.texts.corpus import Corpus, SizedCorpus, Some, Turns, in_parts, whole
from lorgnette.texts.example import Example
from lorgnette.texts.files import KINDS
from lorgnette.types import Json, Row

GIVE_A_FILE = f"Give the path of a file ({KINDS}) or of a saved data set instead."
TOGETHER = 4096
"""Rows of a `datasets.Dataset` among which those that are wanted are selected at a time."""


def dataset_corpus(
    dataset: Any, *, name: str | None = None, split: str | None = None, columns: Columns | None = None, **named: Any
) -> Corpus:
    """A corpus of a `datasets.Dataset`, an `IterableDataset`, or any re-iterable of dicts, texts or examples."""
    columns = columns or Columns(**{key.removesuffix("_column"): value for key, value in named.items()})
    dataset = _rows(dataset, columns)
    if isinstance(dataset, Mapping):  # datasets.DatasetDict, or a dict of data frames
        chosen = dataset[_chosen(split, list(dataset), name or "the data set")]
        dataset, split = _rows(chosen, columns), split or "train"
    if isinstance(dataset, Iterator):
        raise UserError("this iterator can be read only once; a corpus must be re-iterable, such as a list.")
    if not isinstance(dataset, Iterable) or isinstance(dataset, str | bytes | bytearray | Mapping):
        raise UserError(f"a {type(dataset).__name__} is not a data set: expected a re-iterable of dicts or texts.")
    where = name or type(dataset).__name__
    label_names = _class_names(dataset, columns.label)

    def located() -> Iterator[tuple[str, Any]]:
        return (located_row(where, number, row) for number, row in enumerate(dataset))

    def located_row(there: str, number: int, row: Any) -> tuple[str, Any]:
        return f"{there}, row {number}", row if isinstance(row, Mapping | Example) else {columns.text: row}

    def reading(rows: Iterable[object], there: str, before: str = "") -> Some:
        """How rows are read; those without an id are known by their number, with `before` before it."""

        def some(wanted: Turns) -> Iterator[Example | None]:
            # A ClassLabel column holds indices already; any other column holds the classes themselves.
            classes = {str(i) if label_names else label: i for i, label in enumerate(corpus.labels or ())}
            for number, row in enumerate(_in_turn(rows, wanted)):
                if row is None:
                    yield None
                    continue
                place, row = located_row(there, number, row)
                if label_names and row.get(columns.label) == -1:  # how `datasets` writes "no label"
                    row = {**row, columns.label: None}
                yield row if isinstance(row, Example) else columns.example(row, place, f"{before}{number}", classes)

        return some

    def labels() -> tuple[str, ...] | None:
        return label_names or (columns.labels(located()) if columns.label else None)

    corpus: Corpus
    if shards := _shards(dataset):
        parts = []
        for number, shard in enumerate(shards):
            some = reading(shard, f"{where}, shard {number}", f"{number}:")
            parts.append(
                Corpus(str(number), partial(whole, some), split=split, labels=lambda: corpus.labels, some=some)
            )
        corpus = in_parts(where, parts, split=split, labels=labels)
        return corpus
    some = reading(dataset, where)
    known = getattr(dataset, "_fingerprint", None)
    fields: Json = {"split": split, "labels": labels, "some": some}
    if known is not None:
        fields["source"] = lambda: [known.encode(), repr(columns).encode()]
    if isinstance(dataset, Sized):
        corpus = SizedCorpus(where, partial(whole, some), size=len(dataset), **fields)
    else:
        corpus = Corpus(where, partial(whole, some), **fields)
    return corpus


def _shards(dataset: object) -> list[Iterable[object]]:
    """The shards of a `datasets.IterableDataset`, if they hold its rows, one shard after another; else none.

    If it takes some rows only, interleaves data sets, shuffles, or gives a function numbers or batches of rows, its
    shards by themselves would have other rows.
    """
    steps, step = [], getattr(dataset, "_ex_iterable", None)
    while step is not None:
        steps.append(step)
        step = getattr(step, "ex_iterable", None)
    alike = all(type(step).__name__ in _BY_ROW for step in steps)
    alone = not any(getattr(step, "with_indices", False) or _in_batches(step) for step in steps)
    divided = getattr(dataset, "_distributed", None) is not None
    count = getattr(dataset, "num_shards", 1)
    if not steps or not alike or not alone or divided or count < 2:
        return []
    split = optional("datasets.distributed", "train").split_dataset_by_node
    return [split(dataset, number, count) for number in range(count)]


_BY_ROW = {
    *("ExamplesIterable", "ArrowExamplesIterable", "RebatchedArrowExamplesIterable", "SelectColumnsIterable"),
    *("FormattedExamplesIterable", "MappedExamplesIterable", "FilteredExamplesIterable"),
}
"""What an `IterableDataset` does to its rows, each by itself. Anything else keeps the data set whole."""


def _in_batches(step: object) -> bool:
    return type(step).__name__ == "MappedExamplesIterable" and bool(getattr(step, "batched", True))


def _in_turn(dataset: Any, wanted: Turns) -> Iterator[Any]:
    """The rows of a data set, None for each that is not wanted: of a `datasets.Dataset`, it is not read."""
    select = getattr(dataset, "select", None) if hasattr(dataset, "_fingerprint") else None
    if select is None:  # no `datasets.Dataset`
        yield from (row if turn else None for row, turn in zip(dataset, wanted, strict=False))
        return
    for start in range(0, len(dataset), TOGETHER):
        turns = list(islice(wanted, min(TOGETHER, len(dataset) - start)))
        chosen = [start + number for number, turn in enumerate(turns) if turn]
        rows = iter(select(chosen)) if chosen else iter(())
        yield from (next(rows) if turn else None for turn in turns)


def _rows(table: Any, columns: Columns) -> Any:
    """A table of columns (a data frame, a dict of lists) as rows; a series or an array of texts as a list."""
    if hasattr(table, "columns") and hasattr(table, "to_dict"):  # pandas; iterating it would give the names of columns
        return table.to_dict("records") if hasattr(table, "iloc") else table.to_dicts()
    if hasattr(table, "tolist"):  # an array, a series
        return table.tolist()
    if isinstance(table, Mapping) and (columns.text in table or columns.words in table):
        given = {name: values.tolist() if hasattr(values, "tolist") else values for name, values in table.items()}
        lists = all(isinstance(values, list | tuple) for values in given.values())
        if not lists or len({len(values) for values in given.values()}) > 1:
            raise UserError(
                f"This dict has a column {columns.text!r}, but its values are not lists of one length: give one value "
                "for each text in every column, or a list of dicts."
            )
        return [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
    return table


def saved_corpus(folder: Path, *, split: str | None, columns: Columns) -> Corpus:
    """A data set that `Dataset.save_to_disk` wrote."""
    load_from_disk = optional("datasets", "train").load_from_disk

    try:
        dataset = load_from_disk(str(folder))
    except Exception as broken:  # the library raises many kinds here; each means that the folder cannot be used
        raise UserError(f"{folder}: not a data set that can be loaded ({_first_line(broken)}).") from None
    return dataset_corpus(dataset, name=folder.name, split=split, columns=columns)


def load_hub(
    name: str, config: str | None = None, *, split: str, revision: str | None = None, what_else: str = GIVE_A_FILE
) -> Iterable[Row]:
    """Rows of a data set of the hub, streamed; a `UserError` says when there is no hub or no such data set.

    `what_else` ends that message: what the user can do instead.
    """
    datasets = optional("datasets", "train")

    if not _reachable():
        raise UserError(f"{name!r} is not on this machine, and the Hugging Face hub cannot be reached. {what_else}")
    try:
        return datasets.load_dataset(name, config, split=split, streaming=True, revision=revision)
    except ValueError as broken:  # a split or a configuration that is not there: the message lists those that are
        raise UserError(f"{name} on the hub cannot be read ({_first_line(broken)}). {what_else}") from None
    except Exception as broken:  # many kinds: offline mode, no such repository, a private one, the network in between
        raise UserError(f"{_why(name, broken)} {what_else}") from None


def _reachable() -> bool:
    """Whether the hub's machine answers: asked first, because the library retries for half a minute before it gives up.

    Behind a proxy, or in offline mode, the library's own answer is the right one.
    """
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or getproxies():
        return True
    address = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=5).close()
    except OSError:
        return False
    return True


def hub_corpus(name: str, *, split: str | None, columns: Columns) -> Corpus:
    """A data set of the hub, by its name there ("owner/name"), streamed."""
    split = split or "train"
    rows = load_hub(name, split=split)
    return dataset_corpus(rows, name=name, split=split, columns=columns)


def _why(name: str, broken: Exception) -> str:
    kind, said = type(broken).__name__, str(broken).lower()
    unreachable = any(word in said for word in ("offline", "reach", "connection", "resolve", "timed out"))
    if kind in ("DatasetNotFoundError", "RepositoryNotFoundError") and not unreachable:
        return f"there is no data set {name!r} on the Hugging Face hub (or it is not public)."
    return f"{name!r} is not on this machine, and the Hugging Face hub cannot be reached ({kind})."


def _first_line(broken: Exception) -> str:
    lines = str(broken).splitlines()
    return lines[0].rstrip(".") if lines else type(broken).__name__


def _class_names(dataset: Any, label: str | None) -> tuple[str, ...] | None:
    features = getattr(dataset, "features", None)
    names = getattr(features.get(label), "names", None) if features and label else None
    return tuple(names) if names else None


def _chosen(split: str | None, present: list[str], where: str) -> str:
    wanted = split or "train"
    if wanted not in present:
        known = list(map(str, present))
        raise UserError(f"{where}: no split {wanted!r}; there are {', '.join(known)}.{near(wanted, known)}")
    return wanted
