"""Roles: numbers against plain loops, planted heads all named and none in the control, controls, bad input."""

import re

import numpy as np
import pytest
import torch
from tiny import TREEBANK, bert, gpt2, marian

from benchmarks.planted_heads import HEADS, RandomAttention, annotated, planted_subject
from benchmarks.role_rates import EVEN, PLANTED
from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.lens.relations.lens import Relations
from lorgnette.lens.roles.formulas import after_same_word, rare_words, same_word
from lorgnette.lens.roles.labels import RULES
from lorgnette.lens.roles.lens import SHIFTS, Roles
from lorgnette.lens.roles.parsing import PARSED
from lorgnette.lens.roles.report import table
from lorgnette.looking.controls import RANDOM, SHUFFLED, TRAINED, roles_with_controls, shuffled
from lorgnette.looking.look import look
from lorgnette.reporting.contents import findings_of
from lorgnette.syntax.relations import control_hits, peaks
from lorgnette.testing import run_lens
from lorgnette.texts import corpus
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.frequency import FrequencyRanks
from lorgnette.texts.shuffled import shuffled_words


def numbers(subject, text, name, *, development):
    """What the lens finds in one text, with all of it in one part."""
    lens = run_lens(Roles(development=development), subject, [subject.encode([text])])
    part = "development" if development > 0.5 else "held_out"
    return lens.compute().data.number.sel(role=name, part=part)


def pooled(hits):
    return np.mean(hits) if len(hits) else np.nan


def by_hand(trace, stack, layer, head):
    """Every number of one head and text, from its weights, token by token."""
    weights = trace[f"{stack}.{layer}.weights"][head].double().numpy()
    query_tokens, key_tokens = trace.tokens(stack)
    words = [i for i in range(len(weights)) if not query_tokens.special[0, i] and query_tokens.mask[0, i]]
    q_ids, k_ids = query_tokens.ids[0].tolist(), key_tokens.ids[0].tolist()
    keys = range(len(k_ids))
    special = [j for j in keys if key_tokens.special[0, j]] or [0]
    marks = [j for j in keys if key_tokens.categories["punctuation"][0, j]]
    inside = stack != "cross"
    seen = [sum(weights[i] > 0) for i in range(len(weights))]
    out = {
        "special": pooled([row[special].sum() for i, row in enumerate(weights) if query_tokens.mask[0, i]]),
        "punctuation": pooled([weights[i, marks].sum() for i in words]),
        "last": pooled([weights[i, -1] for i in words]),
        "broad": pooled(
            [-(w := weights[i][weights[i] > 0]) @ np.log(w) / np.log(seen[i]) for i in words if seen[i] > 1]
        ),
    }
    even = lambda queries, kind: pooled([sum(weights[i, kind] > 0) / seen[i] for i in queries])  # noqa: E731
    every = [i for i in range(len(weights)) if query_tokens.mask[0, i]]
    control = {"special": even(every, special), "punctuation": even(words, marks)}
    control["last"] = even(words, [len(k_ids) - 1])
    twins, followers = {}, {}
    for i in words:
        twins[i] = [j for j in keys if k_ids[j] == q_ids[i] and not key_tokens.special[0, j] and weights[i, j] > 0]
        twins[i] = [j for j in twins[i] if not (inside and j == i)]
        followers[i] = [
            j for j in keys if inside and 0 < j < i and k_ids[j - 1] == q_ids[i] and not key_tokens.special[0, j]
        ]
    for name, pairs in (("same_word", twins), ("induction", followers)):
        asked = [i for i in words if pairs[i]]
        out[name] = pooled([weights[i, pairs[i]].sum() for i in asked])
        control[name] = pooled([sum(by_others(weights, words, pairs, j) for j in pairs[i]) for i in asked])
    if inside:
        peaked = np.eye(len(weights))[weights.argmax(1)]
        for name, shift in (("self", 0), ("previous", -1), ("next", 1)):
            out[name], control[name] = at_shift(weights, weights, words, shift)
        usual = [o for o in SHIFTS if sum(0 <= i + o < len(weights) for i in words) >= len(words) / 2]
        best = max(usual, key=lambda o: at_shift(peaked, weights, words, o)[0])  # the first of equals
        out["positional"], control["positional"] = at_shift(peaked, weights, words, best)
    return out, {name: out[name] - number for name, number in control.items()}


def by_others(key_tokens, words, pairs, j, weights=None):
    """Mean of what words that are no pair with token j, and see it, have in its column; else that of its pairs."""
    sees = key_tokens if weights is None else weights
    others = [i for i in words if sees[i, j] > 0 and j not in pairs.get(i, ())]
    return np.mean([key_tokens[i, j] for i in others or [i for i in words if j in pairs.get(i, ())]])


