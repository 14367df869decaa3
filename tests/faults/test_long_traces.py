"""A trace of a long text: one head needs the memory of one matrix, and what does not fit is refused in one line."""

import json
import sys

import pytest
from processes import run

SCRIPT = """
import ctypes, json, re, resource, sys
import torch, transformers
from tiny import word_pieces
import lorgnette as lo

ARENAS = -8  # M_ARENA_MAX: glibc reserves 64 MiB of addresses, which are no memory, for a thread that comes first
if hasattr(ctypes.CDLL(None), "mallopt"):
    ctypes.CDLL(None).mallopt(ARENAS, 1)
torch.manual_seed(0)
config = transformers.LlamaConfig(vocab_size=97, hidden_size=32, intermediate_size=32, num_hidden_layers=6,
                                  num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=4096)
tokenizer = word_pieces()
tokenizer.model_max_length = 4096
subject = lo.Subject(transformers.LlamaForCausalLM(config).eval(), tokenizer, name="long")
subject.trace("the cat sat").head(1, 1)  # libraries have taken what they need for good
now = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (now + (160 << 20),) * 2)
trace = subject.trace(" ".join(["the cat sat on a mat and slept"] * 130))  # 48 matrices of 4 MB and more
said = {}
for name, make in (("stack", lambda: trace["weights"]), ("words", lambda: trace.data(words=True)),
                   ("page", lambda: trace.save("page.html"))):
    try:
        make()
    except lo.UserError as error:
        said[name] = str(error)
one = trace.head(5, 7, words=True)
parts = trace.by_part().sizes["layer"]
print(json.dumps({"said": said, "tokens": len(trace.pieces()), "sums": float(one.sum()), "parts": parts}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are Linux's")
def test_one_head_of_a_long_text_fits_where_all_heads_do_not(tmp_path):
    done = run("-c", SCRIPT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["tokens"] >= 1040
    assert found["sums"] == pytest.approx(found["tokens"], rel=1e-4)
    assert found["parts"] == 6
    assert sorted(found["said"]) == ["page", "stack", "words"]
    for line in found["said"].values():
        assert "are free" in line
        assert "--layer and --head" in line
        assert "\n" not in line
