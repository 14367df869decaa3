"""The data sets that Lorgnette knows by name, and where it finds them."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

from lorgnette.errors import UserError, near
from lorgnette.texts import annotated, sets
from lorgnette.texts import esnli as nli
from lorgnette.texts.alignments import hansards
from lorgnette.texts.coreference import gap, passages
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.files import COMPRESSED, content, lines
from lorgnette.texts.treebank import treebank_corpus
from lorgnette.types import Row

SAME_SPLIT = ("val", "dev", "validation", "valid")  # four names for one thing
Rows = Iterable[Row]


@dataclass(frozen=True)
class Hub:
    """A data set as the hub has it: its name there, and how its rows become examples."""

    name: str
    read: Callable[[Rows], Iterable[Example]]
    config: str | None = None
    splits: tuple[str, ...] = ("train", "validation", "test")
    # Data sets that came with a loading script are read from the hub's own conversion to Parquet.
    revision: str | None = None


@dataclass(frozen=True)
class Named:
    """A data set known by name: its splits, its files below the data folder, and how they are read."""

    splits: tuple[str, ...]
    files: Callable[[str, str], tuple[str, ...]]  # (split, variant) → files in the folder of the data set
    read: Callable[..., Iterable[Example]] | None = None  # (files…, split=…) → examples; None: a treebank
    labels: tuple[str, ...] | None = None
    variants: tuple[str, ...] = ("",)
    hub: Hub | None = None
    needs_split: bool = False
    source: str = ""  # where its files can be had, if they are no part of any folder of data
    sorted_by_class: bool = False  # then the classes are made to take turns, so that the first n are balanced

    def about(self) -> str:
        """Splits, classes, variants, in one line."""
        parts = [", ".join(self.splits), "dependency trees" if self.read is None else ""]
        parts.append(f"classes {', '.join(self.labels)}" if self.labels else "")
        variants = ", ".join(filter(None, self.variants))
        parts.append(f"variants {variants}" if variants else "")
        return "; ".join(filter(None, parts))


def _by_split(pattern: str) -> Callable[[str, str], tuple[str, ...]]:
    return lambda split, variant: (pattern.format(split=split, variant=variant),)


def _treebank(prefix: str, *splits: str) -> Named:
    return Named(splits or ("train", "dev", "test"), _by_split(prefix + "-ud-{split}.conllu"))


def _esnli_files(split: str, variant: str) -> tuple[str, ...]:
    part = "test" if split == "test" else "dev"
    return f"esnli_{part}.explanations_no_highlights.tsv", "esnli_entailment_subset.highlights.csv"


def _multi30k_files(split: str, variant: str) -> tuple[str, ...]:
    source, target = variant.split("-")
    split = "test_2016_flickr" if split == "test" else split
    return f"{split}.{source}", f"{split}.{target}"


def _parallel_files(split: str, variant: str) -> tuple[str, ...]:
    names = {
        "tatoeba": "tatoeba.en-ru.tsv",
        "wmt": "wmt_newstest_2012-2020.en-ru.tsv",
        "opensubtitles": "opensubtitles_voita2019.en-ru.tok.tsv",
    }
    return (names[variant],)


_ESNLI_RELEASED = {
    "train": ("esnli_train_1.csv", "esnli_train_2.csv"),
    "val": ("esnli_dev.csv",),
    "test": ("esnli_test.csv",),
}


def _bitext(source: str) -> Named:
    """English and Russian, line by line, in the user's own three parts."""
    splits = ("train", "val", "test")
    return Named(splits, lambda split, variant: (f"{split}.en", f"{split}.ru"), sets.aligned, source=source)


def _each(convert: Callable[[int, Row], Example | None]) -> Callable[[Rows], Iterator[Example]]:
    """Rows one by one, leaving out those for which `convert` gives None."""
    return lambda rows: (example for number, row in enumerate(rows) if (example := convert(number, row)) is not None)


def _wikitext_hub(rows: Rows) -> Iterator[Example]:
    return sets.wikitext((number, row["text"]) for number, row in enumerate(rows, 1))


