"""What part 3 adds to the page: cones and anisotropy of fine-tuned encoders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reproductions.fosse2023.pretrained import CORPORA, Run, runs
from reproductions.fosse2023.pretrained_figures import boxes, layers
from reproductions.fosse2023.pretrained_reading import (
    NAMES,
    ORTHOGONAL,
    all_above,
    all_within,
    at,
    average,
    furthest,
    mean_of,
    off_diagonal,
    over_seeds,
)
from reproductions.fosse2023.pretrained_tables import tables
from reproductions.frame.estimates import verdict_above
from reproductions.frame.parts import Part
from reproductions.frame.record import Claim, published

if TYPE_CHECKING:
    from reproductions.frame.record import Settings


@dataclass(frozen=True)
class Found:
    """The finished runs of the part."""

    done: Mapping[str, Any]
    planned: Sequence[Run]

    def of(self, model: str, corpus: str, start: str) -> list[Any]:
        """One result for each seed that is there."""
        asked = (model, corpus, start)
        chosen = [run for run in self.planned if (run.model, run.corpus, run.start) == asked]
        return [self.done[run.key] for run in chosen if run.key in self.done]

    def places(self) -> list[tuple[str, str, str]]:
        """(model, corpus, start) of which something is there, in the order of the page."""
        there = dict.fromkeys((run.model, run.corpus, run.start) for run in self.planned if run.key in self.done)
        return sorted(there, key=lambda place: (CORPORA.index(place[1]), place[0] != "minilm", place[2] == "random"))


def page_part(settings: "Settings", done: Mapping[str, Any]) -> Part:
    """Everything that the finished cells say."""
    found = Found(done, runs(settings.quick, settings.seeds))
    told = published("fosse2023_cones")
    return Part(
        title="Class cones on a fine-tuned encoder",
        setup=_setup(found),
        summary=[_cones_said(found), _sim_said(found)],
        claims=list(_claims(found, told)),
        tables=list(tables(found, told)),
        figures=[boxes(found), layers(found, told)],
        provenance={"pretrained": {key: _kept(one) for key, one in done.items()}},
    )


def _kept(one: Any) -> dict[str, Any]:
    kept = ("metrics", "best", "parameters", "corpus_fingerprint", "weights_hash", "device", "versions")
    return {name: one.get(name) for name in kept}


def _setup(found: Found) -> list[str]:
    texts = {corpus: one["texts"] for (_, corpus, _) in found.places() for one in found.of(*_first(found, corpus))[:1]}
    counts = "; ".join(f"{NAMES[c]} {n['train']:,} to train, {n['test']:,} to test" for c, n in texts.items())
    cut = {c: found.of(*_first(found, c))[0]["cut"] for c in texts}
    cuts = ", ".join(f"{number} of {NAMES[corpus]}" for corpus, number in cut.items() if number)
    return [
        "Encoders: minilm (all-MiniLM-L6-v2, 6 layers, width 384) and, with one seed, e5-small (12 layers, width 384), "
        "with Linear(d, C) on the last [CLS] state and no pooler; AdamW at 5e-5, constant, batches of 64, at most 150 "
        "tokens, at most 6 epochs, patience 2 on the validation loss (the paper: bert-base, 50 epochs, patience 5). "
        "The same architecture from random weights: 1e-4, at most 10 epochs, patience 3. Both encoders were trained by "
        "contrast before: **their pretrained space is already spread out**, which BERT's is not, so what fine-tuning "
        "does to anisotropy may differ from the paper for that reason alone.",
        f"Texts: {counts}. e-SNLI is trained on its dev split (there is no training split here)."
        + (f" Test texts cut to 150 tokens: {cuts}." if cuts else ""),
        "Representatives of a class: 20 test texts of it that are classified right, drawn at random, each left out of "
        "what it is compared with; also the authors' way, the first such text, kept (its cosine with itself is 1). "
        "Medians and quantiles are over texts and draws, then averaged over seeds. Before training there is no right "
        "or wrong: every text of a class can represent it. SIM: mean cosine of all pairs of tokens within a text, "
        "[CLS] and [SEP] included, then over texts.",
        f"Bounds fixed beforehand: two classes are *orthogonal* if their mean cosine lies within ±{ORTHOGONAL}; "
        "*anisotropy is reinforced* if SIM of the last layer rises; intervals are over seeds (t distribution).",
    ]


def _first(found: Found, corpus: str) -> tuple[str, str, str]:
    return next(place for place in found.places() if place[1] == corpus)


def _after(one: Any) -> Any:
    return one["after"]["cones"]["random"]


def sim_change(one: Any) -> float:
    """SIM within texts at the last layer, after less before."""
    return float(one["after"]["sim"]["tokens"][-1] - one["before"]["sim"]["tokens"][-1])


def _claims(found: Found, told: Any) -> Iterator[Claim]:
    for model, corpus, start in found.places():
        results = found.of(model, corpus, start)
        if len(results) < 2:
            continue  # nothing to make an interval of
        name = f"{NAMES[corpus]}, {model}" + (", from random weights" if start == "random" else "")
        yield _reinforced(name, results, corpus, told)
        yield _separated(name, results)
        yield _orthogonal(name, results)
        yield _right_closer(name, results)


def _reinforced(name: str, results: Sequence[Any], corpus: str, told: Any) -> Claim:
    change = over_seeds(results, sim_change)
    assert change is not None  # every run has it
    ends = [mean_of(results, at(when, "sim", "tokens", -1)) for when in ("before", "after")]
    cls = [mean_of(results, at(when, "sim", "cls_corpus", -1)) for when in ("before", "after")]
    sim = told["esnli_sim"]
    return Claim(
        text=f"{name}: training reinforces anisotropy (SIM within texts, last layer, after less before)",
        ours=change.mean,
        interval=change.interval,
        published=sim["after"][-1] - sim["before_last"] if corpus == "esnli" else None,
        verdict=verdict_above(change),
        why=f"{ends[0]:.3f} → {ends[1]:.3f}; [CLS] of different texts: {cls[0]:.3f} → {cls[1]:.3f}",
    )


def _separated(name: str, results: Sequence[Any]) -> Claim:
    labels = results[0]["labels"]
    areas = {label: over_seeds(results, at("after", "cones", "random", "auroc", c)) for c, label in enumerate(labels)}
    there = {label: area for label, area in areas.items() if area is not None}
    if not there:
        return Claim(text=f"{name}: every class has a cone", ours=None, verdict="cannot tell", why=_NONE_RIGHT)
    least = min(there, key=lambda label: there[label].mean)
    before = mean_of(results, lambda one: average(one["before"]["cones"]["random"]["auroc"]))
    missing = [label for label in labels if label not in there]
    why = f"least: {least}; before training, mean over classes: {before:.3f}"
    return Claim(
        text=f"{name}: texts lie closer to representatives of their own class (AUROC of every class above ½)",
        ours=there[least].mean,
        interval=there[least].interval,
        verdict="does not hold" if missing else all_above(list(there.values()), 0.5),
        why=why + (f"; never classified right: {', '.join(missing)}" if missing else ""),
    )


_NONE_RIGHT = "no text of any class is classified right"


def _orthogonal(name: str, results: Sequence[Any]) -> Claim:
    pairs = off_diagonal(results, lambda one: _after(one)["cosine"])
    if not pairs:
        return Claim(text=f"{name}: cones are orthogonal", ours=None, verdict="cannot tell", why=_NONE_RIGHT)
    (first, second), value = furthest(pairs)
    labels = results[0]["labels"]
    rest = ", ".join(f"{one.mean:.2f}" for one in sorted(pairs.values(), key=lambda one: one.mean))
    return Claim(
        text=f"{name}: cones are orthogonal (every mean cosine with another class's representatives in ±{ORTHOGONAL})",
        ours=value.mean,
        interval=value.interval,
        published=None,
        verdict=all_within(pairs.values()),
        why=f"furthest from 0: {labels[second]} texts with {labels[first]} representatives; all pairs: {rest}",
    )


def _right_closer(name: str, results: Sequence[Any]) -> Claim:
    def gap(one: Any) -> float | None:
        cones = _after(one)
        pairs = zip(cones["own_right"], cones["own_wrong"], strict=True)
        return average([a - b for a, b in pairs if a is not None and b is not None])

    value = over_seeds(results, gap)
    if value is None:
        return Claim(text=f"{name}: right lies closer than wrong", ours=None, verdict="cannot tell", why=_NONE_RIGHT)
    return Claim(
        text=f"{name}: texts classified right lie closer to their class than those classified wrong (mean cosine)",
        ours=value.mean,
        interval=value.interval,
        verdict=verdict_above(value),
    )


def _cones_said(found: Found) -> str:
    said = "**Cones.**"
    for model, corpus, start in found.places():
        results = found.of(model, corpus, start)
        own = mean_of(results, lambda one: average([_after(one)["cosine"][c][c] for c in range(len(one["labels"]))]))
        pairs = off_diagonal(results, lambda one: _after(one)["cosine"])
        if own is None or not pairs:
            continue
        before = mean_of(results, lambda one: average(one["before"]["cones"]["random"]["auroc"]))
        after = mean_of(results, lambda one: average(_after(one)["auroc"]))
        values = [one.mean for one in pairs.values()]
        accuracy = mean_of(results, lambda one: one["metrics"]["test"]["accuracy"])
        said += (
            f" {NAMES[corpus]}, {model}{' from random weights' if start == 'random' else ''} (accuracy "
            f"{accuracy:.3f}): mean cosine with the own class {own:.2f}, with others {min(values):.2f} to "
            f"{max(values):.2f}; AUROC {before:.2f} before, {after:.2f} after training."
        )
    return said + (
        " The matrices are below: what is between classes is a number for each pair, and nothing makes it zero. "
        "Directions of two classes that a classifier pushes apart end up opposite rather than orthogonal."
        if _opposite(found)
        else " The matrices are below: what is between classes is a number for each pair."
    )


def _opposite(found: Found) -> bool:
    """Whether the two classes of some corpus have a cosine below −.2."""
    for place in found.places():
        results = found.of(*place)
        if len(results[0]["labels"]) == 2:
            values = off_diagonal(results, lambda one: _after(one)["cosine"]).values()
            if any(value.mean < -ORTHOGONAL for value in values):
                return True
    return False


def _sim_said(found: Found) -> str:
    said = "**Anisotropy before and after.** SIM within texts at the last layer:"
    for model, corpus, start in found.places():
        results = found.of(model, corpus, start)
        ends = [mean_of(results, at(when, "sim", "tokens", -1)) for when in ("before", "after")]
        name = f"{NAMES[corpus]}, {model}{' from random weights' if start == 'random' else ''}"
        said += f" {name} {ends[0]:.3f} → {ends[1]:.3f};"
    return said.rstrip(";") + "."
