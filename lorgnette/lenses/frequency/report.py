"""What the pages show of word frequency: whether frequent tokens are discounted."""

from collections.abc import Iterator

from lorgnette.axes import MEASURE
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import READING, Compared, LensReport
from lorgnette.figures.sentences import CLEAR
from lorgnette.figures.variables import figure_per_variable, titled_figures
from lorgnette.results import Result


def figures(result: Result) -> list[Figure]:
    title = "Are frequent words discounted? Frequency rank against α and ‖f(x)‖ (Spearman's ρ)"
    return titled_figures(result, {"spearman": title}) or figure_per_variable(result)


def findings(result: Result) -> Iterator[Finding]:
    """ρ of rarity with what is read, and with the length of what would arrive, over all layers."""
    rho = result.data["spearman_all"]
    numbers = {name: float(rho.sel({MEASURE: name})) for name in ("weights", "norms") if name in rho[MEASURE].values}
    if len(numbers) < 2 or any(value != value for value in numbers.values()):
        return
    yield Finding(
        "Frequent tokens are discounted: the rarer a token, the longer what it would give (‖f(x)‖, ρ {norms:+.2f}), "
        "while the weight on it has ρ {weights:+.2f}."
        if numbers["norms"] > CLEAR
        else "Frequent tokens are not discounted: rarity has ρ {norms:+.2f} with the length of what a token would give "
        "(‖f(x)‖), and {weights:+.2f} with the weight on it.",
        numbers,
    )


REPORT = LensReport(
    title="Are frequent words discounted?",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(Compared("spearman"),),
)