_PARQUET = "refs/convert/parquet"

NAMED: dict[str, Named] = {
    "imdb": Named(
        ("train", "test"),
        _by_split("imdb_{split}.jsonl"),
        sets.imdb,
        annotated.SENTIMENT,
        hub=Hub("stanfordnlp/imdb", _each(sets.imdb_hub), splits=("train", "test")),
        sorted_by_class=True,
    ),
    "hatexplain": Named(
        ("train", "val", "test"),
        _by_split("hatexplain_{split}.jsonl"),
        annotated.hatexplain,
        annotated.HATE_LABELS,
        hub=Hub("Hate-speech-CNERG/hatexplain", _each(annotated.hatexplain_hub), revision=_PARQUET),
    ),
    "yelphat": Named(
        ("train", "val", "test50", "test100", "test200", "test"),
        _by_split("yelphat.jsonl"),
        annotated.yelphat,
        annotated.SENTIMENT,
        needs_split=True,
    ),
    "esnli": Named(
        ("train", "val", "test"),
        _esnli_files,
        nli.esnli,
        nli.LABELS,
        hub=Hub("esnli/esnli", _each(nli.esnli_hub), revision=_PARQUET),
        needs_split=True,
    ),
    "esnli_full": Named(
        ("train", "val", "test"),
        lambda split, variant: _ESNLI_RELEASED[split],
        nli.released,
        nli.LABELS,
        source=nli.SOURCE,
    ),
    "eraser_movies": Named(
        ("train", "val", "test"),
        _by_split("movies_{split}.jsonl"),
        annotated.movies,
        annotated.SENTIMENT,
        sorted_by_class=True,
    ),
    "sst2": Named(
        ("train", "dev", "test"),
        _by_split("{split}.tsv"),
        sets.sst2,
        annotated.SENTIMENT,
        hub=Hub("stanfordnlp/sst2", _each(sets.sst2_hub)),
    ),
    "ud_en_ewt": _treebank("en_ewt"),
    "ud_en_gum": replace(_treebank("en_gum"), variants=("", "passages")),
    "ud_en_pud": _treebank("en_pud", "test"),
    "ud_fr_sequoia": _treebank("fr_sequoia"),
    "conll2000": Named(("train", "test"), _by_split("{split}.txt"), sets.conll2000),
    "multi30k": Named(
        ("train", "val", "test", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr"),
        _multi30k_files,
        sets.aligned,
        variants=(
            "en-fr",
            *("-".join(two) for two in permutations(("en", "de", "fr", "cs"), 2) if two != ("en", "fr")),
        ),
    ),
    "parallel_en_ru": Named(("test",), _parallel_files, sets.parallel, variants=("tatoeba", "wmt", "opensubtitles")),
    "wmt_en_ru": _bitext("statmt.org, news translation, English-Russian, as train.en, train.ru, val.en …"),
    "opensubtitles_en_ru": _bitext("opus.nlpl.eu, OpenSubtitles2018, English-Russian, as train.en, train.ru, val.en …"),
    "hansards_en_fr": Named(("test",), lambda split, variant: ("enfr.src-tgt", "enfr.gold"), hansards),
    "gap_coreference": Named(("development", "test", "validation"), _by_split("gap-{split}.tsv"), gap),
    "wikitext2": Named(
        ("valid", "test"),
        _by_split("{split}.txt"),
        lambda path: sets.wikitext(lines(path)),
        hub=Hub("Salesforce/wikitext", _wikitext_hub, config="wikitext-2-v1"),
    ),
}


def named_corpus(
    name: str, parts: Iterable[str] = (), split: str | None = None, data: str | Path | None = None
) -> Corpus:
    """The data set `name`; `parts` are its variant or split as written after colons ("multi30k:en-fr:val")."""
    known = NAMED[name]
    variant = ""
    for part in parts:
        if part in known.variants:
            variant = part
        elif split is None or _same(part, split):
            split = part
        else:
            raise UserError(f"{name}:{part} asks for split {part!r}, but split={split!r} was given: drop one of them.")
    variant = variant or known.variants[0]
    title = f"{name}:{variant}" if variant else name
    folder = _folder(name, data)
    if folder is None:
        return _from_hub(name, known, split)
    split = _split(title, split, known.splits, [v for v in known.variants if v])
    paths = [_file(folder, file, title, known, variant) for file in known.files(split, variant)]
    if known.read is None:
        trees = treebank_corpus(paths[0], name=title, split=split)
        return passages(trees) if variant == "passages" else trees
    read, asked = known.read, {"split": split} if known.needs_split else {}
    return Corpus(
        title,
        _in_turns(known, lambda: read(*paths, **asked)),
        split=split,
        labels=known.labels,
        source=lambda: (block for path in paths for block in content(path)),
    )


def name_and_split(name: str) -> tuple[str, str | None]:
    """("multi30k:en-fr", "val") of "multi30k:en-fr:val"; None unless a named corpus names one split."""
    first, *parts = name.split(":")
    variants = NAMED[first].variants if first in NAMED else ()
    splits = [part for part in parts if part not in variants]
    if len(splits) != 1 or first not in (*NAMED, "planted"):
        return name, None
    return ":".join([first, *(part for part in parts if part in variants)]), splits[0]


def _same(one: str, other: str) -> bool:
    return one == other or (one in SAME_SPLIT and other in SAME_SPLIT)


def _split(title: str, split: str | None, present: tuple[str, ...], variants: Iterable[str] = ()) -> str:
    if split is None:
        return present[0]
    for path in present:
        if _same(split, path):
            return path
    other = f" (variants: {', '.join(variants)})" if variants else ""
    raise UserError(f"{title} has no split {split!r}; there are {', '.join(present)}{other}.{near(split, present)}")


def _folder(name: str, data: str | Path | None) -> Path | None:
    """Where the data set lies; None when no folder was given, or the environment's folder does not have it."""
    given = data if data is not None else os.environ.get("LORGNETTE_DATA")
    if not given:
        return None
    root = Path(given).expanduser()
    how = "data=" if data is not None else "LORGNETTE_DATA="
    if not root.is_dir():
        raise UserError(f"{how}{given}: there is no such folder. Give the folder that holds the data sets.")
    folder = root / name
    if folder.is_dir():
        return folder
    if data is not None:
        own = NAMED[name].source
        how = f"Its files are those of {own}" if own else "Give the folder that holds the data sets, or leave out data="
        raise UserError(f"{root} has no folder {name!r}. {how}.")
    return None


def _file(folder: Path, file: str, title: str, known: Named, variant: str) -> Path:
    for suffix in ("", *COMPRESSED):
        if (folder / (file + suffix)).is_file():
            return folder / (file + suffix)

    def whole(split: str) -> bool:
        return all(any((folder / (f + s)).is_file() for s in ("", *COMPRESSED)) for f in known.files(split, variant))

    splits = ", ".join(split for split in known.splits if whole(split)) or "none"
    raise UserError(
        f"{title}: no file {file} (or {', '.join(COMPRESSED)}) in {folder}; available splits: {splits}."
        + (f" It is one of {known.source}." if known.source else "")
    )


def _from_hub(name: str, known: Named, split: str | None) -> Corpus:
    where = "Set LORGNETTE_DATA (or data=) to the folder that holds it"
    if known.hub is None:
        if known.source:
            where = f"Its files are those of {known.source}. {where}"
        raise UserError(
            f"{name} is not on the Hugging Face hub in a form read here. {where}, or give the path of a file."
        )
    from lorgnette.texts.hub import load_hub

    hub = known.hub
    split = _split(f"{name} (on the hub)", split, hub.splits)
    rows = load_hub(hub.name, hub.config, split=split, revision=hub.revision, what_else=f"{where}.")

    return Corpus(name, _in_turns(known, lambda: hub.read(rows)), split=split, labels=known.labels)


def _in_turns(known: Named, read: Callable[[], Iterable[Example]]) -> Callable[[], Iterable[Example]]:
    if not known.sorted_by_class:
        return read
    return lambda: sets.alternating(read, len(known.labels or ()))