def at_shift(key_tokens, weights, words, shift):
    """Mean of what words have at a shift, and of what the other words have there."""
    able = [i for i in words if 0 <= i + shift < len(weights)]
    others = [by_others(key_tokens, words, {i: [i + shift]}, i + shift, weights) for i in able]
    return pooled([key_tokens[i, i + shift] for i in able]), pooled(others)


TEXT = Example("t", "the cat sat , and the cat ran . the dog sat on the mat .", target="the cat the cat sat . dog .")


@pytest.mark.parametrize(
    ("make", "stack"), [(bert, "encoder"), (gpt2, "decoder"), (marian, "cross"), (marian, "decoder")]
)
def test_numbers_are_those_of_plain_loops(make, stack):
    subject = make()
    trace = subject.trace(TEXT)
    data = run_lens(Roles(development=0.999999), subject, [subject.encode([TEXT])]).compute().data
    for layer, head in ((1, 0), (2, 3)):
        here = data.sel(stack=stack, layer=layer, head=head + 1, part="development")
        for variable, wanted in zip(("number", "excess"), by_hand(trace, stack, layer, head), strict=True):
            for name, number in wanted.items():
                measured = here[variable].sel(role=name).item()
                assert measured == pytest.approx(number, rel=1e-6, abs=1e-7, nan_ok=True), (variable, name)
    assert data.number.sel(part="held_out").isnull().all()


def test_pairs():
    ids = torch.tensor([[5, 6, 5, 7, 5, 5]])
    same = {(i, j) for i in range(6) for j in range(6) if i != j and ids[0, i] == ids[0, j]}
    assert {tuple(pair) for pair in same_word(ids, ids, itself=False)[0].nonzero().tolist()} == same
    after = {(i, j) for i in range(6) for j in range(1, i) if ids[0, j - 1] == ids[0, i]}
    assert {tuple(pair) for pair in after_same_word(ids)[0].nonzero().tolist()} == after
    assert (5, 3) in after


def test_rare_words():
    rank = torch.tensor([[1.0, 900.0, 3.0, 700.0, 2.0], [1.0, 400.0, 3.0, 9.0, 2.0], [1.0, 900.0, 5.0, 5.0, 9.0]])
    there = torch.tensor([[True] * 5, [True] * 5, [True, True, True, True, False]])
    received = torch.eye(5)[None].repeat(3, 1, 1)  # head h reads token h most
    rarest, rare, chance, counts = rare_words(received, rank, there)
    assert rarest[0].tolist() == [False, True, False, False, False]
    assert rare[0].tolist() == [False, True, False, True, False]
    assert chance.tolist() == pytest.approx([2 / 5, 2 / 5, 3 / 4])  # two share the second place in the last text
    assert counts.tolist() == [True, False, True]


@pytest.fixture(scope="module")
def texts():
    return annotated(corpus("planted", split="test").take(200))


def planted_roles(texts, *, control):
    subject = planted_subject(texts, control=control)
    if control:  # as it is made it attends nearly evenly, which is to be broad
        with torch.no_grad():
            subject.model.encoder.layer[0].attention.self.query.weight *= 2
    vocabulary = subject.tokenizer.get_vocab()
    ranks = FrequencyRanks(
        {n: 1000 + n if word.endswith("!") else n % 450 + 1 for word, n in vocabulary.items()}, "planted"
    )
    return look(subject, texts, [Roles(ranks)], progress=False)["roles"].data.sel(stack="encoder", layer=1)


def test_every_planted_head_is_named(texts):
    data = planted_roles(texts, control=False)
    wanted = {**PLANTED, "rare": PLANTED["rare"] | EVEN["rare"]}  # these texts have sentences without a rare word
    assert {name: set(data.role.values[data.label[n]]) for n, name in enumerate(HEADS)} == wanted
    found = dict(zip(HEADS, data.roles.values.tolist(), strict=True))
    assert re.match(r"syntactic \(nsubj to_head \+0\.\d\d, obj to_head \+0\.\d\d", found["tree"])
    assert "to_dependent" not in found["tree"]
    assert re.fullmatch(r"positional \(-1\) \+1\.00, previous \+\d\.\d\d", found["previous"])
    excess = data.excess.sel(part="held_out")
    assert excess.sel(role="syntactic", head=HEADS.index("tree") + 1) > 0.5
    assert (data.q.sel(role="positional", head=[1, 2]) < 1e-6).all()
    assert data.control_texts == len(texts)
    assert data.agreement.sel(role=["positional", "syntactic", "special", "broad", "dead"]).min() == 1
    assert data.number_low.sel(role="positional", part="held_out", head=1) > 0.9


