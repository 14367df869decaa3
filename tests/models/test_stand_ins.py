"""Stand-ins for attention code of a family's own: options that change the softmax, and those that are refused."""

import pytest
import torch
import transformers as hf
from tiny import BERT, FALCON, inputs, tiny_model

import lorgnette as lo
from lorgnette.errors import CaptureError
from lorgnette.models.families import anatomy_of


def falcon_rw(**options):
    """The RW models: a slope for each head instead of rotations, keys of their own, a layer of two halves in turn."""
    torch.manual_seed(0)
    config = hf.FalconConfig(**FALCON, alibi=True, multi_query=False, parallel_attn=False, bias=True)
    model = hf.FalconForCausalLM._from_config(config, **options).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def test_falcons_slopes():
    """softmax((q·k + m_h j) / √d) with m_h = 2^(−8h/H) (Press et al. 2022), and the outputs of transformers' SDPA."""
    model = falcon_rw()
    given = inputs(model)
    real = given["attention_mask"].bool()
    with torch.no_grad():
        plain = model(**given).logits
        seen = lo.attention(model, **given)
    torch.testing.assert_close(seen.output.logits[real], plain[real], rtol=1e-9, atol=1e-9)
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=torch.float64)
    query, key = seen["decoder.2.query"], seen["decoder.2.key"]
    scores = query @ key.mT + slopes[:, None, None] * torch.arange(9, dtype=torch.float64)
    allowed = torch.ones(9, 9).tril().bool() & real[:, None, None]
    expected = (scores / 8**0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
    weights = seen["decoder.2.weights"]
    torch.testing.assert_close(weights.transpose(1, 2)[real], expected.transpose(1, 2)[real], rtol=1e-9, atol=1e-9)
    site = anatomy_of(model).sites[0]
    assert (site.order, site.heads, site.groups) == ("pre", 4, 4)


@pytest.mark.parametrize(("family", "groups"), [("falcon", 2), ("falcon-7b", 1)])
def test_falcons_groups_share_keys_and_values(family, groups):
    model = tiny_model(family, dtype=torch.float64)
    site = anatomy_of(model).sites[0]
    assert (site.heads, site.groups) == (4, groups)
    seen = lo.attention(model, **inputs(model, (5,)), layers=[1])
    for part in ("key", "value"):
        states = seen[f"decoder.1.{part}"]
        assert torch.equal(states, states[:, :: 4 // groups].repeat_interleave(4 // groups, dim=1))
    assert site.key.weights(groups)[0].shape == (groups, 32, 8)


def test_what_the_stand_ins_refuse():
    with pytest.raises(CaptureError, match=r"slopes \(alibi\) twice"):
        anatomy_of(falcon_rw(attn_implementation="eager"))
    with pytest.raises(CaptureError, match="talking_head"):
        anatomy_of(hf.DebertaModel(hf.DebertaConfig(**BERT, talking_head=True)))
    with pytest.raises(CaptureError, match="block-sparse attention samples blocks at random"):
        anatomy_of(hf.BigBirdModel(hf.BigBirdConfig(**BERT)))
    luke = tiny_model("luke")
    entities = {"entity_ids": torch.ones(1, 2).long(), "entity_position_ids": torch.zeros(1, 2, 3).long()}
    with pytest.raises(CaptureError, match="Leave entity_ids out"):
        lo.attention(luke, **inputs(luke, (4,)), **entities)
