"""What an answer used of its prompt: against the model's own eager attention with an explicit mask, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import classifier, gpt2, marian, subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.explaining import Next, edge_relevance, explain
from lorgnette.explaining.sources import masking
from lorgnette.explaining.sources.masking import Likelihood
from lorgnette.explaining.sources.measuring import as_prompt
from lorgnette.explaining.sources.parts import answered_prompt
from lorgnette.kernels import Room
from lorgnette.texts.example import Example, Span
from lorgnette.texts.parts import answered

PARTS = {
    "start": "the cat",
    "document 1": "a dog ran and slept .",
    "document 2": "it was not very good",
    "document 3": "the mat was bad ! unbelievably",
    "question": "the dog was",
}
ANSWER = " very bad , dog"
NUMBERED = {
    "start": "w5 w6",
    "document 1": "w7 w8 w9 w10",
    "document 2": "w11 w12 w13",
    "document 3": "w14 w7 w15 w16",
    "question": "w17 w18",
}


def likelihood_by_hand(model, ids, part, start, hidden):
    """log P of the tokens from `start` on, with an additive mask of this text and the model's own eager attention."""
    n = ids.shape[1]
    minus = torch.finfo(torch.float64).min
    mask = torch.zeros(1, 1, n, n, dtype=torch.float64)
    for query in range(n):
        for key in range(n):
            if key > query or (part[key] in hidden and part[query] != part[key]):
                mask[0, 0, query, key] = minus
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    model.set_attn_implementation(before)
    total = 0.0
    for place in range(start, n):
        row = logits[0, place - 1]
        total += float(row[ids[0, place]] - torch.logsumexp(row, -1))
    return total


def named_by_hand(made, example, names):
    """The part of each token, by the words of the text: each is one token here."""
    text = made.encode([example]).source
    return [names.index(name) if name in names else -1 for name in text.part_names()]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_drops_are_those_of_an_explicit_mask(family):
    made = gpt2() if family == "gpt2" else subject("llama", dtype=torch.float64)
    near = 1e-9 if family == "gpt2" else 1e-6  # Llama computes its norms in float32
    parts, answer = (PARTS, ANSWER) if family == "gpt2" else (NUMBERED, " w12 w19")
    used = lo.sources(made, parts, answer, among="document *")
    example = answered(lo.prompt(parts), answer)
    names = list(parts)
    part = named_by_hand(made, example, names)
    source = made.encode([example]).source
    spoken = [place for place, name in enumerate(source.part_names()) if name == "answer"]
    ids, start = source.ids[:, : spoken[-1] + 1], spoken[0]

    def by_hand(*hidden):
        return likelihood_by_hand(made.model, ids, part, start, hidden)

    whole, none = by_hand(), by_hand(1, 2, 3)
    assert used.log_probability == pytest.approx(whole, abs=near)
    assert used.without_any == pytest.approx(none, abs=near)
    for number, name in enumerate(names):
        row = used.data.sel(source=name)
        assert float(row["drop"]) == pytest.approx(whole - by_hand(number), abs=near)
        if name.startswith("document"):
            others = [other for other in (1, 2, 3) if other != number]
            assert float(row["alone"]) == pytest.approx(by_hand(*others) - none, abs=near)
        else:
            assert np.isnan(float(row["alone"]))
    assert used.data["compared"].values.tolist() == [False, True, True, True, False]
    assert abs(float(used.data["drop"][1])) > 1e-4


