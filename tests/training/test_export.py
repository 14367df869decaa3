"""ONNX of pruned models: any batch, any length, the model's logits, without transformers."""

from pathlib import Path

import pytest
from processes import run

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

CODE = """
import sys, warnings
import numpy as np, onnxruntime, torch, transformers as hf
from lorgnette.attending import Site
from lorgnette.training.pruning.export import export_onnx
from lorgnette.training.pruning.removal import remove_parts
torch.manual_seed(0)
size = dict(vocab_size=50, d_model=16, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=16, decoder_ffn_dim=16, pad_token_id=0, eos_token_id=1,
    decoder_start_token_id=0, forced_eos_token_id=1, max_position_embeddings=32)
bert = dict(vocab_size=50, hidden_size=16, num_hidden_layers=3, num_attention_heads=4, intermediate_size=16,
    max_position_embeddings=32)
llama = dict(bert, num_key_value_heads=2, head_dim=4, pad_token_id=0, eos_token_id=1, bos_token_id=2)
if sys.argv[1] == "llama":  # a whole group, a part of one: keys of unequal groups, and a layer without heads
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**dict(llama, num_hidden_layers=4)))
    kept = {Site("decoder", "self", 0): [2, 3], Site("decoder", "self", 1): [0, 1, 3], Site("decoder", "self", 3): []}
elif sys.argv[1] == "marian":
    model = hf.MarianMTModel(hf.MarianConfig(**size))
    kept = {Site("encoder", "self", 0): [1, 3], Site("decoder", "self", 0): [], Site("decoder", "cross", 1): [2]}
else:
    model = hf.MPNetForSequenceClassification(hf.MPNetConfig(**bert, pad_token_id=1))
    kept = {Site("encoder", "self", 0): [0, 3], Site("encoder", "self", 1): []}
stack = "decoder" if sys.argv[1] == "llama" else "encoder"
kept |= {Site(stack, "feed-forward", 0): [1, 2, 5], Site(stack, "feed-forward", 1): [], Site(stack, "layer", 2): []}
small = remove_parts(model.eval(), kept)
if sys.argv[1] == "mpnet":
    small = small.double().train()  # as the caller has it, so it stays
def batch(rows, columns, target):
    made = {"input_ids": torch.randint(5, 50, (rows, columns)), "attention_mask": torch.ones(rows, columns).long()}
    if rows > 1:
        made["attention_mask"][0, -2:] = 0
    if sys.argv[1] == "marian":
        made["decoder_input_ids"] = torch.randint(5, 50, (rows, target))
    return made
path = export_onnx(small, sys.argv[2], example=batch(3, 9, 5))
if sys.argv[1] == "mpnet":
    assert small.dtype == torch.float64 and small.training
    small.eval()
session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
for given in (batch(3, 9, 5), batch(1, 4, 7), batch(5, 30, 2)):
    (found,) = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
    with torch.no_grad():
        expected = small(**given).logits.numpy()
    assert found.shape == expected.shape
    if sys.argv[1] == "llama":  # what a padded query reads is nobody's business
        real = given["attention_mask"].bool().numpy()
        found, expected = found[real], expected[real]
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max(), np.abs(found - expected).max()
print("equal", small.config._attn_implementation)
"""


@pytest.mark.parametrize("family", ["marian", "mpnet", "llama"])
def test_pruned_models_run_in_onnxruntime(family, tmp_path):
    """In a process of its own: shapes that are checked, as in these tests, cannot be exported."""
    done = run("-c", CODE, family, str(tmp_path / "model.onnx"))
    assert done.stdout.split()[-2:-1] == ["equal"], done.stderr[-3000:]
    assert done.stdout.split()[-1] != "lorgnette"


DECODERS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, onnxruntime, torch
from tiny import inputs, tiny_model
from lorgnette.attending import Site
from lorgnette.training.pruning.export import export_onnx
from lorgnette.training.pruning.removal import remove_parts
for family in sys.argv[3:]:
    model = tiny_model(family)
    kept = {Site("decoder", "self", 0): [0, 1, 3], Site("decoder", "self", 1): [], Site("decoder", "layer", 2): []}
    small = remove_parts(model, kept | {Site("decoder", "feed-forward", 0): [1, 2, 5]})
    path = export_onnx(small, f"{sys.argv[2]}/{family}.onnx", example=inputs(model))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for lengths in ((9, 4, 3), (30, 2)):
        given = inputs(model, lengths)
        (found,) = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
        with torch.no_grad():
            expected = small(**given).logits.numpy()
        real = given["attention_mask"].bool().numpy()
        assert found.shape == expected.shape
        assert np.abs(found - expected)[real].max() <= 1e-5 * np.abs(expected[real]).max(), (family, lengths)
    print(family)
"""


def test_pruned_decoders_run_in_onnxruntime(tmp_path):
    """One of each way to write a decoder; Llama, which many others share, is above."""
    families = ["gpt2", "opt", "gpt-neox", "starcoder2"]
    done = run("-c", DECODERS, str(Path(__file__).parents[1]), str(tmp_path), *families)
    assert done.stdout.split()[-4:] == families, done.stderr[-3000:]
