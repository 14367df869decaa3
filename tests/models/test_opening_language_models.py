"""Opening models as people do: precision of the checkpoint, revisions, adapters by their folder, GGUF files."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from families import tiny
from tiny_subjects import tokenizer

import lorgnette as lo
from lorgnette.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    tiny("llama").to(torch.bfloat16).save_pretrained(path)
    tokenizer("llama").save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def adapter(folder, tmp_path_factory) -> Path:
    from peft import LoraConfig, get_peft_model

    path = tmp_path_factory.mktemp("adapter")
    config = LoraConfig(r=4, target_modules=["o_proj", "v_proj"], init_lora_weights=False)
    torch.manual_seed(1)
    get_peft_model(lo.load(folder).model, config).save_pretrained(path)
    return path


def test_the_precision_is_float32_on_a_cpu_and_the_checkpoints_own_if_asked(folder):
    assert lo.load(folder).dtype == torch.float32
    assert lo.load(folder, dtype="auto").dtype == torch.bfloat16
    with pytest.raises(UserError, match="expected auto, float32"):
        lo.load(folder, dtype="int4")


def test_devices_and_revisions_that_are_not_there(folder):
    assert lo.load(folder, device="auto").device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.backends.mps.is_available():
        with pytest.raises(UserError, match="'mps' was asked for"):
            lo.load(folder, device="mps")
    with pytest.raises(UserError, match="only models of the hub have revisions"):
        lo.load(folder, revision="main")


def test_an_adapter_by_its_folder_is_in_the_weights_that_are_read(folder, adapter):
    from peft import PeftModel

    plain, adapted, alone = lo.load(folder), lo.load(folder, adapter=adapter), lo.load(adapter)
    merged = PeftModel.from_pretrained(lo.load(folder).model, adapter).merge_and_unload()
    ids = torch.tensor([[7, 8, 9, 10]])
    expected = merged(ids).logits
    for subject in (adapted, alone):
        torch.testing.assert_close(subject.model(ids).logits, expected, atol=1e-4, rtol=1e-4)
        assert all(check.ok for check in subject.check())
    assert not torch.allclose(plain.model(ids).logits, expected, atol=1e-3)
    site = adapted.sites[0]
    wanted = merged.model.layers[0].self_attn.o_proj.weight.T.unflatten(0, (4, -1))
    torch.testing.assert_close(adapted.anatomy[site].output_weights()[0], wanted, atol=1e-5, rtol=1e-4)
    assert adapted.weights_hash != plain.weights_hash


def test_folders_that_are_no_adapters(folder, adapter, tmp_path):
    with pytest.raises(UserError, match=r"no adapter_config\.json"):
        lo.load(folder, adapter=folder)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="does not name its model"):
        lo.load(tmp_path)
    with pytest.raises(UserError, match="pickle can run code"):
        lo.load(folder, adapter=tmp_path)


def _write_gguf(path: Path) -> dict[str, np.ndarray]:
    """A Llama of one layer, as llama.cpp keeps it (whose rows of W_Q and W_K stand in another order)."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(40)
    words = ["<|endoftext|>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyzĠ", *(f"Ġ{letter}" for letter in "abcdefghij")]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([3, 3, 3, *[1] * (len(words) - 3)])
    writer.add_token_merges([f"Ġ {letter}" for letter in "abcdefghij"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (40, 32), "output_norm": (32,), "output": (40, 32)}
    shapes |= {f"blk.0.{name}": shape for name, shape in {
        "attn_norm": (32,), "ffn_norm": (32,), "attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32),
        "attn_output": (32, 32), "ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48),
    }.items()}  # fmt: skip
    tensors = {name: rng.normal(size=shape, scale=0.3).astype(np.float32) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_a_gguf_file_is_a_model(tmp_path):
    pytest.importorskip("gguf")
    file = tmp_path / "tiny.gguf"
    tensors = _write_gguf(file)
    subject = lo.load(file)
    assert (len(subject.sites), subject.heads, subject.anatomy.sites[0].groups) == (1, 4, 2)
    value = subject.model.model.layers[0].self_attn.v_proj.weight.detach().numpy()
    np.testing.assert_allclose(value, tensors["blk.0.attn_v"], atol=1e-6)
    assert subject.weights_hash == hashlib.sha256(file.read_bytes()).hexdigest()
    assert [check.name for check in subject.check() if not check.ok] == []
    assert len(subject.trace("a bad cab", generate=3).parts["generated"]) == 3


def test_a_gguf_file_that_is_none(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    with pytest.raises(UserError, match=r"broken\.gguf"):
        lo.load(tmp_path / "broken.gguf")
