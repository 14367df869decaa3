"""Shards of a corpus in parts, files or shards of a data set: each reads its own parts only, and knows no others."""

import io
import json
import tarfile
from itertools import count
from math import gcd
from pathlib import Path

import datasets
import pytest
import xarray as xr
from processes import ranks
from tiny.subjects import examples, subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.looking.shards import HEADER
from lorgnette.looking.texts import Counts, Share, TokenizedTexts

FILES, WORDS = 6, [example.text for example in examples((9, 4, 1, 6, 12, 3, 7, 8, 2, 5, 11, 3, 4, 9, 2, 6, 8))]
NAMES = [f"{number}.txt" for number in range(FILES)]


@pytest.fixture
def folder(tmp_path):
    """Six files, of one to six texts."""
    words = iter(WORDS * 2)
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_text("".join(f"{next(words)}\n" for _ in range(number + 1)))
    return tmp_path


@pytest.fixture
def opened(monkeypatch):
    """The names of the files that were opened."""
    names, opening = set(), Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, *given, **more: names.add(path.name) or opening(path, *given, **more)
    )
    return names


def shards(model, folder, of, lenses="weights,norms:sample=16", **options):
    options = {"progress": False, **options}
    return [lo.look(model, corpus(folder), lenses, shard=(n, of), **options) for n in range(1, of + 1)]


def corpus(folder):
    return lo.corpus(f"{folder}/*.txt")


def assert_same(one, merged):
    for name in one:
        xr.testing.assert_allclose(one[name].data, merged[name].data, rtol=1e-9, atol=1e-12)
        assert one[name].provenance.corpus_fingerprint == merged[name].provenance.corpus_fingerprint
        assert one[name].provenance.texts == merged[name].provenance.texts == sum(range(1, FILES + 1))


@pytest.mark.parametrize("parts", range(1, 9))
@pytest.mark.parametrize("of", range(1, 9))
def test_each_text_is_in_one_share(parts, of):
    """By brute force: numbers count the first text of each part, then the second of each."""
    numbers = {1 + place + row * parts: (place, row) for place in range(parts) for row in range(30)}
    for number in range(1, of + 1):
        share = Share(number, of)
        own = {where for text, where in numbers.items() if text % of == number % of}
        found, read = set(), 0
        for place in range(parts):
            within = share.within(place, parts)
            if within is not None:
                read += 1
                found |= {(place, row) for row, turn in zip(range(30), within.turns(), strict=False) if turn}
        assert found == own
        assert read == parts // gcd(parts, of)


@pytest.mark.parametrize(("of", "each"), [(6, 1), (3, 2), (4, 3), (5, 6)])
def test_a_shard_opens_its_files_only(folder, opened, of, each):
    model = subject()
    one = lo.look(model, corpus(folder), "weights,norms:sample=16", progress=False)
    parts = []
    for number in range(1, of + 1):
        given = corpus(folder)  # whose first line is read, to tell a wrong file early
        opened.clear()
        parts.append(lo.look(model, given, "weights,norms:sample=16", shard=(number, of), progress=False))
        assert opened >= {name for place, name in enumerate(NAMES) if Share(number, of).within(place, FILES)}
        assert len(opened & set(NAMES)) == each
    assert_same(one, lo.merge(reversed(parts), subject=model))


def test_a_page_shows_the_texts_of_one_process(folder):
    model = subject()
    from lorgnette.looking.merging import shown_texts
    from lorgnette.looking.short_texts import chosen, short_texts

    one = chosen(short_texts(TokenizedTexts(model, corpus(folder))), classified=False)
    assert [text.id for text in shown_texts(shards(model, folder, 6), model)] == [text.id for text in one] != []


def test_a_file_that_changed_is_another_corpus(folder, tmp_path_factory):
    model, out = subject(), tmp_path_factory.mktemp("parts")
    first, *rest = shards(model, folder, 4, out=None)
    lo.look(model, corpus(folder), "weights", shard=(2, 4), out=out / "2", progress=False)
    before = {file.name: file.read_bytes() for file in (out / "2").iterdir()}
    (folder / "3.txt").write_text("w1 w2\n" * 4)  # which shards 2 and 4 read
    with pytest.raises(UserError, match=r"holds a shard of another look \(other texts\)"):
        lo.look(model, corpus(folder), "weights", shard=(2, 4), out=out / "2", progress=False, resume=True)
    assert {file.name: file.read_bytes() for file in (out / "2").iterdir()} == before
    again = lo.look(model, corpus(folder), "weights,norms:sample=16", shard=(4, 4), progress=False)
    with pytest.raises(UserError, match="shard 4/4 does not belong to the same look as shard 2/4: it has other texts"):
        lo.merge([first, *rest[:2], again], subject=model)
    (folder / "6.txt").write_text("w1\n")
    more = lo.look(model, corpus(folder), "weights,norms:sample=16", shard=(4, 4), progress=False)
    with pytest.raises(UserError, match="it has other texts"):
        lo.merge([first, *rest[:2], more], subject=model)


