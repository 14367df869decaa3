"""One condition of Kobayashi et al. 2020 and 2021, measured: norms beside weights, mixing ratios, frequency."""

from typing import Any

import xarray as xr

from lorgnette.axes import HEAD
from lorgnette.corpora.frequency import Ranks, bert_ranks
from lorgnette.lenses.frequency.lens import Frequency
from lorgnette.lenses.norms.lens import RATIOS, Norms
from lorgnette.looking.look import look
from lorgnette.subject import Subject
from reproductions.frame.conditions import Condition
from reproductions.frame.readings import plain
from reproductions.kobayashi2020.ranked_norms import Occurrences, RankedNorms

KINDS = ("cls", "sep", "period_comma", "other")
MEASURES = ("weights", "norms")
F = ("f_mean", "f_sd", "f_cv", "f_max", "f_min")
_BY_KIND = ("weight", "norm", "norm_share", "f_norm")
PAIRS = 2**12
"""Pairs of each kind of token and block that a rank correlation is computed from."""


def measure(model: str, condition: str, count: int, blocks: int, seed: int, **local: Any) -> dict[str, Any]:
    """Everything by block, and what is over all tokens from all blocks together."""
    made = Condition.open(model, condition, count=count, blocks=blocks, seed=seed, **local)
    ranks = piece_ranks(made.subject, local.get("data"))
    occurrences, whole = Occurrences(), Norms(sample=0)
    whole.bind(made.subject)
    frequency = Frequency("corpus" if ranks is None else ranks)
    found: dict[str, list[Any]] = {}
    for block in made.blocks:
        lens = RankedNorms(occurrences, sample=PAIRS)
        results = look(made.subject, block, [lens, frequency], progress=False)
        for name, values in _of_block(results["norms"].data).items():
            found.setdefault(name, []).append(plain(values))
        whole.merge_state({name: lens.states()[name] for name in whole.states()})
    return {
        **made.origin(),
        "by_block": found,
        "whole": _of_whole(whole.compute().data),
        "frequency": _correlations(results["frequency"].data),
        "frequency_of_mixing": occurrences.correlations(ranks),
        "ranks": "counted in the segments" if ranks is None else ranks.source,
    }


def piece_ranks(subject: Subject, data: str | None) -> Ranks[int] | None:
    """BERT's ranks if the vocabulary is BERT's; None, and pieces are counted in the segments, if it is another."""
    known = subject.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", ",", ".", "the"])
    return bert_ranks(data) if known == [101, 102, 1010, 1012, 1996] else None


def _of_block(data: xr.Dataset) -> dict[str, Any]:
    """[layer kind] averaged over heads (segments first, as the paper), [kind], [layer ratio], [layer]."""
    data = data.isel(stack=0).sel(category=list(KINDS))
    return {
        **{name: data[name].mean(HEAD).values for name in _BY_KIND},
        "spearman": data["spearman"].values,
        "spearman_all": data["spearman_all"].values,
        "mixing": data["mixing"].sel(ratio=list(RATIOS)).values,
        "expansion": data["expansion"].values,
    }


def _of_whole(data: xr.Dataset) -> dict[str, Any]:
    """‖f(x)‖ of every head [layer head], and the extremes of mixing [layer ratio]."""
    data = data.isel(stack=0)
    out = {name: plain(data[name].values) for name in F}
    return out | {name: plain(data[name].sel(ratio=list(RATIOS)).values) for name in ("mixing_min", "mixing_max")}


def _correlations(data: xr.Dataset) -> dict[str, Any]:
    """ρ of frequency rank over all layers, with its interval and the number of occurrences, and by layer."""
    data = data.isel(stack=0)
    out: dict[str, Any] = {}
    for measure_name in MEASURES:
        cell = data.sel(measure=measure_name)
        values = [cell["spearman_all" + tail].item() for tail in ("", "_low", "_high")]
        out[measure_name] = {
            "all": plain(values),
            "tokens": int(cell["spearman_all_tokens"].item()),
            "layers": plain(cell["spearman"].values),
        }
    return out
