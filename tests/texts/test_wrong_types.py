"""Wrong types reach our own checks only where annotations are not checked: in a process of its own."""

import re
from pathlib import Path

from processes import run

HERE = Path(__file__).parent


def test_wrong_types_get_one_line():
    """`any_corpus.py`, as a user would meet it: without beartype."""
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "-W", "ignore:Module already imported"]
    ran = run("-m", "pytest", *options, "any_corpus.py", cwd=HERE)
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert int(re.findall(r"(\d+) passed", ran.stdout)[0]) > 50
