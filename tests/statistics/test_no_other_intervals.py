"""Standard errors and intervals are made in one place: no quantile of the normal distribution is written anywhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_quantile_is_written():
    """1.96, and twice that, are `Estimate.half` of many texts."""
    quantile = re.compile(r"(?<![\d.])(1\.96|3\.92)(?!\d)")
    files = [
        path for folder in ("src", "reproductions", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(files) > 700
    assert not [str(path) for path in files if quantile.search(path.read_text(encoding="utf-8"))]
