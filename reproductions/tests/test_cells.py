"""Cells: run once, side by side, in any order, and a failure stops nobody else."""

import json
import os
import time

import pytest

from lorgnette.errors import UserError
from reproductions.frame.cells import Cell, Cells

SQUARE = "tests_cells_functions:square"


@pytest.fixture(autouse=True)
def functions(tmp_path, monkeypatch):
    """A module that worker processes can import too."""
    (tmp_path / "tests_cells_functions.py").write_text(
        "import os\n"
        "def square(x, log=None):\n"
        "    if log:\n"
        "        open(os.path.join(log, f'{x}-{os.getpid()}-{os.environ.get(\"OMP_NUM_THREADS\")}'), 'w').close()\n"
        "    return {'square': x * x}\n"
        "def nothing(x):\n"
        "    return float('nan')\n"
        "def die(x):\n"
        "    os._exit(3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def squares(*numbers: int) -> dict[str, Cell]:
    return {f"square-{number}": Cell(SQUARE, {"x": number}) for number in numbers}


def test_a_cell_is_one_file_and_is_not_run_again(tmp_path):
    log = tmp_path / "log"
    log.mkdir()
    cells = Cells(tmp_path / "cells", local={"log": str(log)})
    assert cells.run(squares(2, 3)) == {"square-2": {"square": 4}, "square-3": {"square": 9}}
    kept = json.loads((tmp_path / "cells" / "square-3.json").read_text())
    assert kept["cell"] == {"function": SQUARE, "arguments": {"x": 3}}
    assert kept["result"] == {"square": 9}
    assert kept["versions"]["torch"]
    for file in log.iterdir():
        file.unlink()
    assert len(cells.run(squares(2, 3, 4))) == 3
    assert [file.name.split("-")[0] for file in log.iterdir()] == ["4"]


def test_a_cell_that_was_told_something_else_is_run_again(tmp_path):
    cells = Cells(tmp_path)
    cells.run({"one": Cell(SQUARE, {"x": 2})})
    changed = {"one": Cell(SQUARE, {"x": 5})}
    assert cells.done(changed) == {}
    assert cells.run(changed) == {"one": {"square": 25}}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_is_recorded_and_tried_again(tmp_path, capsys, jobs):
    cells = Cells(tmp_path / "cells")
    wanted = {
        "good": Cell(SQUARE, {"x": 1}),
        "bad": Cell(SQUARE, {"y": 1}),
        "nan": Cell("tests_cells_functions:nothing", {"x": 1}),
    }
    assert cells.run(wanted, jobs=jobs) == {"good": {"square": 1}}
    failures = cells.failures(wanted)
    assert set(failures) == {"bad", "nan"}
    assert "unexpected keyword argument 'y'" in failures["bad"]
    assert "not JSON compliant" in failures["nan"]
    assert "1/3 good done" in (told := capsys.readouterr().err)
    assert "bad FAILED: TypeError" in told
    mended = {"bad": Cell(SQUARE, {"x": 7})}
    assert cells.run(mended) == {"bad": {"square": 49}}
    assert cells.failures(mended) == {}


def test_side_by_side(tmp_path):
    log = tmp_path / "log"
    log.mkdir()
    with Cells(tmp_path / "cells", local={"log": str(log)}) as cells:
        first = cells.run(squares(*range(4)), jobs=2)
        second = cells.run(squares(*range(8)), jobs=2)
    assert first == {f"square-{n}": {"square": n * n} for n in range(4)}
    assert len(second) == 8
    seen = [file.name.split("-") for file in log.iterdir()]
    assert len(seen) == 8
    assert {threads for _, _, threads in seen} == {"1"}
    assert str(os.getpid()) not in {process for _, process, _ in seen}
    assert len({process for _, process, _ in seen}) <= 2


def test_a_process_that_dies_takes_no_other_with_it(tmp_path):
    cells = Cells(tmp_path)
    wanted = {"dead": Cell("tests_cells_functions:die", {"x": 1}), **squares(1, 2, 3, 4)}
    cells.run(wanted, jobs=2)
    assert "a worker process died" in cells.failures(wanted)["dead"]
    assert len(cells.run(squares(1, 2, 3, 4), jobs=2)) == 4


def test_no_new_cell_after_the_time(tmp_path, capsys):
    cells = Cells(tmp_path)
    for jobs in (1, 2):
        assert cells.run(squares(1, 2), jobs=jobs, until=time.monotonic() - 1) == {}
    assert "2 cells were not started" in capsys.readouterr().err


def test_bad_names_and_damaged_files(tmp_path):
    cells = Cells(tmp_path)
    for key in ("a/b", "", "..", "a.failed"):
        with pytest.raises(ValueError, match="no name for a cell"):
            cells.run({key: Cell(SQUARE, {"x": 1})})
    (tmp_path / "square-1.json").write_text("{")
    with pytest.raises(UserError, match="is no finished cell"):
        cells.run(squares(1))
