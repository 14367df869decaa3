"""Texts of every script and none, traced and looked at: rows of weights sum to one, batches do not matter."""

import json
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from fuzz.damage import HOSTILE
from fuzz.place import MODELS, WORD, Place
from fuzz.trial import Answer, Case, difference, numbers
from lorgnette.errors import UserError
from lorgnette.texts.example import Example

ODD = (
    "\u202e", "\u200d", "\u0301" * 40, "\ufeff", "\u2028", "\x85", "\x0b", "\x1b[31m", "\x00", "[CLS]", "[SEP]",
    "[PAD]", "[MASK]", "##able", "</s>", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "👩‍👩‍👧", "ﷺ", "ｃａｔ", "ß", "İ", "ﬁ", "\U0010ffff",
    "\ud800", "\udcff", "a" * 3000, "cat " * 400, "[bold]", "[/x]", "<b>", "&amp;", "{{x}}", "--", "-h", "=", "\\",
    "'", '"', "$HOME", "`x`", "\t", "\n", "\r\n", " ", "\u3000",
)  # fmt: skip

anything = st.one_of(
    st.text(max_size=30),
    st.text(st.characters(), max_size=12),
    st.lists(st.one_of(st.sampled_from(WORD), st.sampled_from(ODD)), max_size=8).map(" ".join),
    st.lists(st.sampled_from(ODD), max_size=5).map("".join),
    st.sampled_from([value for value in HOSTILE if isinstance(value, str)]),
)


def given(text: str) -> str:
    """As a process can be given it: no zero byte; what begins with a dash is behind "--"."""
    return text.replace("\0", "0").replace("@/", "@")


def cases(place: Place) -> st.SearchStrategy[Case]:
    return st.one_of(_traced(place), _traced(place), _pages(place), _looked_at(place))


@st.composite
def _traced(draw: st.DrawFn, place: Place) -> Case:
    model = draw(st.sampled_from(sorted(MODELS)))
    texts = [given(draw(anything))]
    if model == "bert" and draw(st.booleans()):
        texts.append(given(draw(anything)))
    options = ["--target", given(draw(anything))] if model == "marian" and draw(st.booleans()) else []
    options += draw(
        st.sampled_from(([], ["--pieces"], ["--without", "1.1"], ["--layer", "1", "--head", "2"], ["--stack", "cross"]))
    )
    if draw(st.integers(0, 3)):
        options.append("--json")
    arguments = ("trace", place.model(model), "--dtype", "float64", *options, "--", *texts)

    def judge(answer: Answer, folder: Path) -> str | None:
        if "--json" not in options:
            return None
        weights = np.array(json.loads(answer.out)["weights"], dtype=float)
        whole = weights[~np.isnan(weights).all((-1, -2))] if weights.ndim == 4 else weights
        return None if np.allclose(whole.sum(-1), 1, atol=1e-9) else f"rows sum to {whole.sum(-1).min()}"

    return Case(f"{model} {texts!r}"[:500], arguments, judge=judge)


@st.composite
def _pages(draw: st.DrawFn, place: Place) -> Case:
    """Explanations and pages of hostile texts."""
    text = given(draw(anything))
    options = draw(
        st.sampled_from(
            (["--html", "@/page.html"], ["--explain", "gradient_x_input"], ["--explain", "rollout", "--json"])
        )
    )
    named = draw(st.sampled_from(([], [], ["--class", "LABEL_1"], ["--class", given(draw(anything))])))
    return Case(
        f"explained {text!r}"[:500], ("trace", place.model(), "--dtype", "float64", *options, *named, "--", text)
    )


def _rows_of_a_file(texts: list[str]) -> list[Example]:
    """With the ids of lines: which pairs of a long text are sampled depends on its id."""
    return [Example(str(number), text) for number, text in enumerate(texts, 1)]


@st.composite
def _looked_at(draw: st.DrawFn, place: Place) -> Case:
    """Hostile texts among others, one by one and all at once: the same numbers."""
    texts = [draw(anything) for _ in range(draw(st.integers(1, 4)))]
    rows = b"\n".join(json.dumps({"text": text}).encode() for text in texts)
    lens = draw(st.sampled_from(("weights", "norms", "distances", "frequency")))
    more = ["--truncate"] if draw(st.booleans()) else []
    size = draw(st.sampled_from(("1", "64", "100000")))
    arguments = (
        "look",
        place.model(),
        "-c",
        "@/a.jsonl",
        "--dtype",
        "float64",
        "-l",
        lens,
        "--batch-tokens",
        size,
        *more,
    )

    def judge(answer: Answer, folder: Path) -> str | None:
        try:
            expected = place.expected(_rows_of_a_file(texts), [lens], truncate=bool(more))
        except UserError as error:
            return f"an answer where the library says: {error}"
        return difference(numbers(answer.results[-1]), expected)

    return Case(f"texts {texts!r}"[:500], arguments, {"a.jsonl": rows}, judge=judge)
