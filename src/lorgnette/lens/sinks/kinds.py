"""Which kinds of token can be called the one that is a sink most often."""

from collections.abc import Mapping

KINDS = ("first", "cls", "sep", "period_comma", "other")
_MORE = 0.05
"""The first token is one of the other tokens where no [CLS] opens a text: by so much the others must be beyond it."""


def candidates(rates: Mapping[str, float]) -> list[str]:
    """Categories that texts have (their rate is known); where no [CLS] opens a text, the first token beside them.

    Other tokens then count only if they are sinks more often than the first, which is one of them.
    """
    known = [kind for kind in KINDS if rates[kind] == rates[kind]]
    if "cls" in known or "first" not in known:
        return [kind for kind in known if kind != "first"]
    return [kind for kind in known if kind != "other" or rates["other"] > rates["first"] + _MORE]
