"""Wrong types reach our own checks only where annotations are not checked: in a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_wrong_types_get_one_line():
    """`any_corpus.py`, as a user would meet it: without beartype."""
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "any_corpus.py"]
    ran = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert int(re.findall(r"(\d+) passed", ran.stdout)[0]) > 50
