"""The pruning part of the page: what was done, and what holds."""

from collections.abc import Iterator, Mapping
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproductions.frame.parts import Part
from reproductions.frame.record import Claim, published
from reproductions.voita2019.pruning import FULL, QUICK
from reproductions.voita2019.pruning_claims import claims
from reproductions.voita2019.pruning_figures import figures
from reproductions.voita2019.pruning_reading import NAMES, STACKS, Outcome, change, unfinished
from reproductions.voita2019.pruning_tables import tables

if TYPE_CHECKING:
    from reproductions.frame.record import Settings


def part_of(settings: "Settings", done: Mapping[str, Any]) -> Part:
    outcome, told = Outcome(done), published("voita2019")
    found = list(claims(outcome, told))
    return Part(
        title="Pruning",
        setup=_setup(settings),
        summary=_summary(outcome, found),
        claims=found,
        tables=list(tables(outcome, told)),
        figures=list(figures(outcome)),
        provenance=_provenance(outcome),
    )


def _setup(settings: "Settings") -> list[str]:
    size = QUICK if settings.quick else FULL
    return [
        "**Pruning.** Gates (hard concrete, temperature .33, penalty λ · mean over layers of the expected number of "
        "open heads) on the heads of a trained model whose weights go on learning; heads whose gate is closed at the "
        "end are removed for good, and the smaller model translates. *opus-mt-en-fr* (6 + 6 layers of 8 heads) is "
        f"fine-tuned on Multi30k English-French first ({size.tuning} epochs), so that pruning is not compared with a "
        f"model of another domain; then {size.gates} epochs with gates, and at some λ {size.long} (*trained longer*). "
        "Encoder alone: only the encoder's layers learn (embeddings are the decoder's too, and stay). λ = 0 is the "
        "same training without gates, for as many epochs: what the others are compared with. The longer trainings were "
        "added when the others had been seen; they have a fine-tuned model of their own.",
        f"*{size.preset}* is trained from scratch on the same pairs ({size.small} epochs), and once more with gates "
        "from the first step on. λ was chosen before, and every point is reported. Where one point is picked, it is "
        "picked on the validation sentences and scored on the test sentences: the Flickr sets of 2016 to 2018 "
        "together, since on 1,000 sentences 1 BLEU cannot be told from 0; MSCOCO apart. Greedy translations, one seed.",
        "*Random heads*: as many of each stack as the gates left, drawn at random, removed before the same training. "
        "The paper's models were trained on 2.5 to 6 million pairs, ours are fine-tuned on 29,000 captions, which are "
        "easier: compare the shapes, not the digits. *Classifiers*: MiniLM (6 layers of 12 heads) and e5-small (12 "
        "layers of 12) fine-tuned on SST-2 and HateXplain, three seeds; importance is Michel et al. 2019's gradient, "
        "normalised in each layer. *Transfer* (Raganato & Tiedemann 2018): an English-French encoder under a new "
        f"decoder for Czech, {size.small} epochs with the small encoder, {size.transfer} with that of opus-mt.",
    ]


def _summary(outcome: Outcome, found: list[Claim]) -> list[str]:
    paragraphs = []
    for name in NAMES:
        points = outcome.curve(name)
        best = outcome.within(name) if len(points) > 1 else None
        if best is not None:
            moved = change(best, points[0])
            paragraphs.append(
                f"**{NAMES[name]}.** The sparsest model within 1 BLEU on validation (λ = {best.strength:g}) has "
                f"{best.left} heads, {best.share:.0%} (e/d/d-e {'/'.join(str(best.heads(s)) for s in STACKS)}); "
                f"on the test sentences {moved.value:+.2f} BLEU "
                f"[{moved.interval[0]:+.2f}, {moved.interval[1]:+.2f}]."
            )
        elif len(points) > 1:
            paragraphs.append(f"**{NAMES[name]}.** No λ removed heads and stayed within 1 BLEU on validation.")
        if points and points[-1].strength is None:
            moved = change(points[-1], points[0])
            paragraphs.append(f"Without any head in the encoder: {moved.value:+.2f} BLEU.")
    paragraphs += [*_transfer(outcome), *_classifiers(outcome)]
    by = {
        verdict: [claim.text for claim in found if claim.verdict == verdict] for verdict in ("holds", "does not hold")
    }
    for verdict, title in (("holds", "Holds"), ("does not hold", "Does not hold")):
        if by[verdict]:
            paragraphs.append(f"**{title}:** " + "; ".join(by[verdict]) + ".")
    return paragraphs


def _transfer(outcome: Outcome) -> Iterator[str]:
    for donor, title in (("small", "marian-small"), ("opus", "opus-mt")):
        there = {mode: outcome.found.get(f"transfer-{donor}-{mode}") for mode in ("scratch", "frozen", "tuned")}
        runs = {mode: run for mode, run in there.items() if run is not None}
        if len(runs) < 2:
            continue
        said = ", ".join(f"{mode} {run['scores']['test']['bleu']:.1f}" for mode, run in runs.items())
        late = unfinished(**runs)
        more = f" Still learning in the last epoch: {', '.join(late)}." if late else ""
        yield f"**Transfer of {title}'s encoder to English→Czech.** BLEU: {said}.{more}"


def _classifiers(outcome: Outcome) -> Iterator[str]:
    """At the λ that leaves most heads of those that leave at most a third."""
    parts = []
    for name, results in outcome.classifiers().items():
        points = list(zip(*(result["points"] for result in results), strict=True))
        whole = mean(float(one["heads"]) for one in points[0])
        few = [row for row in points if mean(float(one["heads"]) for one in row) <= whole / 3]
        if not few:
            continue
        row = max(few, key=lambda row: mean(float(one["heads"]) for one in row))
        left = mean(float(one["heads"]) for one in row)
        ways = ", ".join(f"{mean(one[w]['test'] for one in row):.3f} by {w}" for w in ("gates", "importance", "random"))
        base = mean(one["gates"]["test"] for one in points[0])
        parts.append(f"{name}: {left:.0f} of {whole:.0f} heads, {ways}, {base:.3f} with all")
    if parts:
        yield "**Classifiers with at most a third of their heads** (accuracy). " + "; ".join(parts) + "."


def _provenance(outcome: Outcome) -> dict[str, Any]:
    first: Mapping[str, Any] = next((r for r in outcome.found.values() if "versions" in r), {})
    prints = {key: r["corpus_fingerprint"] for key, r in outcome.found.items() if "corpus_fingerprint" in r}
    patterns = {key: r["patterns"] for key, r in outcome.found.items() if "patterns" in r}
    return {
        "device": first.get("device"),
        "trained_with": first.get("versions"),
        "corpora": {"multi30k and others": sorted(set(prints.values()))},
        "patterns": patterns,
    }
