"""Cells: run once, side by side, in any order, and a failure stops nobody else."""

import json
import os
import time

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorgnette.errors import UserError
from reproductions.frame import rows
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


def test_files_move_into_one_table(tmp_path):
    cells = Cells(tmp_path / "cells")
    cells.run(squares(2, 3))
    cells.gather(squares(2))
    assert [path.name for path in (tmp_path / "cells").iterdir()] == ["square-3.json"]
    cells.gather(squares(2, 3))
    assert [path.name for path in tmp_path.glob("cells*")] == ["cells.csv"]
    fresh = Cells(tmp_path / "cells")
    assert fresh.done(squares(2, 3)) == {"square-2": {"square": 4}, "square-3": {"square": 9}}
    assert fresh.documents(squares(3))["square-3"]["cell"]["arguments"] == {"x": 3}
    # A cell that changes is run again, and takes the place of its row; the other row stays.
    changed = {"square-2": Cell(SQUARE, {"x": 5})}
    assert fresh.done(changed) == {}
    fresh.run(changed)
    fresh.gather(changed)
    assert {key: row["result"]["square"] for key, row in rows.read(tmp_path / "cells.csv").items()} == {
        "square-2": 25,
        "square-3": 9,
    }
    written = (tmp_path / "cells.csv").stat().st_mtime_ns
    fresh.gather(changed)
    assert (tmp_path / "cells.csv").stat().st_mtime_ns == written


@given(
    st.dictionaries(
        st.sampled_from(["one", "two-1"]),
        st.dictionaries(
            st.sampled_from(["cell", "result", "seconds"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(max_size=5) | st.sampled_from(["1", "NaN", "true", "null", "[", "a,b\n\"c\r"]),
                lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
                max_leaves=6,
            ),
            min_size=1,
        ),
    )
)  # fmt: skip
def test_the_table_gives_back_what_was_written(tmp_path_factory, documents):
    path = tmp_path_factory.mktemp("table") / "cells.csv"
    rows.write(path, documents)
    back = rows.read(path)
    assert json.dumps(back, sort_keys=True) == json.dumps(documents, sort_keys=True)


def test_pandas_reads_the_table(tmp_path):
    document = {"cell": {"arguments": {"seed": 3, "vectors": "glove"}}, "result": {"test": {"accuracy": 0.5}, "x": [1]}}
    rows.write(tmp_path / "cells.csv", {"a": document, "b": {"cell": {"arguments": {"seed": 4}}}})
    frame = pd.read_csv(tmp_path / "cells.csv", index_col="key")
    assert frame.loc["a"].to_dict() == {
        "cell.arguments.seed": 3,
        "cell.arguments.vectors": "glove",
        "result.test.accuracy": 0.5,
        "result.x": "[1]",
    }
    assert frame["result.test.accuracy"].isna().tolist() == [False, True]


def test_a_damaged_table_is_refused(tmp_path):
    (tmp_path / "cells.csv").write_text("key,cell.function\na,b,c\n")
    with pytest.raises(UserError, match="line 2: 3 entries, expected 2"):
        rows.read(tmp_path / "cells.csv")
    (tmp_path / "cells.csv").write_text("name\na\n")
    with pytest.raises(UserError, match="first column must be 'key'"):
        rows.read(tmp_path / "cells.csv")


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
