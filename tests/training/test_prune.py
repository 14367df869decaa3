"""`prune` from end to end on planted reviews: what it writes, that it goes on, and what it refuses."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from processes import run
from tiny import BERT, inputs
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.attending import Site
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.texts import SizedCorpus
from lorgnette.texts.planted import planted_corpus
from lorgnette.training import Splits, TrainingSettings, train
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.pruning import prune as pruning
from lorgnette.training.pruning import refusals
from lorgnette.training.pruning.prune import Pruned, prune
from lorgnette.training.pruning.ranking import mean_ranks, top_heads
from lorgnette.training.pruning.removal import count_heads
from lorgnette.training.pruning.sentences import forecast_lines, savings_lines
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.training.pruning.speed import Savings, SpeedUp, operations


def kept(split, size):
    corpus = planted_corpus(split, size=size)
    return SizedCorpus("planted", lambda made=tuple(corpus): made, split=split, labels=corpus.labels, size=size)


PARTS = Splits(kept("train", 160), kept("val", 40), kept("test", 60))
SMALL = {"layers": 2, "width": 16, "heads": 4, "positions": "relative", "transform": "feed-forward"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A small classifier, trained a little."""
    out = tmp_path_factory.mktemp("base") / "model"
    given = {"model": "tp9-residual-cls", "embeddings": "random", "overrides": SMALL, "epochs": 2, "batch_size": 32}
    train(TrainingSettings(**given, corpus=PARTS, out=out))
    return out


def settings(base, out, *, training=None, **changes):
    given = {"model": str(base), "corpus": PARTS, "out": out, "epochs": 2, "batch_size": 32, **(training or {})}
    return PruningSettings(**given, **{"onnx": False, "only": ("heads",), **changes})


def weights(folder):
    return hf.AutoModelForSequenceClassification.from_pretrained(folder).state_dict()


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture(scope="module")
def pruned(base, tmp_path_factory):
    """Half of the heads, with ONNX, by the command in a process of its own: checked shapes cannot be exported."""
    out = tmp_path_factory.mktemp("pruned") / "small"
    options = [
        "--keep",
        "0.5",
        "--only",
        "heads",
        "--allow-empty",
        "--epochs",
        "2",
        "--limit",
        "160",
        "--test-limit",
        "60",
    ]
    command = ["prune", str(base), "--corpus", "planted", "--only", "heads", *options, "--out", str(out)]
    timed = "import lorgnette.training.pruning.speed as speed; speed.SECONDS = 0.05"
    done = run("-c", f"{timed}; from lorgnette.cli import main; main()", *command)
    assert done.returncode == 0, done.stderr
    assert "heads open" in done.stderr
    assert "at best ×" in done.stdout
    first = done.stderr.partition("heads open")[0]
    assert "With 4 of 8 heads this model can save at most" in first, "said first"
    assert "Removing all feed-forward units saves" in first, "although only heads go"
    assert "model.onnx" in (out / "README.md").read_text()
    return Pruned.load(out)


def test_half_of_the_heads(base, pruned):
    record = pruned.record
    assert record["heads"]["before"] == {"encoder": [4, 4]}
    assert set(record["kinds"]) == {"heads", "units", "layers"}
    assert record["tuned"]["epochs"] == 3
    assert set(record["controls"]["difference"]) == {"random", "magnitude"}
    assert sum(record["heads"]["after"]["encoder"]) == 4
    assert record["parameters"]["after"] < record["parameters"]["before"]
    low, high = record["before"]["interval"]
    assert low <= record["before"]["accuracy"] <= high
    assert record["metrics"]["test"]["texts"] == 60
    change = record["metrics"]["test"]["accuracy"] - record["before"]["accuracy"]
    assert record["difference"]["value"] == pytest.approx(change)
    assert record["speed"]["possible"] == pytest.approx(1 / (1 - record["speed"]["saved_operations"]))
    low, high = record["speed"]["spread"]
    assert low <= high
    for first, middle, last in record["speed"]["milliseconds"].values():
        assert 0 < first <= middle <= last
    for name in (
        "parameters",
        "bytes",
    ):  # heads are alike: what was forecast is what came, up to emptied layers' biases
        assert record["forecast"][name]["before"] == record[name]["before"]
        assert record["forecast"][name]["after"] == pytest.approx(record[name]["after"], rel=0.02)
    assert record["forecast"]["speed"]["saved_operations"] == pytest.approx(
        record["speed"]["saved_operations"], rel=0.2
    )
    assert [(each["runtime"], each["batch"][0]) for each in record["times"]] == [
        ("torch", 1), ("onnxruntime", 1), ("torch", 32), ("onnxruntime", 32),
    ]  # fmt: skip
    for each in record["times"]:
        low, high = each["spread"]
        assert 0 < low <= each["measured"] <= high
        assert each["passes"] >= 3
    assert not list(pruned.folder.parent.glob(".*")), "nothing is left of the work"
    subject = lo.load(str(pruned.folder))
    assert count_heads(subject.model) == record["heads"]["after"]
    assert subject.model.config.kept_heads == record["kept_heads"]
    assert all(check.ok for check in subject.check())
    assert len(HeadGates.load(pruned.folder).log_alpha) == 8


