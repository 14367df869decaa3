"""The part of the page that is about pure-attention models."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproductions.fosse2023 import grid
from reproductions.fosse2023.attention_claims import BARELY, HIGH, claims, remarks
from reproductions.fosse2023.attention_figures import figures
from reproductions.fosse2023.attention_late import late_summary
from reproductions.fosse2023.attention_tables import tables
from reproductions.fosse2023.outcome import (
    NAMES,
    Outcome,
    accuracy,
    cost,
    plausibility,
    replaced,
    sharpness,
    similarity,
)
from reproductions.frame.estimates import estimate
from reproductions.frame.parts import Part
from reproductions.frame.record import Claim, published

if TYPE_CHECKING:
    from reproductions.frame.record import Settings


def part_of(settings: "Settings", size: grid.Size, done: Mapping[str, Any]) -> Part:
    outcome = Outcome(size, tuple(settings.seeds)[: size.seeds], done)
    told = published("fosse2023")
    made = list(claims(outcome, told))
    return Part(
        title="Pure attention",
        setup=_setup(outcome),
        summary=list(_summary(outcome, told, made)),
        claims=made,
        tables=list(tables(outcome, told)),
        figures=list(figures(outcome, told)),
        provenance=_provenance(outcome),
    )


def _provenance(outcome: Outcome) -> dict[str, Any]:
    some = {corpus: outcome.of(corpus, outcome.everything(corpus)[0])[0] for corpus in outcome.corpora}
    return {
        "texts": {corpus: one["texts"] for corpus, one in some.items()},
        "corpus_fingerprints": {corpus: one["corpus_fingerprint"] for corpus, one in some.items()},
        "devices": sorted({one["device"] for one in outcome.results.values()}),
        "trained_with": {one["device"]: one["versions"] for one in outcome.results.values()},
        "runs": {key: _kept(one) for key, one in outcome.results.items()},
    }


def _kept(one: Any) -> dict[str, Any]:
    """What the tables are made of; the cells beside the page have the rest."""
    groups = {
        group: {name: found[name] for name in ("key", "value", "state", "entropy", "accuracy")}
        for group, found in one["groups"].items()
    }
    pooled = {name: found["all"]["pooled"] for name, found in one["plausibility"].items()}
    faithful = {
        order: {name: found[name] for name in ("comprehensiveness", "sufficiency")}
        for order, found in one["faithfulness"].items()
    }
    kept = {name: one[name] for name in ("metrics", "epochs", "parameters", "seconds", "replaced")}
    return {**kept, "groups": groups, "plausibility": pooled, "faithfulness": faithful}


def _setup(outcome: Outcome) -> list[str]:
    size, some = outcome.size, {c: outcome.of(c, outcome.everything(c)[0])[0] for c in outcome.corpora}
    texts = "; ".join(
        f"{NAMES[c]} {one['texts']['train']:,} texts to train on, {one['texts']['test']:,} to test, "
        f"{one['plausibility']['attention']['all']['texts']:,} of them with marked words"
        for c, one in some.items()
    )
    random = [str(grid.WIDTHS[name]) for name in grid.OTHERS if name in outcome.vectors]
    wide = (
        f", and, for some settings and the first three seeds, random ones of width {' and '.join(random)}"
        if random
        else ""
    )
    pairs = (
        " e-SNLI is trained on 80 % of its dev split (there is no training split here; the paper has 550,000 pairs), "
        "and L = 3…5 there go beyond the paper."
        if "esnli" in outcome.corpora
        else ""
    )
    return [
        "**Pure attention.** `<cls>` and words, sinusoidal positions, L blocks x ← norm(x + attention(x)) with one "
        "head and nothing else, a linear classifier on the last state of `<cls>`. Word vectors are trained further: "
        f"GloVe of width 100 (the paper's has 300 and is not at hand){wide}. "
        f"Adam at 1e-3, batches of {size.batch_size}, at most {size.epochs} epochs, patience {size.patience} on the "
        f"validation loss (penalty included), no clipping. Seeds {', '.join(map(str, outcome.seeds))}.",
        f"**Texts.** {texts}.{pairs} Words are not lemmatised and punctuation stays.",
        _MEASURES,
        f"**Bounds**, fixed beforehand: “above {HIGH}” for the last layer, as all published deep models have; less "
        f"than {BARELY} of accuracy is nothing lost. Intervals are over seeds (t distribution; correlations: a "
        "bootstrap of the seeds within each setting, rather too narrow). Of so many intervals one in twenty misses.",
    ]


_MEASURES = (
    "**Measures.** SIM: mean cosine of all pairs of tokens of a text, `<cls>` included, mean over texts: the first 333 "
    "test texts of each class as in the released code (YelpHat: all three test sets; by λ, 300 reviews of 50 words), "
    "and all test texts. H: entropy of the first layer's row of `<cls>` over log n, n with `<cls>`. Plausibility: "
    "pooled over the words of all test texts with a mark (as in `nguyen2022`; the released code leaves out class 0). "
    "Faithfulness: comprehensiveness and sufficiency of ERASER, mean over the first 1, 5, 10, 20, 50 % of tokens, "
    "which are deleted. Cosine map: cos of what `<cls>` becomes in the text with what it becomes in a text of that one "
    "word. *Replaced* weights, in all layers at once: uniform; those of each row in a random order; adversarial, all "
    "on one key for each row: in the last layer the key that gives the predicted class the least margin (all are "
    "tried), below it the one with the least ⟨∂margin/∂y, v⟩."
)


def _learnt_less(outcome: Outcome) -> str:
    """What stands beside the width: the wide models may be stiff because they did not learn."""
    deep, (wide, narrow) = (grid.DEPTHS[-1], 0.0), grid.OTHERS
    both = [c for c in outcome.corpora if outcome.of(c, deep, wide) and outcome.of(c, deep, narrow)]
    worse = [
        NAMES[c]
        for c in both
        if mean(outcome.values(c, deep, accuracy, wide)) < mean(outcome.values(c, deep, accuracy, narrow)) - BARELY
    ]
    if not worse:
        return ""
    return (
        f" The deepest wide models also learnt less than narrow ones ({', '.join(worse)}): width and a training that "
        "went worse cannot be told apart here."
    )


def _summary(outcome: Outcome, told: Any, made: Sequence[Claim]) -> Iterator[str]:
    yield "**Anisotropy by depth.** " + " ".join(_depth(outcome, told, made, corpus) for corpus in outcome.corpora)
    others = [name for name in grid.OTHERS if name in outcome.vectors]
    if others:
        said = " ".join(_vectors(outcome, corpus, others) for corpus in outcome.corpora) + _learnt_less(outcome)
        yield f"**Is it GloVe, or the width?** SIM of the last layer's values, and accuracy. {said}"
    yield from late_summary(outcome)
    regular = [corpus for corpus in outcome.corpora if len(outcome.strengths(corpus)) > 1]
    if regular:
        yield "**The entropy penalty.** " + " ".join(_penalty(outcome, made, corpus) for corpus in regular)
        destroyed = [claim for claim in made if " of attention (ρ over λ" in claim.text]
        yield (
            "**Does stiffening destroy the explanation?** The sentence that plausibility and faithfulness fall as SIM "
            f"of the values rises, over λ and seeds: {tally(destroyed)}. A correlation over λ cannot tell stiff values "
            "from sharp attention: the penalty makes both."
        )
    yield "**The cosine map.** " + " ".join(_maps(outcome, made, corpus) for corpus in outcome.corpora)
    yield "**Does geometry replace attention?** " + " ".join(
        _title(outcome, made, corpus) for corpus in outcome.corpora
    )


def tally(found: Sequence[Claim]) -> str:
    counts = Counter(claim.verdict for claim in found)
    return ", ".join(f"“{verdict}” {counts[verdict]}" for verdict in ("holds", "does not hold", "cannot tell"))


def _about(made: Sequence[Claim], corpus: str, what: str) -> list[Claim]:
    return [claim for claim in made if claim.text.startswith(NAMES[corpus]) and what in claim.text]


def _depth(outcome: Outcome, told: Any, made: Sequence[Claim], corpus: str) -> str:
    depths = outcome.depths(corpus)
    if not depths:
        return ""
    rising = _about(made, corpus, "rises through the layers")
    said = f"{NAMES[corpus]}: SIM rises through the layers (keys and values, L > 1): {tally(rising)}"
    ends = []
    for layers in sorted({depths[0], depths[-1]}):
        last = mean(outcome.values(corpus, (layers, 0.0), similarity("value", -1)))
        printed = told["value"][corpus].get(str(layers))
        ends.append(f"{last:.2f} for L = {layers}" + ("" if printed is None else f" (published {printed[-1]:.2f})"))
    right = [mean(outcome.values(corpus, (layers, 0.0), accuracy)) for layers in (depths[0], depths[-1])]
    return f"{said}; the last layer's values have {', '.join(ends)}; accuracy {right[0]:.3f} and {right[1]:.3f}."


def _vectors(outcome: Outcome, corpus: str, others: Sequence[str]) -> str:
    """SIM of the last layer's values, and accuracy, from each kind of word vectors."""
    parts = []
    for layers in (grid.DEPTHS[0], grid.DEPTHS[-1]):
        found = []
        for vectors in (grid.MAIN, *others):
            runs = (corpus, (layers, 0.0))
            if outcome.of(*runs, vectors):
                stiff = mean(outcome.values(*runs, similarity("value", -1), vectors))
                right = mean(outcome.values(*runs, accuracy, vectors))
                found.append(f"{stiff:.2f} from {vectors} ({right:.3f})")
        parts.append(f"L = {layers}: {', '.join(found)}")
    return f"{NAMES[corpus]}, {'; '.join(parts)}."


