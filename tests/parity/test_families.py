"""Every family: watching changes nothing, and what is seen is what the model's own eager attention gives."""

import pytest
import torch
from tiny import COPIES, FAMILIES, FLOAT32_SOFTMAX, eager_attentions, inputs, tiny_model

from lorgnette.attending import Call, Tap
from lorgnette.models.families import anatomy_of
from lorgnette.models.tapping import tapped

TOLERANCE = {
    **dict.fromkeys(FLOAT32_SOFTMAX, 2e-5),
    "deberta-v2": 1e-6,
    "deberta": 1e-6,
}  # their scale is a float32 tensor


class Keep(Tap):
    def __init__(self) -> None:
        self.calls: dict[tuple[str, int], Call] = {}
        self.weights_seen: dict[tuple[str, int], torch.Tensor] = {}

    def see(self, call: Call) -> None:
        key = (call.site.name, call.site.layer)
        assert key not in self.calls
        self.calls[key] = call
        self.swept_entropy = call.entropy()
        self.weights_seen[key] = call.weights


@pytest.mark.parametrize("family", [*FAMILIES, *COPIES])
def test_outputs_weights_and_mixing(family):
    model = tiny_model(family, dtype=torch.float32 if family in FLOAT32_SOFTMAX else torch.float64)
    given = inputs(model)
    mask = given["attention_mask"].bool()
    tolerance = TOLERANCE.get(family, 1e-9)
    with torch.no_grad():
        theirs = eager_attentions(model, given)
        plain = model(**given)[0]
        keep = Keep()
        with tapped(model, keep):
            watched = model(**given)[0]
        after = model(**given)[0]
    # ModernBERT gives NaN for padding that sees nothing, by itself
    assert torch.equal(plain.nan_to_num(), after.nan_to_num())
    real = mask if watched.dim() == 3 and watched.shape[1] == mask.shape[1] else slice(None)
    torch.testing.assert_close(watched[real], plain[real], rtol=tolerance, atol=tolerance)
    assert len(keep.calls) == sum(len(stack.sites) for stack in anatomy_of(model).stacks)
    for (name, layer), call in keep.calls.items():
        weights = keep.weights_seen[name, layer]
        reference = theirs[name][layer]
        queries = mask if name == "encoder" or "decoder_input_ids" not in given else slice(None)
        torch.testing.assert_close(
            weights.transpose(1, 2)[queries], reference.transpose(1, 2)[queries], rtol=tolerance, atol=tolerance
        )
        torch.testing.assert_close(weights @ call.value, call.context, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_token_attends_to_itself_alone(family):
    """Attention over a single item is a linear map: weight 1, context = value, exactly."""
    model = tiny_model(family)
    given = inputs(model, lengths=(1,))
    if "decoder_input_ids" in given:
        given["decoder_input_ids"] = given["decoder_input_ids"][:, :1]
    keep = Keep()
    with torch.no_grad(), tapped(model, keep):
        model(**given)
    for call in keep.calls.values():
        assert torch.equal(call.weights, torch.ones_like(call.weights))
        assert torch.equal(call.context, call.value)
        assert float(call.entropy().abs().max()) == 0.0


@pytest.mark.parametrize("family", [*FAMILIES, *COPIES])
def test_head_weights_rebuild_the_output(family):
    """Σ_h (Σ_j α^h_ij v^h_j) W_O^h + b_O is what the output projection gives, and v^h = x W_V^h + b_V^h."""
    model = tiny_model(family, dtype=torch.float64)
    anatomy = anatomy_of(model)
    seen: dict[int, tuple] = {}
    handles = []
    for number, site in enumerate(anatomy.sites):
        for which, module in (("value", site.value.module), ("output", site.output)):

            def hook(module, arguments, output, number=number, which=which):
                seen.setdefault((number, which), (arguments[0], output))

            handles.append(module.register_forward_hook(hook))
    keep = Keep()
    with torch.no_grad(), tapped(model, keep):
        model(**inputs(model))
    for handle in handles:
        handle.remove()
    shared = len({id(site.module) for site in anatomy.sites}) < len(anatomy.sites)
    for number, site in enumerate(anatomy.sites):
        if shared and number > 0:  # ALBERT: one module, many sites; the hooks kept its first call
            continue
        call = keep.calls[site.site.name, site.site.layer]
        heads = site.head_weights()
        given, _ = seen[number, "value"]
        value = torch.einsum("bnm,hmd->bhnd", given, heads.value)
        value = value if heads.value_bias is None else value + heads.value_bias[:, None]
        torch.testing.assert_close(value, call.value, rtol=1e-9, atol=1e-9)
        _, output = seen[number, "output"]
        rebuilt = torch.einsum("bhnd,hdm->bnm", call.context, heads.output)
        rebuilt = rebuilt if heads.output_bias is None else rebuilt + heads.output_bias
        torch.testing.assert_close(rebuilt, output, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", ["bert", "marian", "llama", "mpnet", "deberta-v2"])
def test_gradients_are_those_of_the_plain_model(family):
    model = tiny_model(family, dtype=torch.float64)
    given = inputs(model, lengths=(6, 6))
    parameters = [p for p in model.parameters() if p.requires_grad]

    def gradients():
        return torch.autograd.grad(model(**given)[0].square().sum(), parameters, allow_unused=True)

    plain = gradients()
    with tapped(model):
        watched = gradients()
    for one, other in zip(plain, watched, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
