"""Prompts in named parts from JSON: as fields, as spans, as chats; and an answer behind them."""

import json

import pytest
from test_parts import CHAT, chatty
from tiny import subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.texts.example import Example, Span
from lorgnette.texts.parts import answered
from lorgnette.texts.prompts import prompt_corpus, prompt_of

PARTS = {"document 1": "w7 w8", "document 2": "w9", "question": "w10 w11"}


def test_parts_as_fields_as_spans_and_as_a_chat_are_the_same_parts():
    fields = prompt_of({"parts": PARTS})
    spans = prompt_of({"text": fields.text, "parts": [list(span) for span in fields.parts]})
    named = prompt_of({"text": fields.text, "parts": [span._asdict() for span in fields.parts]})
    assert fields.parts == spans.parts == named.parts
    assert [fields.text[a:b].strip() for _, a, b in fields.parts] == list(PARTS.values())
    chat = prompt_of({"messages": [CHAT[0], {"role": "user", "content": PARTS}]})
    tokens = chatty().encode([chat]).source
    of = dict.fromkeys(tokens.part_names())
    assert list(of) == ["template", "system", *PARTS]
    for name, words in PARTS.items():
        mine = [piece for piece, part in zip(tokens.pieces[0], tokens.part_names(), strict=True) if part == name]
        assert " ".join(mine) == words


def test_a_template_that_strips_leaves_the_parts_where_they_are():
    template = chatty().tokenizer.chat_template.replace("m['content']", "m['content'] | trim")
    padded = {"document 1": "  w7 w8", "question": "w9  "}
    tokens = chatty(template).encode([lo.chat([{"role": "user", "content": padded}])]).source
    parts = zip(tokens.pieces[0], tokens.part_names(), strict=True)
    assert [pair for pair in parts if pair[1] != "template"] == [
        ("w7", "document 1"), ("w8", "document 1"), ("w9", "question"),
    ]  # fmt: skip


def test_the_answer_is_the_last_part_of_one_text():
    prompt = answered(lo.prompt(PARTS), " w12 w13")
    tokens = subject("llama").encode([prompt]).source
    assert [p for p, part in zip(tokens.pieces[0], tokens.part_names(), strict=True) if part == "answer"] == [
        "w12", "w13",
    ]  # fmt: skip
    chat = answered(lo.chat([{"role": "user", "content": "w7"}]), "w12")
    tokens = chatty().encode([chat]).source
    assert " ".join(tokens.pieces[0]) == "[CLS] w7 w8 [SEP] [CLS] w9 w7 [SEP] [CLS] w9 w12 [SEP]"
    assert tokens.part_names().index("answer") == 10
    assert answered(Example("1", "w7"), " w8").parts == (Span("answer", 2, 5),)


def test_a_file_of_prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    rows = [{"parts": PARTS, "answer": " w12", "gold": "document 2"}, {"id": "b", "messages": CHAT}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    first, second = prompt_corpus(path)
    assert (first.id, first.extra["gold"], first.parts[-1].name) == ("1", "document 2", "answer")
    assert (second.id, second.extra["messages"][0]["role"]) == ("b", "system")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "w7"}, "no prompt in named parts"),
        ({"parts": {}}, "at least one part"),
        ({"parts": {"question": ""}}, "not empty"),
        ({"parts": {"cls": "w7"}}, "cannot be called 'cls'"),
        ({"text": "w7 w8", "parts": [["a", 0, 3], ["b", 2, 5]]}, "without overlap"),
        ({"text": "w7 w8", "parts": [["a", 0, 9]]}, "the text has 5"),
        ({"text": "w7 w8", "parts": [["a", 0]]}, r"\[name, start, end\]"),
        ({"text": "w7 w8", "parts": [["a", "0", 2]]}, r"\[name, start, end\]"),
        ({"parts": PARTS, "answer": " "}, "is empty"),
        ({"parts": {"answer": "w7"}, "answer": "w8"}, "another name"),
        ({"messages": [{"role": "assistant", "content": "w7"}], "answer": "w8"}, "nothing to answer"),
    ],
)
def test_prompts_that_are_none(row, words):
    with pytest.raises(UserError, match=words) as caught:
        prompt_of(row, where="prompts.jsonl, line 3")
    assert str(caught.value).startswith("prompts.jsonl, line 3: ")
