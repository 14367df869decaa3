"""kill −9 at every write: what is gone on with ends at the same numbers, with the reader's files and no debris."""

import sys

import pytest
from fuzz.areas import place_for_cases
from fuzz.killed import killed_everywhere

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a process is forked for every kill")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with place_for_cases(tmp_path_factory.mktemp("fuzz")) as place:
        yield place


SCENARIOS = [("look", 8, 4), ("reproduce", 8, 4), ("train", 60, 2), ("prune", 100, 1)]


@pytest.mark.parametrize(("name", "every", "least"), SCENARIOS)
def test_the_same_numbers_and_no_debris(place, tmp_path, name, every, least):
    """Some of the writes of each: `make fuzz` tries all of them."""
    tried, wrong = killed_everywhere(name, tmp_path / name, place, every)
    assert tried >= least
    assert not wrong, "\n".join(wrong)
