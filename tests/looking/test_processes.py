"""Several processes: each tokenises its own texts, and losing one of them costs no more than its own work."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr
from processes import Forked, ranks, run, start
from tiny.subjects import examples, subject

import lorgnette as lo
from lorgnette.looking import pulse
from lorgnette.testing import assert_close

LENGTHS = (9, 4, 1, 6, 12, 3, 7, 8, 2, 5, 11)
LOOK = """
import json, os, signal, sys, time
from pathlib import Path
import lorgnette.cli.look
from lorgnette.cli import main
from lorgnette.looking import pulse
from lorgnette.looking.passes import Passes
from lorgnette.texts.encoding import Encoder

take, encode, tokenised, rank = Passes.take, Encoder.encode_all, [], os.environ.get("RANK", "0")

def counted(self, some, **options):
    tokenised.extend(example.text for example in some)
    return encode(self, some, **options)

def killed(self, encoded, batch=None, number=0):
    if number == 2 and rank == os.environ.get("VICTIM"):
        Path("killed").write_text(str(time.monotonic()))
        os.kill(os.getpid(), getattr(signal, os.environ.get("HOW", "SIGKILL")))
    time.sleep(float(os.environ.get("SLOW", "0")))
    take(self, encoded, batch, number)

pulse.SILENT = float(os.environ.get("SILENT", pulse.SILENT))
Encoder.encode_all, Passes.take = counted, killed
lorgnette.cli.look.write_report = lambda *_: None  # the page shows a few texts of whichever process
try:
    main()
finally:
    Path(f"ended-{rank}").write_text(str(time.monotonic()))
    Path(f"tokenised-{rank}.json").write_text(json.dumps(tokenised))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, a file of texts, and what one process finds in them."""
    folder, model = tmp_path_factory.mktemp("processes"), subject()
    model.model.save_pretrained(folder / "model")
    model.tokenizer.save_pretrained(folder / "model")
    (folder / "texts.txt").write_text("\n".join(example.text for example in examples(LENGTHS)))
    (folder / "long.txt").write_text("\n".join(example.text for example in examples(LENGTHS * 60)))
    (folder / "look.py").write_text(LOOK)
    done = run("-c", LOOK, *command("one"), cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def command(out, *more, corpus="texts.txt"):
    words = ["look", "model", "--corpus", corpus, "--lens", "weights,norms:sample=16", "--batch-tokens", "10"]
    return [*words, "--dtype", "float64", "--device", "cpu", "--keep", "texts", "--out", out, *more]


def same(place: Path, out: str) -> None:
    one, other = (lo.Results.load(place / name) for name in ("one", out))
    for name in one:
        assert_close(one[name].data, other[name].data, out, 1e-9)
        assert one[name].provenance.tokens == other[name].provenance.tokens
        assert len(one.texts(name)) == len(other.texts(name))


def tokenised(place: Path, rank: int) -> list[str]:
    return json.loads((place / f"tokenised-{rank}.json").read_text())


def test_no_process_tokenises_the_texts_of_another(place):
    for done in ranks(2, "-c", LOOK, *command("two"), cwd=place):
        assert done.returncode == 0, done.stderr[-3000:]
    same(place, "two")
    lines = (place / "texts.txt").read_text().splitlines()
    assert [tokenised(place, rank) for rank in (0, 1)] == [lines[0::2], lines[1::2]]


@pytest.mark.parametrize(("victim", "then"), [("0", 1), ("1", 3)])
def test_a_killed_process_costs_its_own_work_only(place, victim, then):
    """The other says so in one line, and a run with another number of processes goes on from what both have saved."""
    out = f"without-{victim}"
    lost, left = sorted(ranks(2, "-c", LOOK, *command(out), cwd=place, env={"VICTIM": victim}),
                        key=lambda done: done.returncode)  # fmt: skip
    assert (lost.returncode, left.returncode) == (-9, 1)
    said = [line for line in left.stderr.splitlines() if line.startswith("lorgnette: ")]
    assert len(said) == 1
    assert "Another process of this run has ended" in said[0]
    assert "Traceback" not in left.stderr
    kept = list((place / f".{out}.unfinished").glob("states-*.safetensors"))
    assert [file.name for file in kept] == [f"states-{1 - int(victim)}.safetensors"]
    resumed = ranks(then, "-c", LOOK, *command(out, "--resume"), cwd=place)
    assert [done.returncode for done in resumed] == [0] * then, resumed[0].stderr[-3000:]
    same(place, out)
    again = sorted(text for rank in range(then) for text in tokenised(place, rank))
    assert again == sorted((place / "texts.txt").read_text().splitlines()[int(victim) :: 2])


def assert_ended_in_one_line(place, out, victim, said):
    """The survivor, which had a long way to go, soon after the other was killed."""
    words = [line for line in said.splitlines() if line.startswith("lorgnette: ")]
    assert len(words) == 1, said[-3000:]
    assert [file.name for file in (place / f".{out}.unfinished").glob("states-*")] == [
        f"states-{1 - victim}.safetensors"
    ]
    done = len(json.loads((place / f"tokenised-{1 - victim}.json").read_text()))
    assert done < len(LENGTHS) * 60 / 2
    killed, ended = (float((place / name).read_text()) for name in ("killed", f"ended-{1 - victim}"))
    return words[0], ended - killed


@pytest.mark.parametrize("victim", [0, 1])
def test_a_survivor_far_from_its_end_hears_of_it_within_a_minute(place, victim):
    """Without anybody who watches over the processes. The first of them holds the store: its end is heard at once."""
    out, silent = f"far-{victim}", 8.0
    long = command(out, corpus="long.txt")
    environment = {"VICTIM": str(victim), "SLOW": "0.4", "SILENT": str(silent)}
    codes = {done.returncode: done for done in ranks(2, "-c", LOOK, *long, cwd=place, env=environment)}
    assert set(codes) == {-9, 1}
    assert "Traceback" not in codes[1].stderr
    said, seconds = assert_ended_in_one_line(place, out, victim, codes[1].stderr)
    assert "Another process of this run has ended" in said
    assert ("process 2 of 2 has been silent for 8 s" in said) == (victim == 1)
    assert seconds + pulse.SILENT - silent < 60


STORE = """
import sys
from lorgnette.cli import main
sys.argv = ["lorgnette", "list", "lenses"]
try:
    main()
