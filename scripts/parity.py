"""Do TransformerLens, kvpress and lxt find the same as Lorgnette? `make parity`.

They ask for older packages than Lorgnette, so an environment of its own has these versions of them without what they
ask for, and what of that their code imports. A test that is skipped there fails: the comparison did not run.

python scripts/parity.py                    in a fresh environment
python scripts/parity.py --here             in this environment, which already has them
"""

import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ("transformer-lens==4.3.0", "kvpress==0.5.5", "lxt==2.1")
NEEDED = ("cachetools", "fire", "einops", "fancy-einsum", "datasets", "accelerate", "better-abc", "wandb",
          "transformers-stream-generator", "beartype", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis",
          "scikit-learn")  # fmt: skip
"""What the peers import, and what the tests do."""
TESTS = (
    "tests/explaining/test_transformerlens_parity.py",
    "tests/explaining/test_lxt_parity.py",
    "tests/looking/test_streaming.py::test_kvpress_lets_the_same_key_heads_stream",
)


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        python = sys.executable if "--here" in arguments else environment(Path(scratch) / "venv")
        command = [python, "-m", "pytest", "-n", "0", "-q", "-rs", "-p", "no:cacheprovider", *TESTS]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    return 1 if failed(done.returncode, done.stdout) else 0


def failed(status: int, said: str) -> bool:
    """A test failed, or one was skipped, so that nothing was compared."""
    return status != 0 or "SKIPPED" in said


def environment(folder: Path) -> str:
    """A fresh virtual environment with the peers; gives its interpreter."""
    venv.create(folder, with_pip=True)
    python = str(folder / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    constraints = ROOT / "constraints.txt"
    torch = next(line for line in constraints.read_text(encoding="utf-8").splitlines() if line.startswith("torch=="))
    subprocess.run([*pip, torch], check=True)
    subprocess.run([*pip, "-c", str(constraints), f"{ROOT}[language,captum]", *NEEDED], check=True)
    subprocess.run([*pip, "--no-deps", *PEERS], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
