"""What we expected before the runs, and tests of the answer, added after them: means over models, each model once."""

from collections.abc import Callable, Iterator, Sequence

from reproductions.frame.claims import Bound, Claim, Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import mean_of
from reproductions.which_signal.readings import Readings

_OVER = "models on a corpus"
_NEAR = 0.1
_SINGLE = "ρ with the loss without each head"
_CLASSIFIED = ("sst2", "hatexplain")
_LATER = "added when the means were known, to test the answer"
_JOINT = "share of random sets' damage avoided, half of the heads gone"


def claims(cells: Finished) -> list[Claim]:
    readings = Readings(cells)
    signals = set(readings.signals)

    def level(read: Callable[..., float | None], name: str, stacks: Sequence[str] | None = None) -> Estimate:
        return mean_of([value for value in readings.of_places(read, name, stacks) if value is not None], _OVER)

    def over(read: Callable[..., float | None], one: str, other: str) -> Estimate:
        pairs = zip(readings.of_places(read, one), readings.of_places(read, other), strict=True)
        return mean_of([a - b for a, b in pairs if a is not None and b is not None], _OVER)

    def above(id: str, text: str, estimate: Estimate, low: float = 0.0) -> Claim:
        return Claim(id=id, text=text, estimate=estimate, bound=Bound.above(low), ours=True)

    rho, saved = readings.rho, readings.saved
    every = [
        above("gradient-positive", f"gradient: {_SINGLE} is above 0.3", level(rho, "gradient"), 0.3),
        *(
            above(
                f"gradient-over-{name.replace('_', '-')}",
                f"gradient ranks heads more like their removal than {name.replace('_', ' ')} does (difference of ρ)",
                over(rho, "gradient", name),
            )
            for name in ("confidence", "sharpness", "norm", "relevance", "slope", "direct_effect")
            if name in signals
        ),
        above("confidence-encoder", f"confidence, encoders: {_SINGLE}", level(rho, "confidence", ["encoder"])),
        Claim(
            id="confidence-decoder",
            text=f"confidence, decoders: {_SINGLE} is below 0",
            estimate=level(rho, "confidence", ["decoder"]),
            bound=Bound.below(0.0),
            ours=True,
        ),
        above("gradient-jointly", f"gradient: {_JOINT}", level(saved, "gradient")),
        Claim(
            id="confidence-jointly",
            text=f"confidence: {_JOINT}, is within ±{_NEAR}: no better than chance",
            estimate=level(saved, "confidence"),
            bound=Bound.within(-_NEAR, _NEAR),
            ours=True,
        ),
        above("norm-jointly", f"norm: {_JOINT}", level(saved, "norm")),
        Claim(
            id="ablation-over-gradient-jointly",
            text=f"single ablations guide no better than the gradient when many heads go (difference below {_NEAR})",
            estimate=over(saved, "ablation_zero", "gradient"),
            bound=Bound.below(_NEAR),
            ours=True,
        ),
    ]
    if "direct_effect" in signals:
        every.append(
            above(
                "direct-over-norm", "direct effect ranks heads better than the norm", over(rho, "direct_effect", "norm")
            )
        )
    if "facilitation" in signals:
        text = "gates that are fitted together are a better guide than the gradient when many go"
        every.append(above("facilitation-over-gradient-jointly", text, over(saved, "facilitation", "gradient")))
    return [*every, *_of_the_answer(readings)]


def _of_the_answer(readings: Readings) -> Iterator[Claim]:
    """Which signals are good guides when half of the heads go, and whether one is better than output length.

    The answer was read off the means of all signals; these tests were added afterwards and are marked so. The length of
    a head's output needs one forward pass, and gates and gradients more.
    """
    by_place = {
        name: dict(zip(readings.places, readings.of_places(readings.saved, name), strict=True))
        for name in ("facilitation", "output_length", "gradient", "sharpness", "slope")
        if name in readings.signals
    }

    def claim(id: str, text: str, values: Sequence[float], bound: Bound) -> Claim:
        return Claim(id=id, text=text, estimate=mean_of(values, _OVER), bound=bound, note=_LATER, ours=True)

    for name in ("facilitation", "output_length"):
        if name in by_place:
            values = [value for value in by_place[name].values() if value is not None]
            yield claim(f"{_id(name)}-jointly", f"{_said(name)}: {_JOINT}", values, Bound.above(0.0))
    for name in ("facilitation", "gradient"):
        if {name, "output_length"} <= set(by_place):
            pairs = [(value, by_place["output_length"][place]) for place, value in by_place[name].items()]
            gaps = [one - other for one, other in pairs if one is not None and other is not None]
            text = f"{name} is a better guide than output length when many heads go (difference of the share avoided)"
            yield claim(f"{name}-over-output-length-jointly", text, gaps, Bound.above(0.0))
    for name in ("sharpness", "slope"):
        known = by_place.get(name, {}).items()
        values = [value for place, value in known if value is not None and place.corpus in _CLASSIFIED]
        if values:
            text = f"{name}, fine-tuned classifiers: {_JOINT}, is below 0: worse than chance"
            yield claim(f"{name}-classifiers-jointly", text, values, Bound.below(0.0))


def _id(name: str) -> str:
    return name.replace("_", "-")


def _said(name: str) -> str:
    return name.replace("_", " ")
