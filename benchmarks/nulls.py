"""Every test of the library under a true null, many times: how often does it claim something?

`python -m benchmarks.nulls` prints a table of shares of trials with at least one false claim, which should be 5 % or
less; `python -m benchmarks.nulls 2000 NAME` runs so many trials of the tests whose name contains NAME. A trial draws
numbers in which nothing differs and hands them to the function that decides in the library. Texts differ from each
other far more than heads do, as in every corpus.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.figures.doubt import extreme, significantly_above
from lorgnette.lens.alignment.linking import error_difference
from lorgnette.lens.cones.formulas import separation
from lorgnette.lens.cones.outcome import lowest_q
from lorgnette.lens.frequency.lens import rank_correlation
from lorgnette.lens.importance.report import q_values
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs, extreme_q
from lorgnette.lens.patching.lens import clustered_error, ratio_of_sums
from lorgnette.lens.places import Places
from lorgnette.lens.probes.outcome import from_the_best
from lorgnette.lens.rationales.lens import pairs_tested
from lorgnette.lens.relations.report import findings as relations_findings
from lorgnette.lens.removal.lens import RANDOM, p_against_random, p_of_pairs
from lorgnette.lens.roles.parsing import corrected, held_out_p
from lorgnette.lens.sources.lens import pairs_of_signals
from lorgnette.reporting.compare import adjusted
from lorgnette.results import Result
from lorgnette.results.provenance import Provenance
from lorgnette.statistics.bleu import bleu, difference
from lorgnette.statistics.bootstrap import bootstrap_mean_interval
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery, paired_error, share_interval
from lorgnette.statistics.perplexity import Likelihoods
from lorgnette.statistics.perplexity import difference as perplexity_difference
from lorgnette.statistics.rank_agreement import advantages, correlations, ranked, spearman_draws
from lorgnette.syntax.relations import WAYS

Numbers = Float[np.ndarray, "text *cell"]
Trial = Callable[[np.random.Generator, int], bool]
HEADS = (3, 4)


@dataclass(frozen=True)
class Null:
    """A test, who uses it, at which sizes it is run, and one trial: whether it claims anything."""

    name: str
    used_by: str
    trial: Trial
    sizes: tuple[int, ...] = (3, 10, 50)
    of: str = "texts"


@dataclass(frozen=True)
class Rate:
    """How often a test claimed something of nothing."""

    null: Null
    size: int
    claims: int
    trials: int

    @property
    def share(self) -> float:
        return self.claims / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        return share_interval(self.claims, self.trials)


def alike(draw: np.random.Generator, texts: int, *cells: int) -> Numbers:
    """Numbers of texts whose cells have one mean: what a text does to all cells, and noise of its own for each."""
    return 2 * draw.normal(size=(texts, *(1 for _ in cells))) + draw.normal(size=(texts, *cells))


def around_zero(draw: np.random.Generator, texts: int, *cells: int) -> Numbers:
    """Numbers of mean zero, with heavy tails and correlated over cells."""
    return draw.standard_t(5, size=(texts, *cells)) + draw.normal(size=(texts, *(1 for _ in cells)))


def over_texts(values: Numbers, *dims: str) -> Estimate:
    """Means over texts, as arrays with these axes."""
    mean = Estimate.mean(np.moveaxis(values, 0, -1))
    parts = (mean.value, mean.se, np.full(values.shape[1:], len(values)))
    return Estimate(*(xr.DataArray(part, dims=dims) for part in parts))


def _one_mean(draw: np.random.Generator, texts: int) -> bool:
    return bool(Estimate.mean(draw.normal(size=texts)).p < LEVEL)


def _one_skewed_mean(draw: np.random.Generator, texts: int) -> bool:
    return bool(Estimate.mean(draw.exponential(size=texts) - 1).p < LEVEL)


def _one_sided(draw: np.random.Generator, texts: int) -> bool:
    return bool(Estimate.mean(draw.normal(size=texts)).p_above < LEVEL)


def _paired_ratio(draw: np.random.Generator, texts: int) -> bool:
    """Means over tokens: texts have other lengths, and the two runs share them."""
    weights = draw.integers(5, 40, size=texts).astype(float)
    before, after = alike(draw, texts, 2).T
    error, count = paired_error(*(part[:, None] for part in (before, weights, after, weights)))
    value = ((after - before) * weights).sum() / weights.sum()
    return bool(Estimate(value, error[0], count[0]).p < LEVEL)


def _welch(draw: np.random.Generator, texts: int) -> bool:
    one, other = draw.normal(size=texts), 3 * draw.normal(size=2 * texts)
    return bool(Estimate.mean(one).minus_independent(Estimate.mean(other)).p < LEVEL)


def _compared_heads(draw: np.random.Generator, texts: int) -> bool:
    p = over_texts(around_zero(draw, texts, *HEADS), axes.LAYER, axes.HEAD).p
    return bool((adjusted(p) < LEVEL).any())


def _many_cells(draw: np.random.Generator, texts: int) -> bool:
    """Every edge between heads, pair of heads, or head: values of mean zero, corrected together."""
    return bool((false_discovery(over_texts(around_zero(draw, texts, 30, 30), axes.LAYER, axes.HEAD).p) < LEVEL).any())


def _sources_signals(draw: np.random.Generator, prompts: int) -> bool:
    """Five signals that agree with deletion equally well."""
    values = alike(draw, prompts, 5)
    apart = over_texts(values[:, :, None] - values[:, None], axes.MEASURE, axes.METHOD_B)
    return bool((pairs_of_signals(apart) < LEVEL).any())


def _sources_heads(draw: np.random.Generator, prompts: int) -> bool:
    """Twelve heads that rank the five parts of each prompt at random."""
    ranks = draw.permuted(np.broadcast_to(np.arange(5.0), (prompts, 13, 5)), axis=-1) - 2
    rho = (ranks[:, 1:] * ranks[:, :1]).sum(-1) / 10
    return bool((false_discovery(over_texts(rho, axes.HEAD).p_above) < LEVEL).any())


def _aligned(draw: np.random.Generator, texts: int) -> bool:
    """Two linkers that find as many of the gold links of each text, texts being easy or hard."""
    wanted = draw.integers(3, 20, size=texts)
    easy = draw.beta(4, 2, size=texts)
    hits = [draw.binomial(wanted, easy) for _ in range(2)]
    counts = [np.stack([found, found, wanted, wanted], 1).astype(float) for found in hits]
    return bool(error_difference(*counts).p < LEVEL)


def _perplexity(draw: np.random.Generator, texts: int) -> bool:
    """Two language models that predict equally well, on texts of other lengths that are easy or hard."""
    tokens = draw.integers(5, 60, size=texts)
    easy = 3 + 0.8 * draw.normal(size=texts)
    models = [Likelihoods(tokens * (easy + 0.3 * draw.normal(size=texts)), tokens) for _ in range(2)]
    low, high = perplexity_difference(*models)[1]
    return not low <= 0 <= high


def _importance(draw: np.random.Generator, texts: int) -> bool:
    return bool((q_values(over_texts(around_zero(draw, texts, 30, 9), axes.LAYER, axes.HEAD)) < LEVEL).any())


def _above_a_bound(draw: np.random.Generator, texts: int) -> bool:
    return significantly_above(over_texts(around_zero(draw, texts, *HEADS), axes.LAYER, axes.HEAD), 0.0) > 0


def _roles(draw: np.random.Generator, texts: int) -> bool:
    found = over_texts(around_zero(draw, texts, *HEADS), axes.LAYER, axes.HEAD)
    parts = (
        part.expand_dims({axes.PART: ["development", "held_out"]}) for part in (found.value, found.se, found.count)
    )
    return bool((corrected(held_out_p(*parts)) < LEVEL).any())


def _largest_unpaired(draw: np.random.Generator, texts: int) -> bool:
    means = Estimate.mean(alike(draw, texts, 12).T)
    found = extreme(Estimate(means.value, means.se, np.full(12, texts)))
    return len(found.tied) < 11


class _Ranking:
    """What `Moments` and `Pairs` need of a lens: places, and somewhere to keep states."""

    def __init__(self) -> None:
        sites = tuple(Site("encoder", "self", layer) for layer in range(HEADS[0]))
        self.by_head = Places(sites, HEADS[1], {site: tuple(range(HEADS[1])) for site in sites})
        self.by_layer, self.per_text = Places(sites), None
        self.states = SimpleNamespace(parts=[], device=torch.device("cpu"), commit=lambda: None)

    def state(self, name: str, start: torch.Tensor, *_: Any, **__: Any) -> None:
        setattr(self, name, start.clone())


def _ranking(values: Float[np.ndarray, "text layer head"]) -> Pairs:
    lens: Any = _Ranking()
    moments = Moments(lens, "x")
    pairs = Pairs(moments, "x")
    numbers = torch.from_numpy(values)
    for layer, site in enumerate(lens.by_head.sites):
        moments.add(site, x=(numbers[:, layer], torch.ones_like(numbers[:, layer])))
    moments.commit()
    return pairs


def _largest_head(draw: np.random.Generator, texts: int) -> bool:
    return bool((_ranking(alike(draw, texts, *HEADS)).q()["x_top_q"] < LEVEL).any())


def _largest_layer(draw: np.random.Generator, texts: int) -> bool:
    return bool((_ranking(alike(draw, texts, *HEADS)).q(layers=True)["layer_x_top_q"] < LEVEL).any())


def _kinds_of_sinks(draw: np.random.Generator, texts: int) -> bool:
    """Tokens of three kinds that are sinks equally often, in twelve heads; texts have more or fewer of them."""
    lens: Any = _Ranking()
    moments = Moments(lens, "x", {axes.CATEGORY: "abc"})
    pairs = Pairs(moments, "x", {axes.CATEGORY: tuple("abc")})
    over = torch.from_numpy((alike(draw, texts, *HEADS, 3) > 0).astype(float))
    for layer, site in enumerate(lens.by_head.sites):
        moments.add(site, x=(over[:, layer], torch.ones_like(over[:, layer])))
    moments.commit()
    rows = np.broadcast_to(np.eye(3)[:, None, None] / np.prod(HEADS), (3, *HEADS, 3))
    means, shared = pairs.contrasts(rows)
    return bool((extreme_q(means.value, shared, means.count, means.count > 1, largest=True) < LEVEL).any())


def _best_state(draw: np.random.Generator, texts: int) -> bool:
    """Probes of five states that are right equally often, on ten words of each text; texts are easy or hard."""
    easy = draw.beta(2, 1, size=texts).repeat(10)
    hits = torch.from_numpy((draw.uniform(size=(5, 10 * texts)) < easy).astype(float))
    return bool((from_the_best(hits, torch.arange(texts).repeat_interleave(10)) < LEVEL).any())


def _lowest_area(draw: np.random.Generator, texts: int) -> bool:
    """Four classes of so many texts, each as near to its own representative as the others are to theirs."""
    labels = np.repeat(np.arange(4), texts)
    cosines = alike(draw, len(labels), 4) + 2 * (labels[:, None] == np.arange(4))
    numbers, own = torch.from_numpy(cosines), torch.from_numpy(labels)
    return bool((lowest_q([separation(numbers[:, [c]], own == c) for c in range(4)]) < LEVEL).any())


def _explanations(draw: np.random.Generator, texts: int) -> bool:
    values = alike(draw, texts, 8)
    apart = over_texts(values[:, None, :, None] - values[:, None, None], axes.MEASURE, axes.METHOD, axes.METHOD_B)
    return bool((pairs_tested(apart) < LEVEL).any())


def _signals(draw: np.random.Generator, texts: int) -> bool:
    values = alike(draw, texts, 6)
    apart = over_texts(
        values[:, None, None, :, None] - values[:, None, None, None], axes.STACK, axes.SHARE, axes.SIGNAL, axes.SIGNAL_B
    )
    names = [*"abcde", RANDOM]
    labels = {axes.STACK: ["encoder"], axes.SHARE: [0.5], axes.SIGNAL: names, axes.SIGNAL_B: names}
    parts = (part.assign_coords(labels) for part in (apart.value, apart.se, apart.count))
    return bool((p_of_pairs(Estimate(*parts)) < LEVEL).any())


def _chance(draw: np.random.Generator, draws: int, signals: str = "abcde") -> bool:
    """Signals that choose heads at random, among so many random sets."""
    names, dims = [*signals, RANDOM], (axes.STACK, axes.SIGNAL, axes.SHARE)
    numbers, labels = draw.normal(size=(1, len(names), 1)), {axes.STACK: ["encoder"], axes.SIGNAL: names}
    change = xr.DataArray(numbers, dims=dims, coords=labels)
    drawn = xr.DataArray(draw.normal(size=(1, 1, draws)), dims=(axes.STACK, axes.SHARE, axes.DRAW))
    drawn = drawn.assign_coords({axes.STACK: ["encoder"]})
    return bool((p_against_random(change, drawn, -1) < LEVEL).any())


def _relations(draw: np.random.Generator, texts: int) -> bool:
    """Four relations; heads and offsets find pairs equally often, and the best of each is chosen on other texts."""
    counts = draw.integers(1, 6, size=(texts, 4, 2, 1))  # [text relation part]
    hard = draw.beta(2, 2, size=(texts, 4, 1, 1))
    shares = [draw.binomial(counts, np.broadcast_to(hard, (texts, 4, 2, cells))) / counts for cells in (18, 2)]
    weights = [np.broadcast_to(counts, each.shape).astype(float) for each in shares]
    numbers = [(each * weight).sum(0) / weight.sum(0) for each, weight in zip(shares, weights, strict=True)]
    errors = [paired_error(each * 0, w, each, w)[0] for each, w in zip(shares, weights, strict=True)]
    best = numbers[1][:, 0].argmax(-1)  # by relation, in the development part
    chosen = [np.take_along_axis(each[:, :, 1], best[None, :, None], 2) for each in (shares[1], weights[1])]
    against = [np.broadcast_to(each, (texts, 4, 18)) for each in chosen]
    gain_se, _ = paired_error(*against, shares[0][:, :, 1], weights[0][:, :, 1])
    gain = numbers[0][:, 1] - np.take_along_axis(numbers[1][:, 1], best[:, None], 1)

    by_head = (axes.RELATION, axes.PART, axes.STACK, axes.LAYER, axes.HEAD, axes.WAY)
    of_gains = tuple(dim for dim in by_head if dim != axes.PART)
    shape = (1, 2, 3, 3)
    heads = [each.reshape(4, 2, *shape) for each in (numbers[0], errors[0])]
    offsets = [numbers[1], errors[1]]
    variables = {}
    for tail, head, offset, over in zip(
        _TAILS, [*heads, heads[0]], [*offsets, offsets[0]], [gain, gain_se, gain], strict=True
    ):
        whole = tail == "_count"
        for name, dims, part in (
            ("accuracy", by_head, head),
            ("offset_accuracy", (axes.RELATION, axes.PART, axes.OFFSET), offset),
            ("gain", of_gains, over.reshape(4, *shape)),
        ):
            variables[name + tail] = (dims, np.full(part.shape, texts) if whole else part)
    variables["pairs"] = ((axes.RELATION, axes.PART), counts.sum(0)[..., 0])
    labels = {axes.RELATION: [f"r{n}" for n in range(4)], axes.PART: ["development", "held_out"], axes.WAY: list(WAYS)}
    labels |= {axes.OFFSET: [-1, 1], axes.STACK: ["encoder"], axes.LAYER: [1, 2], axes.HEAD: [1, 2, 3]}
    result = Result("relations", xr.Dataset(variables, labels), Provenance(model="none"))
    return any(finding.numbers["ahead"] > 0 for finding in relations_findings(result))


_TAILS = ("", "_se", "_count")


def _patched(draw: np.random.Generator, pairs: int) -> bool:
    """Both directions of each pair: a pair is one observation."""
    values, pair = (
        np.repeat(draw.normal(size=pairs), 2) + draw.normal(size=2 * pairs),
        np.repeat(np.arange(float(pairs)), 2),
    )
    return bool(false_discovery(Estimate(values.mean(), clustered_error(values, pair), pairs).p) < LEVEL)


def _patched_share(draw: np.random.Generator, pairs: int) -> bool:
    """The interval of a share of the difference that is zero."""
    _, low, high = ratio_of_sums(draw.normal(size=pairs), 3 + draw.normal(size=pairs))
    return not low <= 0 <= high


def _rank_correlation(draw: np.random.Generator, texts: int) -> bool:
    """Twenty tokens of each text, whose values are correlated within a text and have nothing to do with their rank."""
    text = torch.arange(texts).repeat_interleave(20)
    values = torch.from_numpy(np.repeat(draw.normal(size=texts), 20) + draw.normal(size=20 * texts))
    _, _, low, high, *_ = rank_correlation(torch.from_numpy(draw.normal(size=20 * texts)), values, text)
    return not low <= 0 <= high


def _nearer_signal(draw: np.random.Generator, heads: int) -> bool:
    """Two signals that are as near to a third."""
    common = draw.normal(size=heads)
    values = np.stack([common + draw.normal(size=heads) for _ in range(3)])
    rho, drawn = correlations(ranked(values)), spearman_draws(values, draws=500)
    return bool(advantages(rho[0, 1:], drawn[0, 1:])[3][0, 1] < LEVEL)


def _accuracy(draw: np.random.Generator, texts: int) -> bool:
    """Two models that are right equally often, mostly on the same texts."""
    easy = draw.uniform(size=texts) < 0.7
    right = np.where(easy, True, draw.uniform(size=(2, texts)) < 0.5)
    low, high = bootstrap_mean_interval(right[0].astype(float) - right[1])
    return not low <= 0 <= high


@cache
def _sentences() -> list[str]:
    words = [f"w{n}" for n in range(30)]
    draw = np.random.default_rng(7)
    return [" ".join(draw.choice(words, size=8)) for _ in range(200)]


def _bleu(draw: np.random.Generator, texts: int) -> bool:
    """Two systems that get each word right equally often."""
    references = [_sentences()[n] for n in draw.integers(200, size=texts)]

    def translated(line: str) -> str:
        return " ".join(word if draw.uniform() < 0.6 else "x" for word in line.split())

    one, other = (bleu([translated(line) for line in references], references) for _ in range(2))
    return difference(one, other, draws=300).p < LEVEL


NULLS = (
    Null("mean over texts (t)", "effects, patching, stream", _one_mean),
    Null("mean over seeds (t)", "gating", _one_mean, (3, 5, 10), "seeds"),
    Null("the same, skewed texts", "effects, patching", _one_skewed_mean, (10, 20, 50, 500)),
    Null("mean over texts, one-sided", "synthetic, roles", _one_sided),
    Null("paired means over tokens", "compare", _paired_ratio),
    Null("independent runs (Welch)", "compare", _welch),
    Null("12 heads of two runs", "compare", _compared_heads),
    Null("900 cells, two-sided", "edges, composition, context, logitlens", _many_cells),
    Null("270 heads that change nothing", "importance", _importance),
    Null("heads above a bound", "sinks, norms, relevance, trees", _above_a_bound),
    Null("heads above their control", "roles", _roles, (5, 10, 50)),
    Null("largest of 12 equal heads, paired", "weights, relevance, importance, …", _largest_head),
    Null("largest of 3 equal layers, paired", "weights, relevance, geometry", _largest_layer),
    Null("largest of 12, sum of errors", "models of more than 1,024 heads", _largest_unpaired),
    Null("most frequent of 3 equal kinds, 12 heads", "sinks", _kinds_of_sinks, (10, 50)),
    Null("best of 5 equal states, words in texts", "probes", _best_state, (10, 50, 200)),
    Null("lowest of 4 equal areas", "cones", _lowest_area, (10, 50), "texts a class"),
    Null("5 equal signals of prompts", "sources", _sources_signals, of="prompts"),
    Null("12 heads that rank parts at random", "sources", _sources_heads, (5, 10, 50), "prompts"),
    Null("error rates of two linkers", "align", _aligned, (10, 50)),
    Null("8 equal explanations", "rationales", _explanations),
    Null("5 equal signals", "removal", _signals),
    Null("1 random signal and chance", "removal", partial(_chance, signals="a"), (8, 20, 100), "random sets"),
    Null("5 random signals and chance", "removal", _chance, (8, 20, 100), "random sets"),
    Null("4 relations, head and offset", "relations", _relations, (10, 50)),
    Null("patched heads, pairs both ways", "patching", _patched, (3, 10, 50), "pairs"),
    Null("share of a difference brought back", "patching", _patched_share, (10, 50), "pairs"),
    Null("rank correlation, tokens in texts", "frequency", _rank_correlation),
    Null("the nearer of two signals (bootstrap)", "agreement", _nearer_signal, (24, 72, 270), "heads"),
    Null("accuracy of two models (bootstrap)", "prune", _accuracy, (50, 500)),
    Null("perplexity of two models (bootstrap)", "prune", _perplexity, (10, 20, 50)),
    Null("BLEU of two models (randomisation)", "prune, train", _bleu, (20, 100)),
)


def rates(trials: int, named: str = "", sizes: int | None = None) -> Iterator[Rate]:
    """How often each test claims something of nothing, at the first `sizes` sizes; the same for every run."""
    for null in NULLS:
        for size in null.sizes[:sizes] if named in null.name else ():
            draw = np.random.default_rng([size, *null.name.encode()])
            yield Rate(null, size, sum(null.trial(draw, size) for _ in range(trials)), trials)


def main(trials: int = 1000, named: str = "") -> None:
    print("| test | used by | sample | false claims | 95 % interval |\n|---|---|---|---|---|")
    for rate in rates(trials, named):
        low, high = rate.interval
        sample = f"{rate.size} {rate.null.of}"
        print(
            f"| {rate.null.name} | {rate.null.used_by} | {sample} | {rate.share:.1%} | {low:.1%} to {high:.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, str), sys.argv[1:], strict=False)))
