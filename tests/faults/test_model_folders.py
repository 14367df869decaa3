"""Model folders as they should not be: one line, and never a model that is not the one that was trained."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import EXAMPLES, bert, classifier

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.training import TrainingSettings, train
from lorgnette.training.pruning.prune import prune
from lorgnette.training.pruning.settings import PruningSettings


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "whole"
    subject = classifier(torch.float32)
    subject.model.save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def edited(folder, file="config.json", **changes):
    document = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**document, **changes}))
    return str(folder)


def test_layers_that_the_config_drops_are_refused(folder):
    with pytest.raises(UserError, match=r"does not use \(bert\.encoder\.layer\.1\."):
        lo.load(edited(folder, num_hidden_layers=1))


def test_weights_of_another_model_are_refused(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.encoder.extra.weight"] = torch.ones(2)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"bert\.encoder\.extra\.weight"):
        lo.load(str(folder))


def test_heads_for_other_tasks_are_left_out_as_ever(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.bias"] = tensors["qa_outputs.weight"] = torch.ones(2)
    tensors["bert.embeddings.position_ids"] = torch.arange(2)
    save_file({k: v.clone() for k, v in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    assert lo.load(str(folder)).missing == ()


def sharded(folder, where):
    """The weights in two shards, of which the index says that the second lies at `where`."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"a.safetensors": names[: len(names) // 2], "b.safetensors": names[len(names) // 2 :]}
    for shard, part in halves.items():
        save_file({name: tensors[name] for name in part}, folder / shard, metadata={"format": "pt"})
    weight_map = {name: shard for shard, part in halves.items() for name in part}
    weight_map = {name: where if shard == "b.safetensors" else shard for name, shard in weight_map.items()}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_a_shard_outside_the_folder_is_not_read(folder, tmp_path):
    sharded(folder, "../elsewhere.safetensors")
    shutil.move(folder / "b.safetensors", tmp_path / "elsewhere.safetensors")
    with pytest.raises(UserError, match="not a file in its folder"):
        lo.load(str(folder))
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("../elsewhere", str(tmp_path / "elsewhere")))
    with pytest.raises(UserError, match="not a file in its folder"):
        lo.load(str(folder))


def test_the_hash_is_that_of_what_was_read(folder):
    before = lo.load(str(folder)).weights_hash
    (folder / "notes.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert lo.load(str(folder)).weights_hash == before
    sharded(folder, "b.safetensors")
    shards = lo.load(str(folder)).weights_hash
    assert shards != before
    tensors = load_file(folder / "b.safetensors")
    name = next(name for name in tensors if name.endswith("bias"))
    save_file({**tensors, name: tensors[name] + 1}, folder / "b.safetensors", metadata={"format": "pt"})
    assert lo.load(str(folder)).weights_hash != shards


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": "4"},
        {"num_attention_heads": 0},
        {"num_attention_heads": 5},
        {"num_hidden_layers": 10**6},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": 1e3},
        {"hidden_size": None},
        {"hidden_size": 2**60},
        {"vocab_size": "many"},
        {"max_position_embeddings": 10**12},
        {"hidden_act": "nope"},
        {"layer_norm_eps": "x"},
        {"architectures": 7},
        {"model_type": "nope"},
        {"model_type": 7},
        {"id2label": 7},
        {"pad_token_id": "x"},
        {"pad_token_id": 10**6},
        {"hidden_dropout_prob": 3836},
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
    ],
    ids=str,
)
def test_a_config_that_is_wrong_is_one_line(folder, changes):
    with pytest.raises(UserError, match="model"):
        lo.look(lo.load(edited(folder, **changes)), EXAMPLES, ["weights"], progress=False)


@pytest.mark.parametrize("name", ["BertLayer", "nope", "BertConfig", "__doc__"])
def test_a_class_that_is_no_model_is_not_made(folder, name):
    """What the config's type says is opened instead: the same model."""
    assert type(lo.load(edited(folder, architectures=[name])).model).__name__ == "BertForSequenceClassification"


@pytest.mark.parametrize("changes", [{"dtype": "nope"}, {"torch_dtype": "nope"}], ids=str)
def test_a_type_that_the_config_names_wrongly_is_not_used(folder, changes):
    """`lo.load` says which precision it is; what the config says of it may be anything."""
    try:
        subject = lo.load(edited(folder, **changes))
    except UserError:
        return
    assert subject.dtype == torch.float32


@pytest.mark.parametrize(
    "changes",
    [{"tokenizer_class": 7}, {"tokenizer_class": "Nope"}, {"model_max_length": "x"}, {"model_max_length": None}],
    ids=str,
)
def test_a_tokenizer_config_that_is_wrong_is_one_line_or_does_not_matter(folder, changes):
    try:
        subject = lo.load(edited(folder, "tokenizer_config.json", **changes))
    except UserError:
        return
    assert subject.trace("The cat sat.").pieces() == lo.load(str(folder)).trace("The cat sat.").pieces()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "7", "[" * 100_000, '{"a": ' * 100_000, '{"a": 1' + "0" * 5000 + "}"]
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_files_that_are_not_json(folder, name, content):
    (folder / name).write_text(content)
    with pytest.raises(UserError):
        lo.load(str(folder))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_pipes_and_devices_are_not_read(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match="pipe or a device"):
        lo.load(str(folder))
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(UserError, match="pipe or a device"):
        lo.load(str(folder))


