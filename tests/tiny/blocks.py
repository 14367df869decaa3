"""Maps in the blocks of GGUF files, and what multiplies by them in place of the kernels of the hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn


class GgufKernel:
    """In place of the kernels that transformers fetches from the hub: what multiplies by the blocks of a GGUF file.

    `rounds`: few inputs are rounded to 127 steps in groups of 32, as ggml does.
    """

    def __init__(self, rounds: bool = False) -> None:
        self.rounds = rounds

    def supports(self, kind: int) -> bool:
        return True

    def mul_mat_vec(self, blocks: torch.Tensor, x: torch.Tensor, kind: int, rows: int) -> torch.Tensor:
        if self.rounds:
            groups = x.float().unflatten(-1, (-1, 32))
            step = (groups.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-12)
            x = ((groups / step).round() * step).flatten(-2)
        return x.float() @ self.dequantize(blocks, kind, rows, x.shape[-1], torch.float32).T

    def dequantize(self, blocks: torch.Tensor, kind: int, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        from transformers.integrations.gguf.dequant import dequantize

        return dequantize(blocks, kind, dtype).reshape(rows, columns)


@contextmanager
def gguf_kernel(rounds: bool = False) -> Iterator[None]:
    """As if transformers had found a kernel for the blocks of GGUF files."""
    from transformers.integrations.gguf import kernels

    before = kernels._gguf_kernel
    kernels._gguf_kernel = GgufKernel(rounds)
    try:
        yield
    finally:
        kernels._gguf_kernel = before


def with_gguf_blocks(model: nn.Module, kind: str) -> None:
    import gguf
    from transformers.integrations.gguf.utils import GgufLinear

    number = gguf.GGMLQuantizationType[kind]
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in path:
            layer = GgufLinear(module.in_features, module.out_features, int(number), module.bias is not None)
            blocks = gguf.quants.quantize(module.weight.detach().numpy(), number)
            layer.weight = nn.Parameter(torch.from_numpy(blocks), requires_grad=False)
            layer.bias = module.bias
            model.set_submodule(path, layer)


def write_gguf(path: Path, kind: str) -> dict[str, np.ndarray]:
    """An LFM2 of two layers, one of which has attention, as llama.cpp keeps it, with its maps in blocks of this kind.

    The matrices that the blocks stand for are given back.
    """
    import gguf

    number, rng = gguf.GGMLQuantizationType[kind], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "lfm2")
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv([0, 2])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_shortconv_l_cache(3)
    words = ["<|endoftext|>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyzĠ", *(f"Ġ{letter}" for letter in "abcdefghij")]
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("lfm2")
    writer.add_token_list(words)
    writer.add_token_types([3, 3, 3, *[1] * (len(words) - 3)])
    writer.add_token_merges([f"Ġ {letter}" for letter in "abcdefghij"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    maps = {"blk.0.shortconv.in_proj": (96, 32), "blk.0.shortconv.out_proj": (32, 32)}
    maps |= {
        "blk.1.attn_q": (32, 32),
        "blk.1.attn_k": (16, 32),
        "blk.1.attn_v": (16, 32),
        "blk.1.attn_output": (32, 32),
    }
    maps |= {f"blk.{n}.{name}": shape for n in (0, 1) for name, shape in
             {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}.items()}  # fmt: skip
    plain = {"token_embd": (len(words), 32), "token_embd_norm": (32,), "blk.0.shortconv.conv": (32, 3)}
    plain |= {f"blk.{n}.{name}": (32,) for n in (0, 1) for name in ("attn_norm", "ffn_norm")}
    plain |= {"blk.1.attn_q_norm": (8,), "blk.1.attn_k_norm": (8,)}
    made = {}
    for name, shape in (maps | plain).items():
        tensor = rng.normal(size=shape, scale=0.3).astype(np.float32) + (len(shape) == 1)
        if name in maps:
            blocks = gguf.quants.quantize(tensor, number)
            made[name] = gguf.quants.dequantize(blocks, number)
            writer.add_tensor(f"{name}.weight", blocks, raw_dtype=number)
        else:
            writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made
