"""Runs: what they write, that they go on to the same numbers, and what they refuse."""

import json
from importlib.metadata import version

import pytest
import torch
import transformers as hf
from planted_runs import PARTS, SMALL, plain_record, same, settings, weights
from processes import run

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.texts import Corpus, Example
from lorgnette.texts.planted import planted_corpus
from lorgnette.training import (
    EntropyPenalty,
    RationalePenalty,
    Splits,
    Trained,
    quick,
    train,
    train_seeds,
)
from lorgnette.training import run as running
from lorgnette.training.arguments import arguments_of
from lorgnette.training.folder import RunFolder
from lorgnette.training.run import learnt_nothing
from lorgnette.training.trainer import Tally


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One uninterrupted run, with a penalty and an evaluation in the middle of each epoch."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(settings(out, penalties=(EntropyPenalty(0.05),), evaluate_every=4))
    return out


def test_checkpoints_are_kept_if_asked_for(tmp_path):
    """Each opens by itself, so that `look` can follow the training; the best of them are the weights of the run."""
    trained = train(settings(tmp_path / "run", evaluate_every=4, epochs=1, keep_checkpoints=True))
    steps = [entry["step"] for entry in trained.curve]
    kept = {step: lo.load(str(tmp_path / "run" / f"checkpoint-{step}")) for step in steps}
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == sorted(
        f"checkpoint-{step}" for step in steps
    )
    assert len({subject.weights_hash for subject in kept.values()}) == len(steps) > 1
    assert kept[trained.record["best"]["step"]].weights_hash == lo.load(str(tmp_path / "run")).weights_hash
    assert kept[steps[0]].trace("the film was good") is not None


def test_a_run_is_an_ordinary_checkpoint_with_its_record(finished):
    trained = Trained.load(finished)
    assert not list(finished.parent.glob(".*"))
    record = trained.record
    assert record["texts"] == {"train": 200, "validation": 60, "test": 60}
    assert record["labels"] == ["negative", "positive"]
    assert record["settings"]["penalties"] == [
        {"penalty": "entropy", "weight": 0.05, "layers": None, "rows": "cls", "normalise": True}
    ]
    assert record["parameters"]["total"] == sum(p.numel() for p in lo.load(str(finished)).model.parameters())
    assert record["versions"]["torch"] == version("torch")
    assert [entry["step"] for entry in trained.curve] == [4, 8, 12, 16, 20, 21][: len(trained.curve)]
    best = min(trained.curve, key=lambda entry: entry["validation"]["loss"])
    assert record["best"]["step"] == best["step"]
    for part in ("train", "validation"):
        assert 0 <= best[part]["entropy"] <= 1
    subject = lo.load(str(finished))
    assert subject.labels == ("negative", "positive")
    right = 0
    for example in planted_corpus("test", size=60):
        right += int(subject.run(subject.encode([example])).logits.argmax()) == example.label
    assert trained.metrics["test"]["accuracy"] == pytest.approx(right / 60)
    assert trained.metrics["validation"]["cross_entropy"] == pytest.approx(best["validation"]["cross_entropy"])


def rates(out, **changes):
    """The step size at each of ten steps, as shares of the largest."""
    given = arguments_of(settings(out, **changes), RunFolder(out))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = hf.get_scheduler(
        given.lr_scheduler_type, optimizer, num_warmup_steps=given.get_warmup_steps(10), num_training_steps=10
    )
    found = []
    for _ in range(10):
        found += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    return found


def test_a_preset_warms_up_if_asked_to(tmp_path):
    """transformers' constant schedule would drop the warm-up without a word."""
    assert rates(tmp_path) == [1.0] * 10
    assert rates(tmp_path, warmup=4.0) == pytest.approx([0, 0.25, 0.5, 0.75, *[1] * 6])
    assert rates(tmp_path, warmup=0.2) == pytest.approx([0, 0.5, *[1] * 8])
    with pytest.raises(UserError, match=r"'constant' has no warm-up: use 'constant_with_warmup'"):
        settings(tmp_path, warmup=4.0, schedule="constant")
    with pytest.raises(UserError, match=r"`schedule` must be 'linear', .*'inverse_sqrt' or None. Got 'x'"):
        settings(tmp_path, schedule="x")


class Stop(BaseException):
    """Like a kill: nothing that tidies up may catch it."""


