"""One shard of a look: the states of its lenses after its share of the texts, and what they must agree in to merge."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lorgnette import __version__
from lorgnette.constraints import checked
from lorgnette.errors import UserError, reason
from lorgnette.files import folder_written_whole, recover
from lorgnette.lens.base import Lens
from lorgnette.lens.states import description
from lorgnette.lens.whole_model import WholeModel
from lorgnette.looking.runs import Run
from lorgnette.looking.texts import Counts, Share, TokenizedTexts
from lorgnette.models.loading import tensors_hash
from lorgnette.results import Results
from lorgnette.results.folder import SCHEMA_VERSION, parsed, read
from lorgnette.results.provenance import Provenance, libraries
from lorgnette.texts.corpus import joined_fingerprint
from lorgnette.types import Json

FORMAT = "lorgnette-shard"
HEADER, STATES = "shard.json", "states.safetensors"
_DIFFERENCES = {
    "library": "another version of Lorgnette",
    "weights": "other weights",
    "dtype": "another precision",
    "corpus": "other texts",
    "truncate": "another --truncate",
    "labels": "other --labels",
    "keep": "another --keep",
    "seed": "another --seed",
    "shards": "another number of shards",
    "lenses": "other lenses or options",
    "whole": "labels of another kind",
    "left_out": "other lenses that cannot look",
    "needed": "another round",
    "rounds_left": "another round",
}


@dataclass(frozen=True)
class LensRecipe:
    """How `merge` makes a lens again, and what shows that it is the same lens."""

    name: str
    options: Json | None
    """None if they cannot be written as JSON; then the caller of `merge` must pass the lens."""
    description: str

    @staticmethod
    def of(lens: Lens) -> "LensRecipe":
        """The recipe of a bound lens without numbers."""
        try:
            options = json.loads(json.dumps(dict(lens.made_with)))
        except (TypeError, ValueError):
            options = None
        return LensRecipe(lens.name, options, description(lens))


@dataclass(frozen=True)
class Look:
    """What all shards of one look have in common."""

    library: str
    packages: Mapping[str, str]
    """Versions of the libraries that the numbers depend on."""
    weights: str
    dtype: str
    corpus: str | None
    """What identifies the texts; for a corpus in parts, their names (`Shard.parts` has their fingerprints)."""
    truncate: bool
    labels: Json | None
    keep: str | None
    seed: int | None
    shards: int
    lenses: tuple[LensRecipe, ...]
    whole: bool
    """Whether the last of the lenses measures the whole model (`WholeModel`)."""
    left_out: Json | None = None
    """If all lenses were requested, why some did not apply."""
    needed: tuple[LensRecipe, ...] = ()
    """In a round before the last: the lenses whose results the next round needs before it looks, and whose states these
    are."""
    rounds_left: int = 0
    """How many rounds come after this one."""

    @staticmethod
    def of(
        texts: TokenizedTexts,
        lenses: Sequence[Lens],
        weights: str,
        *,
        labels: Mapping[str, str] | None,
        keep: str | None,
        seed: int | None,
        left_out: Json | None,
    ) -> "Look":
        """Describe a look before it begins; the lenses are bound and hold no numbers."""
        return Look(
            library=__version__,
            packages=libraries(),
            weights=weights,
            dtype=texts.subject.precision,
            corpus=texts.listing,
            truncate=texts.truncate,
            labels=None if labels is None else dict(labels),
            keep=keep,
            seed=seed,
            shards=1 if texts.share is None else texts.share.of,
            lenses=tuple(map(LensRecipe.of, lenses)),
            whole=any(isinstance(lens, WholeModel) for lens in lenses),
            left_out=left_out,
        )

    def differences(self, other: "Look") -> str:
        """What differs in the other look, in words."""
        unlike = [words for name, words in _DIFFERENCES.items() if getattr(self, name) != getattr(other, name)]
        unlike += [
            f"{name} {other.packages.get(name)}, not {self.packages.get(name)}"
            for name in sorted({*self.packages, *other.packages})
            if self.packages.get(name) != other.packages.get(name)
        ]
        return ", ".join(dict.fromkeys(unlike))


@dataclass(frozen=True)
class Shard:
    """A share of the texts of a look as states that merge: what `look(…, shard=(3, 64))` returns and writes.

        >>> shard = lo.look(subject, texts, "weights", shard=(1, 2), progress=False)
        >>> shard.save("parts/1")
        >>> lo.Shard.open("parts/1").counts == shard.counts
        True

    `lo.merge` makes results from all shards of a look.
    """

    look: Look
    share: Share
    counts: Counts
    provenance: Provenance
    """Without the notes about counts."""
    paths: tuple[str, ...]
    """How the statistics of rows were computed on a GPU."""
    digest: str
    parts: Mapping[int, str] = field(default_factory=dict)
    """For a corpus in parts (files, shards of a data set), the fingerprints of the parts that this shard has read."""
    examples: tuple[Json, ...] = ()
    """Short texts of this shard, which a page may show."""
    first: str | None = None
    """The folder with the results of the round before, if there was one."""
    states: Mapping[str, Tensor] | None = field(default=None, repr=False)
    folder: Path | None = None

    def __str__(self) -> str:
        return f"shard {self.share}" if self.folder is None else str(self.folder)

    @property
    def about(self) -> Json:
        """The header, as it is written."""
        return {
            "format": FORMAT,
            "schema": SCHEMA_VERSION,
            "shard": [self.share.number, self.share.of],
            "texts": f"number {self.share.number} of the corpus and every {self.share.of}th after it",
            "look": asdict(self.look),
            "counts": asdict(self.counts),
            "provenance": self.provenance.to_dict(),
            "paths": list(self.paths),
            "parts": list(self.parts.items()),
            "first": self.first,
            "examples": list(self.examples),
            "sha256": self.digest,
        }

    @checked
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it to a folder, whole or not at all; a folder with anything else is refused."""
        refuse_other(folder, self.look, self.share, self.parts)
        with folder_written_whole(folder, lambda _: {HEADER, STATES}) as partial:
            save_file(dict(self.tensors()), partial / STATES)
            (partial / HEADER).write_text(json.dumps(self.about, indent=1), encoding="utf-8")

    @staticmethod
    @checked
    def open(folder: str | os.PathLike[str]) -> "Shard":
        """Open a folder by its header; the states are read when they are needed."""
        folder = Path(folder)
        file = folder / HEADER
        if not file.is_file():
            raise UserError(f"{folder} is not a shard: it has no {HEADER}. Give folders that look --shard wrote.")
        about = parsed(read(file), str(file), FORMAT)
        try:
            return Shard(
                look=_look(about["look"]),
                share=Share.given(about["shard"]),
                counts=Counts(**about["counts"]),
                provenance=Provenance.from_dict(about["provenance"]),
                paths=tuple(about["paths"]),
                digest=about["sha256"],
                parts=dict(about["parts"]),
                examples=tuple(about["examples"]),
                first=about["first"],
                folder=folder,
            )
        except (KeyError, TypeError, ValueError, UserError) as error:
            raise _damaged(folder, error) from error

    def tensors(self) -> Mapping[str, Tensor]:
        """The states; those of a folder are read, and compared with what was written."""
        if self.states is not None:
            return self.states
        assert self.folder is not None
        try:
            with safe_open(self.folder / STATES, framework="pt") as stored:
                tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118  (not a dict)
        except (SafetensorError, OSError, ValueError) as error:
            raise _damaged(self.folder, error) from error
        if tensors_hash(tensors) != self.digest:
            raise _damaged(self.folder, "its numbers are not those that were written")
        return tensors


