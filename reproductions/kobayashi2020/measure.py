"""One condition of Kobayashi et al. 2020 and 2021, measured: norms beside weights, mixing ratios, frequency."""

import xarray as xr

from lorgnette.axes import HEAD
from lorgnette.lens.frequency.lens import Frequency
from lorgnette.lens.norms.lens import RATIOS, Norms
from lorgnette.looking.look import look
from lorgnette.subject import Subject
from lorgnette.texts.frequency import FrequencyRanks, bert_ranks
from reproductions.cancellation_by_layer.measure import mean_values, run
from reproductions.frame.conditions import OURS, TRAINED, Condition
from reproductions.frame.settings import Machine
from reproductions.kobayashi2020.ranked_norms import Occurrences, RankedNorms, TokenNorms

KINDS = ("cls", "sep", "period_comma", "other")
MEASURES = ("weights", "norms")
F = ("f_mean", "f_sd", "f_cv", "f_max", "f_min")
PAIRS = 2**12
"""Pairs of each kind of token and block that a rank correlation is computed from."""


def measure(
    *, machine: Machine, model: str, condition: str, count: int, blocks: int, seed: int, segments_of: str = OURS
) -> xr.Dataset:
    """Everything by block, and what is over all tokens from all blocks together."""
    local = {"data": machine.data, "models": machine.models, "device": machine.device}
    made = Condition.open(model, condition, count=count, blocks=blocks, seed=seed, segments_of=segments_of, **local)
    ranks = piece_ranks(made.subject, machine.data)
    occurrences, whole = Occurrences(), Norms(sample=0)
    whole.bind(made.subject)
    by_rank = Frequency("corpus" if ranks is None else ranks)
    by_rank.bind(made.subject)
    by_block = []
    for block in made.blocks:
        lens = RankedNorms(occurrences, sample=PAIRS)
        frequency = Frequency("corpus" if ranks is None else ranks)
        results = look(made.subject, block, [lens, frequency], progress=False)
        by_block.append(_of_block(results["norms"].data))
        whole.merge_state({name: lens.states[name] for name in whole.states.tensors()})
        by_rank.merge_state(frequency)
    data = xr.merge(
        [
            xr.concat(by_block, "block"),
            _of_whole(whole.compute().data),
            _of_frequency(by_rank.compute().data),
            occurrences.correlations(ranks),
        ]
    )
    return data.assign_attrs(**made.origin(), ranks="counted in the segments" if ranks is None else ranks.source)


def measure_centred(*, machine: Machine, model: str, count: int, blocks: int, seed: int) -> xr.Dataset:
    """Of the trained model, with values less one constant per head: its mean over all tokens of the segments.

    `frequency_of_norms` is ρ of frequency rank with the norm of each occurrence, mean over heads and layers.
    """
    local = {"data": machine.data, "models": machine.models, "device": machine.device}
    made = Condition.open(model, TRAINED, count=count, blocks=blocks, seed=seed, **local)
    ranks, constants = piece_ranks(made.subject, machine.data), mean_values(made.subject, made.blocks)
    occurrences, lengths = Occurrences(), Occurrences()
    reader, by_block = TokenNorms(made.subject, constants), []
    for block in made.blocks:
        lens = RankedNorms(occurrences, constants, sample=PAIRS)
        by_block.append(_of_block(look(made.subject, block, [lens], progress=False)["norms"].data))
        batch = made.subject.encode(block)
        run(made.subject, batch, reader)
        lengths.add(batch, {"norm": reader.mean()})
    of_norms = lengths.correlations(ranks).isel(ratio=0, drop=True)
    names = {name: str(name).replace("mixing", "norms") for name in of_norms}
    data = xr.merge([xr.concat(by_block, "block"), occurrences.correlations(ranks), of_norms.rename(names)])
    return data.assign_attrs(**made.origin(), ranks="counted in the segments" if ranks is None else ranks.source)


def frequency_of_words(*, machine: Machine, model: str, count: int, specials: bool) -> xr.Dataset:
    """ρ of frequency rank with weights and norms of the trained model, without special tokens."""
    local = {"data": machine.data, "models": machine.models, "device": machine.device}
    made = Condition.open(model, TRAINED, count=count, blocks=1, seed=0, **local)
    ranks = piece_ranks(made.subject, machine.data)
    lens = Frequency("corpus" if ranks is None else ranks, specials=specials)
    data = _of_frequency(look(made.subject, made.blocks[0], [lens], progress=False)["frequency"].data)
    return data.assign_attrs(**made.origin(), ranks="counted in the segments" if ranks is None else ranks.source)


_BERT_PIECES = {"[CLS]": 101, "[SEP]": 102, ",": 1010, ".": 1012, "the": 1996}
_MPNET_SHIFT = 4
"""MPNet's vocabulary is BERT's behind four tokens of its own, two of which are used for [CLS] and [SEP]."""


def piece_ranks(subject: Subject, data: str | None) -> FrequencyRanks[int] | None:
    """BERT's ranks if the vocabulary is BERT's; None, and pieces are counted in the segments, if it is another."""
    tokenizer, bert = subject.tokenizer, list(_BERT_PIECES.values())
    known = tokenizer.convert_tokens_to_ids(list(_BERT_PIECES))
    if known == bert:
        return bert_ranks(data)
    if known != [piece + _MPNET_SHIFT for piece in bert]:
        return None
    given = bert_ranks(data)
    shifted = {piece + _MPNET_SHIFT: rank for piece, rank in given.ranks.items()}
    used = zip((tokenizer.cls_token_id, tokenizer.sep_token_id), bert[:2], strict=True)
    return FrequencyRanks({**shifted, **{own: given[piece] for own, piece in used}}, given.source)


def _of_block(data: xr.Dataset) -> xr.Dataset:
    """[layer kind] averaged over heads (segments first, as the paper), [kind], [layer ratio], [layer]."""
    data = data.isel(stack=0, drop=True).sel(category=list(KINDS), ratio=list(RATIOS)).rename(category="kind")
    means = {name: data[name].mean(HEAD) for name in ("weight", "norm", "norm_share")}
    return xr.Dataset({**means, **{name: data[name] for name in ("spearman", "spearman_all", "mixing", "expansion")}})


def _of_whole(data: xr.Dataset) -> xr.Dataset:
    """‖f(x)‖ of every head [layer head], and the extremes of mixing [layer ratio]."""
    return data.isel(stack=0, drop=True).sel(ratio=list(RATIOS))[[*F, "mixing_min", "mixing_max"]]


def _of_frequency(data: xr.Dataset) -> xr.Dataset:
    """ρ of frequency rank with weights and norms over all layers [measure], with its interval; by layer."""
    data = data.isel(stack=0, drop=True).sel(measure=list(MEASURES))
    names = {"spearman_all": "frequency", "spearman_all_low": "frequency_low", "spearman_all_high": "frequency_high"}
    return data[[*names, "spearman"]].rename(**names, spearman="frequency_by_layer")
