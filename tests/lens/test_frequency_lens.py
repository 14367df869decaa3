"""Frequency: the paper's correlation with every occurrence at hand, the laws, a planted discount, bad input."""

from collections import Counter

import pytest
import torch
from scipy import stats
from tiny import examples, subject

from lorgnette.errors import UserError
from lorgnette.lens.frequency.lens import Frequency, bare_word
from lorgnette.looking.look import look
from lorgnette.testing import check_lens, run_lens
from lorgnette.texts.frequency import FrequencyRanks, counted

TEXTS = examples((9, 14, 6, 12, 20, 3))


def occurrences(tiny, texts):
    """(stack, piece, α and ‖f‖ per layer, averaged over heads) of every token that is read, from traces."""
    out = {}
    for example in texts:
        trace = tiny.trace(example)
        for stack in trace.stacks:
            weights, value = trace[f"{stack}.weights"], trace[f"{stack}.value"]
            _, read = trace.tokens(stack)
            for j, piece in enumerate(read.ids[0].tolist()):
                alphas, norms = [], []
                for layer in range(len(weights)):
                    site = next(s for s in tiny.sites if s.name == stack and s.layer == layer)
                    output = tiny.anatomy[site].head_weights().output
                    heads = range(weights.shape[1])
                    rows = [i for i in range(weights.shape[2]) if stack != "decoder" or i >= j]
                    alphas.append(sum(weights[layer, h, i, j].item() for h in heads for i in rows) / len(rows) / 4)
                    norms.append(sum((value[layer, h, j] @ output[h]).norm().item() for h in heads) / 4)
                out.setdefault(stack, []).append((piece, alphas, norms))
    return out


@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_it_is_the_correlation_over_all_occurrences(family):
    tiny = subject(family)
    data = run_lens(Frequency(), tiny, [tiny.encode(TEXTS[:3]), tiny.encode(TEXTS[3:])]).compute().data
    sides = occurrences(tiny, TEXTS)
    for stack, items in sides.items():
        # The cross-attention reads the source, so its counts are the encoder's.
        pieces = [piece for piece, _, _ in sides["encoder" if stack == "cross" else stack]]
        counts = Counter(pieces)
        rank = [1 + sum(other > counts[piece] for other in counts.values()) for piece in pieces]
        layers = len(items[0][1])
        for m, measure in enumerate(("weights", "norms"), 1):
            for layer in range(layers):
                expected = stats.spearmanr(rank, [item[m][layer] for item in items]).statistic
                cell = data.sel(stack=stack, layer=layer + 1, measure=measure)
                assert cell.spearman.item() == pytest.approx(expected, abs=2e-3)  # 16 bits of each value are kept
                assert cell.spearman_tokens.item() == len(items)
            expected = stats.spearmanr(rank, [sum(item[m]) for item in items]).statistic
            cell = data.sel(stack=stack, measure=measure)
            assert cell.spearman_all.item() == pytest.approx(expected, abs=2e-3)
            assert cell.spearman_all_low < cell.spearman_all < cell.spearman_all_high
            assert cell.spearman_all_count.item() == len(TEXTS)


@pytest.mark.parametrize("family", ["bert", "marian"])
def test_laws_of_a_sample_smaller_than_the_corpus(family):
    check_lens(lambda: Frequency(size=20), subject(family), TEXTS, tolerance=1e-9)


def test_a_sample_is_near_the_whole():
    tiny, many = subject("bert"), examples((30,) * 40)
    batch = [tiny.encode(many)]
    whole = run_lens(Frequency(), tiny, batch).compute().data
    part = run_lens(Frequency(size=600), tiny, batch).compute().data
    assert part.spearman_all_tokens.max() == 600
    assert whole.spearman_all_tokens.max() == 40 * 32
    assert abs(part.spearman_all - whole.spearman_all).max() < 4 * whole.spearman_all_se.max() + 0.05