def _look(fields: Json) -> Look:
    recipes = {name: tuple(LensRecipe(**each) for each in fields[name]) for name in ("lenses", "needed")}
    return Look(**{**fields, **recipes})


def _damaged(folder: Path, error: object) -> UserError:
    why = reason(error) if isinstance(error, BaseException) else error
    return UserError(f"The shard {folder} is damaged ({why}). Move it away and run this shard again.")


def refuse_other(folder: str | os.PathLike[str], look: Look, share: Share, parts: Mapping[int, str]) -> Shard | None:
    """UserError if a folder holds anything but this shard of this look; the shard, if it holds it."""
    folder = Path(folder)
    recover(folder, lambda _: {HEADER, STATES})
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; a folder is needed.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    if not (folder / HEADER).is_file():
        raise UserError(f"{folder} exists and is not a shard; nothing was written. Choose another folder.")
    there = Shard.open(folder)
    if there.share.number != share.number and there.share.of == share.of:
        raise UserError(f"{folder} holds shard {there.share}, not {share}; nothing was written. Choose another folder.")
    differences = look.differences(there.look) or ("" if there.parts == parts else _DIFFERENCES["corpus"])
    if differences:
        raise UserError(f"{folder} holds a shard of another look ({differences}). Choose another folder.")
    return there


