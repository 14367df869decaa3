"""What the pages show of word frequency: whether frequent tokens are discounted."""

from collections.abc import Iterator

from lorgnette.axes import LAYER, MEASURE
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import READING, Compared, LensReport
from lorgnette.figures.sentences import CLEAR
from lorgnette.figures.variables import figure_per_variable, titled_figures
from lorgnette.results import Result


def figures(result: Result) -> list[Figure]:
    title = "Rank correlation of rarity with α and ‖f(x)‖ (Spearman's ρ)"
    return titled_figures(result, {"spearman": title}) or figure_per_variable(result)


def findings(result: Result) -> Iterator[Finding]:
    """ρ of rarity with the attention weight, and with the norm of the transformed value, over all layers."""
    both = result.data["spearman_all"]
    present = [name for name in ("weights", "norms") if name in both[MEASURE].values]
    numbers = {name: float(both.sel({MEASURE: name})) for name in present}
    if len(numbers) < 2 or any(value != value for value in numbers.values()):
        return
    ends = {
        f"{name}_{end}": float(result.data[f"spearman_all_{end}"].sel({MEASURE: name}))
        for name in numbers
        for end in ("low", "high")
    }
    significant = {name: ends[f"{name}_low"] * ends[f"{name}_high"] > 0 for name in numbers}
    larger = (
        "Rarer tokens have"
        if numbers["norms"] > CLEAR and significant["norms"]
        else "Rarer tokens do not have significantly"
    )
    rho = numbers["weights"]
    depends = "grows with rarity" if rho > CLEAR else "falls with rarity" if rho < -CLEAR else "barely depends on it"
    depends = depends if significant["weights"] or abs(rho) <= CLEAR else "does not depend on it significantly"
    numbers |= ends
    by_layer = result.data["spearman"].sel({MEASURE: "norms"}).dropna(LAYER)
    single = ""
    if by_layer.sizes[LAYER] > 1:
        numbers |= {"least": float(by_layer.min()), "most": float(by_layer.max())}
        single = "; single layers {least:.2f} to {most:.2f}"
    yield Finding(
        f"{larger} larger transformed-value norms ‖f(x)‖ (ρ of the mean norm over layers: {{norms:.2f}}, 95 % CI "
        f"{{norms_low:.2f}} to {{norms_high:.2f}}{single}); attention weight {depends} (ρ of the mean over layers: "
        "{weights:.2f}, {weights_low:.2f} to {weights_high:.2f}).",
        numbers,
    )


REPORT = LensReport(
    title="Do frequent tokens contribute less?",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(Compared("spearman", "rank correlation with rarity"),),
    meaning=("ranks", "language", "specials"),
    rank=-5,
)