def test_a_token_without_a_vector_is_said_by_name(folder):
    subject = lo.load(str(folder))
    rows = subject.model.config.vocab_size
    subject.tokenizer.add_tokens([*(f"unused{n}" for n in range(rows - len(subject.tokenizer))), "zebra"])
    subject.tokenizer.save_pretrained(folder)
    subject = lo.load(str(folder))
    assert [check.name for check in subject.check() if not check.ok] == ["every token has a vector"]
    assert subject.trace("The cat sat.")
    with pytest.raises(UserError, match=r"'zebra' the id \d+, and the model has vectors for"):
        subject.trace("A zebra sat.")
    table = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(["cat", "a zebra", "dog", "mat"] * 8)]
    with pytest.raises(UserError, match="zebra"):
        train(classifying(folder, table, folder / "out"))


def classifying(folder, rows, out, **more):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"corpus": str(path), "label_column": "label", "validation": 0.5, "epochs": 1}
    return TrainingSettings(model=str(folder), out=out, **given, **more)


ROWS = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(["the cat", "a dog", "it ran", "mat"] * 8)]


@pytest.mark.parametrize(
    "changes",
    [{"hidden_size": 16}, {"model_type": "nope"}, {"num_hidden_layers": 1}, {"num_attention_heads": "4"}],
    ids=str,
)
def test_train_opens_models_by_the_same_gate(folder, changes, tmp_path):
    edited(folder, **changes)
    with pytest.raises(UserError, match="model"):
        train(classifying(folder, ROWS, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_train_does_not_begin_with_holes(folder, tmp_path):
    tensors = load_file(folder / "model.safetensors")
    del tensors["bert.encoder.layer.1.attention.self.query.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="lacks weights of the model itself"):
        train(classifying(folder, ROWS, tmp_path / "out"))


def test_train_takes_a_pickle_if_that_is_allowed(folder, tmp_path):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="--allow-pickle"):
        train(classifying(folder, ROWS, tmp_path / "out"))
    assert train(classifying(folder, ROWS, tmp_path / "out", allow_pickle=True)).record["epochs"] == 1


def test_prune_takes_a_pickle_if_that_is_allowed(folder, tmp_path):
    model = train(classifying(folder, ROWS, tmp_path / "trained")).folder
    torch.save(load_file(model / "model.safetensors"), model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    ways = {"keep": 0.5, "only": ("heads",), "method": "importance", "settle": 0, "controls": 0, "onnx": False}
    with pytest.raises(UserError, match="--allow-pickle"):
        prune(PruningSettings(**vars(classifying(model, ROWS, tmp_path / "out")), **ways))
    allowed = classifying(model, ROWS, tmp_path / "out", allow_pickle=True)
    assert sum(prune(PruningSettings(**vars(allowed), **ways)).record["heads"]["after"]["encoder"]) == 6


def test_quantised_and_offloaded_models_are_refused():
    subject = bert(torch.float32)
    with pytest.warns():
        small = torch.ao.quantization.quantize_dynamic(subject.model, {torch.nn.Linear}, dtype=torch.qint8)
    with pytest.raises(UserError, match="quantised"):
        lo.Subject(small, subject.tokenizer)
    with pytest.raises(UserError, match="not in memory"):
        lo.Subject(bert(torch.float32).model.to("meta"), subject.tokenizer)


@pytest.mark.parametrize("text", ["\ud800", "a \udcff b", "cat \udfff"])
def test_half_characters_are_one_line(text):
    with pytest.raises(UserError, match="half a character"):
        bert().trace(text)
    with pytest.raises(UserError, match="half a character"):
        lo.look(bert(), ["fine", text], ["weights"], progress=False)


@pytest.mark.parametrize("name", ["chunk_size_feed_forward", "sliding_window"])
@pytest.mark.parametrize("value", ["4", [4], 1.5, True, {"a": 1}])
def test_a_number_that_is_read_in_the_pass_is_checked_before(folder, name, value):
    if isinstance(value, dict):
        value = {name: "4"}  # also inside the config of a part
    with pytest.raises(UserError, match=rf"{name} is .*, and must be a whole number or null"):
        lo.load(edited(folder, **{name: value}))


@pytest.mark.parametrize("value", [10**30, "input_ids", [1], {"a": 1}])
def test_inputs_of_a_tokenizer_are_a_list_of_names(folder, value):
    with pytest.raises(UserError, match=r"has model_input_names .*: expected a list of strings"):
        lo.load(edited(folder, "tokenizer_config.json", model_input_names=value))