def broken_off(monkeypatch, out, steps, **changes):
    """Run until so many batches went through the loss, then break off."""
    count, add = 0, Tally.add

    def counted(self, *args):
        nonlocal count
        count += 1
        if count > steps:
            raise Stop
        add(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Tally, "add", counted)
        with pytest.raises(Stop):
            train(settings(out, **changes))


@pytest.mark.parametrize("steps", [2, 11, 19])
def test_a_run_that_was_broken_off_goes_on_to_the_same_numbers(finished, tmp_path, monkeypatch, steps):
    """Before the first checkpoint, in the middle of an epoch, and in the last one; dropout draws included."""
    out, changes = tmp_path / "resumed", {"penalties": (EntropyPenalty(0.05),), "evaluate_every": 4}
    broken_off(monkeypatch, out, steps, **changes)
    assert not out.exists()
    if steps > 5:
        with pytest.raises(UserError, match="pass --resume to go on"):
            train(settings(out, **changes))
        with pytest.raises(UserError, match="differs in learning_rate"):
            train(settings(out, **changes, resume=True, learning_rate=0.5))
    train(settings(out, **changes, resume=True))
    assert same(weights(out), weights(finished))
    assert plain_record(out) == plain_record(finished)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("keep_last", [False, True])
def test_a_run_that_ended_but_was_not_written_does_not_train_on(tmp_path, monkeypatch, keep_last):
    """Patience was spent and the machine died before the result was there."""
    changes = {"patience": 1, "epochs": 30, "learning_rate": 0.05, "keep_last": keep_last}
    train(settings(tmp_path / "whole", **changes))
    assert Trained.load(tmp_path / "whole").record["epochs"] < 30

    def fail(*_, **__):
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(running, "_write", fail)
        with pytest.raises(Stop):
            train(settings(tmp_path / "cut", **changes))
    monkeypatch.setattr(running.PenalisedTrainer, "train", fail)
    train(settings(tmp_path / "cut", **changes, resume=True))
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    assert plain_record(tmp_path / "whole") == plain_record(tmp_path / "cut")


def test_a_finished_run_is_not_touched(finished):
    before = {file: file.stat().st_mtime_ns for file in finished.iterdir()}
    changes = {"penalties": (EntropyPenalty(0.05),), "evaluate_every": 4}
    with pytest.raises(UserError, match="already contains a run"):
        train(settings(finished, **changes))
    with pytest.raises(UserError, match="holds another run, which differs in seed"):
        train(settings(finished, **changes, seed=7, resume=True))
    again = train(settings(finished, **changes, resume=True))
    assert again.record == Trained.load(finished).record
    assert before == {file: file.stat().st_mtime_ns for file in finished.iterdir()}


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="something other than a training run"):
        train(settings(tmp_path))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="is a file"):
        train(settings(tmp_path / "file"))


def test_seeds_share_their_texts_and_differ_in_their_weights(tmp_path):
    reads = []

    def counting(corpus):
        def read():
            reads.append(corpus.split)
            return iter(corpus)

        return Corpus(corpus.name, read, split=corpus.split, labels=corpus.labels)

    given = Splits(counting(PARTS.train), counting(PARTS.validation), counting(PARTS.test))
    first, second = train_seeds(settings(tmp_path / "out", corpus=given, epochs=1), [0, 1])
    assert (first.folder.name, second.folder.name) == ("seed-0", "seed-1")
    assert not same(weights(first.folder), weights(second.folder))
    assert reads.count("val") == 1
    assert reads.count("test") == 1  # once for all runs, and only at the end of the first
    assert reads.index("test") > max(number for number, split in enumerate(reads) if split != "test")


def test_streamed_texts_train_as_well(tmp_path):
    trained = train(settings(tmp_path / "out", stream=True, epochs=1))
    assert trained.record["texts"]["train"] == 200


def test_without_a_validation_split_a_share_is_held_out(tmp_path):
    lines = [json.dumps({"text": e.text, "label": e.label}) for e in planted_corpus("train", size=100)]
    file = tmp_path / "reviews.jsonl"
    file.write_text("\n".join(lines))
    trained = train(settings(tmp_path / "out", corpus=str(file), label_column="label", epochs=1, validation=0.2))
    assert trained.record["texts"] == {"train": 80, "validation": 20, "test": None}
    assert trained.metrics["test"] is None
    assert any("no test split" in note for note in trained.record["notes"])


