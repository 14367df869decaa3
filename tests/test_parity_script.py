"""`make parity`: the tests that it runs are there, its versions are pinned, and a skipped comparison fails."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent
_SPEC = importlib.util.spec_from_file_location("parity_script", ROOT / "scripts" / "parity.py")
assert _SPEC is not None
assert _SPEC.loader is not None
parity = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(parity)


def test_every_comparison_is_there_and_every_peer_has_a_version():
    for name in parity.TESTS:
        file, _, function = name.partition("::")
        assert f"def {function}" in (ROOT / file).read_text(encoding="utf-8")
    assert all("==" in peer for peer in parity.PEERS)


def test_a_skipped_comparison_fails():
    assert not parity.failed(0, "16 passed in 9.1s")
    assert parity.failed(0, "SKIPPED [1] tests/x.py: kvpress is not installed")
    assert parity.failed(1, "1 failed")
