"""Shards: together they give what one process finds, and nothing else is merged."""

import json
import os
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
import xarray as xr
from tiny import EXAMPLES, MAKERS, PROMPTS, TREEBANK, classifier
from tiny.subjects import examples, subject
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.looking.shards import HEADER, STATES
from lorgnette.looking.short_texts import as_json, from_json
from lorgnette.looking.texts import Share, TokenizedTexts, batches
from lorgnette.results.provenance import versions
from lorgnette.texts.sides import Encoded, Side

pytestmark = pytest.mark.usefixtures("few_steps")

TEXTS = examples((9, 4, 1, 6, 12, 3, 7, 8, 2, 5, 11))
OPTIONS = {
    "attention-probe": {"steps": 20},
    "probes": {"epochs": 2, "seeds": (0, 1), "hidden": 8},
    "synthetic": {"sequences": 3, "length": 5},
    "gating": {"steps": 1, "seeds": (0,), "batch": 2},
    "context": {"sinks": 1, "windows": (2, 4), "window": 3},
}
TWICE = {"roles", "effects", "edges", "importance", "agreement", "removal"}
"""Those that need results of the whole corpus before they look, or are made from such."""
TREES = ("relations", "trees", "probes", "attention-probe", "coreference", "rationales")
CLASSIFIER = ("relevance", "gradients", "patching", "gating", "cones", "rationales")


def sharded(model, texts, names, of=5, **options):
    made = [lo.look(model, texts, names(), shard=(i, of), progress=False, **options) for i in range(1, of + 1)]
    random.Random(0).shuffle(made)
    return made


def merged_in_rounds(model, texts, names, of=5, rounds=2, **options):
    first = None
    for left in reversed(range(rounds)):
        shards = sharded(model, texts, names, of, first=first, **options)
        assert [shard.look.rounds_left for shard in shards] == [left] * of
        first = lo.merge(shards, subject=model, first=first)
    return first


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        first, second = (each[name].data.drop_vars("seconds_per_text", errors="ignore") for each in (one, other))
        xr.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-12)
        counts = [each for each in first if str(each).endswith("_count")]
        assert all(first[each].identical(second[each]) for each in counts)


def assert_same_origin(one, merged, name):
    before, after = one[name].provenance, merged[name].provenance
    assert (before.texts, before.tokens, before.notes) == (after.texts, after.tokens, after.notes[:-1])
    assert after.notes[-1] == "merged from 5 shards"


@pytest.mark.parametrize("name", sorted(set(lenses.OURS) - TWICE))
def test_five_shards_give_what_one_process_finds(name):
    kind = "marian" if name in ("alignment", "logitlens") else "bert"
    model = classifier() if name in CLASSIFIER else MAKERS[kind]()
    texts = TREEBANK if name in TREES else EXAMPLES
    if name in ("sources", "context"):
        model, texts = MAKERS["gpt2"](), PROMPTS if name == "sources" else EXAMPLES
    make = lambda: [lenses.get(name, **OPTIONS.get(name, {}))]  # noqa: E731
    one = lo.look(model, texts, make(), progress=False)
    merged = lo.merge(sharded(model, texts, make), subject=model)
    assert_same(one, merged)
    assert_same_origin(one, merged, name)


CENTRED = ("norms", "sinks", "rollout", "convexity", "geometry")
NEEDY = ("roles,effects,importance", "edges", "removal:controls=1", "agreement:draws=20")


@pytest.mark.parametrize("names", [*NEEDY, ",".join(f"{name}:centred=true" for name in CENTRED)])
def test_lenses_that_need_the_whole_corpus_first_take_several_rounds(tmp_path, names):
    assert {name.partition(":")[0] for group in NEEDY for name in group.split(",")} == TWICE
    model, texts = classifier(), TREEBANK if "roles" in names else EXAMPLES
    one = lo.look(model, texts, names, out=tmp_path / "one", progress=False)
    merged = merged_in_rounds(model, texts, lambda: names, rounds=3 if names == "edges" else 2)
    assert_same(one, merged)
    assert merged.looked == one.looked
    assert_same_origin(one, merged, names.partition(":")[0].partition(",")[0])