def test_a_classifier_that_learnt_nothing_is_called_so(tmp_path):
    trained = train(settings(tmp_path / "out", epochs=1, learning_rate=1e-9))
    labels = [example.label for example in PARTS.validation]
    validation = trained.metrics["validation"]
    assert validation["majority"] == max(labels.count(0), labels.count(1)) / 60
    assert [note for note in trained.record["notes"] if "most frequent class" in note] == learnt_nothing(validation)
    assert len(learnt_nothing(validation)) == 1


def test_better_than_the_most_frequent_class_is_outside_the_interval():
    """Wilson (1927): (p + z²/2n − z·√(p(1 − p)/n + z²/4n²)) / (1 + z²/n)."""
    share, texts, z = 116 / 213, 213, 1.959963984540054
    half = z * (share * (1 - share) / texts + z**2 / (4 * texts**2)) ** 0.5
    low = (share + z**2 / (2 * texts) - half) / (1 + z**2 / texts)
    assert len(learnt_nothing({"accuracy": share, "texts": texts, "majority": low + 1e-9})) == 1
    assert len(learnt_nothing({"accuracy": share, "texts": texts, "majority": low - 1e-9})) == 0


def test_rationales_reach_the_loss(tmp_path):
    plain = train(settings(tmp_path / "plain", penalties=(RationalePenalty(0.0),)))
    taught = train(settings(tmp_path / "taught", penalties=(RationalePenalty(5.0),), learning_rate=1e-2))
    assert taught.metrics["test"]["rationale"] < plain.metrics["test"]["rationale"] - 0.2


class Poisoned(EntropyPenalty):
    """Not a number from its twelfth batch on."""

    calls = 0

    @property
    def value(self):
        type(self).calls += 1
        return super().value + (float("nan") if self.calls > 12 else 0.0)


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(UserError, match=r"became nan at step 12.*last good checkpoint is .*checkpoint-7") as error:
        train(settings(tmp_path / "out", penalties=(Poisoned(0.1),)))
    kept = tmp_path / ".out.unfinished" / "checkpoint-7"
    assert str(kept) in str(error.value)
    assert all(torch.isfinite(w).all() for w in weights(kept).values())
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="No epoch was finished, so nothing was kept"):
        train(settings(tmp_path / "wild", learning_rate=1e30))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tiny BERT without a head, with a tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    words = sorted({word for example in planted_corpus("train", size=200) for word in example.words})
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    tokenizer = hf.BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=48)
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    hf.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_pretrained_encoder_is_fine_tuned(encoder, tmp_path):
    given = settings(tmp_path / "out", model=str(encoder), overrides={}, embeddings=None, epochs=1)
    trained = train(given.replace(penalties=(EntropyPenalty(0.01, "all"), RationalePenalty(0.1, "kl", [2]))))
    assert 0 < trained.metrics["test"]["entropy"] <= 1
    assert trained.record["resolved"] == {"learning_rate": 2e-5, "max_length": 48}
    subject = lo.load(str(tmp_path / "out"))
    assert type(subject.model).__name__ == "BertForSequenceClassification"
    assert subject.labels == ("negative", "positive")
    three = Corpus.of([Example(str(k), "good food", label=k % 3) for k in range(30)], labels=("a", "b", "c"))
    with pytest.raises(UserError, match=r"labels of \w+ \(a, b, c\) are not the classes of .* \(negative, positive\)"):
        train(given.replace(model=str(tmp_path / "out"), out=tmp_path / "no", corpus=Splits(three)))


def test_vectors_of_a_pretrained_model(encoder, tmp_path):
    train(settings(tmp_path / "out", embeddings=f"model:{encoder}", freeze=True, epochs=1))
    model, tokenizer = (
        hf.AutoModel.from_pretrained(tmp_path / "out"),
        hf.AutoTokenizer.from_pretrained(tmp_path / "out"),
    )
    donor, names = hf.AutoModel.from_pretrained(encoder), hf.AutoTokenizer.from_pretrained(encoder)
    ours = model.embeddings.words.weight[tokenizer.convert_tokens_to_ids("food")]
    assert torch.equal(ours, donor.get_input_embeddings().weight[names.convert_tokens_to_ids("food")])


