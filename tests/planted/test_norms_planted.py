"""Models whose norms and mixing ratios are known."""

import numpy as np
import pytest
import torch
from tiny import examples, subject

from lorgnette.attending import Tap
from lorgnette.lens.norms.lens import Norms
from lorgnette.testing import run_lens

TEXTS = examples((6, 3, 8))
HEAD, DIM = 1, 8


def zero_value_of(watched, token_id):
    """Head 2 of the first layer gets a zero value from this token and others as before; its weights stay.

    The token's first-layer input differs from text to text by its position, so its embedding is made the same
    everywhere: position embeddings are blanked.
    """
    with torch.no_grad():
        embeddings = watched.model.embeddings
        embeddings.position_embeddings.weight.zero_()
        value = watched.anatomy.sites[0].value.module
        x = embeddings.word_embeddings.weight[token_id] + embeddings.token_type_embeddings.weight[0]
        x = embeddings.LayerNorm(x)
        rows = slice(HEAD * DIM, (HEAD + 1) * DIM)
        value.bias[rows] = -(value.weight[rows] @ x)


def test_a_head_with_zero_values_for_one_token_has_weight_there_and_no_norm():
    watched = subject("bert")
    zero_value_of(watched, watched.tokenizer.sep_token_id)
    data = run_lens(Norms(), watched, [watched.encode(TEXTS)]).compute().data.isel(stack=0, layer=0)
    sep = data.sel(category="sep")
    assert (sep.weight > 0.05).all()
    assert float(sep.norm[HEAD]) < 1e-12
    assert float(sep.norm_share[HEAD]) < 1e-12
    assert float(sep.f_norm[HEAD]) < 1e-7
    assert float(data.f_min[HEAD]) < 1e-7
    others = [head for head in range(4) if head != HEAD]
    assert (sep.norm[others] > 0.01).all()
    # What the other heads read there still arrives.
    assert float(sep.all_heads_norm.sel(variant="attn_n")) > 0.01


def attend_only_itself(watched):
    """Query = key = a code of the position, a thousandfold: all other scores underflow."""
    config = watched.model.config
    with torch.no_grad():
        code = torch.zeros(config.max_position_embeddings, config.hidden_size, dtype=torch.float64)
        generator = torch.Generator().manual_seed(0)
        code[:] = torch.randn(code.shape, generator=generator, dtype=torch.float64)
        watched.model.embeddings.position_embeddings.weight.copy_(30 * code)
        for site in watched.anatomy.sites:
            for projection in (site.module.query, site.module.key):
                projection.weight.copy_(60 * torch.eye(config.hidden_size, dtype=torch.float64))
                projection.bias.zero_()


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_token_that_reads_itself_alone_mixes_nothing(dtype, matrix):
    watched = subject("bert")
    attend_only_itself(watched)
    watched.model.to(dtype)
    data = run_lens(Norms(), watched, [watched.encode(TEXTS)], matrix=matrix).compute().data.isel(stack=0, layer=0)
    assert (data.weight.sel(category=["cls", "sep", "period_comma", "other"]).sum("category") > 0.999).all()
    for name in ("attn_w", "attn_n", "attn_res_w", "attn_res_n", "attn_res_ln_n"):
        assert float(data.mixing.sel(ratio=name)) == 0.0, name
        assert float(data.mixing_max.sel(ratio=name)) == 0.0, name


def test_a_token_without_a_value_of_its_own_is_all_others():
    """[CLS] with a zero value in every head: what it has after attention comes from the others, exactly."""
    watched = subject("bert")

    def nothing_from_cls(module, arguments, output):
        return output.index_fill(1, torch.tensor(0), 0.0)

    watched.anatomy.sites[0].value.module.register_forward_hook(nothing_from_cls)
    data = run_lens(Norms(), watched, [watched.encode(TEXTS)]).compute().data.isel(stack=0, layer=0)
    assert float(data.f_norm.sel(category="cls").max()) == 0.0
    assert float(data.mixing_max.sel(ratio="attn_n")) == 1.0
    assert float(data.mixing_max.sel(ratio="attn_w")) < 1.0
    assert float(data.mixing_max.sel(ratio="attn_res_n")) < 1.0
    assert float(data.weight.sel(category="cls").min()) > 0.0
    assert float(data.norm.sel(category="cls").max()) == 0.0


def test_never_reading_itself_mixes_everything():
    """Weights moved off the diagonal by a tap: r = 1 for every token, of weights and of norms."""

    class Elsewhere(Tap):
        def weights(self, call, weights):
            off = weights - torch.diag_embed(weights.diagonal(dim1=-2, dim2=-1))
            return off / off.sum(-1, keepdim=True).clamp(min=1e-30)

    watched = subject("bert")
    batch = watched.encode(TEXTS)
    lens = Norms()
    lens.bind(watched)

    class See(Tap):
        wants_residual = True

        def see(self, call):
            lens.update(call, batch)

    with torch.no_grad(), watched.tapped(Elsewhere(), See()):
        watched.run(batch)
    data = lens.compute().data
    np.testing.assert_array_equal(data.mixing.sel(ratio="attn_w"), 1.0)
    np.testing.assert_array_equal(data.mixing_min.sel(ratio="attn_n"), 1.0)
    assert (data.mixing.sel(ratio="attn_res_w") == 0.5).all()


def test_rank_correlation_of_a_planted_relation():
    """Heads that attend by the value they read: α rises with ‖f‖, or falls with it."""
    found = {}
    for sign in (1.0, -1.0):
        watched = subject("bert")
        with torch.no_grad():
            site = watched.anatomy.sites[0]
            for layer in (site.module.query, site.module.key, site.value.module):
                layer.weight.zero_()
                layer.bias.zero_()
            # One coordinate, made positive, is what is asked for and what is read.
            site.module.query.bias[::DIM] = sign
            site.module.key.weight[::DIM, 0] = 1.0
            site.value.module.weight[::DIM, 0] = 1.0
            watched.model.embeddings.LayerNorm.bias[0] = 20.0
        data = run_lens(Norms(), watched, [watched.encode([TEXTS[2]])]).compute().data
        found[sign] = float(data.spearman.isel(stack=0, layer=0).sel(category="other"))
    assert found[1.0] > 0.3
    assert found[-1.0] < -0.3