def test_the_shared_cache_and_the_batches_change_nothing(monkeypatch):
    made = gpt2()
    case = answered_prompt(made, answered(lo.prompt(PARTS), ANSWER))
    shared = Likelihood(made, case)
    shared.whole()
    hidden = torch.tensor([[0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [0, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    together = shared.without(hidden)
    starts = [shared._unchanged((row[:, None] & case.masks[:, : shared.length]).any(0)) for row in hidden]
    assert starts == [21, 8, 19, 8, 2]  # the last token that asks, and what stands behind each hidden part
    alone = Likelihood(made, case)
    np.testing.assert_allclose(alone.without(hidden), together, atol=1e-10)  # no cache: from the start
    monkeypatch.setattr(masking, "TOGETHER", Room(30, 30))
    np.testing.assert_allclose(shared.without(hidden), together, atol=1e-10)  # one copy at a time


def test_signals_are_sums_over_the_rows_that_say_the_answer():
    made = gpt2()
    used = lo.sources(made, PARTS, ANSWER, method="ah")
    batch = made.encode([answered(lo.prompt(PARTS), ANSWER)])
    names = batch.source.part_names()
    trace = made.trace(answered(lo.prompt(PARTS), ANSWER))
    rows = [place - 1 for place, name in enumerate(names) if name == "answer"]
    target = Next(at=range(rows[0] + 1, rows[-1] + 2))
    edges = edge_relevance(made, batch, "ah", target)
    tokens = explain(made, batch, "ah", target)
    norms = np.zeros(len(PARTS) + 1)
    for number, part in enumerate(PARTS):
        keys = [place for place, name in enumerate(names) if name == part]
        for site in made.sites:
            output = made.anatomy[site].output_weights()[0].detach()
            for head in range(4):
                at = {"layer": site.layer + 1, "head": head + 1, "source": part}
                weights = trace["weights"][site.layer, head][rows]
                mass = float(weights[:, keys].sum(-1).mean())
                assert float(used.data["head_attention"].sel(at)) == pytest.approx(mass, abs=1e-12)
                lengths = (trace["value"][site.layer, head] @ output[head]).norm(dim=-1)
                norm = float((weights * lengths)[:, keys].sum(-1).mean())
                assert float(used.data["head_norm"].sel(at)) == pytest.approx(norm, abs=1e-12)
                norms[number] += norm
                relevance = float(edges[site][0, head][:, keys].sum())
                assert float(used.data["head_relevance"].sel(at)) == pytest.approx(relevance, abs=1e-10)
        row = used.data.sel(source=part)
        assert float(row["relevance"]) == pytest.approx(float(tokens.tokens[0, keys].sum()), abs=1e-10)
        assert float(row["attention"]) == pytest.approx(float(used.data["head_attention"].sel(source=part).mean()))
        assert int(row["tokens"]) == len(keys)
    assert used.data["norm"].values / used.data["norm"].values[0] == pytest.approx(norms[:-1] / norms[0])
    assert float(used.data["norm"].sum()) < 1


def test_relevance_of_several_tokens_is_the_sum_of_theirs():
    made, text = gpt2(), ["the cat sat on the mat and it was good"]
    each = [explain(made, text, "gradient_x_input", Next(at=place)) for place in (3, 4, 5)]
    together = explain(made, text, "gradient_x_input", Next(at=range(3, 6)))
    np.testing.assert_allclose(together.tokens, sum(one.tokens for one in each), atol=1e-12)
    assert float(together.start[0]) == pytest.approx(sum(float(one.start[0]) for one in each))
    with pytest.raises(UserError, match="nothing to explain at token 10"):
        explain(made, text, "ah", Next(at=range(9, 11)))
    with pytest.raises(UserError, match="range of tokens is empty"):
        explain(made, text, "ah", Next(at=range(3, 3)))


def test_a_generated_answer_is_what_the_model_says():
    made = gpt2()
    used = lo.sources(made, PARTS, generate=5)
    trace = made.trace(lo.prompt(PARTS), generate=5)
    assert used.answer.split() == trace.generated.text.split()
    assert used.tokens == 5
    logits = torch.log_softmax(trace.output.logits[0].double(), -1)
    ids, start = trace.batch.source.ids[0], trace.generated.start
    said = sum(float(logits[place - 1, ids[place]]) for place in range(start, start + 5))
    assert used.log_probability == pytest.approx(said, abs=1e-9)


def test_turns_of_a_chat_are_parts_of_their_own():
    made = subject("llama", dtype=torch.float64)
    made.tokenizer.chat_template = "{% for m in messages %}{{ '[CLS] ' + m['content'] + ' ' }}{% endfor %}"
    turns = [("user", "w7"), ("assistant", "w8 w9"), ("user", "w10")]
    chat = lo.chat([{"role": role, "content": said} for role, said in turns])
    used = lo.sources(made, chat, "w11 w12")
    assert used.data["source"].values.tolist() == ["user", "assistant", "user 2"]
    assert used.data["tokens"].values.tolist() == [1, 2, 1]
    assert (used.answer, used.tokens, used.notes) == ("w11 w12", 2, ())


def test_what_it_says_of_itself():
    used = lo.sources(gpt2(), PARTS, ANSWER)
    lines = repr(used).splitlines()
    assert lines[0].startswith("Sources: 'very␣bad␣,␣dog' has log P −")
    assert [line[2:].split()[0] for line in lines[2:7]] == ["start", "document", "document", "document", "question"]
    assert lines[-1].startswith("Note: 'start' has the first token")
    frame = used.to_dataframe()
    assert frame["part"].tolist() == list(PARTS)
    assert used.heads("norm", "document 2").dims == ("layer", "head")
    with pytest.raises(UserError, match="no part 'document 9'"):
        used.heads("norm", "document 9")
    with pytest.raises(UserError, match="attention, norm, relevance"):
        used.heads("entropy")


@pytest.mark.parametrize(
    ("make", "arguments", "words"),
    [
        (classifier, {}, "sources is for models that generate"),
        (marian, {}, "sources is for language models"),
        (gpt2, {"answer": " "}, "is empty"),
        (gpt2, {"prompt": Example("1", "the cat")}, "no named parts"),
        (gpt2, {"prompt": Example("1", "the cat"), "answer": None}, "no named parts"),
        (gpt2, {"among": "document 4"}, "no part 'document 4'.*Did you mean"),
        (gpt2, {"method": "rollout"}, "method of sources is one of"),
        (gpt2, {"prompt": {**PARTS, "more": "dog " * 60}}, "the model takes 64"),
        (gpt2, {"prompt": {**PARTS, "more": "dog " * 60}, "answer": None}, "the model takes 64"),
        (gpt2, {"prompt": {**PARTS, "more": "dog " * 25}, "answer": None, "generate": 30}, "cannot go on"),
        (gpt2, {"prompt": {"a": "the cat un"}, "answer": "believably"}, "'a' and 'answer'.*share the token"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(make, arguments, words):
    given = {"prompt": PARTS, "answer": ANSWER, **arguments}
    with pytest.raises(UserError, match=words):
        lo.sources(make(), given.pop("prompt"), **given)


def test_a_plain_text_has_no_parts():
    with pytest.raises(UserError, match="has named parts"):
        as_prompt("the cat sat")


def test_parts_that_share_a_token_are_refused():
    example = Example("1", "the unbelievably bad", parts=(Span("a", 0, 6), Span("b", 6, 20)))
    with pytest.raises(UserError, match="share the token"):
        lo.sources(gpt2(), example, " dog")


def test_the_plot_and_the_page_show_every_part(tmp_path):
    used = lo.sources(gpt2(), {**PARTS, "document 2": "<b> it was"}, ANSWER)
    chart = used.plot().chart.to_dict()
    drawn = {row["part"] for panel in chart["hconcat"] for row in panel["data"]["values"]}
    assert drawn == set(PARTS)
    page = used.save(tmp_path / "used.html").read_text(encoding="utf-8")
    for words in ("What did", "log-probability", "document 3", "masked out in every layer", "&lt;b&gt; it was"):
        assert words in page
    assert "<b> it" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<table" in used._repr_html_()


def test_the_cost_is_said_beforehand_and_is_right(capsys, monkeypatch):
    copies = []
    run = Likelihood._run
    monkeypatch.setattr(
        Likelihood, "_run", lambda self, hidden, start: copies.append(len(hidden)) or run(self, hidden, start)
    )
    lo.sources(gpt2(), PARTS, generate=2, among="document *")
    said = capsys.readouterr().err
    assert said.startswith("sources: 1 prompt: 1 answer to generate, one pass for attention and norms")
    assert f" {sum(copies)} copies with masked parts in all" in said
    lo.sources(gpt2(), PARTS, ANSWER, progress=False)
    assert capsys.readouterr().err == ""


def test_copies_are_counted_as_they_are_done(monkeypatch, capsys):
    monkeypatch.setattr("lorgnette.progress.EVERY", -1.0)
    monkeypatch.setattr(masking, "TOGETHER", Room(40, 40))
    used = lo.sources(gpt2(), PARTS, ANSWER, among="document *")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("masking parts: ")]
    count = len(used.data["source"]) + int(used.data["compared"].sum()) + 1
    done = [int(line.split()[2]) for line in lines]
    assert done == sorted(set(done))
    assert len(done) > 1
    assert done[-1] == count
    assert f" of {count} copies" in lines[0]


def test_a_look_says_what_a_prompt_takes(capsys):
    example = answered(lo.prompt(PARTS), ANSWER)
    lo.look(gpt2(), [example], ["sources"])
    assert "sources: for each prompt one pass for attention and norms" in capsys.readouterr().err


def test_a_look_keeps_what_every_part_has_at_every_head():
    """A row for each part of each prompt, as `lo.sources` has it; removed heads are missing."""
    made = lo.remove_heads(gpt2(), ["1.2", "1.4"])
    parts = [PARTS, {name: f"{text} ." for name, text in PARTS.items()}]
    prompts = [replace(answered(lo.prompt(each), ANSWER), id=str(number)) for number, each in enumerate(parts)]
    found = lo.look(made, prompts, ["sources:heads=true"], batch_tokens=1, progress=False)["sources"].data
    assert "head_norm" not in lo.look(made, prompts, ["sources"], progress=False)["sources"].data
    for number, each in enumerate(parts):
        used = lo.sources(made, each, ANSWER, progress=False)
        labels = [f"{number}: {name}" for name in each]
        for signal in ("attention", "norm", "relevance"):
            own = found[f"head_{signal}"].sel(stack="decoder", source=labels).transpose("layer", "head", "source")
            expected = used.heads(signal).transpose("layer", "head", "source").values
            np.testing.assert_allclose(own.values, expected, rtol=1e-5, atol=1e-6)
            assert np.isnan(own.values[0, [1, 3]]).all()
            assert not np.isnan(own.values[0, [0, 2]]).any()