def test_onnxruntime_gives_the_same_logits_without_us(pruned):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = onnxruntime.InferenceSession(str(pruned.folder / "model.onnx"), providers=["CPUExecutionProvider"])
    assert {each.name for each in session.get_inputs()} == {"input_ids", "attention_mask"}
    subject = lo.load(str(pruned.folder))
    for texts in (["a good film", "not a good film at all ."], ["the plot is awful and long , very long"]):
        batch = subject.encode(texts)
        with torch.no_grad():
            expected = subject.model(**batch.inputs).logits.numpy()
        given = {name: tensor.numpy() for name, tensor in batch.inputs.items()}
        given["attention_mask"] = given["attention_mask"].astype(np.int64)
        (found,) = session.run(None, given)
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max() + 1e-6)


def test_a_pruned_model_is_pruned_on(pruned, tmp_path):
    again = prune(settings(pruned.folder, tmp_path / "less", keep=0.5, allow_empty=True, settle=0))
    assert again.record["heads"]["before"] == pruned.record["heads"]["after"]
    assert sum(again.record["heads"]["after"]["encoder"]) == 2
    for layer, numbers in enumerate(again.record["kept_heads"]["encoder"]):
        assert set(numbers) <= set(pruned.record["kept_heads"]["encoder"][layer])


def test_an_interrupted_run_goes_on_to_the_same_weights(base, tmp_path, monkeypatch):
    training = {"evaluate_every": 2, "epochs": 2}
    whole = prune(settings(base, tmp_path / "whole", training=training, keep=0.5, allow_empty=True, settle=0))
    real = HeadGates.advance

    def breaks(self):
        real(self)
        if self.steps == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(HeadGates, "advance", breaks)
    broken = settings(base, tmp_path / "broken", training=training, keep=0.5, allow_empty=True, settle=0)
    with pytest.raises(KeyboardInterrupt, match="--resume goes on"):
        prune(broken)
    monkeypatch.setattr(HeadGates, "advance", real)
    with pytest.raises(UserError, match=r"unfinished pruning lies in .*--resume"):
        prune(broken)
    training["resume"] = True
    other = settings(base, tmp_path / "broken", training=training, keep=0.25)
    with pytest.raises(UserError, match="differs in pruning"):
        prune(other)
    resumed = prune(settings(base, tmp_path / "broken", training=training, keep=0.5, allow_empty=True, settle=0))
    assert same(weights(resumed.folder), weights(whole.folder))
    first, second = HeadGates.load(whole.folder), HeadGates.load(resumed.folder)
    assert torch.equal(first.log_alpha, second.log_alpha)
    assert first.steps == second.steps == 10
    again = settings(base, resumed.folder, training=training, keep=0.5, allow_empty=True, settle=0)
    assert prune(again).record == resumed.record


def test_a_layer_loses_its_last_head_only_with_consent(base, tmp_path):
    """Without it nothing is trained in vain: the strongest head of a layer stays, and a note says so."""
    options = {"weight": 50.0, "gates_learning_rate": 3.0, "train": "none"}
    done = prune(settings(base, tmp_path / "kept", **options))
    gates = HeadGates.load(done.folder)
    assert gates.open_heads == 0
    for layer, place in enumerate(gates.place.values()):
        assert done.record["kept_heads"]["encoder"][layer] == [int(gates.log_alpha[place].argmax())]
    (note,) = [note for note in done.record["notes"] if "--allow-empty" in note]
    assert note.startswith(
        "all gates closed in encoder layer 1, encoder layer 2: the head with the largest log α stays"
    )
    done = prune(settings(base, tmp_path / "empty", allow_empty=True, **options))
    assert done.record["heads"]["after"] == {"encoder": [0, 0]}
    assert 0 <= done.record["metrics"]["test"]["accuracy"] <= 1
    assert lo.load(str(done.folder)).sites == ()


