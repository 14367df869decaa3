"""The masks that models are given: compact where they are padding and a band, exact for every model that uses them."""

import pytest
import torch
from tiny import FLOAT32_SOFTMAX, eager_attentions, inputs, subject, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache
from transformers import masking_utils as hf
from transformers.models.llama.modeling_llama import LlamaAttention

import lorgnette as lo
from lorgnette.attending import Call, Tap, sweep
from lorgnette.attending.band import Band, BandMask
from lorgnette.attending.sweep import Wanted, from_matrix
from lorgnette.models.interface import attention_mask, band_of
from lorgnette.models.tapping import tapped

TOKENS = 12
LENGTHS = (12, 7, 3)


class Keep(Tap):
    def __init__(self, wanted: Wanted | None = None) -> None:
        self.wanted, self.calls, self.measured = wanted, [], []

    def see(self, call: Call) -> None:
        self.calls.append(call)
        if self.wanted is not None:
            self.measured.append(call.measure(self.wanted))
            assert call.paths == {"the sweep"}


def padded(model, side: str) -> dict[str, torch.Tensor]:
    given = inputs(model, lengths=LENGTHS)
    if side == "left":
        for row, length in enumerate(LENGTHS):
            for name in ("input_ids", "attention_mask"):
                given[name][row] = given[name][row].roll(TOKENS - length)
    return given


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "gemma2", "gemma3", "modernbert"])
def test_statistics_are_those_of_the_models_own_attention(family, side):
    """Entropy, peaks, masses and what keys receive, in a sweep with compact masks, against eager attention."""
    model = tiny_model(family, dtype=torch.float32 if family in FLOAT32_SOFTMAX else torch.float64)
    given = padded(model, side)
    mask = given["attention_mask"].bool()
    make = torch.Generator().manual_seed(0)
    features = torch.rand(*mask.shape, 2, generator=make)
    want = Wanted(features, True, True, mask, False, (-1, 0, 1), mask.to(features.dtype), context=True)
    keep = Keep(want)
    with torch.no_grad():
        (theirs,) = eager_attentions(model, given).values()
        with tapped(model, keep):
            model(**given)
    windows = set()
    for call, mine, weights in zip(keep.calls, keep.measured, theirs, strict=True):
        compact = call.scores.allowed
        if isinstance(compact, BandMask):
            assert compact.intact
            windows.add(compact.band)
        # Eager attention gives a row that may see nothing equal weights, and not to queries only.
        weights = weights.double().masked_fill(~mask[:, None, :, None], 0.0)
        want = Wanted(features.double(), True, True, mask, False, (-1, 0, 1), mask.double())
        exact, tolerance = from_matrix(weights, want), 2e-5 if family in FLOAT32_SOFTMAX else 1e-9
        for name in ("average", "entropy", "peak", "peak_among", "at"):
            seen = mine[name].double().transpose(1, 2)[mask]
            torch.testing.assert_close(seen, exact[name].transpose(1, 2)[mask], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(mine["received"].double(), exact["received"], rtol=tolerance, atol=tolerance)
        visible = call.visible_keys[:, 0][mask]
        assert torch.equal(visible, (weights[:, 0] > 0).sum(-1)[mask])
    causal = Band(causal=True)
    expected = {
        "mistral": {Band(causal=True, window=4)},
        "gemma2": {causal, Band(causal=True, window=4)},
        "gemma3": {Band(causal=True, window=4)},
        "modernbert": {Band(window=3)},
    }
    assert windows == expected.get(family, {causal})


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral"])
def test_with_a_cache_of_earlier_keys(family):
    model = tiny_model(family, dtype=torch.float32 if family in FLOAT32_SOFTMAX else torch.float64)
    given = padded(model, "left")
    keep = Keep()

    def in_two_parts(**more):
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(given["input_ids"][:, :5], attention_mask=given["attention_mask"][:, :5], past_key_values=cache)
            return model(
                given["input_ids"][:, 5:], attention_mask=given["attention_mask"], past_key_values=cache, **more
            )

    model.set_attn_implementation("eager")
    theirs = in_two_parts(output_attentions=True)
    model.set_attn_implementation("sdpa")
    with tapped(model, keep):
        mine = in_two_parts()
    real, tolerance = given["attention_mask"][:, 5:].bool(), 2e-5
    torch.testing.assert_close(mine.logits[real], theirs.logits[real], rtol=tolerance, atol=tolerance)
    for call, weights in zip(keep.calls[len(keep.calls) // 2 :], theirs.attentions, strict=True):
        assert isinstance(call.scores.allowed, BandMask)
        assert call.scores.shape[2] == 7
        assert call.scores.shape[3] > 7
        seen = call.weights.transpose(1, 2)[real]
        torch.testing.assert_close(seen, weights.transpose(1, 2)[real], rtol=tolerance, atol=tolerance)
        entropy = -torch.special.xlogy(weights, weights).sum(-1)
        torch.testing.assert_close(
            call.entropy().transpose(1, 2)[real], entropy.transpose(1, 2)[real], rtol=tolerance, atol=tolerance
        )


def test_only_bands_are_recognised():
    zeros = torch.zeros(2, 4, dtype=torch.long)
    assert band_of(hf.causal_mask_function) == Band(causal=True)
    assert band_of(hf.bidirectional_mask_function) == Band()
    assert band_of(hf.sliding_window_causal_mask_function(7)) == Band(causal=True, window=6)
    assert band_of(hf.sliding_window_bidirectional_mask_function(7)) == Band(window=7)
    others = [
        hf.sliding_window_overlay(3),
        hf.or_masks(hf.sliding_window_overlay(3), hf.causal_mask_function),
        hf.and_masks(hf.causal_mask_function, hf.packed_sequence_mask_function(zeros)),
        hf.chunked_causal_mask_function(3, zeros[:, 0]),
        hf.sliding_window_causal_mask_function(torch.tensor(3)),
        hf.add_offsets_to_mask_function(hf.causal_mask_function, 1, 0),
        lambda batch, head, query, key: key <= query,
    ]
    assert [band_of(other) for other in others] == [None] * len(others)


@pytest.mark.parametrize("queries", [1, 3, 8])
@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("size", [None, 2, 3, 8, 20])
@pytest.mark.parametrize(
    "make", [hf.sliding_window_causal_mask_function, hf.sliding_window_bidirectional_mask_function]
)
def test_masks_are_those_of_transformers(make, size, offset, queries):
    """With and without padding, with keys that a sliding cache has dropped, in and out of line with the queries."""
    function = hf.causal_mask_function if size is None else make(size)
    for first, dropped in ((offset, 0), (offset, min(offset, 2)), (0, 0)):
        keys = offset + queries - dropped
        for padding in (None, torch.rand(2, keys + dropped, generator=torch.Generator().manual_seed(3)) < 0.7):
            given = (2, queries, keys, first, dropped, function, padding)
            mine = attention_mask(*given, allow_is_causal_skip=False)
            theirs = hf.sdpa_mask(*given, allow_is_causal_skip=False)
            if mine is None:
                assert theirs.all()
            else:
                assert torch.equal(mine.expand_as(theirs) & True, theirs)


def _inverted(mask):
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float64).min)


def _first_key_hidden(mask):
    mask = mask & (torch.arange(mask.shape[-1]) > 0)
    mask[:, :, 0, 0] = True
    return mask


def _written_to(mask):
    mask[:, :, -1, 2] = False
    return mask


@pytest.mark.parametrize("touch", [_inverted, _first_key_hidden, _written_to, lambda mask: mask[..., :TOKENS]])
def test_a_model_that_touches_its_mask_gets_the_same_numbers(touch):
    model = tiny_model("llama", dtype=torch.float64)
    given = padded(model, "right")

    def before(module, args, kwargs):
        return args, {**kwargs, "attention_mask": touch(kwargs["attention_mask"])}

    layers = [module for module in model.modules() if isinstance(module, LlamaAttention)]
    handles = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in layers]
    keep = Keep()
    with torch.no_grad():
        plain = model(**given).logits
        with tapped(model, keep):
            watched = model(**given).logits
    for handle in handles:
        handle.remove()
    real = given["attention_mask"].bool()
    torch.testing.assert_close(watched[real], plain[real], rtol=1e-6, atol=1e-6)
    assert not any(isinstance(call.scores.allowed, BandMask) and call.scores.allowed.intact for call in keep.calls)


