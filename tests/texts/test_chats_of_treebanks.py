"""A chat template writes words of its own, so that annotations of words do not fit any more."""

from dataclasses import replace

import pytest
from tiny import TREEBANK, gpt2

from lorgnette.errors import UserError
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.parts import chat, chatting


def test_a_treebank_as_chats_is_one_line():
    with pytest.raises(UserError, match="has annotations of its words, but a chat template adds words"):
        list(chatting(Corpus.of(TREEBANK[:1])))
    subject, said = gpt2(), chat([{"role": "user", "content": TREEBANK[0].text}])
    subject.tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    with pytest.raises(UserError, match="has annotations of its words"):
        subject.tokenize(replace(TREEBANK[0], extra=said.extra))