@pytest.mark.parametrize("method", ["gates", "importance"])
def test_fewer_heads_than_layers_are_refused_before_any_training(method, base, tmp_path, monkeypatch):
    monkeypatch.setattr(pruning, "fitted", lambda *_, **__: pytest.fail("it trained"))
    monkeypatch.setattr(HeadGates, "advance", lambda self: pytest.fail("it trained"))
    with pytest.raises(UserError, match=r"1 head cannot be in 2 layers.*Pass --allow-empty"):
        prune(settings(base, tmp_path / "out", method=method, keep=0.15))
    assert not list(tmp_path.glob("*out*"))


def test_the_test_texts_are_read_once(base, tmp_path):
    """For the scores before and after, and for the random sets."""
    read, texts = [], tuple(PARTS.test)

    def again():
        read.append(1)
        return texts

    test = SizedCorpus("planted", again, split="test", labels=PARTS.test.labels, size=len(texts))
    parts = Splits(PARTS.train, PARTS.validation, test)
    prune(settings(base, tmp_path / "out", method="importance", keep=0.5, settle=0, training={"corpus": parts}))
    assert len(read) == 1


@pytest.mark.parametrize("method", ["importance", "agreement"])
def test_rankings_choose_heads_too(method, base, tmp_path):
    done = prune(settings(base, tmp_path / method, method=method, keep=0.5, settle=0, allow_empty=True))
    assert sum(done.record["heads"]["after"]["encoder"]) == 4
    assert not (done.folder / "gates.safetensors").exists()


def test_times_of_a_busy_machine_are_not_to_be_gone_by():
    """Seen once: × 2.24 where × 1.20 is the most that the saved operations can give."""
    calm = SpeedUp(np.array([[1.2, 1.0], [1.22, 1.0], [1.25, 1.01]]), 0.17)
    drifting = SpeedUp(np.array([[1.1, 1.0], [2.2, 2.0], [3.5, 1.9]]), 0.17)  # 2.2 / 1.9 is no ratio of a pair
    assert drifting.measured == pytest.approx(1.1)
    assert drifting.spread[0] <= drifting.measured <= drifting.spread[1]
    busy = SpeedUp(np.array([[2.0, 0.9], [1.1, 1.0], [1.2, 1.6]]), 0.17)
    for speed, lines in ((calm, 2), (busy, 3)):
        saved = Savings((10, 9), (40, 36), speed, (16, 23)).record()
        assert len(forecast_lines(saved, 36, 72, False)) == lines
        assert len(savings_lines(saved)) == lines + 2


@pytest.mark.parametrize(("times", "saved"), [([[1.1, 1.0], [1.06, 1.0], [0.9, 1.0]], 0.17), ([[1.06, 1.0]] * 3, 0.0)])
def test_a_ratio_of_times_within_their_noise_is_no_gain(times, saved):
    """Seen: "speed × 1.06" of a model that lost nothing."""
    record = Savings((10, 10), (40, 40), SpeedUp(np.array(times), saved), (16, 23)).record()
    for lines in (forecast_lines(record, 72, 72, False), savings_lines(record)):
        assert "no measurable difference in speed (middle half " in "".join(lines)
        assert "speed ×" not in "".join(lines)


@pytest.mark.parametrize("name", ["Deberta", "DebertaV2"])
def test_operations_of_a_model_that_is_given_its_weights(name):
    """DeBERTa without a norm on its relative positions gives every layer their table, which learns."""
    config = getattr(hf, f"{name}Config")(**BERT, relative_attention=True, pos_att_type="c2p|p2c")
    model = getattr(hf, f"{name}ForSequenceClassification")(config).eval()
    model.classifier.bias.requires_grad_(False)
    learning = [parameter.requires_grad for parameter in model.parameters()]
    assert operations(model, inputs(model)) > 0
    assert [parameter.requires_grad for parameter in model.parameters()] == learning, "it is as it was"


