"""The loop: independent of order and batch size, resumable, sharded, and safe when memory runs out."""

import errno
import json
import sys

import numpy as np
import pytest
import torch
from processes import ranks, run
from tiny import EXAMPLES, bert, gpt2, marian

import lorgnette as lo
from lorgnette import look as look_function
from lorgnette.errors import UserError
from lorgnette.looking import resume
from lorgnette.looking import texts as texts_module
from lorgnette.looking.ahead import ahead
from lorgnette.testing import assert_close
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

look_module = sys.modules["lorgnette.looking.look"]


def looked(subject, examples, **options):
    return look_function(subject, examples, ["weights"], progress=False, **options)["weights"]


def test_order_and_batch_size_change_nothing():
    subject = bert()
    expected = looked(subject, EXAMPLES)
    for examples, size in ((EXAMPLES[::-1], 4096), (EXAMPLES, 1), (EXAMPLES, 25)):
        assert_close(expected.data, looked(subject, examples, batch_tokens=size).data, "order", 1e-10)
    assert expected.provenance.texts == len(EXAMPLES)
    assert expected.provenance.weights_hash == subject.weights_hash


def test_windows_change_nothing(monkeypatch):
    subject = bert()
    expected = looked(subject, EXAMPLES)
    monkeypatch.setattr(texts_module, "WINDOW", 2)
    assert_close(expected.data, looked(subject, EXAMPLES).data, "windows", 1e-10)


def test_odd_texts_work():
    """One-token texts, the empty string, emoji and right-to-left text."""
    texts = ["", "good", "🙂 🙂", "שלום עולם", "cat"]
    encoder = looked(bert(), texts)
    assert encoder.provenance.texts == 5
    decoder = looked(gpt2(), texts)
    assert decoder.provenance.texts == 4
    assert any("1 texts without tokens" in note for note in decoder.provenance.notes)
    with pytest.raises(UserError, match="has no texts to analyse"):
        looked(gpt2(), [""])


def test_texts_without_a_translation_say_nothing_of_the_decoder():
    mixed = [*EXAMPLES, Example("alone", "The cat ran.")]
    subject = marian()
    one, other = looked(subject, EXAMPLES), looked(subject, mixed)
    for stack in ("decoder", "cross"):
        assert_close(one.data.sel(stack=[stack]), other.data.sel(stack=[stack]), stack, 1e-10)
    assert int(other.data["entropy_count"].sel(stack="encoder").max()) == len(mixed)
    assert any("1 texts have no translation" in note for note in other.provenance.notes)
    alone = looked(subject, ["The cat ran.", "good"]).data
    assert alone["entropy"].sel(stack=["decoder", "cross"]).isnull().all()


@pytest.mark.parametrize("name", ["convexity", "distances", "frequency", "geometry", "norms", "rollout"])
def test_every_lens_takes_texts_without_a_translation(name):
    result = look_function(marian(), ["The cat ran.", "good", "A dog, a cat."], [name], progress=False)[name]
    assert result.provenance.texts == 3


class Stop(lo.lens.find("weights")):
    """Interrupts at a chosen call."""

    calls, at = 0, None

    def update(self, call, batch):
        type(self).calls += 1
        if type(self).calls == self.at:
            raise KeyboardInterrupt
        super().update(call, batch)


