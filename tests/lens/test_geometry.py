"""The geometry lens against pairs counted one by one, its options, and what has no geometry."""

import math

import numpy as np
import pytest
import torch
from tiny import EXAMPLES, bert, gpt2, marian, own_classifier
from torch.nn.functional import cosine_similarity

import lorgnette as lo
from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.lens.geometry.cloud import LEAST_COSINE
from lorgnette.lens.geometry.lens import Geometry
from lorgnette.testing import check_lens, run_lens
from lorgnette.texts.example import Example
from lorgnette.texts.word_forms import word_number


class Catch(Tap):
    def __init__(self):
        self.calls = {}

    def see(self, call):
        vectors = zip(("query", "key", "value"), (call.query, call.key, call.value), strict=True)
        self.calls[call.site] = {name: tensor[0].transpose(0, 1).clone() for name, tensor in vectors}


def caught(subject, example):
    """q, k, v [token head dim] of every site and the hidden states, of one text alone: no padding."""
    catch, batch = Catch(), subject.encode([example])
    with torch.no_grad(), subject.tapped(catch):
        outputs = subject.run(batch, output_hidden_states=True, return_dict=True)
    return batch, catch.calls, outputs


def mean_cosine(vectors):
    """All pairs, one at a time."""
    n = len(vectors)
    pairs = [cosine_similarity(vectors[i], vectors[j], dim=0).item() for i in range(n) for j in range(i)]
    return sum(pairs) / len(pairs)


def intra(vectors):
    mean = vectors.mean(0)
    return sum(cosine_similarity(mean, x, dim=0).item() for x in vectors) / len(vectors)


def look(subject, examples=EXAMPLES, **options):
    return run_lens(Geometry(**options), subject, [subject.encode(list(examples))]).compute().data


@pytest.mark.parametrize("make", [bert, gpt2, marian])
def test_every_mean_is_that_of_the_pairs(make):
    subject = make()
    data = look(subject)
    texts = [caught(subject, example) for example in EXAMPLES]
    for site in subject.sites:
        cell = data.sel(stack=site.name, layer=site.layer + 1)
        for kind in ("query", "key", "value"):
            clouds = [calls[site][kind] for _, calls, _ in texts]
            long = [cloud for cloud in clouds if len(cloud) > 1]
            for head in range(subject.heads):
                values = [mean_cosine(cloud[:, head]) for cloud in long]
                found = cell.sel(vectors=kind, head=head + 1)
                assert found.sim.item() == pytest.approx(np.mean(values), abs=1e-12)
                assert found.sim_se.item() == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5, abs=1e-10)
                assert found.sim_count.item() == len(long)
                assert found.short_texts.item() == len(clouds) - len(long)
                assert found.intra_similarity.item() == pytest.approx(
                    np.mean([intra(cloud[:, head]) for cloud in long]), abs=1e-12
                )
            together = [cloud.flatten(1) for cloud in clouds]
            found = cell.sel(vectors=kind)
            assert found.sim_all.item() == pytest.approx(np.mean([mean_cosine(c) for c in together if len(c) > 1]))
            assert found.sim_corpus_all.item() == pytest.approx(mean_cosine(torch.cat(together)), abs=1e-12)
            head = torch.cat([cloud[:, 0] for cloud in clouds])
            assert found.sel(head=1).sim_corpus.item() == pytest.approx(mean_cosine(head), abs=1e-12)
            assert found.sel(head=1).along_mean.item() == pytest.approx(intra(head), abs=1e-12)
            assert found.sel(head=1).vectors_count.item() == len(head)


def test_hidden_states_iso_score_and_rank():
    subject = bert()
    data = look(subject).sel(stack="encoder")
    texts = [caught(subject, example) for example in EXAMPLES]
    for number in range(4):
        # The embeddings count neither [CLS], [SEP] nor unknown words.
        clouds = []
        for batch, _, outputs in texts:
            known = batch.source.ids[0] != subject.tokenizer.unk_token_id
            real = batch.source.mask[0] if number else ~batch.source.special[0] & known
            clouds.append(outputs.hidden_states[number][0][real])
        cell, whole = data.sel(state=number), torch.cat(clouds)
        values = [mean_cosine(cloud) for cloud in clouds if len(cloud) > 1]
        assert cell.state_sim.item() == pytest.approx(np.mean(values), abs=1e-12)
        assert cell.state_short_texts.item() == (0 if number else 1)
        assert cell.state_sim_corpus.item() == pytest.approx(mean_cosine(whole), abs=1e-12)
        assert float(cell.state_contribution.sum()) == pytest.approx(mean_cosine(whole), abs=1e-12)
        mean = whole.mean(0)
        assert np.allclose(cell.state_mean_direction.values, (mean / mean.norm()).numpy(), atol=1e-12)
        share = float(mean.norm() ** 2 / whole.square().sum(-1).mean())
        assert cell.state_mean_share.item() == pytest.approx(share, rel=1e-10)
        variance = torch.linalg.eigvalsh(torch.cov(whole.T, correction=0))
        ratio = float(variance.sum() ** 2 / variance.square().sum())
        assert cell.state_isoscore.item() == pytest.approx((ratio - 1) / 31, abs=1e-12)
        sigma = torch.linalg.svdvals(whole)
        p = sigma / sigma.sum()
        rank = math.exp(float(torch.special.entr(p).sum()))
        assert cell.state_effective_rank.item() == pytest.approx(rank, rel=1e-5)
        if cell.state_sim_corpus > LEAST_COSINE:
            top = cell.state_contribution.values.max() / cell.state_sim_corpus.item()
            assert cell.state_rogue_1.item() == pytest.approx(top, rel=1e-9)
            assert cell.state_rogue_3.item() >= cell.state_rogue_1.item()