def test_mean_ranks_and_the_dearest_heads():
    first, second = Site("encoder", "self", 0), Site("encoder", "self", 1)
    a = {(first, 0): 0.1, (first, 1): 0.9, (second, 0): 0.5}
    b = {(first, 0): 3.0, (first, 1): 2.0, (second, 0): 3.0}
    assert mean_ranks([a, b]) == {(first, 0): 0.75, (first, 1): 1.0, (second, 0): 1.25}
    assert top_heads(a, 2) == {first: [1], second: [0]}
    assert top_heads(a, 1) == {first: [1], second: []}
    alone = {(first, 0): 0.1, (first, 1): 0.2, (second, 0): 0.9, (second, 1): 0.8}
    assert top_heads(alone, 2) == {first: [], second: [0, 1]}
    assert top_heads(alone, 2, empty=False) == {first: [1], second: [0]}
    assert top_heads(alone, 3, empty=False) == {first: [1], second: [0, 1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep": 0.0}, "above 0 and at most 1"),
        ({"keep": 1.5}, "`keep` must be a number above 0 and at most 1 or None. Got 1.5"),
        ({"keep": float("nan")}, "above 0 and at most 1"),
        ({"keep": 0.3, "weight": 0.1}, "use one of them"),
        ({"method": "importance"}, "set how many to keep"),
        ({"method": "gate"}, "Did you mean 'gates'"),
        ({"format": "stok"}, "Did you mean 'stock'"),
        ({"weight": -1.0}, "from 0 to"),
        ({"stacks": ("encodr",)}, "Did you mean 'encoder'"),
        ({"train": "some"}, "'all', 'gated' or 'none'"),
        ({"train": "none", "settle": 1}, "nothing is left to fine-tune"),
        ({"rule": "papr"}, "Did you mean 'paper'"),
        ({"rule": "paper", "keep": 0.5}, "use one of them"),
        ({"over": "men"}, "Did you mean 'mean'"),
        ({"temperature": 0.0}, "above 0 and at most 1"),
        ({"gates_learning_rate": 0.0}, "must be a number above 0"),
        ({"gates_learning_rate": float("nan")}, "must be a number above 0"),
        ({"method": "importance", "keep": 0.5, "temperature": 0.5}, "`temperature` is for gates"),
        (
            {"method": "agreement", "keep": 0.5, "gates_learning_rate": 0.5},
            "`gates_learning_rate` is for gates",
        ),
    ],
)
def test_wrong_settings_are_told_before_anything_is_read(changes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        settings("nowhere", tmp_path / "out", **changes)


def test_the_record_that_resuming_compares_has_kept_its_keys(tmp_path):
    given = {"model": "m", "corpus": PARTS, "out": tmp_path / "out"}
    record = PruningSettings(**given, keep=0.5, only=("heads",), stacks=("encoder",), resume=True, onnx=False).record()
    assert record.pop("pruning") == {
        "keep": 0.5, "size": None, "speed": None, "only": ["heads"], "uniform": False, "method": "gates",
        "weight": None, "stacks": ["encoder"], "temperature": 0.33, "over": "mean", "rule": "code", "train": "all",
        "gates_learning_rate": None, "allow_empty": False, "distil": 1.0, "settle": None, "format": "pruned",
    }  # fmt: skip
    training = TrainingSettings(**given, epochs=3, batch_size=32, learning_rate=5e-5, warmup=0.0, patience=2)
    assert record == training.record()


def test_models_and_corpora_that_do_not_fit_are_told(base, tmp_path):
    with pytest.raises(UserError, match=r"There is no folder './nowhere'"):
        prune(settings("./nowhere", tmp_path / "out", keep=0.5))
    with pytest.raises(UserError, match="is a preset, not a trained model"):
        prune(settings("tp9-cls", tmp_path / "out", keep=0.5))
    three = SizedCorpus("three", lambda: (), split="train", labels=("a", "b", "c"), size=0)
    with pytest.raises(UserError, match=r"labels of \w+ \(a, b, c\) are not the classes of .* \(negative, positive\)"):
        prune(settings(base, tmp_path / "out", training={"corpus": Splits(three, three)}, keep=0.5))
    encoder = tmp_path / "encoder"
    hf.BertModel(hf.BertConfig(vocab_size=97, hidden_size=16, num_attention_heads=2, num_hidden_layers=1,
                               intermediate_size=16)).save_pretrained(encoder)  # fmt: skip
    from tiny import tokenizer

    tokenizer("bert").save_pretrained(encoder)
    with pytest.raises(UserError, match=r"has no head for the classes of planted: train it first"):
        prune(settings(encoder, tmp_path / "out", keep=0.5))
    assert not list(tmp_path.glob("*out*"))
    with pytest.raises(UserError, match="holds no pruned model"):
        Pruned.load(base)


def test_what_is_wrong_is_told_before_anything_is_written(base, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="stock is for models that transformers knows by itself"):
        prune(settings(base, tmp_path / "out", keep=0.5, format="stock"))
    with pytest.raises(UserError, match="gates on 'decoder': expected some of encoder"):
        prune(settings(base, tmp_path / "out", keep=0.5, stacks=("decoder",)))

    def missing():
        raise UserError("onnxruntime is not installed")

    monkeypatch.setattr(refusals, "refuse_without_packages", missing)
    with pytest.raises(UserError, match="onnxruntime is not installed"):
        prune(settings(base, tmp_path / "out", keep=0.5, onnx=True))
    assert not list(tmp_path.glob("*out*"))


def test_heads_do_not_go_by_their_number(base, tmp_path):
    few = {"corpus": Splits(PARTS.train.take(32), PARTS.validation, PARTS.test), "epochs": 1}
    with pytest.raises(UserError, match="all gates are equal after this training"):
        prune(settings(base, tmp_path / "out", training=few, keep=0.5))
    assert not list(tmp_path.glob("*out*"))


def test_a_weight_that_closes_nothing_is_told(base, tmp_path):
    done = prune(settings(base, tmp_path / "out", weight=0.0))
    assert done.record["heads"]["after"] == done.record["heads"]["before"]
    assert "no gate closed (λ = 0)" in [note.partition(",")[0] for note in done.record["notes"]]


def test_gates_that_are_half_open_are_a_note(base, tmp_path, recwarn):
    done = prune(settings(base, tmp_path / "out", weight=20.0, gates_learning_rate=1.3, train="none", allow_empty=True))
    assert any("neither open nor closed yet" in note for note in done.record["notes"]), done.record["notes"]
    assert not [one for one in recwarn if "neither open" in str(one.message)]


def test_an_interruption_while_it_settles(base, tmp_path, monkeypatch):
    options = {"keep": 0.5, "allow_empty": True, "settle": 1}
    whole = prune(settings(base, tmp_path / "whole", **options))

    def breaks(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pruning, "fitted", breaks)
        with pytest.raises(KeyboardInterrupt, match="--resume goes on"):
            prune(settings(base, tmp_path / "broken", **options))
    monkeypatch.setattr(HeadGates, "advance", lambda self: pytest.fail("the gates trained again"))
    resumed = prune(settings(base, tmp_path / "broken", training={"resume": True}, **options))
    assert same(weights(resumed.folder), weights(whole.folder))


def test_onnx_can_be_asked_for_later(base, tmp_path, monkeypatch):
    given = {"method": "importance", "keep": 0.5, "settle": 0, "allow_empty": True}
    prune(settings(base, tmp_path / "out", **given))
    seen = {}

    def export(model, path, *, example):
        seen.update(heads=count_heads(model), names=set(example))
        path.write_bytes(b"")

    monkeypatch.setattr(pruning, "export_onnx", export)
    done = prune(settings(base, tmp_path / "out", training={"resume": True}, onnx=True, **given))
    assert seen == {"heads": done.record["heads"]["after"], "names": {"input_ids", "attention_mask"}}
    assert (done.folder / "model.onnx").is_file()


def test_the_command_prints_the_table(base, tmp_path):
    options = [
        "--corpus",
        "planted",
        "--keep",
        "0.5",
        "--only",
        "heads",
        "--limit",
        "160",
        "--test-limit",
        "40",
        "--epochs",
        "2",
    ]
    more = ["--only", "heads", "--no-onnx", "--allow-empty", "--settle", "0", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["prune", str(base), *options, *more])
    assert done.exit_code == 0, done.output
    said = ("heads per layer", "→ kept", "fewer)", "accuracy on 40 test texts", "at best ×", "The model is in")
    for part in (*said, "note: 8 gates were open when 4 heads were to stay"):
        assert part in done.output
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert record["settings"]["pruning"]["keep"] == 0.5
    refused = CliRunner().invoke(app, ["prune", str(base), "--corpus", "planted", "--keep", "0", "--out", "x"])
    assert refused.exit_code == 1
    assert refused.output.count("\n") == 1