def test_all_lenses_in_rounds():
    """Every shard leaves out the same lenses, those that cannot look at this model and these texts."""
    model, texts = classifier(), EXAMPLES[:3]
    one = lo.look(model, texts, "all", progress=False)
    merged = merged_in_rounds(model, texts, lambda: "all", of=2, rounds=3)
    assert_same(one, merged)
    few, *notes = one["weights"].provenance.notes
    assert few.startswith("Fewer than 50 texts (3): ")
    assert any(note.startswith("left out: ") for note in notes)
    assert merged["weights"].provenance.notes == (few, "merged from 2 shards", *notes)


def test_the_rounds_are_not_mixed(tmp_path):
    model, options = classifier(), {"progress": False}

    def look(number, texts=EXAMPLES, lens="importance", **more):
        return lo.look(model, texts, lens, shard=(number, 2), **options, **more)

    def line(refused):
        with pytest.raises(UserError) as error:
            refused()
        return str(error.value)

    once = [look(number, out=tmp_path / str(number)) for number in (1, 2)]
    assert [each.name for each in once[0].look.needed] == ["head_means"]
    first = tmp_path / "first"
    lo.merge(once, subject=model, out=first)
    assert "(another round)" in line(lambda: look(1, first=first, out=tmp_path / "1"))
    twice = [look(number, first=first, out=tmp_path / "second" / str(number)) for number in (1, 2)]
    assert "it has another round" in line(lambda: lo.merge([once[0], twice[1]], subject=model))
    assert "has no head_means of this model and these texts" in line(lambda: look(1, EXAMPLES[1:], first=first))
    assert "No lens of this look needs a first round" in line(lambda: look(1, lens="weights", first=first))
    assert "first is for the later rounds" in line(lambda: lo.look(model, EXAMPLES, "importance", first=first))
    assert "which this one does not replace" in line(lambda: lo.merge(twice, subject=model, out=first))
    merged = lo.merge([tmp_path / "second" / "1", tmp_path / "second" / "2"], subject=model)  # finds the first round
    assert_same(lo.look(model, EXAMPLES, "importance", **options), merged)
    shutil.move(first, tmp_path / "moved")
    assert "There is no results folder" in line(lambda: lo.merge(twice, subject=model))
    assert_same(merged, lo.merge(twice, subject=model, first=tmp_path / "moved"))
    assert "reads the corpus twice" in line(lambda: look(1, iter(EXAMPLES)))