@pytest.mark.parametrize("at", [2, 5, 8, 15])
def test_interrupted_and_resumed_to_the_same_numbers(tmp_path, at):
    subject = bert()
    corpus = Corpus.of(EXAMPLES)
    expected = looked(subject, corpus)
    Stop.calls, Stop.at = 0, at
    options = {"progress": False, "batch_tokens": 1, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        look_function(subject, corpus, [Stop()], **options)
    assert not (tmp_path / "run").exists()
    again = look_function(subject, corpus, ["weights"], resume=True, **options)["weights"]
    assert_close(expected.data, again.data, "resume", 1e-10)
    assert again.provenance.texts == len(EXAMPLES)
    assert again.provenance.tokens == expected.provenance.tokens
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_disk_that_is_full_for_a_while_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    """Only what --resume could go on from is lost, and that is said; the results are whole."""
    monkeypatch.setattr(resume, "EVERY", 0)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(resume, "save_file", full)
    subject, corpus = bert(), Corpus.of(EXAMPLES)
    seen = looked(subject, corpus, batch_tokens=1, out=tmp_path / "run")
    said = capsys.readouterr().err.splitlines()
    assert said
    assert all("Cannot write" in line and "--resume" in line for line in said), said
    assert_close(looked(subject, corpus).data, seen.data, "full disk", 1e-12)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_resume_refuses_another_run(tmp_path):
    subject = bert()
    Stop.calls, Stop.at = 0, 5
    options = {"progress": False, "batch_tokens": 1, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        look_function(subject, Corpus.of(EXAMPLES), [Stop()], **options)
    with pytest.raises(UserError, match=r"differs from this one \(corpus\)"):
        look_function(subject, Corpus.of(EXAMPLES[:3]), ["weights"], resume=True, **options)
    lens = lo.lens.get("weights", by="token")
    with pytest.raises(UserError, match=r"differs from this one \(lenses\)"):
        look_function(subject, Corpus.of(EXAMPLES), [lens], resume=True, **options)


def test_a_folder_of_something_else_is_refused_before_the_work(tmp_path):
    (tmp_path / "thesis.tex").write_text("do not lose me")
    with pytest.raises(UserError, match="not a results folder"):
        looked(bert(), EXAMPLES, out=tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "do not lose me"


def test_out_of_memory_halves_the_batch_and_counts_nothing_twice(monkeypatch):
    subject = bert()
    expected = looked(subject, EXAMPLES)
    sizes = []
    run = subject.run

    class Limited(lo.lens.find("weights")):
        def update(self, call, batch):
            super().update(call, batch)  # the state is touched before memory runs out in a later layer
            if call.site.layer == 1 and len(batch) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")

    def counting(batch, **options):
        sizes.append(len(batch))
        return run(batch, **options)

    monkeypatch.setattr(subject, "run", counting)
    result = look_function(subject, EXAMPLES, [Limited()], progress=False)["weights"]
    assert sizes == [5, 3, 2, 1, 2]
    assert_close(expected.data, result.data, "halves", 1e-10)

    class Never(lo.lens.find("weights")):
        def update(self, call, batch):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(UserError, match="does not fit into memory by itself"):
        look_function(subject, EXAMPLES, [Never()], progress=False)


def test_other_runtime_errors_are_not_swallowed():
    class Broken(lo.lens.find("weights")):
        def update(self, call, batch):
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        look_function(bert(), EXAMPLES, [Broken()], progress=False)


def test_long_texts_are_refused_or_cut_and_counted():
    long = Example("long one", "cat " * 200)
    with pytest.raises(UserError, match=r"'long one' has 202 tokens and the model takes 64. Split it"):
        looked(bert(), [long])
    assert looked(bert(), [long], truncate=True).provenance.truncated == 1


def test_a_classifier_that_does_not_know_its_padding_is_told_so():
    import transformers
    from tiny import word_pieces

    config = transformers.GPT2Config(vocab_size=97, n_embd=32, n_layer=1, n_head=4, n_positions=64, num_labels=2)
    model = transformers.GPT2ForSequenceClassification(config).eval()
    subject = lo.Subject(model, word_pieces(specials=False), name="gpt2")
    assert model.config.pad_token_id is None
    with pytest.raises(UserError, match="does not know its padding token"):
        looked(subject, EXAMPLES)


def test_nan_never_reaches_a_result():
    subject = bert()
    with torch.no_grad():
        subject.model.encoder.layer[1].attention.self.query.weight[0, 0] = torch.nan
    with pytest.raises(UserError, match="NaN"):
        looked(subject, EXAMPLES)


def test_a_lens_is_bound_to_one_model():
    lens = lo.lens.get("weights")
    look_function(bert(), EXAMPLES, [lens], progress=False)
    with pytest.raises(UserError, match="another model"):
        look_function(gpt2(), EXAMPLES, [lens], progress=False)
    with pytest.raises(UserError, match=r"There is no lens 'weight'. Did you mean 'weights'\?"):
        look_function(bert(), EXAMPLES, ["weight"], progress=False)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
def test_two_processes_give_the_results_of_one(tmp_path, dtype, tolerance):
    subject = bert(torch.float32)
    subject.model.save_pretrained(tmp_path / "model")
    subject.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(example.text for example in EXAMPLES))
    command = ["look", "model", "--corpus", "texts.txt", "--batch-tokens", "20", "--dtype", dtype, "--device", "cpu"]
    alone = run("-m", "lorgnette", *command, "--out", "one", cwd=tmp_path)
    for done in (alone, *ranks(2, "-m", "lorgnette", *command, "--out", "two", cwd=tmp_path)):
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = (lo.Results.load(tmp_path / name)["weights"] for name in ("one", "two"))
    assert_close(one.data, two.data, "two processes", tolerance)
    assert one.provenance.texts == two.provenance.texts == len(EXAMPLES)
    assert json.loads(two.to_json())["provenance"]["dtype"] == dtype
    assert np.isfinite(two.data["entropy"]).all()


def test_resume_of_a_list_knows_its_texts(tmp_path):
    """Two lists are two corpora, and an iterator cannot be told from another."""
    subject, options = bert(), {"progress": False, "out": tmp_path / "run", "batch_tokens": 5}

    class Stop(lo.lens.Weights):
        def update(self, call, batch):
            if batch.examples[0].text == "cat":
                raise KeyboardInterrupt
            super().update(call, batch)

    with pytest.raises(KeyboardInterrupt):
        look_function(subject, ["the cat sat on the mat", "cat"], [Stop()], **options)
    with pytest.raises(UserError, match=r"differs from this one \(corpus\)"):
        look_function(subject, ["the dog sat on the mat", "dog"], ["weights"], resume=True, **options)
    with pytest.raises(UserError, match="can be identified"):
        look_function(subject, iter(["cat"]), ["weights"], resume=True, **options)


def test_batches_made_ahead_are_the_same():
    assert list(ahead(iter(range(9)), 4)) == list(range(9))
    assert list(ahead(iter(()), 2)) == []

    def broken():
        yield 1
        raise UserError("no text")

    stream = ahead(broken(), 3)
    assert next(stream) == 1
    with pytest.raises(UserError, match="no text"):
        next(stream)
    next(ahead(iter(range(100)), 2))  # left in the middle


def test_each_text_is_read_and_tokenised_once(monkeypatch):
    """Also by a lens that looks twice, and by whoever takes examples afterwards; beyond the bound it streams."""
    from lorgnette.looking.texts import TokenizedTexts
    from lorgnette.reporting.examples import examples_of
    from lorgnette.texts.encoding import Encoder

    read, encoded = [], []
    stream = lambda: (read.append(e.id) or e for e in EXAMPLES)  # noqa: E731
    corpus = Corpus("counted", stream, source=lambda: [b"five texts"])
    plain = Encoder.encode_all
    count = lambda self, some, **o: encoded.extend(e.id for e in some) or plain(self, some, **o)  # noqa: E731
    monkeypatch.setattr(Encoder, "encode_all", count)
    subject = bert()
    texts = TokenizedTexts(subject, corpus)
    look_function(subject, texts, ["weights", "importance" if subject.labels else "norms"], progress=False)
    first = list(encoded)
    assert sorted(first) == sorted(e.id for e in EXAMPLES)
    monkeypatch.setattr("lorgnette.reporting.views.gather.gathered", lambda subject, example, **_: {"id": example.id})
    shown = examples_of(subject, texts)
    assert shown
    assert encoded == first
    assert read == [e.id for e in EXAMPLES]
    few = TokenizedTexts(subject, corpus, keep=2)
    assert [text.example.id for text in few] == [text.example.id for text in few] == [e.id for e in EXAMPLES]
    assert len(few._held) == 2
