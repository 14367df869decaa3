"""Bare models against what others compute: eager attention, zeroed weights, editing by hand, Accelerate's loop."""

import pytest
import torch
import transformers as hf
from tiny import BERT, FAMILIES, FLOAT32_SOFTMAX, eager_attentions, examples, inputs, subject, tiny_model

import lorgnette as lo
from lorgnette.models.families import anatomy_of
from lorgnette.models.linear import is_transposed

# A second module with the same weights: the output projection of one layer cannot be zeroed by itself.
SHARED = {"albert", "albert-inner"}


def exact(family):
    return torch.float32 if family in FLOAT32_SOFTMAX else torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_eager_attention(family, dtype):
    model = tiny_model(family, dtype=dtype)
    given = inputs(model)
    mask = given["attention_mask"].bool()
    with torch.no_grad():
        seen = lo.attention(model, parts=["weights"], **given)
        theirs = eager_attentions(model, given)
    if not any(theirs.values()):
        pytest.skip(f"transformers {hf.__version__} returns no attention weights of {family}")
    # bfloat16 has eight bits: a weight, and the scores that it is made from, are right to some 2⁻⁸.
    tolerance = {"rtol": 2e-5, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.02}
    assert len(seen) == sum(map(len, theirs.values()))
    for name in seen:
        stack, layer, _ = name.split(".")
        reference = theirs[stack][int(layer) - 1]
        queries = mask if stack == "encoder" or "decoder_input_ids" not in given else slice(None)
        torch.testing.assert_close(
            seen[name].float().transpose(1, 2)[queries], reference.float().transpose(1, 2)[queries], **tolerance
        )


def logits_or_states(model, given):
    with torch.no_grad():
        return model(**given)[0]


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - SHARED))
def test_a_head_off_is_one_whose_rows_of_the_output_projection_are_zero(family):
    model = tiny_model(family, dtype=exact(family))
    given = inputs(model, lengths=(6, 6))
    site = anatomy_of(model).sites[-1]
    name = (site.site.name, site.site.layer + 1, 2)
    whole = logits_or_states(model, given)
    with lo.without(model, [name]):
        off = logits_or_states(model, given)
    weight = site.output.weight if is_transposed(site.output) else site.output.weight.T
    with torch.no_grad():
        weight.unflatten(0, (site.heads, -1))[1] = 0
    zeroed = logits_or_states(model, given)
    tolerance = 2e-5 if family in FLOAT32_SOFTMAX else 1e-6 if family.startswith("deberta") else 1e-9
    torch.testing.assert_close(off, zeroed, rtol=tolerance, atol=tolerance)
    assert not torch.allclose(off, whole, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("positions", [None, [0, 3]], ids=["everywhere", "two queries"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "marian", "modernbert"])
def test_a_patched_head_is_its_slice_before_the_output_projection_edited_by_hand(family, positions):
    model = tiny_model(family, dtype=exact(family))
    one, two = (inputs(model, lengths=(6, 6), seed=seed) for seed in (0, 1))
    site = anatomy_of(model).sites[1]
    other = lo.attention(model, parts=["context"], **two)
    with lo.patched(model, other, [(site.site.name, site.site.layer + 1, 3)], positions=positions):
        mine = logits_or_states(model, one)
    kept = []
    handle = site.output.register_forward_pre_hook(lambda module, given: kept.append(given[0].clone()))
    logits_or_states(model, two)
    handle.remove()
    width = kept[0].shape[-1] // site.heads
    rows = slice(None) if positions is None else positions

    def edit(module, given):
        changed = given[0].clone()
        changed[:, rows, 2 * width : 3 * width] = kept[0][:, rows, 2 * width : 3 * width]
        return (changed,)

    handle = site.output.register_forward_pre_hook(edit)
    by_hand = logits_or_states(model, one)
    handle.remove()
    tolerance = 2e-5 if family in FLOAT32_SOFTMAX else 1e-9
    torch.testing.assert_close(mine, by_hand, rtol=tolerance, atol=tolerance)
    assert not torch.allclose(mine, logits_or_states(model, one), rtol=1e-6, atol=1e-9)


def loader_of(whole, texts, size=2):
    rows = [dict(zip(("input_ids", "attention_mask"), pair, strict=True)) for pair in _rows(whole, texts)]
    return torch.utils.data.DataLoader(rows, batch_size=size)


def _rows(whole, texts):
    made = whole.tokenizer(texts, padding="max_length", max_length=16, return_tensors="pt")
    return zip(made["input_ids"], made["attention_mask"], strict=True)


def test_a_loop_with_accelerate_gives_what_look_gives():
    from accelerate import Accelerator

    whole, texts = subject("bert"), [example.text for example in examples()]
    looked = lo.look(whole, texts, "weights", progress=False)["weights"]
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(whole.model.parameters(), lr=0.0)
    model, optimizer, loader = accelerator.prepare(whole.model, optimizer, loader_of(whole, texts))
    lens = lo.lens.get("weights")
    for batch in loader:
        with lo.watch(accelerator.unwrap_model(model), lens, batch=lo.batch(batch, whole.tokenizer)):
            loss = model(**batch).last_hidden_state.mean()
        accelerator.backward(loss)  # in a training loop: gradients flow, and the step is made
        optimizer.step()
        optimizer.zero_grad()
    mine = lens.compute()
    assert mine.data["entropy"].values == pytest.approx(looked.data["entropy"].values, abs=1e-6)
    assert int(mine.data["entropy_count"].max()) == len(texts)


def test_a_model_inside_distributed_data_parallel(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = hf.BertModel(hf.BertConfig(**BERT)).eval()
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        given = inputs(model)
        lens = lo.lens.get("weights")
        with lo.watch(wrapped, lens, batch=lo.batch(given)), torch.no_grad():
            wrapped(**given)
        assert lens.compute().data["entropy_count"].values.max() == 3
    finally:
        torch.distributed.destroy_process_group()


def test_the_callback_draws_what_it_saw():
    callback = lo.LensCallback("weights", ["a b", "c d"], every=1)
    whole, texts = subject("bert"), [example.text for example in examples()]
    for step in (0, 5):
        callback.results[step] = dict(lo.look(whole, texts[step // 5 :], "weights", progress=False))
    records = callback.plot("weights", "entropy").chart.to_dict()["data"]["values"]
    means = callback.by_step("weights")["entropy"].mean("head").squeeze("stack")
    assert {(row["step"], row["layer"]): row["value"] for row in records} == pytest.approx(
        {(int(c["step"]), int(c["layer"])): float(c) for row in means for c in row}
    )
    with pytest.raises(lo.UserError, match="also has category"):
        callback.plot("weights", "mass")
    with pytest.raises(lo.UserError, match="no 'entropie'"):
        callback.plot("weights", "entropie")
