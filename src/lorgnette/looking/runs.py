"""The folder of a run: what it already holds, and whether that comes from the same model and texts."""

import os
from collections.abc import Sequence
from pathlib import Path

from lorgnette.files import hidden
from lorgnette.lens.base import Lens
from lorgnette.lens.states import description
from lorgnette.looking.texts import short_hash
from lorgnette.results import Results
from lorgnette.results.folder import INDEX, refuse_other_folder


class Run:
    """One look into a folder (or into none), with lenses that have seen nothing yet."""

    def __init__(
        self,
        out: str | os.PathLike[str] | None,
        origin: tuple[str, str, str | None],
        truncate: bool,
        lenses: Sequence[Lens],
    ) -> None:
        """`origin`: the hash of the weights, the precision, and what the texts are known by."""
        self.folder: Path | None = None if out is None else Path(out)
        self.names: list[str] = [lens.name for lens in lenses]
        self.origin: tuple[str, str, str | None] = origin
        self.known: bool = origin[2] is not None  # texts that can be read only once are never the same
        about = [*origin, truncate]
        self.keys = {lens.name: short_hash([*about, description(lens)]) for lens in lenses} if self.known else {}

    def others(self) -> Results:
        """Results of other lenses in the folder, from the same model and texts; otherwise a `UserError`."""
        if self.folder is None:
            return Results()
        refuse_other_folder(self.folder)
        old = self._saved()
        others = Results({name: result for name, result in old.items() if name not in self.names})
        origins = {(o.weights_hash, o.dtype, o.corpus_fingerprint) for o in (r.provenance for r in others.values())}
        if not self.known or origins - {self.origin}:
            refuse_other_folder(self.folder, self.names)
        others.looked = {name: key for name, key in old.looked.items() if name in others}
        others.text_numbers = others.text_numbers.joined(old.text_numbers, list(others))
        return others

    def finished(self) -> Results | None:
        """The results in the folder, if they are exactly those asked for and no run was interrupted since."""
        if self.folder is None or not self.known or hidden(self.folder, "unfinished").exists():
            return None
        old = self._saved()
        return old if all(name in old and old.looked.get(name) == key for name, key in self.keys.items()) else None

    def joined(self, others: Results, new: Results) -> Results:
        """Old and new results together, in the order in which they were made."""
        both = Results({**others, **new}, new.text_numbers.joined(others.text_numbers, list(others)))
        both.looked = {**others.looked, **self.keys}
        return both

    def _saved(self) -> Results:
        assert self.folder is not None
        return Results.load(self.folder) if (self.folder / INDEX).is_file() else Results()
