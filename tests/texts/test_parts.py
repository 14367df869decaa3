"""Who speaks, and the named parts of a prompt, as kinds of token."""

import numpy as np
import pytest
import torch
from tiny import subject, tokenizer

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.looking.look import look
from lorgnette.subject import Subject
from lorgnette.subject.trace import Trace
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.parts import chatting

TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}{{ '[CLS] w7 w8 [SEP] ' }}{% endif %}"
    "{% for m in messages %}{{ '[CLS] w9 ' + m['content'] + ' [SEP] ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[CLS] w10 ' }}{% endif %}"
)
CHAT = [{"role": "system", "content": "w20 w21"}, {"role": "user", "content": "w7 w22 w9"}]


def chatty(template: str = TEMPLATE) -> Subject:
    made = subject("llama")
    made.tokenizer.chat_template = template
    return made


def test_who_speaks_is_a_kind_of_token():
    tokens = chatty().encode([lo.chat(CHAT)]).source
    assert " ".join(tokens.pieces[0]) == "[CLS] w9 w20 w21 [SEP] [CLS] w9 w7 w22 w9 [SEP] [CLS] w10"
    speaks = tokens.part_names()
    assert speaks == [*["template"] * 2, *["system"] * 2, *["template"] * 3, *["user"] * 3, *["template"] * 3]
    assert [place for place, flag in enumerate(tokens.special[0]) if flag] == [0, 4, 5, 10, 11]


def test_what_the_template_adds_is_not_taken_for_what_is_said():
    """The template's own message says w7 and w8; so does the user, later."""
    tokens = chatty().encode([lo.chat([{"role": "user", "content": "w7 w8"}], answer=False)]).source
    assert " ".join(tokens.pieces[0]) == "[CLS] w7 w8 [SEP] [CLS] w9 w7 w8 [SEP]"
    assert tokens.part_names() == [*["template"] * 6, "user", "user", "template"]


def test_templates_that_strip_are_proved_and_those_that_rewrite_refused():
    padded = [{"role": "user", "content": "  w7 w8 "}]
    stripping = chatty(TEMPLATE.replace("m['content']", "m['content'] | trim"))
    assert stripping.encode([lo.chat(padded, answer=False)]).source.part_names()[6:8] == ["user", "user"]
    rewriting = chatty(TEMPLATE.replace("m['content']", "m['content'] | upper"))
    with pytest.raises(UserError, match="rewrites messages"):
        rewriting.encode([lo.chat(padded)])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "list of messages"),
        ("hello", "list of messages"),
        ([{"role": "user"}], "Message 1 of the chat has no content"),
        ([{"role": "user", "content": "w7"}, "w8"], "Message 2 of the chat is a text without a role"),
        ([None], "Message 1 of the chat is None"),
        ([{"role": "user", "content": ["w7"]}], "has a value of type list as its content"),
        ([{"role": "user", "content": lo.prompt(question="w7")}], r"prompt\.text"),
        ([{"role": "cls", "content": "w7"}], "cannot be called 'cls'"),
    ],
)
def test_messages_that_are_none(messages, words):
    with pytest.raises(UserError, match=words):
        lo.chat(messages)


def test_a_tokenizer_without_a_template():
    with pytest.raises(UserError, match="no chat template"):
        subject("llama").trace(lo.chat(CHAT))


def test_prompts_and_pairs_keep_their_parts():
    model = subject("llama")
    prompt = lo.prompt({"first example": "w7 w8"}, instruction="w9", separator=" ")
    tokens = model.encode([prompt]).source
    assert tokens.part_names() == ["", "first example", "first example", "instruction", ""]
    pair = subject("bert").encode([Example("1", "w7 w8", pair="w9")]).source
    assert pair.part_names() == ["", "text", "text", "", "pair", ""]
    assert subject("bert").encode(["w7"]).source.part_names() is None
    with pytest.raises(UserError, match="at least one part"):
        lo.prompt()


def test_parts_read_each_other():
    """Against sums by hand; weights add up to one, norms are α‖f(x)‖."""
    model = chatty()
    trace = model.trace(lo.chat(CHAT), generate=3)
    assert trace.parts["generated"] == [13, 14, 15]
    said = model.tokenizer.convert_ids_to_tokens(trace.batch.source.ids[0, 13:].tolist())
    assert trace.generated.text.split() == said
    shares = trace.by_part()
    np.testing.assert_allclose(shares.sum("key_part").values, 1.0, atol=1e-12)
    user, system = trace.parts["user"], trace.parts["system"]
    expected = trace["weights"][:, :, user][..., system].sum(-1).mean(-1)
    np.testing.assert_allclose(shares.sel(query_part="user", key_part="system").values, expected.numpy(), atol=1e-12)
    norms = trace.by_part("norms")
    site = model.sites[1]
    weights = model.anatomy[site].output_weights()[0].detach()
    for head in range(4):
        lengths = (trace["value"][1, head] @ weights[head]).norm(dim=-1)
        wanted = (trace["weights"][1, head][user] * lengths)[:, system].sum(-1).mean()
        got = norms.sel(layer=2, head=head + 1, query_part="user", key_part="system")
        assert float(got) == pytest.approx(float(wanted), rel=1e-10)
    with pytest.raises(UserError, match="weights or norms"):
        trace.by_part("entropy")


def test_lenses_tell_masses_and_norms_by_who_speaks():
    model = chatty()
    rows = [Example("a", "w30 w31", extra={"messages": CHAT}), Example("b", "w40 w41 , w42")]
    chats = chatting(Corpus.of(rows))
    lenses = [lo.lens.get(name, parts=("system", "user", "template")) for name in ("weights", "norms")]
    results = look(model, chats, lenses, progress=False)
    mass = results["weights"].data["mass"].isel(stack=0)
    traces = [Trace.of(model, example) for example in chats]
    own = [t["weights"][..., t.parts["user"]].sum(-1).mean(-1) for t in traces]
    np.testing.assert_allclose(mass.sel(category="user").values, torch.stack(own).mean(0).numpy(), atol=1e-6)
    # One of the two chats has a system message: the mean is over that one alone.
    system = traces[0]["weights"][..., traces[0].parts["system"]].sum(-1).mean(-1)
    np.testing.assert_allclose(mass.sel(category="system").values, system.numpy(), atol=1e-6)
    weight = results["norms"].data["weight"].isel(stack=0)
    np.testing.assert_allclose(weight.sel(category="user").values, mass.sel(category="user").values, atol=1e-6)


def test_a_corpus_without_parts_keeps_its_fingerprint():
    assert Corpus.of([Example("1", "w7")]).fingerprint() != Corpus.of([lo.prompt(a="w7")]).fingerprint()
    assert tokenizer("bert").chat_template is None
