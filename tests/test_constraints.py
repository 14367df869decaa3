"""Options say in their annotations what they may be; one function checks that, and one says it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest

import lorgnette as lo
from lorgnette.constraints import Interval, NotEmpty, OneOf, Seed, Share, check, checked, expected, fits
from lorgnette.errors import UserError
from lorgnette.lens.options import parameters

Shares = Annotated[Sequence[Share], NotEmpty()]


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (bool, [True, np.True_], [1, "true", None]),
        (int, [3, np.int64(3), -(10**30)], [3.0, True, "3", None]),
        (float, [3, 0.5, np.float32(1)], [float("nan"), float("inf"), "0.5", True, None]),
        (str | None, ["a", None], [1]),
        (Path | None, ["a", Path("a")], [1]),
        (Literal["text", "token"], ["text", np.str_("token")], ["texts", None, ["text"]]),
        (bool | Literal["cls"], [True, "cls"], ["sep", 1]),
        (Literal[0, 1], [0, 1], [True, 2]),
        (Annotated[str, OneOf({"a": 1, "b": 2})], ["a"], ["c", 1]),
        (Annotated[int, Interval(1)] | None, [1, None], [0, True, 1.0, 10**400]),
        (Share, [0.5], [0, 1, -1, float("nan")]),
        (Annotated[float, Interval(0, 1, "right")], [1, 0.1], [0, 1.1]),
        (Annotated[float, Interval(0, 1, "left")], [0, 0.9], [1]),
        (Shares, [[0.5], (0.1, 0.2), np.array([0.3])], [[], 0.5, "0.5", [1.0], ["a"], iter([0.5])]),
        (tuple[int, ...], [(1, 2), []], [1, ("a",)]),
        (Mapping[str, str], [{}], [[], "a"]),
        (Seed, [0, 2**32 - 1], [-1, 2**32]),
        (object, [1, None, "a"], []),
    ],
)
def test_what_fits(annotation, good, bad):
    assert all(fits(value, annotation) for value in good)
    for value in bad:
        with pytest.raises(UserError, match=r"^x must be .* Got .* instead"):
            check(value, annotation, "x")


@pytest.mark.parametrize(
    ("annotation", "in_python", "as_text"),
    [
        (bool | Literal["cls"], "True, False or 'cls'", "true, false or cls"),
        (Annotated[int, Interval(1)] | None, "a whole number of at least 1 or None",
         "a whole number of at least 1 or none"),
        (Share, "a number above 0 and below 1", "a number above 0 and below 1"),
        (Shares, "a list of numbers above 0 and below 1, not an empty one", "numbers above 0 and below 1, between +"),
        (Sequence[Literal["zero", "mean"]], "a list of any of 'zero', 'mean'", "any of zero, mean, between +"),
    ],
)  # fmt: skip
def test_what_is_expected(annotation, in_python, as_text):
    assert expected(annotation) == in_python
    assert expected(annotation, as_text=True) == as_text


@pytest.mark.parametrize("name", lo.lens.OURS)
def test_defaults_of_our_lenses_fit_and_nonsense_does_not(name):
    """Every option says what it may be, so an object of no sense is refused before the lens sees it."""
    for option, parameter in parameters(lo.lens.find(name)).items():
        assert fits(parameter.default, parameter.annotation), option
        with pytest.raises(UserError, match=f"option '{option}' of the lens '{name}' must be .* Got <object"):
            lo.lens.get(name, **{option: object()})


def test_a_lens_whose_types_cannot_be_read_is_built_all_the_same():
    class Foreign(lo.lens.Lens):
        name = "foreign"

        def __init__(self, what: "NobodyImportsThis" = 1) -> None:
            super().__init__()

        def compute(self): ...

    assert Foreign(2).made_with == {"what": 2}


def test_a_checked_function_names_the_argument_that_does_not_fit():
    @checked
    def drawn(layer: int, *, stack: str | None = None, where: "Path | None" = None, **selection: int) -> tuple:
        """What is drawn."""
        return layer, stack, where, selection

    assert drawn(np.int64(2), stack="encoder", where=3, head=1) == (2, "encoder", 3, {"head": 1})  # quotes are not read
    assert drawn.__doc__ == "What is drawn."
    for given, named, said in (
        ((True,), {}, "layer must be a whole number"),
        ((), {"layer": 1, "stack": 0}, "stack must be a word or None"),
        ((1,), {"head": "x"}, "head must be a whole number"),
    ):
        with pytest.raises(UserError, match=said):
            drawn(*given, **named)
    with pytest.raises(TypeError, match="layer"):
        drawn()
