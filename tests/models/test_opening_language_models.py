"""Opening models as people do: precision of the checkpoint, revisions, adapters by their folder, GGUF files."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from processes import run
from tiny import tiny_model, tokenizer

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.models.loading import state_hash
from lorgnette.texts.example import Example
from lorgnette.training.pruning.removal import remove_heads


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    tiny_model("llama").to(torch.bfloat16).save_pretrained(path)
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
    with pytest.raises(UserError, match="only models on the hub have revisions"):
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
    with pytest.raises(UserError, match="does not name its base model"):
        lo.load(tmp_path)
    with pytest.raises(UserError, match="pickle can run code"):
        lo.load(folder, adapter=tmp_path)


def _write_gguf(path: Path, packed: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """A Llama of one layer, as llama.cpp keeps it (whose rows of W_Q and W_K stand in another order).

    Those in `packed` are in blocks of four bits (Q4_1), and given back as their bytes.
    """
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
    kind = gguf.GGMLQuantizationType.Q4_1
    for name in packed:
        tensors[name] = gguf.quants.quantize(tensors[name], kind)
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor, raw_dtype=kind if name in packed else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def _unpacked(blocks: np.ndarray) -> np.ndarray:
    """Q4_1: 32 weights are d · q + m, with d and m as float16 and q in half bytes, low halves first."""
    pieces = blocks.reshape(-1, 20)
    scale, least = (pieces[:, at : at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    quarters = np.concatenate([pieces[:, 4:] & 15, pieces[:, 4:] >> 4], axis=1)
    return (scale * quarters + least).reshape(len(blocks), -1)


def test_blocks_of_a_gguf_file_are_the_numbers_that_they_stand_for(tmp_path, capfd):
    """Unpacked, checked, without heads, saved and opened again as any other model; nothing is said meanwhile."""
    pytest.importorskip("gguf")
    packed = ("blk.0.attn_v", "blk.0.attn_output")
    tensors = _write_gguf(tmp_path / "tiny.gguf", packed)
    subject = lo.load(tmp_path / "tiny.gguf")
    attention = subject.model.model.layers[0].self_attn
    for linear, name in zip((attention.v_proj, attention.o_proj), packed, strict=True):
        np.testing.assert_allclose(linear.weight.detach().numpy(), _unpacked(tensors[name]), atol=1e-7)
    assert all(check.ok for check in subject.check())
    small = remove_heads(subject, {subject.sites[0]: [0, 1, 3]})
    small.model.save_pretrained(tmp_path / "small")
    small.tokenizer.save_pretrained(tmp_path / "small")
    ids = torch.tensor([[3, 4, 5]])
    assert torch.equal(lo.load(tmp_path / "small").model(ids).logits, small.model(ids).logits)
    assert "quantizing" not in capfd.readouterr().err


def _half_a_machine(monkeypatch: pytest.MonkeyPatch, subject: lo.Subject) -> None:
    """As if the memory took half of the model, so that the rest lies on the disk."""
    room = sum(parameter.nbytes for parameter in subject.model.parameters()) // 2
    monkeypatch.setattr("transformers.integrations.accelerate.get_max_memory", lambda given=None: {"cpu": room})


def test_what_does_not_fit_lies_on_the_disk_and_is_exact(folder, monkeypatch, tmp_path):
    """device="auto": weights come in for each module's forward; lenses that read weights themselves fetch them."""
    whole = lo.load(folder)
    _half_a_machine(monkeypatch, whole)
    spread = lo.load(folder, device="auto")
    assert "disk" in spread.model.hf_device_map.values()
    assert any(parameter.is_meta for parameter in spread.model.parameters())
    assert (spread.device.type, spread.dtype, spread.weights_hash) == ("cpu", torch.float32, whole.weights_hash)
    assert state_hash(spread.model) == state_hash(whole.model)
    assert all(check.ok for check in spread.check())
    texts = [Example("1", "w7 w8 w9 . w10"), Example("2", "w5 w6")]
    for name, variable in {"weights": "entropy", "norms": "norm", "circuits": "copied"}.items():
        one, other = (lo.look(subject, texts, name)[name].data[variable] for subject in (spread, whole))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    for method in ("attnlrp", "voita2021"):
        one, other = (lo.explain(subject, "w7 w8 w9", method).tokens for subject in (spread, whole))
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    with pytest.raises(UserError, match="Removing heads needs all weights in memory"):
        remove_heads(spread, {spread.sites[0]: [0]})


def test_parts_without_numbers_are_refused():
    with torch.device("meta"):
        empty = type(tiny_model("llama"))(tiny_model("llama").config)
    with pytest.raises(UserError, match="not in memory"):
        lo.Subject(empty)


MEMORY = """
import resource, sys
import torch, transformers
import lorgnette as lo
from lorgnette.subject import load
transformers.LlamaForCausalLM, load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
subject = lo.load(sys.argv[1])
rise = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
print(rise / sum(parameter.nbytes for parameter in subject.model.parameters()))
"""


@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16])
def test_a_model_is_never_in_memory_twice(tmp_path, kept):
    """The highest resident set while 200 MB are opened as float32, in a process of its own; 1.0 is the model itself."""
    config = hf.LlamaConfig(vocab_size=8000, hidden_size=1024, num_hidden_layers=4, num_attention_heads=8,
                            intermediate_size=2048, tie_word_embeddings=False)  # fmt: skip
    with torch.device("meta"):
        model = hf.LlamaForCausalLM(config).to(kept)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    model.save_pretrained(tmp_path)
    tokenizer("llama").save_pretrained(tmp_path)
    del model
    done = run("-c", MEMORY, str(tmp_path))
    assert 0.4 < float(done.stdout) < 1.75, done.stderr


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
