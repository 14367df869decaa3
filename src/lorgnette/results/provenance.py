"""Provenance: everything needed to reproduce a number."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

from lorgnette.errors import UserError
from lorgnette.types import Json

_RECORDED = ("lorgnette", "torch", "transformers", "torchmetrics", "tokenizers", "numpy", "xarray")


@cache
def versions() -> Mapping[str, str]:
    """Versions of what the numbers depend on, read from the installed metadata: nothing is imported."""
    versions = {"python": python_version()}
    for package in _RECORDED:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # run from a source tree that was never installed
            versions[package] = "not installed"
    return versions


def libraries() -> Mapping[str, str]:
    """The versions of other libraries, which numbers that are added up must share, whatever device they are for."""
    return {name: one.partition("+")[0] for name, one in versions().items() if name not in ("python", "lorgnette")}


_KINDS: Mapping[str, tuple[type, ...]] = {
    "model": (str,),
    **dict.fromkeys(("texts", "tokens", "truncated"), (int,)),
    **dict.fromkeys(("corpus", "split", "weights_hash", "model_class", "dtype", "device"), (str, type(None))),
    "versions": (dict,),
    "notes": (list, tuple),
    "created": (str,),
}
"""What a file may say of each."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What was analysed, on which texts, by which versions; `None` where it does not apply."""

    model: str
    model_class: str | None = None
    weights_hash: str | None = None
    corpus: str | None = None
    corpus_fingerprint: str | None = None
    split: str | None = None
    texts: int = 0
    tokens: int = 0
    truncated: int = 0  # texts that were cut, by the user's wish
    seed: int | None = None
    dtype: str | None = None
    device: str | None = None
    versions: Mapping[str, str] = field(default_factory=versions)
    command: str | None = None
    notes: tuple[str, ...] = ()
    created: str = field(default_factory=_now)

    def noted(self, *notes: str) -> "Provenance":
        """A copy with further notes, without duplicates."""
        return dataclasses.replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))

    def to_dict(self) -> Json:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "versions": dict(self.versions), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, fields: Json) -> "Provenance":
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(fields) - known):
            raise UserError(f"The provenance has unknown fields: {', '.join(unknown)}. Was the file edited?")
        if "model" not in fields:
            raise UserError("The provenance does not name a model. Was the file edited?")
        for name, kinds in _KINDS.items():
            if name in fields and not isinstance(fields[name], kinds):
                raise UserError(f"The provenance's {name} is {str(fields[name])[:40]!r}. Was the file edited?")
        return cls(**{**fields, "notes": tuple(map(str, fields.get("notes", ())))})
