"""The pass over one share of the texts, as a `Shard`."""

import os
from collections.abc import Sequence
from dataclasses import replace

from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.states import gathered
from lorgnette.lens.whole_model import WholeModel
from lorgnette.looking.choosing import rounds_before, waiting
from lorgnette.looking.conclusion import provenance_of
from lorgnette.looking.corpus_pass import Setting, alone, passed, refuse_once
from lorgnette.looking.resume import states_of
from lorgnette.looking.shards import LensRecipe, Look, Shard, refuse_other, round_before
from lorgnette.looking.short_texts import as_json, short_texts
from lorgnette.looking.texts import Counts, TokenizedTexts
from lorgnette.models.loading import tensors_hash
from lorgnette.results import Results


def analysed_shard(
    texts: TokenizedTexts,
    chosen: Sequence[Lens],
    whole: Sequence[WholeModel],
    setting: Setting,
    about: Look,
    command: str | None,
    first: Results | str | os.PathLike[str] | None,
) -> Shard:
    """The states after a share of the texts, with what `merge` needs to know of them.

    Several processes divide the share, and all of them have the shard.
    """
    assert texts.share is not None
    looking: Sequence[Lens] = [*chosen, *whole]
    refuse_once(texts, chosen)
    earlier, done, before = rounds_before(texts.subject, chosen), 0, Results()
    parts = texts.part_fingerprints()
    if first is not None:
        if not earlier:
            raise UserError("No lens of this look needs a first round: leave out --first.")
        done, before = round_before(
            first, (about.weights, about.dtype, None if parts else about.corpus), about.truncate, earlier
        )
    if done < len(earlier):
        looking = earlier[done]
        about = replace(about, needed=tuple(map(LensRecipe.of, looking)), rounds_left=len(earlier) - done)
    there = None if setting.out is None else refuse_other(setting.out, about, texts.share, parts)
    if there is not None and setting.resume:
        return there
    for lens in waiting(looking):
        lens.take(before)
    with alone(setting.out, setting.ranks):
        counts, keeper, paths = passed(texts, looking, setting, unique_ids=about.keep is not None)
        for lens in looking if setting.ranks.world > 1 else ():
            lens.states.take_in(gathered(lens.states.tensors(), setting.ranks.group))
        states = {name: state.cpu() for name, state in states_of(looking).items()}
        shard = Shard(
            look=replace(about, corpus=texts.listing),  # of a stream, known only now
            share=texts.share,
            counts=counts,
            provenance=provenance_of(texts, Counts(), about.weights, about.seed, command),
            paths=tuple(sorted(paths)),
            digest=tensors_hash(states),
            parts=parts,
            examples=() if texts.once or about.needed else tuple(map(as_json, short_texts(texts))),
            first=None if first is None or isinstance(first, Results) else os.path.abspath(first),
            states=states,
        )
        if setting.out is not None and keeper is not None and setting.ranks.first:
            shard.save(setting.out)
            keeper.clear()
    return shard