def test_the_table_has_a_row_for_each_role_with_its_most_extreme_head():
    result = look(marian(), list(TREEBANK), [Roles()], progress=False)["roles"]
    data = result.data.sel(part="held_out")
    shown = table(result)
    assert [row[0] for row in shown.rows] == data.role.values.tolist()
    for role, heads, bound, number, at, over in shown.rows:
        assert int(heads) == int(data["label"].sel(role=role).sum())
        cells = data["number"].sel(role=role)
        if cells.isnull().all():
            assert (number, at, over) == ("–", "", "–")
            continue
        best = float(cells.max() if RULES[role].above else cells.min())
        assert number == f"{best:.2f}"
        assert bound[0] == (
            ">" if RULES[role].above and not RULES[role].inclusive else "≥" if RULES[role].above else "<"
        )
        stack, where = at.split()
        layer, head = map(int, where.split("."))
        there = {"stack": stack, "layer": layer, "head": head}
        assert float(cells.sel(there)) == best
        excess = float(data["excess"].sel(there | {"role": role}))
        assert over == ("–" if np.isnan(excess) else f"{excess:.2f}")


def test_no_head_of_the_control_has_a_role(texts):
    data = planted_roles(texts, control=True)
    assert set(data.roles.values.tolist()) == {"none"}
    assert not data.label.any()


def test_shuffled_words_take_the_syntactic_label_and_nothing_else(texts):
    mixed = Corpus.of([shuffled(example, 1) for example in texts], name="planted, shuffled")
    data = planted_roles(mixed, control=False)
    assert not data.label.sel(role="syntactic").any()
    assert data.label.sel(role="positional", head=1).item()


def test_heads_that_read_at_random_get_no_label(texts):
    named, few = [], list(texts)[:80]
    for seed in range(3):
        subject = planted_subject(texts, control=True, seed=seed)
        with subject.tapped(RandomAttention(seed)):
            label = look(subject, few, [Roles()], progress=False)["roles"].data.label
        named += label.any("role").values.ravel().tolist()
    assert np.mean(named) <= 0.01


def test_found_by_others_is_what_loops_find():
    draw = torch.Generator().manual_seed(0)
    attention = torch.rand(2, 3, 6, 6, generator=draw, dtype=torch.float64)
    attention[1] = attention[1].tril()
    there = torch.tensor([[True] * 6, [True] * 5 + [False]])
    governor = torch.tensor([[2, 0, -1, 2, 3, 3], [1, -1, 1, 2, 1, -1]])
    visible = (attention[:, 0] > 0) & there[:, None] & there[:, :, None]
    rows = peaks(attention, there[:, None])
    measured = control_hits(rows, visible, governor)
    for text in range(2):
        for d in (d for d in range(6) if governor[text, d] >= 0):
            g = int(governor[text, d])
            for way, goal, pairs in ((0, g, [w for w in range(6) if governor[text, w] == g]), (1, d, [g])):
                asked = [w for w in range(6) if w != goal and visible[text, w, goal] and w not in pairs]
                asker = d if way == 0 else g
                for head in range(3):
                    at_goal = [float(rows[text, head, w] == goal) for w in asked or [asker]]
                    assert measured[text, head, d, way] == pytest.approx(np.mean(at_goal)), (text, d, way)


def test_shuffled_batches_keep_words_whole_and_specials_in_place():
    subject = bert()
    batch = subject.encode([*TREEBANK[:2], Example("pair", "the cat sat", pair="good dog ran")])
    mixed = shuffled_words(batch)
    assert torch.equal(mixed.inputs["input_ids"], mixed.source.ids)
    for text in range(3):
        fixed = ~batch.source.ordinary[text]
        assert torch.equal(mixed.source.ids[text][fixed], batch.source.ids[text][fixed])
        before, after = (
            {int(w): tokens.ids[text][tokens.word[text] == w].tolist() for w in tokens.word[text].unique() if w >= 0}
            for tokens in (batch.source, mixed.source)
        )
        assert before == after
    pair = batch.source.word[2]
    assert set(mixed.source.word[2][1:4].tolist()) == set(pair[1:4].tolist())
    assert not torch.equal(mixed.source.ids, batch.source.ids)
    assert torch.equal(shuffled_words(batch).source.ids, mixed.source.ids)


class Repeats(Tap):
    """Head 1 reads what followed the word before, head 2 the same word elsewhere, head 3 the next token."""

    def __init__(self, batch_ids):
        self.ids = batch_ids

    def weights(self, call, weights):
        weights = weights.clone()
        size = weights.shape[-1]
        for text, ids in enumerate(self.ids):
            for i in range(min(size, len(ids))):
                after = [j for j in range(1, i) if ids[j - 1] == ids[i]]
                same = [j for j in range(i) if ids[j] == ids[i]]
                for head, keys in ((0, after), (1, same), (2, [i - 1] if i else [])):
                    row = torch.zeros(size, dtype=weights.dtype)
                    row[keys or [i]] = 1 / len(keys or [i])
                    weights[text, head, i] = row
        return weights