def test_a_resumed_run_has_the_batches_of_before():
    """Whatever is done already, in whichever window: the texts that are left are in the same batches."""
    lengths = random.Random(0).choices(range(1, 40), k=900)
    texts = [Encoded(TEXTS[0], Side.of([0] * n, [False] * n, [0] * n, ["w"]), number=k) for k, n in enumerate(lengths)]
    whole = list(batches(texts, 300))
    for cut in (0, 1, 7, len(whole) // 2, len(whole) - 1):
        done = {text.number for batch in whole[:cut] for text in batch}
        left = batches([None if text.number in done else text for text in texts], 300)
        assert [[text.number for text in batch] for batch in left] == [[t.number for t in some] for some in whole[cut:]]


def test_texts_are_written_as_they_are():
    for example in (*TREEBANK, *EXAMPLES, replace(TEXTS[0], id="half \ud800", extra={"kept": 1, "not": object()})):
        again = from_json(json.loads(json.dumps(as_json(example))))
        assert replace(again, extra={}) == replace(example, extra={})
    assert again.extra == {"kept": 1}


def test_two_runs_do_not_write_the_same_shard(tmp_path):
    """The second says so at once, and the first goes on."""
    model, said = subject(), []

    class Meanwhile(lo.lens.Weights):
        def finish(self, batch, outputs):
            if not said:
                said.append("")
                with pytest.raises(UserError) as error:
                    lo.look(model, TEXTS, "weights", shard=(1, 2), out=tmp_path / "1", progress=False)
                said.append(str(error.value))

    lo.look(model, TEXTS, [Meanwhile()], shard=(1, 2), out=tmp_path / "1", progress=False)
    assert said[1] == f"Another run is writing to {tmp_path / '1'}. Wait for it, or choose another folder."
    assert [file.name for file in tmp_path.iterdir()] == ["1"]


def test_several_lenses_with_the_numbers_of_texts():
    model, names = subject(), lambda: "weights,norms:sample=64,geometry"
    one = lo.look(model, TEXTS, names(), keep="texts", progress=False)
    merged = lo.merge(sharded(model, TEXTS, names, keep="texts"), subject=model)
    assert_same(one, merged)
    for name in ("weights", "norms"):
        pd.testing.assert_frame_equal(one.texts(name), merged.texts(name), rtol=1e-6)
    doubled = [*TEXTS, replace(TEXTS[0], text="w9 w8")]  # in another shard than the first
    with pytest.raises(UserError, match="Two texts have the id '1'"):
        lo.merge(sharded(model, doubled, names, keep="texts"), subject=model)


def test_no_shard_tokenises_the_texts_of_another(monkeypatch):
    model = subject()
    plain = [example.text for example in TEXTS]
    for corpus in (lambda: plain, lambda: lo.Corpus.of(TEXTS), lambda: iter(plain)):
        seen = []
        for number in (1, 2, 3):
            texts = TokenizedTexts(model, corpus(), share=Share(number, 3))
            encode = model.encoder.encode_all
            heard = []
            with monkeypatch.context() as patched:
                patched.setattr(
                    model.encoder,
                    "encode_all",
                    lambda some, **k: heard.extend(some) or encode(some, **k),  # noqa: B023
                )
                list(texts)
            assert [example.text for example in heard] == plain[number - 1 :: 3]
            seen += [(example.id, example.text) for example in heard]
        assert len(set(seen)) == len(plain)


def test_streams_are_known_by_what_was_read():
    model, plain = subject(), [example.text for example in TEXTS]
    shards = [lo.look(model, iter(plain), "weights", shard=(i, 2), progress=False) for i in (1, 2)]
    assert_same(lo.look(model, plain, "weights", progress=False), lo.merge(shards, subject=model))
    other = lo.look(model, iter([*plain, "w9"]), "weights", shard=(2, 2), progress=False)
    with pytest.raises(UserError, match="shard 2/2 does not belong to the same look as shard 1/2: it has other texts"):
        lo.merge([shards[0], other], subject=model)


def test_more_shards_than_texts():
    model = subject()
    few = TEXTS[:3]
    merged = lo.merge(sharded(model, few, lambda: "weights,norms"), subject=model)
    assert_same(lo.look(model, few, "weights,norms", progress=False), merged)
    bare = subject("gpt2")  # whose texts have no token but their words
    with pytest.raises(UserError, match="The shards have no texts"):
        lo.merge(sharded(bare, [""], lambda: "weights", of=2), subject=bare)


def test_what_does_not_belong_together_is_named():
    model = subject()
    one, two, three = (lo.look(model, TEXTS, "weights", shard=(i, 3), progress=False) for i in (1, 2, 3))

    def line(*shards, **options):
        with pytest.raises(UserError) as error:
            lo.merge(shards, **{"subject": model, **options})
        return str(error.value)

    def other(texts=TEXTS, lens="weights", of=3, look_at=model, **options):
        return lo.look(look_at, texts, lens, shard=(3, of), progress=False, **options)

    assert line(one, three).startswith("Missing: shard 2/3.")
    first = lo.look(model, TEXTS, "weights", shard=(2, 10**12), progress=False)
    assert line(first).startswith("Missing: shard 1/1000000000000, 3/1000000000000, ")
    assert " and 999999999987 more. " in line(first)
    assert line(one, two, three, two) == "Shard 2/3 is there twice: shard 2/3 and shard 2/3."
    assert line(one, two, other(TEXTS[:-1])).endswith("shard 3/3 does not belong to the same look as shard 1/3: "
                                                      "it has other texts.")  # fmt: skip
    assert line(one, two, other(lens="norms")).endswith("it has other lenses or options.")
    assert line(one, two, other(of=4)).endswith("it has another number of shards.")
    assert line(one, two, other(look_at=subject(seed=1))).endswith("it has other weights.")
    assert line(one, two, other(seed=3)).endswith("it has another --seed.")
    assert "are not those of the shards" in line(one, two, three, subject=subject(seed=1))
    older = [replace(each, look=replace(each.look, library="0.0.1")) for each in (one, two, three)]
    assert "were written by Lorgnette 0.0.1" in line(*older)
    assert "it has another version of Lorgnette" in line(one, two, older[2])
    newer = replace(three, look=replace(three.look, packages={**three.look.packages, "torch": "9.1", "numpy": "8"}))
    had = three.look.packages
    assert line(one, two, newer).endswith(f"it has numpy 8, not {had['numpy']}, torch 9.1, not {had['torch']}.")
    assert "+" not in "".join(had.values())
    assert line() == "No shard was given. `lorgnette look … --shard 1/4 --out parts/1` writes one."


@pytest.mark.parametrize("shard", [(0, 3), (4, 3), (-1, 3), (1, 0), 3, "3/4", (1.0, 2), (True, 2), (1, 2, 3)])
def test_numbers_that_no_shard_has(shard):
    with pytest.raises(UserError, match=r"^There is no shard|^shard must be two whole numbers"):
        Share.given(shard)


def with_transformers(version, act, **options):
    """What somebody does who has another version of transformers."""
    with pytest.MonkeyPatch.context() as patched:
        known = {**versions(), "transformers": version}
        patched.setattr("lorgnette.results.provenance.versions", lambda: known)
        return act(**options)


def test_folders_of_shards(tmp_path):
    model, folder = subject(), tmp_path / "1"
    look = lambda number=1, **more: lo.look(  # noqa: E731
        model, more.pop("texts", TEXTS), "weights", shard=(number, 2), out=folder, progress=False, **more
    )
    look()
    written = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(written) == {HEADER, STATES}
    assert json.loads(written[HEADER])["shard"] == [1, 2]
    for refused, match in (
        (lambda: look(2), "holds shard 1/2, not 2/2"),
        (lambda: look(texts=TEXTS[1:]), r"another look \(other texts\)"),
        (lambda: look(seed=1), r"another look \(another --seed\)"),
        (lambda: with_transformers("9.0", look, resume=True), r"another look \(transformers 5\.[\d.]+, not 9.0\)"),
        (lambda: lo.look(model, TEXTS, "weights", out=folder, progress=False), "is not a results folder"),
        (lambda: lo.merge([folder], subject=model), "Missing: shard 2/2"),
        (lambda: lo.merge([tmp_path], subject=model), "is not a shard"),
    ):
        with pytest.raises(UserError, match=match):
            refused()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == written
    assert look(resume=True).folder == folder  # nothing is computed again
    look()  # the same shard once more
    (folder / STATES).write_bytes(written[STATES][:-8] + bytes(8))
    other = lo.look(model, TEXTS, "weights", shard=(2, 2), progress=False)
    with pytest.raises(UserError, match="is damaged"):
        lo.merge([folder, other], subject=model, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_interrupted_shard_goes_on(tmp_path, monkeypatch):
    from lorgnette.looking.passes import Passes

    model, take = subject(), Passes.take
    options = {"batch_tokens": 16, "out": tmp_path / "2", "shard": (2, 2), "progress": False}

    def interrupted(self, encoded, batch=None, number=0):
        if number == 2:
            raise KeyboardInterrupt
        take(self, encoded, batch, number)

    with monkeypatch.context() as patched:
        patched.setattr(Passes, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lo.look(model, TEXTS, "weights", **options)
    with pytest.raises(UserError, match=r"differs from this one \(.*shard\)"):
        lo.look(model, TEXTS, "weights", **{**options, "shard": (1, 2)}, resume=True)
    again = lambda **more: lo.look(model, TEXTS, "weights", **options, **more)  # noqa: E731
    with pytest.raises(UserError, match=r"differs from this one \(versions\)"):
        with_transformers("9.0", again, resume=True)
    taken = []
    monkeypatch.setattr(Passes, "take", lambda self, *given: taken.append(len(given[0])) or take(self, *given))
    second = lo.look(model, TEXTS, "weights", **options, resume=True)
    resumed = list(taken)
    whole = lo.look(model, TEXTS, "weights", **{**options, "out": None})
    assert taken[len(resumed) + 2 :] == resumed  # the same batches, without the first two
    assert second.counts == whole.counts
    assert all(torch.equal(second.tensors()[name], state) for name, state in whole.tensors().items())


SBATCH = r"""#!/bin/sh
echo "$*" >> "$(dirname "$0")/../asked"
tasks=
while [ $# -gt 0 ]; do
    case $1 in
        --array=1-*) tasks=$(seq "${1#--array=1-}") ;;
        --wrap) shift; job=$1 ;;
    esac
    shift
done
for task in ${tasks:-none}; do
    SLURM_ARRAY_TASK_ID=$task sh -c "$job" >&2 || exit
done
echo "4711;alpha"
"""
"""Slurm as the script sees it: a job, or each task of an array, runs with `sh` on a node, here at once. Where there are
several clusters, the number of a job is followed by the name of its cluster."""


def commands_of(script, given, folder):
    """The commands that a script runs, without running them: starting Python for each would take most of a minute."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "sbatch").write_text(SBATCH)
    (folder / "bin" / "sbatch").chmod(0o755)
    python = folder / "bin" / "python"
    made = r"""[ "$3" = look ] && mkdir -p "$(echo "$*" | sed 's/.*--out \([^ ]*\).*/\1/')" """
    python.write_text(f'#!/bin/sh\necho "$*" >> {folder}/told\n{made}|| true\n')
    python.chmod(0o755)
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    subprocess.run([str(script), *map(str, given)], check=True, env={**os.environ, "PATH": path}, timeout=60)
    lines = [line.split() for line in (folder / "told").read_text().splitlines()]
    assert all(words[:2] == ["-m", "lorgnette"] for words in lines)
    return [words[2:] for words in lines]


def test_the_commands(tmp_path):
    model = classifier(torch.float32)
    model.model.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(example.text for example in EXAMPLES))
    base = ["look", str(tmp_path / "model"), "-c", str(tmp_path / "texts.txt"), "--lens", "weights,norms:sample=16"]
    base += ["--dtype", "float64"]

    def run(*words, code=0):
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == code, done.output
        return done.output

    run(*base, "--out", tmp_path / "one")
    for number in (1, 2):
        assert f"Shard {number}/2: " in run(*base, "--shard", f"{number}/2", "--out", tmp_path / "parts" / str(number))
    for shard in ("3/2", "x", "1/", "0/2"):
        run(*base, "--shard", shard, "--out", tmp_path / "none", code=1)
    run(*base, "--shard", "1/2", code=2)
    parts = [tmp_path / "parts" / "2", tmp_path / "parts" / "1"]
    run("merge", parts[0], "--out", tmp_path / "merged", code=1)
    assert not (tmp_path / "merged").exists()
    run("merge", *parts, "--out", tmp_path / "merged")
    assert (tmp_path / "merged" / "report.html").is_file()
    assert_same(lo.Results.load(tmp_path / "one"), lo.Results.load(tmp_path / "merged"))
    shown = [json.loads((tmp_path / name / "examples.json").read_text())["examples"] for name in ("one", "merged")]
    assert [each["text"] for each in shown[0]] == [each["text"] for each in shown[1]] != []
    assert shown[0] == shown[1]
    run("compare", tmp_path / "one", tmp_path / "merged")
    in_one = lo.Results.load(tmp_path / "one")["weights"].data["entropy"]
    for name, at_a_time in (("xargs", [2]), ("slurm", [])):
        script = Path(__file__).parents[2] / "examples" / "scale" / f"{name}.sh"
        given = [tmp_path / "model", tmp_path / "texts.txt", tmp_path / name, 2, *at_a_time, "weights"]
        told = commands_of(script, given, tmp_path / f"by-{name}")
        assert [words[0] for words in told] == ["look", "look", "merge"]
        for words in told:
            run(*words)
        found = lo.Results.load(tmp_path / name)["weights"].data["entropy"]
        xr.testing.assert_allclose(found, in_one, rtol=1e-5)  # in 32 bits
    asked = (tmp_path / "by-slurm" / "asked").read_text()
    assert "--array=1-2 " in asked
    assert "--dependency=afterok:4711 " in asked  # without the name of the cluster
    shutil.move(tmp_path / "model", tmp_path / "moved")
    run("merge", *parts, "--out", tmp_path / "again", code=1)
    run("merge", *parts, "--out", tmp_path / "again", "--model", tmp_path / "moved")
