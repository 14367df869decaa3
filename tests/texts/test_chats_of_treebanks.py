"""A chat template writes words of its own, so that annotations of words do not fit any more."""

import pytest
from tiny import TREEBANK, gpt2

from lorgnette.errors import UserError
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.parts import chatting


def test_a_treebank_as_chats_is_one_line():
    subject = gpt2()
    subject.tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    for example in chatting(Corpus.of(TREEBANK[:1])):
        with pytest.raises(UserError, match="has annotations of its words, but a chat template adds words"):
            subject.tokenize(example)