except SystemExit:
    pass
import torch.distributed as dist
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
client = dist.TCPStore("127.0.0.1", server.port, is_master=False)
client.add("pulse", 1)
del server
try:
    client.add("pulse", 1)
except RuntimeError:
    print("the store is gone")
"""


def test_torch_says_nothing_of_its_own_where_the_first_process_is_lost():
    """In a fresh interpreter: torch reads its settings when it is imported."""
    environment = {**os.environ, "PYTHONPATH": str(Path(lo.__file__).parents[1])}
    environment.pop("TORCH_CPP_LOG_LEVEL", None)
    done = subprocess.run(
        [sys.executable, "-c", STORE], env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.stdout.splitlines()[-1] == "the store is gone", done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("corpus", ["long.txt", "texts.txt"])
def test_a_process_that_falls_silent_is_lost(place, victim, corpus):
    """As on a host without power or network: nothing closes its connections. The other has much to do, or waits."""
    out = f"silent-{victim}-{corpus}"
    words, left = ["-c", LOOK, *command(out, corpus=corpus)], 1 - victim
    environment = {"VICTIM": str(victim), "HOW": "SIGSTOP", "SLOW": "0.2", "SILENT": "6"}
    started = start(2, *words, cwd=place, env=environment)
    done = started[left].wait()
    started[victim].send_signal(signal.SIGKILL)
    assert started[victim].wait().returncode == -9
    assert done.returncode == 1, done.stderr[-3000:]
    said = [line for line in done.stderr.splitlines() if line.startswith("lorgnette: ")]
    assert len(said) == 1
    assert "Traceback" not in done.stderr
    why = "the first of them, through which they hear of each other, has not answered for 6 s"
    assert (why if victim == 0 else "process 2 of 2 has been silent for 6 s") in said[0]
    assert [file.name for file in (place / f".{out}.unfinished").glob("states-*")] == [f"states-{left}.safetensors"]


def test_torchrun_ends_the_others_where_one_is_killed(place):
    """Its agent sends them a signal, at which they save; what it says itself comes after their line."""
    environment = {**os.environ, "PYTHONPATH": str(Path(lo.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    environment |= {"VICTIM": "1", "SLOW": "0.4"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "look.py"]
    words = [*launch, *command("launched", corpus="long.txt")]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1
    said, seconds = assert_ended_in_one_line(place, "launched", 1, done.stderr)
    assert "the same command with --resume goes on from here" in said
    assert seconds < 60
    assert "ChildFailedError" in done.stderr


def test_two_processes_do_not_write_the_same_shard(place):
    """The second says so at once, and the first goes on; afterwards it is there."""
    shard = ["-c", LOOK, *command("same", "--shard", "1/2")]
    first = Forked(shard, env={"SLOW": "1"}, cwd=place)
    until = time.monotonic() + 60
    while not (place / ".same.unfinished" / ".lock").exists() and time.monotonic() < until:
        time.sleep(0.02)
    second = run(*shard, cwd=place)
    assert second.returncode == 1
    assert second.stderr.splitlines() == [
        "lorgnette: Another run is writing to same. Wait for it, or choose another folder."
    ]
    done = first.wait()
    assert done.returncode == 0, done.stderr[-3000:]
    assert lo.Shard.open(place / "same").share.of == 2


EVERY = """
import json, os, sys
from pathlib import Path
import lorgnette as lo
import torch
from lorgnette.lens.gating import lens as gating
from lorgnette.lens.norms.pair_sample import NUMBER, PairSample
from lorgnette.lens.probes import probe
from lorgnette.looking.passes import Passes
from lorgnette.statistics.hash_sample import HashSample
import tiny

