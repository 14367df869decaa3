"""How the pages write a number."""


def percent(share: float) -> str:
    """As `percent` in words.js: two digits that count, "< 0.1 %" below what the page can tell."""
    value = 100 * share
    if value == 0:
        return "0 %"
    if value < 0.05:
        return "< 0.1 %"
    return f"{value:.1f} %" if value < 10 else f"{value:.0f} %"