def round_before(
    first: Results | str | os.PathLike[str],
    origin: tuple[str, str, str | None],
    truncate: bool,
    rounds: Sequence[Sequence[Lens]],
) -> tuple[int, Results]:
    """The merged results of an earlier round of this model and these texts, and how many rounds they are.

    None for the texts: those of that round, because a shard does not know all; `merge` does, and compares them.
    """
    results = first if isinstance(first, Results) else Results.load(first)
    if origin[2] is None:
        known = {result.provenance.corpus_fingerprint for result in results.values()}
        origin = (*origin[:2], known.pop() if len(known) == 1 else None)
    name = "The first round" if isinstance(first, Results) else str(first)
    lacks: list[str] = []
    for done in range(len(rounds), 0, -1):
        keys = Run(None, origin, truncate, rounds[done - 1]).keys
        lacks = [lens for lens, key in keys.items() if results.looked.get(lens) != key]
        if keys and not lacks:
            return done, results
    raise UserError(
        f"{name} has no {', '.join(lacks)} of this model and these texts. Merge the shards of the round before, with "
        "the same options, and give what comes of it."
    )


def joined_corpus(shards: Sequence[Shard]) -> str | None:
    """What identifies the texts of all shards."""
    parts: dict[int, tuple[str, Shard]] = {}
    for shard in shards:
        for place, fingerprint in shard.parts.items():
            known, reader = parts.setdefault(place, (fingerprint, shard))
            if known != fingerprint:
                raise foreign(shard, reader, _DIFFERENCES["corpus"])
    if not parts:
        return shards[0].look.corpus
    origin = shards[0].provenance
    return joined_fingerprint((parts[place][0] for place in sorted(parts)), str(origin.corpus), origin.split)


def foreign(shard: Shard, other: Shard, differences: str) -> UserError:
    return UserError(f"{shard} does not belong to the same look as {other}: it has {differences}.")


def joined_provenance(shards: Sequence[Shard], counts: Counts, command: str) -> Provenance:
    """The provenance of the numbers of all shards."""
    origins = [shard.provenance for shard in shards]
    packages = origins[0].versions
    fields = origins[0].to_dict()
    fields["versions"] = {
        name: " and ".join(sorted({origin.versions.get(name, "?") for origin in origins})) for name in packages
    }
    fields["device"] = " and ".join(sorted({str(origin.device) for origin in origins}))
    fields["corpus_fingerprint"] = joined_corpus(shards)
    fields |= {"texts": counts.texts, "tokens": counts.tokens, "truncated": counts.truncated, "command": command}
    fields.pop("created")
    notes = dict.fromkeys(note for origin in origins for note in origin.notes)
    return Provenance.from_dict({**fields, "notes": [*counts.notes(), *notes, f"merged from {len(shards)} shards"]})