def labelled(*labels, names=("no", "yes")):
    return Splits(Corpus.of([Example(str(k), "some words", label=v) for k, v in enumerate(labels)], labels=names))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"corpus": labelled(0, 0, 0, 0)}, "all texts are 'no'"),
        ({"corpus": labelled(0, 0, names=("no",))}, "has one class"),
        ({"corpus": labelled(*[0, 1] * 9, names=("no", "yes", "perhaps"))}, "no text is 'perhaps'"),
        ({"corpus": labelled(*[0, 1] * 9, 5)}, "label 5 is not one of the 2 classes"),
        ({"corpus": labelled(*[0, 1] * 9, None)}, "1 texts have no label"),
        ({"corpus": labelled(0)}, "too few to train"),
        ({"corpus": Splits(Corpus.of([Example("x", "y")]))}, "has no classes to learn"),
        ({"corpus": "planted", "test_split": "exam"}, "no split 'exam'"),
        ({"overrides": {"layer": 2}}, "no setting 'layer'.*Did you mean 'layers'"),
        ({"model": "tp9-residul"}, "Did you mean 'tp9-residual'"),
        ({"embeddings": "glove", "data": "/nowhere"}, "embeddings 'glove' need the folder"),
        ({"vocabulary": "vectors"}, "needs vectors"),
        ({"model": "tp9-residual", "penalties": (EntropyPenalty(1.0),)}, "row of <cls>"),
        ({"model": "mean", "penalties": (EntropyPenalty(1.0, "all"),), "overrides": {}}, "has none"),
        ({"penalties": (EntropyPenalty(1.0, layers=[4]),)}, "uses layer 4, but the model has 1"),
        ({"learning_rate": -1.0}, "`learning_rate` must be a number above 0"),
        ({"epochs": 0}, "`epochs` must be a whole number from 1"),
        ({"validation": 1.5}, "above 0 and below 1"),
        ({"select": "f1"}, "'loss', 'cross_entropy', 'accuracy' or 'bleu'"),
        ({"bf16": True, "fp16": True}, "choose one"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(tmp_path, changes, said):
    with pytest.raises(UserError, match=said) as error:
        train(settings(tmp_path / "out", **changes))
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == [] or not any(tmp_path.glob("out*"))


def test_vectors_of_a_wrong_width(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("good 1 2 3\nbad -1 -2 -3\n")
    with pytest.raises(UserError, match="are 3 wide and the model expects 16"):
        train(settings(tmp_path / "out", embeddings=str(file)))
    wide = {"overrides": {**SMALL, "embedding_width": 3}, "embeddings": str(file), "freeze": True, "epochs": 1}
    trained = train(settings(tmp_path / "out", **wide))
    assert trained.record["vocabulary"] == {"words": 5, "with_vector": 2}
    table = weights(tmp_path / "out")["embeddings.words.weight"]
    assert table.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 2, 3], [-1, -2, -3]]


def pairs_accuracy(folder):
    subject = lo.load(str(folder))
    examples = list(planted_corpus("pairs"))
    with torch.no_grad():
        found = subject.run(subject.encode(examples)).logits.argmax(-1)
    return (found == torch.tensor([example.label for example in examples])).double().mean().item()


def test_the_demo_learns_negation_and_without_positions_nobody_can(tmp_path):
    """In a process of its own: checking the types of every call would take twice the time of the training."""
    code = "import os, sys; from lorgnette.training import quick; quick(sys.argv[1], seed=1); print(os.times().user)"
    done = run("-c", code, str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 60
    assert Trained.load(tmp_path / "demo").metrics["test"]["accuracy"] >= 0.95
    assert pairs_accuracy(tmp_path / "demo") >= 0.90
    quick(tmp_path / "blind", overrides={"positions": "none"}, epochs=1, limit=300)
    assert pairs_accuracy(tmp_path / "blind") == pytest.approx(0.5, abs=0.005)  # ties of rounding


def test_the_last_weights_can_be_kept(tmp_path):
    """At so high a rate the last epoch is not the best one; what is kept is what it left."""
    told = {"epochs": 4, "learning_rate": 0.5}
    best = train(settings(tmp_path / "best", **told)).record
    assert best["best"]["epoch"] < 4  # else this says nothing
    last = train(settings(tmp_path / "last", **told, keep_last=True)).record
    assert last["curve"][-1]["validation"]["cross_entropy"] == pytest.approx(
        last["metrics"]["validation"]["cross_entropy"], rel=1e-4
    )
    assert last["metrics"]["validation"]["cross_entropy"] > best["metrics"]["validation"]["cross_entropy"]
    assert last["best"] == best["best"]
    assert not same(weights(tmp_path / "best"), weights(tmp_path / "last"))