def test_induction_and_same_word_heads_are_found():
    subject = gpt2()
    words = ["cat", "dog", "mat", "good", "bad", "ran"]
    rng = np.random.default_rng(0)
    lines = [" ".join(2 * [words[k] for k in rng.permutation(6)]) for _ in range(40)]
    batch = subject.encode([Example(f"{n}", line) for n, line in enumerate(lines)])
    lens = Roles()
    with subject.tapped(Repeats(batch.source.ids.tolist())):
        data = run_lens(lens, subject, [batch]).compute().data.sel(stack="decoder", layer=1)
    named = data.roles.values.tolist()
    assert "induction" in named[0]
    assert "same_word" not in named[0]
    assert "same_word" in named[1]
    assert "induction" not in named[1]
    assert "positional (-1)" in named[2]
    assert "induction" not in named[2]
    assert "same_word" not in named[2]


def test_relations_are_those_of_the_relations_lens():
    subject = bert()
    batch = subject.encode(TREEBANK)
    roles, relations = (run_lens(make(), subject, [batch]) for make in (Roles, Relations))
    shared = relations.states.tensors()
    assert shared
    for name, state in shared.items():
        assert torch.equal(roles.states[name], state), name
    data = run_lens(Roles(least=1), subject, [batch]).compute().data
    held_out = data.sel(role="syntactic", part="held_out")
    unsure = held_out.number_se > 0
    assert unsure.any()
    # What a head finds beyond the best offset was measured on the same texts: its error is that of the paired gain.
    gains = relations.compute().data.sel(way=list(PARSED))
    same = (gains.gain == held_out.number) & (gains.gain_se == held_out.number_se)
    assert same.any(("relation", "way")).where(unsure, other=True).all()


def test_texts_with_and_without_trees():
    subject = bert()
    mixed = [*TREEBANK, Example("plain", "the cat sat .")]
    one, other = (run_lens(Roles(least=1), subject, [subject.encode(texts)]) for texts in (mixed, TREEBANK))
    assert torch.equal(one.pairs, other.pairs)
    alone = run_lens(Roles(), subject, [subject.encode(mixed[-1:])]).compute().data
    assert alone.number.sel(role="syntactic").isnull().all()
    assert set(RULES) == set(alone.role.values.tolist())


def test_controls_are_beside_it():
    found = roles_with_controls(bert(torch.float32), TREEBANK[:3], progress=False)
    assert list(found) == [TRAINED, RANDOM, SHUFFLED]
    assert found[TRAINED].provenance.weights_hash != found[RANDOM].provenance.weights_hash
    assert found[SHUFFLED].provenance.weights_hash == found[TRAINED].provenance.weights_hash
    assert "shuffled" in found[SHUFFLED].provenance.corpus
    assert all(result.lens == "roles" for result in found.values())


def test_shuffling_takes_the_tree_along():
    example = next(e for e in TREEBANK if len(e.words) > 4)
    mixed = shuffled(example, 1)
    assert sorted(mixed.words) == sorted(example.words)
    assert mixed.words != example.words
    pairs = lambda e: sorted((w, e.words[h - 1] if h else "") for w, h in zip(e.words, e.heads, strict=True))  # noqa: E731
    assert pairs(mixed) == pairs(example)
    assert shuffled(example, 1) == mixed


def test_ranks_of_the_corpus_are_counted_first():
    subject = bert()
    lens = Roles()
    data = look(subject, [f"the cat sat {word}" for word in ("good", "bad", "ran", "dog")], [lens], progress=False)
    the, good = subject.tokenizer.convert_tokens_to_ids(["the", "good"])
    assert lens.ranks[0][the] == 1
    assert lens.ranks[0][good] == 4
    assert (data["roles"].data.number_count.sel(role="rare") == 0).all()  # no word outside the 500 most frequent


def test_bad_input():
    with pytest.raises(UserError, match="must be 'corpus' or FrequencyRanks"):
        Roles("wikipedia")
    with pytest.raises(UserError, match="corpus twice"):
        look(bert(), iter(["the cat sat", "good"]), ["roles"], progress=False)


def test_weights_and_roles_count_the_same_heads_on_special_tokens(texts):
    results = look(planted_subject(texts, control=False), texts, ["weights", "roles"], progress=False)
    weights, roles = (results[name].data for name in ("weights", "roles"))
    assert int(roles["label"].sel(role="special").sum()) == int((weights["special"] > 0.5).sum()) == 2
    for name in ("weights", "roles"):
        assert [
            finding.numbers["special"] for finding in findings_of(results[name]) if "special" in finding.numbers
        ] == [2]