def _penalty(outcome: Outcome, made: Sequence[Claim], corpus: str) -> str:
    strengths = outcome.strengths(corpus)
    ends = (strengths[0], strengths[-1])
    even = [mean(outcome.values(corpus, (1, s), sharpness())) for s in ends]
    stiff = [mean(outcome.values(corpus, (1, s), similarity("value", 0, "regularisation"))) for s in ends]
    raised = _about(made, corpus, "raises SIM of the values")
    said = (
        f"{NAMES[corpus]}: from λ = {ends[0]:g} to {ends[1]:g}, H goes from {even[0]:.2f} to {even[1]:.2f} and SIM of "
        f"the values from {stiff[0]:.2f} to {stiff[1]:.2f}; that the penalty raises it: {tally(raised)}"
    )
    notes = remarks(outcome, corpus)
    return said + (f" ({'; '.join(notes)})." if notes else ".")


def _maps(outcome: Outcome, made: Sequence[Claim], corpus: str) -> str:
    depths = outcome.depths(corpus)
    if not depths:
        return ""
    parts = []
    for layers in sorted({depths[0], depths[-1]}):
        one, other = (
            estimate(outcome.values(corpus, (layers, 0.0), plausibility(which, "auroc", corpus)))
            for which in ("cosine", "attention")
        )
        parts.append(f"L = {layers}: {one.mean:.3f} against {other.mean:.3f} of attention")
    better = _about(made, corpus, "the cosine map is more plausible")
    return f"{NAMES[corpus]}, AUROC: {'; '.join(parts)}; that it is the better one for L > 1: {tally(better)}."


def _title(outcome: Outcome, made: Sequence[Claim], corpus: str) -> str:
    depths = outcome.depths(corpus)
    if not depths:
        return ""
    parts = []
    for layers in sorted({depths[0], depths[-1]}):
        where = (corpus, (layers, 0.0))
        lost = [mean(outcome.values(*where, cost(kind))) for kind in ("uniform", "adversarial")]
        flips = [mean(outcome.values(*where, replaced(kind, "flipped"))) for kind in ("uniform", "adversarial")]
        parts.append(
            f"with L = {layers} uniform weights change {flips[0]:.0%} of the predictions (accuracy {lost[0]:+.3f}), "
            f"adversarial ones {flips[1]:.0%} ({lost[1]:+.3f})"
        )
    stiff = _about(made, corpus, "the fewer predictions change")
    return f"{NAMES[corpus]}: {'; '.join(parts)}; the stiffer the values, the fewer change: {tally(stiff)}."
