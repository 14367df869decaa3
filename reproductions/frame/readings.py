"""What is read off measured conditions: means over blocks with intervals, claims with verdicts, shared sentences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reproductions.frame.conditions import PUBLISHED_MODEL
from reproductions.frame.record import VERDICTS, Claim

Found = Mapping[str, Mapping[str, Any]]
"""model → condition → what its cell measured"""


def interval(values: Iterable[float | None]) -> tuple[float, float, float]:
    """Mean over blocks and its 95 % interval (t distribution)."""
    from scipy.stats import t

    known = np.array([value for value in values if value is not None], dtype=float)
    if not len(known):
        return math.nan, math.nan, math.nan
    mean = float(known.mean())
    if len(known) < 2:
        return mean, math.nan, math.nan
    width = float(t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known)))
    return mean, mean - width, mean + width


def interval_of_rho(rho: float, error: float) -> list[float | None]:
    """ρ and a 95 % interval that is even on Fisher's scale; with one text there is none."""
    if math.isnan(error):
        return [rho, None, None]
    if abs(rho) > 1 - 1e-12:
        return [rho, rho, rho]
    width = 1.96 * error / (1 - rho**2)
    return [rho, *(math.tanh(math.atanh(rho) + sign * width) for sign in (-1, 1))]


def plain(values: Any) -> Any:
    """Nested lists for JSON: what is missing is None."""
    cells = np.asarray(values, dtype=float).astype(object)
    cells[cells != cells] = None
    return cells.tolist()


def array(values: Any) -> np.ndarray:
    """What `plain` wrote, as numbers again."""
    return np.array(values, dtype=float)


def about_the_models(found: Found) -> list[str]:
    """A warning first, where the papers' own model is not among those that were looked at."""
    if PUBLISHED_MODEL in found:
        return []
    return [
        f"**None of the numbers below is the published quantity**: that is {PUBLISHED_MODEL} on Wikipedia, which was "
        "not at hand (no such folder, and the hub did not answer). What is tested is whether the findings hold on "
        f"{' and '.join(found)}, small encoders trained for sentence embeddings, on the texts of GUM."
    ]


def about_the_claims(claims: Sequence[Claim]) -> str:
    """How many hold, and which do not."""
    by_verdict = {name: [c.text for c in claims if c.verdict == name] for name in VERDICTS}
    counts = ", ".join(f"{len(texts)} {name}" for name, texts in by_verdict.items() if texts)
    failed = by_verdict["does not hold"]
    which = f" What does not hold: {'; '.join(failed)}." if failed else ""
    return f"Verdicts on the {len(claims)} claims below: {counts}.{which}"


def about_the_text(found: Found) -> list[str]:
    """The paragraph on models, text, controls and intervals that both reproductions share."""
    cell = next(iter(next(iter(found.values())).values()))
    return [
        f"Models: {', '.join(found)}. Text: {cell['segments']} segments of at most 128 tokens, whole sentences of the "
        "documents of UD_English-GUM in their raw text and order, spread evenly over the corpus, as pairs "
        "`[CLS] p1 [SEP] p2 [SEP]` of consecutive halves. Controls: the same architecture with random weights (its "
        "own initialisation, one draw), and the trained model on the same paragraphs with their words shuffled. Models "
        "trained with a prefix such as “query:” get none.",
        f"Intervals are 95 %: every number is computed in {cell['blocks']} blocks of consecutive segments, and blocks "
        "are the sample (t distribution), so that documents and kinds of text, not tokens, carry the uncertainty; "
        "correlations with frequency have intervals over segments.",
    ]


def provenance(found: Found) -> dict[str, Any]:
    """What every condition was computed from: hashes, counts, fingerprints."""
    kept = ("by_block", "whole", "frequency", "frequency_of_mixing", "distances")
    return {
        f"{model}, {condition}": {name: part for name, part in cell.items() if name not in kept}
        for model, cells in found.items()
        for condition, cell in cells.items()
    }


def verdict(estimate: tuple[float, float, float], bound: float, *, above: bool) -> str:
    """Whether the whole interval lies on the claimed side of the bound."""
    mean, low, high = estimate
    if math.isnan(low) or low <= bound <= high:
        return "cannot tell"
    return "holds" if (mean > bound) is above else "does not hold"


def claim(
    text: str,
    estimate: Sequence[float | None],
    bound: float,
    *,
    above: bool,
    published: Any = None,
    why: str = "",
    decides: bool = True,
) -> Claim:
    """A claim about one number and a bound; `decides=False` where the number is not what the paper's claim is about."""
    mean, low, high = (math.nan if part is None else float(part) for part in estimate)
    found = verdict((mean, low, high), bound, above=above) if decides else "not the same quantity"
    ends = None if math.isnan(low) else (low, high)
    return Claim(text=text, ours=mean, interval=ends, published=published, verdict=found, why=why)
