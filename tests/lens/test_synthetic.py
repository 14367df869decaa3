"""Scores of repeated tokens and of needles against loops over the matrix."""

import numpy as np
import pytest
import tokenizers
import torch
from tiny import MAKERS, gpt2
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lorgnette.attending import Recorder
from lorgnette.errors import UserError
from lorgnette.lens.synthetic.lens import Synthetic
from lorgnette.lens.synthetic.repeats import REPEATED, repeat_scores, sequences
from lorgnette.subject import Subject
from lorgnette.testing import run_lens


def numbers(subject, **options):
    return run_lens(Synthetic(**options), subject, [subject.encode(["the cat"])]).compute().data


@pytest.mark.parametrize("kind", ["bert", "gpt2", "marian"])
def test_scores_are_means_of_weights_at_their_places(kind):
    subject = MAKERS[kind]()
    made = sequences(subject, 3, 6, seed=1)
    found = repeat_scores(subject, made)
    length = 6
    assert (made.repeated[:, made.inner][:, :length] == made.repeated[:, made.inner][:, length:]).all()
    assert (made.control[:, made.inner][:, length:] == made.repeated[:, made.inner][:, length:]).all()
    for row in made.control[:, made.inner].tolist():
        assert len(set(row)) == 2 * length
    for which, ids in enumerate((made.repeated, made.control)):
        recorder = Recorder.of("weights")
        begin = {"decoder_input_ids": torch.nn.functional.pad(ids, (1, 0), value=0)} if kind == "marian" else {}
        with torch.no_grad(), subject.tapped(recorder):
            subject.model(input_ids=ids, **begin)
        for site, scores in found.items():
            weights = recorder[site]["weights"].numpy()
            causal = site.stack == "decoder"
            start = made.inner.start + int(causal and kind == "marian")  # behind the token that a decoder starts with
            for sequence, head in np.ndindex(*weights.shape[:2]):
                alpha = weights[sequence, head]
                second = range(start + length, start + 2 * length)
                expected = {
                    "induction": np.mean([alpha[i, i - length + 1] for i in second]),
                    "duplicate": np.mean([alpha[i, i - length] for i in second]),
                    "previous": np.mean([alpha[i, i - 1] for i in range(start + 1, start + 2 * length)]),
                }
                if which:
                    seen = [i + 1 if causal else len(alpha) for i in range(start + 1, start + 2 * length)]
                    expected["previous"] = np.mean(1 / np.array(seen))
                for test, value in expected.items():
                    assert float(scores[sequence, head, REPEATED.index(test), which]) == pytest.approx(value, abs=1e-12)


def test_errors_are_over_sequences_and_controls_are_subtracted():
    subject = gpt2()
    data = numbers(subject, sequences=5, length=6)
    both = repeat_scores(subject, sequences(subject, 5, 6, seed=0))
    site = subject.sites[1]
    each = both[site][:, 2, REPEATED.index("induction")].numpy()
    cell = data.sel(stack="decoder", layer=2, head=3, test="induction")
    assert float(cell["score"]) == pytest.approx(each[:, 0].mean())
    assert float(cell["excess"]) == pytest.approx((each[:, 0] - each[:, 1]).mean())
    assert float(cell["excess_se"]) == pytest.approx((each[:, 0] - each[:, 1]).std(ddof=1) / 5**0.5)
    assert int(cell["score_count"]) == 5
    assert data.attrs["trials"] == 0  # 64 tokens have no room for a haystack
    assert "64" in data.attrs["without_needle"]


def test_an_encoder_has_no_needle_and_says_why():
    data = numbers(MAKERS["bert"](), sequences=2, length=5)
    assert "cannot continue" in data.attrs["without_needle"]
    assert bool(data["score"].sel(test="retrieval").isnull().all())


@pytest.mark.parametrize("options", [{"sequences": 1}, {"length": 3}, {"depths": (120,)}, {"lengths": (0,)}])
def test_wrong_options_are_refused(options):
    with pytest.raises(UserError, match=f"^The option '{next(iter(options))}' of the lens 'synthetic' must be"):
        Synthetic(**options)


def byte_model(positions):
    """A decoder that reads bytes: a needle, its question and its answer take many tokens."""
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    cutter = tokenizers.Tokenizer(tokenizers.models.BPE({letter: n for n, letter in enumerate(sorted(letters))}, []))
    cutter.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    cutter.decoder = tokenizers.decoders.ByteLevel()
    config = GPT2Config(vocab_size=len(letters), n_embd=16, n_layer=1, n_head=2, n_positions=positions)
    config.bos_token_id = config.eos_token_id = None
    model = GPT2LMHeadModel(config).eval()
    return Subject(model, PreTrainedTokenizerFast(tokenizer_object=cutter), name="bytes")


@pytest.mark.parametrize(("positions", "lengths"), [(256, 0), (330, 1)])
def test_haystacks_leave_room_for_question_and_answer(positions, lengths):
    """100 bytes of filler with needle, question and answer are more than 256 tokens."""
    data = numbers(byte_model(positions), needles=1, depths=(0, 100), sequences=2)
    assert data.sizes.get("length", 0) == lengths