def test_iso_score_of_heads_is_that_of_their_blocks():
    subject = bert()
    cell = look(subject).sel(stack="encoder", layer=2, vectors="value")
    values = torch.cat([caught(subject, example)[1][subject.sites[1]]["value"] for example in EXAMPLES])
    for head in (0, 3):
        variance = torch.linalg.eigvalsh(torch.cov(values[:, head].T, correction=0))
        ratio = float(variance.sum() ** 2 / variance.square().sum())
        assert cell.isoscore.sel(head=head + 1).item() == pytest.approx((ratio - 1) / 7, abs=1e-12)
    sigma = torch.linalg.svdvals(values.flatten(1))
    rank = math.exp(float(torch.special.entr(sigma / sigma.sum()).sum()))
    assert cell.effective_rank_all.item() == pytest.approx(rank, rel=1e-6)


@pytest.mark.parametrize(("specials", "expected"), [(True, 5), (False, 3), ("cls", 4)])
def test_which_tokens_count(specials, expected):
    subject = bert()
    data = look(subject, [Example("a", "the cat sat"), Example("b", "a dog ran")], specials=specials, words=False)
    assert (data.vectors_count == 2 * expected).all()
    assert data.state_vectors_count.sel(state=0).item() == 6
    _, calls, _ = caught(subject, Example("a", "the cat sat"))
    kept = {True: [0, 1, 2, 3, 4], False: [1, 2, 3], "cls": [0, 1, 2, 3]}[specials]
    one = look(subject, [Example("a", "the cat sat")], specials=specials, words=False)
    value = mean_cosine(calls[subject.sites[0]]["value"][kept, 0])
    assert one.sim.sel(layer=1, head=1, vectors="value").item() == pytest.approx(value, abs=1e-12)


def occurrences_of(subject, examples, number):
    """word → its vectors, the mean of its pieces, punctuation left out."""
    out = {}
    for example in examples:
        batch, _, outputs = caught(subject, example)
        tokens = batch.source
        for place, form in enumerate(tokens.words[0]):
            if any(c.isalnum() for c in form):
                here = tokens.word[0] == place
                out.setdefault(form.lower(), []).append(outputs.hidden_states[number][0][here].mean(0))
    return out


def test_self_similarity_and_mev_are_ethayarajhs():
    subject = bert()
    data = look(subject, least=3).sel(stack="encoder")
    for number in (0, 3):
        words = [torch.stack(v) for v in occurrences_of(subject, EXAMPLES, number).values() if len(v) >= 3]
        values = [mean_cosine(word) for word in words]
        cell = data.sel(state=number)
        assert cell.self_similarity_count.item() == len(words)
        assert cell.self_similarity.item() == pytest.approx(np.mean(values), abs=1e-12)
        assert cell.self_similarity_se.item() == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5, abs=1e-12)
        shares = [float((torch.linalg.svdvals(w) ** 2)[0] / (torch.linalg.svdvals(w) ** 2).sum()) for w in words]
        assert cell.mev.item() == pytest.approx(np.mean(shares), abs=1e-12)
        assert cell.random_cosine_count.item() == len(EXAMPLES)
        adjusted = cell.self_similarity.item() - cell.random_cosine.item()
        assert cell.self_similarity_adjusted.item() == pytest.approx(adjusted, abs=1e-12)
        less = cell.state_intra_similarity.item() - cell.random_cosine.item()
        assert cell.state_intra_similarity_adjusted.item() == pytest.approx(less, abs=1e-12)


def test_the_baseline_takes_one_word_from_each_text():
    subject = bert()
    examples = [Example(str(n), text) for n, text in enumerate(("the cat .", "dog", "good bad", "it"))]
    lens = run_lens(Geometry(), subject, [subject.encode(examples)])
    groups = lens.at_random.rows(0).groups("vectors")
    assert [len(group) for group in groups] == [1] * 4
    single = occurrences_of(subject, examples[1:2], 3)["dog"][0]
    found = torch.cat(groups)[:, 3]
    assert (found - single).norm(dim=-1).min() < 1e-12