def test_rounds(folder, tmp_path_factory):
    """What is merged in between belongs to the same files, though no shard of the second round reads all of them."""
    model, out = subject(), tmp_path_factory.mktemp("rounds")
    lens = "norms:sample=0,centred=true"
    one = lo.look(model, corpus(folder), lens, out=out / "one", progress=False)
    first = lo.merge(shards(model, folder, 3, lens), subject=model, out=out / "first")
    again = shards(model, folder, 3, lens, first=out / "first")
    merged = lo.merge(again, subject=model)
    assert_same(one, merged)
    assert one.looked == merged.looked
    (folder / "5.txt").write_text("w1 w2\n" * 6)
    changed = lo.look(model, corpus(folder), lens, shard=(3, 3), first=first, progress=False)
    with pytest.raises(UserError, match="of this model and these texts"):
        lo.merge([*again[:2], changed], subject=model)


def test_folders_name_the_parts(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("parts") / "2"
    made = lo.look(subject(), corpus(folder), "weights", shard=(2, 3), out=out, progress=False)
    assert [place for place, _ in json.loads((out / HEADER).read_text())["parts"]] == [1, 4]
    assert lo.Shard.open(out).parts == made.parts
    assert (
        lo.look(subject(), corpus(folder), "weights", shard=(2, 3), out=out, progress=False, resume=True).folder == out
    )


def rows(names):
    for name in names:
        yield from ({"text": text, "file": name} for text in WORDS[name : 2 * name + 3])


def dataset():
    made = datasets.IterableDataset.from_generator(rows, gen_kwargs={"names": [0, 3, 1, 5]})
    return made.map(lambda row: {"text": f"{row['text']} w1"}).filter(lambda row: len(row["text"]) > 6)


def test_a_shard_streams_its_shards_of_a_data_set(monkeypatch):
    model, read = subject(), []
    one = lo.look(model, dataset(), "weights,norms:sample=16", progress=False)
    assert one["weights"].provenance.texts == len(list(dataset()))
    assert [text.text for text in lo.corpus(dataset())] == [row["text"] for row in dataset()]
    parts = []
    for number in (1, 2):
        given = dataset().map(lambda row: read.append(row["file"]) or row)
        parts.append(lo.look(model, given, "weights,norms:sample=16", shard=(number, 2), progress=False))
        assert set(read) == {1: {0, 1}, 2: {3, 5}}[number]
        read.clear()
    merged = lo.merge(parts, subject=model)
    for name in one:
        xr.testing.assert_allclose(one[name].data, merged[name].data, rtol=1e-9, atol=1e-12)
        assert one[name].provenance.corpus_fingerprint == merged[name].provenance.corpus_fingerprint


@pytest.mark.parametrize(
    "changed",
    [
        lambda made: made.take(7),
        lambda made: made.skip(2),
        lambda made: made.shuffle(seed=0, buffer_size=4),
        lambda made: made.map(lambda row, number: {"text": f"w{number % 7}"}, with_indices=True),
        lambda made: made.map(lambda some: {"text": [" ".join(some["text"])]}, batched=True, remove_columns=["file"]),
        lambda made: datasets.interleave_datasets([made, made.take(3)]),
        lambda made: datasets.concatenate_datasets([made, made]),
        lambda made: made.repeat(2),
    ],
)
def test_data_sets_whose_shards_have_other_rows_stay_whole(changed):
    made = changed(dataset())
    given = lo.corpus(made)
    assert given.parts == (given,)
    assert [text.text for text in given] == [row["text"] for row in changed(dataset())]


LOOK = """
import json, os, sys
from pathlib import Path
names, opening = set(), Path.open
Path.open = lambda path, *given, **more: names.add(path.name) or opening(path, *given, **more)
import tiny.subjects
import lorgnette as lo
given = lo.corpus(sys.argv[1] + "/*.txt")
names.clear()
lo.look(tiny.subjects.subject(), given, "weights,norms:sample=16", out=sys.argv[2], progress=False, resume=True)
Path(sys.argv[2] + os.environ["RANK"] + ".json").write_text(json.dumps(sorted(n for n in names if n.endswith(".txt"))))
for number in (1, 2):
    part, out = lo.corpus(sys.argv[1] + "/*.txt"), f"{sys.argv[2]}.part{number}"
    options = {"shard": (number, 2), "out": out, "progress": False, "batch_tokens": 10}
    lo.look(tiny.subjects.subject(), part, "weights,norms:sample=16", **options)
"""


def test_processes_read_their_files_only(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    for done in ranks(2, "-c", LOOK, str(folder), str(out), cwd=Path(__file__).parents[1]):
        assert done.returncode == 0, done.stderr[-3000:]
    one = lo.look(subject(), corpus(folder), "weights,norms:sample=16", progress=False)
    assert_same(one, lo.Results.load(out))
    read = [json.loads(Path(f"{out}{rank}.json").read_text()) for rank in (0, 1)]
    assert read == [NAMES[0::2], NAMES[1::2]]
    assert_same(one, lo.merge([f"{out}.part{number}" for number in (2, 1)], subject=subject()))
    assert {path.name for path in out.parent.iterdir() if path.is_dir()} == {"run", "run.part1", "run.part2"}


OTHERS = """
import os, sys
import tiny.subjects
import lorgnette as lo
texts = ["w1 w2", "w3 w4 w5", "w6"] if os.environ["RANK"] == "0" else ["w1 w2", "w3 w4 w6", "w6"]
given = iter(texts[: 2 + int(os.environ["RANK"])]) if sys.argv[1] == "once" else texts
lo.look(tiny.subjects.subject(), given, "weights", progress=False)
"""


@pytest.mark.parametrize(
    ("how", "said"), [("list", "do not read the same corpus"), ("once", "corpora of different sizes (2, 3")]
)
def test_processes_that_read_different_texts(how, said):
    for done in ranks(2, "-c", OTHERS, how, cwd=Path(__file__).parents[1]):
        assert done.returncode == 1
        assert said in done.stderr


def test_progress_knows_its_share():
    sized = [lo.Corpus.of(examples((2,) * size), name=str(size)) for size in (3, 5, 4)]
    from lorgnette.texts.corpus import in_parts

    whole = in_parts("all", sized, sizes=(3, 5, 4))
    model, of = subject(), count(1)
    for number in (next(of) for _ in range(3)):
        for world in (1, 2):
            texts = TokenizedTexts(model, whole, share=Share(number, 3))
            found = [texts.expected(Share(rank, world)) for rank in range(1, world + 1)]
            assert sum(found) == (3, 5, 4)[number - 1]


def as_tars(folder):
    """Tars of which every second sample, and all but one of the last, has no text."""
    for number in range(3):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for sample in range(8):
                texts = sample % 2 == 0 if number < 2 else sample == 5
                content = f"w{sample} w{number}".encode()
                info = tarfile.TarInfo(f"{sample}.{'txt' if texts else 'jpg'}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("names", ["*.tar", "2.tar", "0.tar"])
def test_skipped_samples_are_counted_once(tmp_path, names):
    """By whichever shard and process; the note of a result names the same ones."""
    as_tars(tmp_path)
    model, count = subject(), {"*.tar": 15, "2.tar": 7, "0.tar": 4}[names]
    given = lambda: lo.corpus(f"{tmp_path}/{names}")  # noqa: E731
    for of, world in ((1, 1), (2, 1), (3, 2), (5, 3)):
        found = []
        for number in range(1, of + 1):
            for rank in range(1, world + 1):
                texts = TokenizedTexts(model, given(), share=Share(number, of))
                assert all(texts.left(part=Share(rank, world)))
                found.append(texts.skipped(Share(rank, world)))
        total = Counts.total(found)
        assert total.skipped == count
        assert total.notes() == whole_note if of > 1 else (whole_note := total.notes())
        assert len(total.first_skipped) == min(count, 10)
    one = lo.look(model, given(), "weights", progress=False)["weights"].provenance.notes
    parts = [lo.look(model, given(), "weights", shard=(n, 2), progress=False) for n in (2, 1)]
    merged = lo.merge(parts, subject=model)["weights"].provenance.notes
    assert [note for note in one if "were skipped" in note] == whole_note
    assert [note for note in merged if "were skipped" in note] == whole_note