class Sizes(TorchDispatchMode):
    """Notes every tensor that has n×n numbers of its own."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.square, self.found = tokens**2, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, BandMask):
                memory = tensor.untyped_storage().nbytes() // tensor.element_size()
                if memory >= self.square and tensor.numel() and tensor.numel() % self.square == 0:
                    self.found.append((str(func), tuple(tensor.shape)))
        return out


@pytest.mark.parametrize("path", ["kernels", "the sweep"])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_looking_at_a_padded_decoder_makes_nothing_n_by_n(family, path, monkeypatch):
    watched = subject(family, dtype=torch.float32)
    texts = [" ".join(["word"] * 23), " ".join(["word"] * 14)]
    tokens = watched.encode(lo.corpus(texts)).source.ids.shape[1]
    whole = lo.look(watched, texts, ["weights"], progress=False)["weights"].data
    if path == "kernels":
        kernels = pytest.importorskip("lorgnette.gpu.attention", reason="Triton is not installed")
        monkeypatch.setattr(Call, "kernels", lambda call, wanted: kernels)
    else:
        monkeypatch.setitem(sweep.BLOCK, "cpu", 5 * tokens)
    with Sizes(tokens) as sizes:
        measured = lo.look(watched, texts, ["weights"], progress=False)["weights"].data
    assert sizes.found == []
    for name in ("entropy", "entropy_normalised", "confidence", "mass"):
        torch.testing.assert_close(
            torch.tensor(measured[name].values), torch.tensor(whole[name].values), rtol=1e-4, atol=1e-5
        )
    monkeypatch.undo()
    with Sizes(tokens) as sizes:
        lo.look(watched, texts, ["rollout"], progress=False)
    assert sizes.found, "a lens that needs the matrix is noticed"
