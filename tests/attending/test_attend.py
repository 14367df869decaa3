"""What enters the softmax is known, or refused."""

import pytest
import torch
from tiny import examples, inputs, subject, tiny_model
from torch import nn

from lorgnette import lens as lenses
from lorgnette.attending import Call, Recorder, Site, Tap, attend
from lorgnette.attending.scores import Scores
from lorgnette.attending.sweep import Wanted
from lorgnette.errors import CaptureError
from lorgnette.models.tapping import tapped
from lorgnette.testing import check_lens


class Module(nn.Module):
    is_causal = False


def states(seed=0, heads=2, queries=4, keys=4, dim=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, heads, n, dim, generator=generator, dtype=torch.float64) for n in (queries, keys, keys)]


@pytest.mark.parametrize("name", ["sparse_blocks", "block_indices", "temperature"])
def test_an_unknown_keyword_is_refused_by_name(name):
    with pytest.raises(CaptureError, match=f"Module passes '{name}'"):
        attend(Module(), *states(), None, **{name: 2.0})


def test_known_and_empty_keywords_pass():
    plain, _ = attend(Module(), *states(), None)
    same, _ = attend(Module(), *states(), None, sliding_window=3, position_ids=torch.arange(4), temperature=None)
    assert torch.equal(plain, same)


def test_a_sink_is_a_key_whose_value_is_zero():
    query, key, value = states()
    sink = torch.tensor([0.3, -1.0], dtype=torch.float64)
    context, _ = attend(Module(), query, key, value, None, scaling=0.5, s_aux=sink)
    scores = torch.cat([0.5 * query @ key.mT, sink[None, :, None, None].expand(2, 2, 4, 1)], -1).softmax(-1)
    torch.testing.assert_close(context.transpose(1, 2), scores[..., :-1] @ value)
    call = Call(Site("decoder", "self", 0), Scores(query, key, 0.5, sink=sink), value)
    torch.testing.assert_close(call.sink, scores[..., -1])
    assert not call.has_weights
    torch.testing.assert_close(call.block(rows=[1, 3]), scores[:, :, [1, 3], :-1])
    torch.testing.assert_close(call.entropy(), torch.special.entr(scores).sum(-1))
    torch.testing.assert_close(call.context, scores[..., :-1] @ value)
    before = call.measure(Wanted(entropy=True, peak=True, sink=True))
    torch.testing.assert_close(call.weights, scores[..., :-1])
    after = call.measure(Wanted(entropy=True, peak=True, sink=True))
    for name in ("entropy", "peak", "sink"):
        torch.testing.assert_close(before[name], after[name])


def test_rows_see_the_chosen_keys_alone():
    query, key, value = states()
    indices = torch.tensor([[[0, 1], [1, 1], [2, 0], [3, 2]]]).expand(2, -1, -1)
    context, _ = attend(Module(), query, key, value, None, indices=indices)
    for row, keys in enumerate(([0, 1], [1], [0, 2], [2, 3])):
        weights = (query[:, :, row : row + 1] @ key[:, :, keys].mT * 3**-0.5).softmax(-1)
        torch.testing.assert_close(context[:, row], (weights @ value[:, :, keys])[:, :, 0])


class Doubled(Tap):
    """Edits scores, so that the matrix is built."""

    def scores(self, call, scores):
        return scores * 1.0


@pytest.mark.parametrize("taps", [(), (Doubled(),)])
def test_gpt_oss_gives_its_sinks_what_it_should(taps):
    model = tiny_model("gpt-oss")
    model.set_attn_implementation("eager")
    given = inputs(model)
    real = given["attention_mask"].bool()
    sinks = Recorder(lambda call: (call.sink, call.weights))
    with torch.no_grad():
        output = model(**given, output_attentions=True)
        with tapped(model, *taps, sinks):
            watched = model(**given).logits
    torch.testing.assert_close(watched[real], output.logits[real], rtol=2e-5, atol=2e-5)
    for (sink, weights), theirs in zip(sinks.records.values(), output.attentions, strict=True):
        missing = (1 - theirs.sum(-1)).transpose(1, 2)[real]
        assert float(missing.min()) > 0.001
        torch.testing.assert_close(sink.transpose(1, 2)[real], missing, rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(weights.transpose(1, 2)[real], theirs.transpose(1, 2)[real], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("lens", ["weights", "norms", "distances"])
def test_lenses_hold_their_laws_where_rows_do_not_sum_to_one(lens):
    watched = subject("gpt-oss", dtype=torch.float32)  # its experts take no float64
    result = check_lens(lambda: lenses.get(lens), watched, examples((6, 4, 2, 5)), tolerance=1e-4)
    if lens == "weights":
        assert float(result.data["entropy_normalised"].max()) <= 1.0


def test_check_holds_for_a_model_with_sinks():
    assert [one.name for one in subject("gpt-oss", dtype=torch.float32).check() if not one.ok] == []