def test_a_small_sample_keeps_whole_words_however_they_come():
    """With room for 20 occurrences of some 40, merging, order and batches still give the same words."""
    data = check_lens(lambda: Geometry(least=2, occurrences=20, covariances=False), bert(), EXAMPLES, tolerance=1e-9)
    full = look(bert(), least=2)
    kept, every = data.data.self_similarity_count.max().item(), full.self_similarity_count.max().item()
    assert 0 < kept < every
    counts = {form: len(v) for form, v in occurrences_of(bert(), EXAMPLES, 0).items()}
    order = sorted(counts, key=word_number)
    room, expected = 20, 0
    for form in order:
        room -= counts[form]
        if room < 0:
            break
        expected += counts[form] >= 2
    assert kept == expected


def test_the_cheap_part_alone():
    data = look(bert(), covariances=False, words=False)
    assert "sim" in data
    assert not {"isoscore", "effective_rank", "self_similarity", "state_isoscore"} & set(data.data_vars)
    data = look(bert(), covariances="states", words=False)
    assert "state_isoscore" in data
    assert "isoscore" not in data


def test_one_token_is_counted_not_nan():
    data = look(gpt2(), [Example("one", "good")])
    assert (data.sim_count == 0).all()
    assert (data.short_texts == 1).all()
    assert data.sim.isnull().all()
    assert (data.vectors_count == 1).all()


def test_zero_vectors_are_counted_and_left_out():
    subject = bert()
    value = subject.model.encoder.layer[1].attention.self.value
    with torch.no_grad():
        value.weight[:8] = 0.0  # the first head's values are nothing
        value.bias[:8] = 0.0
    data = look(subject).sel(stack="encoder", vectors="value")
    dead, alive = data.sel(layer=2, head=1), data.sel(layer=2, head=2)
    assert dead.sim_count.item() == 0
    assert dead.zero_vectors.item() == alive.vectors_count.item()
    assert dead.isoscore_count.item() == 0
    assert alive.zero_vectors.item() == 0
    assert data.sel(layer=2).zero_vectors_all.item() == 0


def test_states_without_attention_of_their_own():
    """A pooler is the only site, and the states are of a stack that has none: both are there."""
    data = look(own_classifier("attention-pooling", ["the cat sat", "a dog ran"]), ["the cat sat", "a dog ran"])
    assert data.sel(stack="encoder", state=0).state_sim_count.item() == 2
    assert data.sel(stack="cross", layer=1, head=1, vectors="key").sim_count.item() == 2
    assert data.sel(stack="cross", layer=1, head=1, vectors="query").sim_count.item() == 0  # one query for each text
    assert data.sel(stack="cross").state_sim.isnull().all()


def test_float32_is_right_to_1e6():
    subject = bert()
    double = look(subject)
    subject.model.float()
    single = look(subject)
    for name in ("sim", "sim_all", "state_sim", "sim_corpus", "state_isoscore", "self_similarity"):
        assert np.nanmax(np.abs(double[name] - single[name])) < 1e-5, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"specials": "sep"}, "'specials' of the lens 'geometry' must be True, False or 'cls'. Got 'sep'"),
        ({"covariances": "heads"}, "must be True, False, 'states' or None. Got 'heads'"),
        ({"least": 1}, "'least' .* at least 2"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UserError, match=message):
        Geometry(**options)


def test_covariances_that_do_not_fit_are_left_out_with_a_note(monkeypatch):
    states = 8 * (bert().model.config.num_hidden_layers + 1) * bert().model.config.hidden_size ** 2
    for most, left, kept in ((states, "of queries, keys and values were", True), (states - 1, "rank were", False)):
        monkeypatch.setattr("lorgnette.lens.geometry.lens.MOST_MEMORY", most)
        result = lo.look(bert(), EXAMPLES, [Geometry(words=False)], progress=False)["geometry"]
        assert "isoscore" not in result.data
        assert ("state_isoscore" in result.data) == kept
        assert left in result.data.attrs["note"]
        assert any(left in note for note in result.provenance.notes)
    everything = lo.look(bert(), EXAMPLES, [Geometry(words=False, covariances=True)], progress=False)["geometry"]
    assert "isoscore" in everything.data
    assert "note" not in everything.data.attrs


def test_covariances_that_are_forced_into_too_little_memory(monkeypatch):
    monkeypatch.setattr("lorgnette.lens.geometry.lens.free_memory", lambda device: 10_000)
    with pytest.raises(UserError, match=r"GiB are free. Use Geometry\(covariances='states' or False\)"):
        look(bert(), covariances=True)
