"""A model that `tp_plan` cuts by heads over processes is refused by name."""

from processes import ranks
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
LOOK = """
import torch, warnings
from transformers import AutoModelForCausalLM
import lorgnette as lo

warnings.simplefilter("ignore")  # of two names for one argument
model = AutoModelForCausalLM.from_pretrained("model", tp_plan="auto")
try:
    lo.attention(model, input_ids=torch.tensor([[1, 2, 3]]))
except lo.CaptureError as error:
    print(error)
"""


def test_a_tensor_parallel_model_is_refused_by_name(tmp_path):
    LlamaForCausalLM(LlamaConfig(**SHAPE, num_attention_heads=4)).save_pretrained(tmp_path / "model")
    for done in ranks(2, "-c", LOOK, cwd=tmp_path):
        assert done.returncode == 0, done.stderr[-3000:]
        assert (
            "LlamaForCausalLM is tensor-parallel (tp_plan): each of 2 processes computes only its share" in done.stdout
        )
        assert "device_map" in done.stdout
