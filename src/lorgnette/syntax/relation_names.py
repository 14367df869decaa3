"""Names of dependency relations: Universal Dependencies' 37, their frequent subtypes, and what counts as which."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

ALL = "all"
"""Every relation but punctuation; the root has no pair."""

UNIVERSAL = (
    "nsubj", "obj", "iobj", "csubj", "ccomp", "xcomp", "obl", "vocative", "expl", "dislocated", "advcl", "advmod",
    "discourse", "aux", "cop", "mark", "nmod", "appos", "nummod", "acl", "amod", "det", "clf", "case", "conj", "cc",
    "fixed", "flat", "list", "parataxis", "compound", "orphan", "goeswith", "reparandum", "punct", "dep",
)  # fmt: skip
"""Universal Dependencies v2, without root."""

SUBTYPES = (
    "nsubj:pass", "nsubj:outer", "csubj:pass", "csubj:outer", "obl:agent", "obl:arg", "obl:mod", "obl:tmod",
    "obl:npmod", "obl:unmarked", "expl:subj", "expl:comp", "expl:pass", "expl:pv", "advcl:relcl", "advmod:emph",
    "aux:pass", "aux:caus", "aux:tense", "nmod:poss", "nmod:desc", "nmod:tmod", "nmod:npmod", "nmod:unmarked",
    "nummod:gov", "acl:relcl", "det:predet", "det:poss", "cc:preconj", "flat:foreign", "flat:name", "compound:prt",
    "compound:lvc",
)  # fmt: skip
"""Subtypes that several treebanks share."""


def membership(
    relations: Sequence[Sequence[str]], names: Sequence[str], words: int
) -> Float[Tensor, "text word relation"]:
    """1 where a word's relation counts as a name: the whole of it, its part before the colon, or `all`."""
    column = {name: number for number, name in enumerate(names)}
    out = torch.zeros(len(relations), words, len(names), dtype=torch.float64)
    for text, labels in enumerate(relations):
        for word, label in enumerate(labels):
            bare = label.partition(":")[0]
            wanted = {label, bare} | ({ALL} if bare not in ("punct", "root") else set())
            for name in wanted & column.keys():
                out[text, word, column[name]] = 1.0
    return out
