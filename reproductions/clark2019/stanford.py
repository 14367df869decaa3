"""Stanford Dependencies, which the paper has, and what of Universal Dependencies stands for each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Counterpart:
    """`swapped`: the pair is the same, but what was the head is the dependent. `same`: whether the pairs are the same
    words at all; where they are not, numbers can be looked at side by side and nothing more."""

    relation: str
    swapped: bool = False
    same: bool = True
    note: str = ""


STANFORD_TO_UD = {
    "all": Counterpart("all", note="without punctuation; UD hangs function words on content words"),
    "prep": Counterpart("obl", same=False, note="UD has no pair of verb and preposition: here the noun and its verb"),
    "pobj": Counterpart("case", swapped=True, note="the noun's row must peak at its preposition"),
    "det": Counterpart("det"),
    "nn": Counterpart("compound", note="names (flat) are left out"),
    "nsubj": Counterpart("nsubj", note="with passive subjects"),
    "amod": Counterpart("amod"),
    "dobj": Counterpart("obj"),
    "advmod": Counterpart("advmod"),
    "aux": Counterpart("aux", note="with passive auxiliaries"),
    "poss": Counterpart("nmod:poss"),
    "auxpass": Counterpart("aux:pass"),
    "cop": Counterpart("cop"),
    "ccomp": Counterpart("ccomp"),
    "mark": Counterpart("mark", note="with the “to” of infinitives, which is aux in Stanford's"),
    "prt": Counterpart("compound:prt"),
}
"""In the order of the paper's table."""

UD_RELATIONS = tuple(dict.fromkeys(one.relation for one in STANFORD_TO_UD.values()))
