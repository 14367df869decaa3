"""Build the wheel and the sdist, and prove that they work without the source tree: `make release-check`.

1. Build both into dist/ (the same commit gives the same bytes), check their metadata (twine) and their contents
   (check-wheel-contents): the package alone.
2. Install the wheel into a fresh environment, core only: `check`, `look`, `trace` and `report` work on a tiny model;
   a command that needs an extra names it in one line; the core brings no more than it should.
3. Add the extra `demo`, and run the demo.

`make parity` compares the numbers with those of other tools; run it before a release too.
"""

import gzip
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

MOST_MEGABYTES = 60  # of wheels that the core brings along, besides torch and transformers
ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TINY = """
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "."]
inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
inner.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                    sep_token="[SEP]", model_max_length=32)
torch.manual_seed(0)
model = BertModel(BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                             intermediate_size=32, max_position_embeddings=32))
model.save_pretrained("tiny")
tokenizer.save_pretrained("tiny")
"""


def run(*command: str | Path, where: Path, fails: bool = False) -> str:
    """What a command prints; the check ends here if it does not do what it should."""
    print("$", *(str(part).replace(str(where), ".") for part in command), flush=True)
    done = subprocess.run([str(part) for part in command], cwd=where, capture_output=True, text=True, timeout=1800)
    said = done.stdout + done.stderr
    if (done.returncode != 0) != fails or "Traceback" in said:
        sys.exit(f"{said}\nrelease-check: this {'succeeded' if fails else 'failed'} (exit status {done.returncode}).")
    return said


def environment(folder: Path) -> Path:
    """A fresh virtual environment; gives its folder of programs."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def build(scratch: Path) -> Path:
    """Wheel and sdist in dist/, built and checked by the usual tools; gives the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    tools = environment(scratch / "tools")
    run(tools / "python", "-m", "pip", "install", "-q", "build", "twine", "check-wheel-contents", where=scratch)
    run(tools / "python", "-m", "build", "--outdir", DIST, ROOT, where=scratch)
    (sdist,) = DIST.glob("*.tar.gz")
    make_reproducible(sdist, int(run("git", "log", "-1", "--format=%ct", where=ROOT)))
    run(tools / "twine", "check", "--strict", *sorted(DIST.iterdir()), where=scratch)
    (wheel,) = DIST.glob("*.whl")
    run(tools / "check-wheel-contents", wheel, where=scratch)
    top = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    foreign = {name for name in top if name != "lorgnette" and not name.endswith(".dist-info")}
    if foreign:
        sys.exit(f"release-check: the wheel contains {', '.join(sorted(foreign))}; it must be the package alone.")
    return wheel


def make_reproducible(sdist: Path, seconds: int) -> None:
    """Writes the sdist again with its members in order, and the same time and owner for each."""
    members = {}
    with tarfile.open(sdist) as old:
        for member in old.getmembers():
            content = old.extractfile(member)
            members[member.name] = (member, b"" if content is None else content.read())
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for _, (member, content) in sorted(members.items()):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, io.BytesIO(content))
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=seconds) as packed:
        packed.write(plain.getvalue())


def smoke(programs: Path, where: Path) -> None:
    """The core commands on a tiny model, and one that needs an extra."""
    (where / "tiny.py").write_text(TINY)
    (where / "texts.txt").write_text("the cat sat on the mat .\nthe mat sat .\non the cat .\n")
    run(programs / "python", "tiny.py", where=where)
    lorgnette = programs / "lorgnette"
    run(lorgnette, "--help", where=where)
    run(lorgnette, "check", "./tiny", where=where)
    run(lorgnette, "look", "./tiny", "--corpus", "texts.txt", "--lens", "weights", "--lens", "norms", "--out", "run",
        where=where)  # fmt: skip
    run(lorgnette, "report", "run", where=where)
    run(lorgnette, "trace", "./tiny", "the cat sat .", "--html", "page.html", where=where)
    for extra, needs_it in {"serve": ("serve", "./tiny"), "figures": ("report", "run", "--figures", "pdf")}.items():
        said = run(lorgnette, *needs_it, where=where, fails=True)
        if f"lorgnette[{extra}]" not in said:
            sys.exit(f"{said}\nrelease-check: {needs_it[0]} without its extra does not say what to install.")
    brought = megabytes(programs, where)
    print(f"release-check: besides torch and transformers, the core installs {brought:.0f} MB of wheels.")
    if brought > MOST_MEGABYTES:
        sys.exit(f"release-check: that is more than {MOST_MEGABYTES} MB. Make what few users need an extra.")


def megabytes(programs: Path, where: Path) -> float:
    """The size of the wheels that the core installs besides torch, transformers and what these need themselves."""
    report = ("-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "-c", ROOT / "constraints.txt")
    names = []
    for what, file in ((next(DIST.glob("*.whl")), "core.json"), (("torch", "transformers"), "theirs.json")):
        wanted = what if isinstance(what, tuple) else (what,)
        run(programs / "python", *report, "--report", file, *wanted, where=where)
        installed = json.loads((where / file).read_text())["install"]
        names.append({f"{one['metadata']['name']}=={one['metadata']['version']}" for one in installed})
    ours = sorted(name for name in names[0] - names[1] if not name.startswith("lorgnette=="))
    run(programs / "python", "-m", "pip", "download", "-q", "--no-deps", "-d", "wheels", *ours, where=where)
    return sum(path.stat().st_size for path in (where / "wheels").iterdir()) / 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        wheel = build(scratch)
        programs = environment(scratch / "fresh")
        install = (programs / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
        run(*install, wheel, where=scratch)
        smoke(programs, scratch)
        run(*install, f"{wheel}[demo]", where=scratch)
        run(programs / "lorgnette", "demo", "--out", scratch / "demo", where=scratch)
    print(f"release-check: {', '.join(path.name for path in sorted(DIST.iterdir()))} work without the source tree.")


if __name__ == "__main__":
    main()