def discounting(plant):
    """A BERT of one-hot words whose values are longer the rarer the word: w7 short, w96 long."""
    tiny = subject("bert")
    embeddings, site = tiny.model.embeddings, tiny.anatomy.sites[0]
    with torch.no_grad():
        embeddings.position_embeddings.weight.zero_()
        if plant:
            # One direction tells the words apart, and the first layer's value vectors are along it alone.
            generator = torch.Generator().manual_seed(0)
            base = torch.randn(32, generator=generator, dtype=torch.float64)
            along = torch.randn(32, generator=generator, dtype=torch.float64)
            for word in range(97):
                embeddings.word_embeddings.weight[word] = base + along * (0.02 * word)
            embeddings.LayerNorm.weight.fill_(1.0), embeddings.LayerNorm.bias.zero_()
            states = embeddings(torch.arange(97)[:, None])[:, 0]
            across = (states[96] - states[0]) / (states[96] - states[0]).norm()
            site.value.module.weight.copy_(torch.outer(torch.ones(32, dtype=torch.float64), across))
            site.value.module.bias.fill_(1.0 - (states[0] @ across).item())
    return tiny


def test_a_planted_discount_is_found_and_not_in_the_control():
    ranks = counted({word: 200.0 - word for word in range(97)}, "planted")  # the higher the id, the rarer
    texts = examples((20,) * 20)
    found = {}
    for plant in (True, False):
        tiny = discounting(plant)
        data = run_lens(Frequency(ranks=ranks), tiny, [tiny.encode(texts)]).compute().data
        found[plant] = data.sel(stack="encoder", layer=1, measure="norms")
    assert found[True].spearman.item() > 0.99
    assert abs(found[False].spearman.item()) < 0.5
    assert found[True].spearman_low.item() > 0.98


def test_ranks_by_word_give_every_piece_its_words_rank():
    words = {text: number + 1 for number, text in enumerate(("w7", "w8", ".", "w9"))}
    lens = Frequency(ranks=FrequencyRanks(words, "mine"))
    tiny = subject("bert")
    run_lens(lens, tiny, [tiny.encode(["w9 w8 W50 .", "w7 w7"])])
    assert sorted(lens.sample.rows(0)["rank"].tolist()) == [
        1,
        1,
        2,
        3,
        4,
        5,
    ]  # special tokens have none; what is unknown is last + 1
    assert lens.compute().data.attrs["ranks"] == "mine"


def test_marks_that_a_list_of_words_leaves_out_are_not_its_rarest_words():
    lens, tiny = Frequency(ranks=FrequencyRanks({"w7": 1, "w8": 2}, "words only")), subject("bert")
    run_lens(lens, tiny, [tiny.encode(["w7 . w8 , w9"])])
    assert sorted(lens.sample.rows(0)["rank"].tolist()) == [1, 2, 3]


def test_wordfreq():
    tiny = subject("bert")
    data = look(tiny, TEXTS, [Frequency(ranks="wordfreq")], progress=False)["frequency"].data
    assert data.attrs["ranks"] == "wordfreq en"
    assert data.attrs["specials"] is False


def test_words_are_compared_without_the_marks_around_them():
    assert [bare_word(word) for word in ("Mat.", "don't", "—", "(The", "...")] == ["mat", "don't", "—", "the", "..."]


def test_specials_can_be_left_out():
    tiny = subject("bert")
    data = run_lens(Frequency(specials=False), tiny, [tiny.encode(TEXTS)]).compute().data
    assert data.spearman_all_tokens.max() == sum(len(text.text.split()) for text in TEXTS)


def test_bad_input_is_one_line(tmp_path, monkeypatch):
    with pytest.raises(
        UserError,
        match=r"'corpus', 'bert', 'wordfreq' or FrequencyRanks\..* Did you mean 'corpus'",
    ):
        Frequency(ranks="corpsu")
    with pytest.raises(UserError, match="at least 2"):
        Frequency(size=1)
    folder = tmp_path / "bert_frequency"
    folder.mkdir()
    (folder / "rank_count_ids.txt").write_text("1 10 1996\n2 5 1012\n")
    monkeypatch.setenv("LORGNETTE_DATA", str(tmp_path))
    with pytest.raises(UserError, match="'tiny bert' has another vocabulary"):
        look(subject("bert"), TEXTS, [Frequency(ranks="bert")], progress=False)