where, how, model, texts, lenses = sys.argv[1:]
take, drawn_rows, rows, pairs, chosen = Passes.take, gating.drawn_rows, HashSample.rows, PairSample.samples, {}
gating.drawn_rows = lambda texts, steps, *rest: drawn_rows(texts, min(steps, 2), *rest)
probe.LEAST_STEPS = 20

def stopped(self, encoded, batch=None, number=0):
    itself = lenses != "all" or any(lens.name == "removal" for lens in self.driver.lenses)
    if how == "stop" and number == 1 and itself:
        raise KeyboardInterrupt
    take(self, encoded, batch, number)

def read(self, stratum=None):
    found = rows(self, stratum)
    chosen[f"{self.lens.name} {self.name} {stratum}"] = found.index.tolist()
    return found

def read_pairs(self, *given, **more):
    numbers = getattr(self.lens, self.state)[NUMBER]
    chosen[f"{self.lens.name} pairs"] = numbers[numbers.isfinite()].tolist()
    return pairs(self, *given, **more)

Passes.take, HashSample.rows, PairSample.samples = stopped, read, read_pairs
torch.set_num_threads(1)
subject = getattr(tiny, model)()
lo.look(subject, getattr(tiny, texts), lenses, batch_tokens=20, progress=False, out=where, resume=how == "resume")
Path(f"{where}.chosen-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(chosen))
"""
GROUPS = {
    "all": ("classifier", "TREEBANK", "all"),
    "translation": ("marian", "EXAMPLES", "alignment,logitlens"),
    "generation": ("gpt2", "PROMPTS", "sources:heads=true,context:sinks=1,windows=2+4,window=3"),
    "pairs": ("classifier", "EXAMPLES", "patching"),
}
SAMPLED = {"norms", "geometry", "cones", "probes", "attention-probe", "gating", "frequency", "sources", "patching"}


@pytest.mark.timeout(500)  # eight processes with every lens, beside other work
@pytest.mark.parametrize("group", GROUPS)
def test_every_lens_in_two_processes_and_stopped_and_resumed_in_three(tmp_path, group):
    """The same numbers, counts and sampled items as one process finds. They are stopped in the pass of the lenses
    themselves, after the one for what some of them need first."""
    model, texts, lenses = GROUPS[group]
    runs = (("one", "whole", 1, 0), ("two", "whole", 2, 0), ("three", "stop", 2, 1), ("three", "resume", 3, 0))
    for name, how, count, status in runs:
        words = (str(tmp_path / name), how, model, texts, lenses)
        for done in ranks(count, "-c", EVERY, *words, cwd=Path(__file__).parents[1]):
            assert done.returncode == status, done.stderr[-3000:]
        if how == "stop":
            files = [file.name for file in (tmp_path / ".three.unfinished").glob("*.safetensors")]
            assert sorted(files)[-2:] == ["states-0.safetensors", "states-1.safetensors"]
    chosen = {file.name: json.loads(file.read_text()) for file in tmp_path.glob("*.chosen-*.json")}
    assert len(chosen) == 1 + 2 + 3
    for found in chosen.values():
        assert found == chosen["one.chosen-0.json"]
    expected = lo.Results.load(tmp_path / "one")
    assert {name for name in expected if any(key.startswith(f"{name} ") for key in found)} >= SAMPLED & {*expected}
    if group == "all":
        others = {name.partition(":")[0] for _, _, several in GROUPS.values() for name in several.split(",")}
        assert {*expected, *others} >= set(lo.lens.OURS)
    for several in ("two", "three"):
        results = lo.Results.load(tmp_path / several)
        assert list(results) == list(expected)
        for name in results:
            one, other = (
                each[name].data.drop_vars("seconds_per_text", errors="ignore") for each in (expected, results)
            )
            xr.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
            assert all(one[each].identical(other[each]) for each in one if str(each).endswith("_count"))
            assert results[name].provenance.texts == expected[name].provenance.texts > 0
