"""The tests check the annotations of every call: `checked` in conftest.py refuses what jaxtyping would refuse."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from beartype import beartype
from jaxtyping import Float
from torch import Tensor

checked = jaxtyping.jaxtyped(typechecker=beartype)  # what the import hook puts on every function of ours


def adder(number: object) -> Callable[..., int]:
    @checked
    def added(x: int, *, times: int = 1) -> int:
        return x * times + number

    return added


def test_every_function_made_inside_another_is_checked_and_has_its_own_values():
    assert [adder(n)(1) for n in (1, 2, 3)] == [2, 3, 4]
    assert adder(4)(2, times=3) == 10
    for wrong in (lambda: adder(5)("1"), lambda: adder(5)(1, times="2"), lambda: adder(0.5)(1)):
        with pytest.raises(Exception, match="violates type hint"):
            wrong()


def test_nothing_that_such_a_function_encloses_is_kept():
    class Three:
        def __radd__(self, other: int) -> int:
            return other + 3

    number = Three()
    seen = weakref.ref(number)
    assert adder(number)(1) == 4
    del number
    gc.collect()
    assert seen() is None


@checked
def product(x: Float[Tensor, "row column"], y: Float[Tensor, "column"]) -> Float[Tensor, "row"]:
    return x @ y if len(y) != 2 else y


@checked
@dataclass
class Pair:
    x: Float[Tensor, "row column"]
    y: Float[Tensor, "column"]


def test_an_axis_has_one_length_in_one_call():
    assert product(torch.ones(3, 4), torch.ones(4)).shape == (3,)
    assert product(torch.ones(5, 6), torch.ones(6)).shape == (5,)  # and another in the next
    for wrong in (
        lambda: product(torch.ones(3, 4), torch.ones(5)),
        lambda: product(torch.ones(3, 2), torch.ones(2)),  # the answer is a column
        lambda: Pair(torch.ones(3, 4), torch.ones(5)),
    ):
        with pytest.raises(Exception, match="violates type hint"):
            wrong()
    assert Pair(torch.ones(3, 4), torch.ones(4)).y.shape == (4,)
