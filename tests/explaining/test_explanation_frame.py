"""An explanation as a data frame: the tokens, their words, and the relevance that the tensors have."""

import numpy as np
import pytest
from tiny import EXAMPLES, classifier, gpt2, marian

import lorgnette as lo
from lorgnette.errors import UserError


def test_a_row_for_every_token():
    subject = classifier()
    found = lo.explain(subject, ["The cat sat.", "a dog"], "gradient_x_input")
    frame = found.to_dataframe()
    batch = subject.encode(["The cat sat.", "a dog"])
    assert frame["piece"].tolist() == [piece for text in batch.source.pieces for piece in text]
    for number, words in enumerate(found.words(), 1):
        rows = frame[(frame["text"] == number) & frame["word"].notna()]
        np.testing.assert_allclose(rows["relevance"], words.numpy(), rtol=1e-12)  # each word is one piece here
        assert set(frame[frame["text"] == number]["explained"]) == {found.explained[number - 1]}
    np.testing.assert_allclose(frame.groupby("text")["relevance"].sum(), found.tokens.sum(-1).numpy())


def test_the_target_of_a_translation_follows():
    subject = marian()
    batch = subject.encode(EXAMPLES[:2])
    found = lo.explain(subject, batch, "gradient_x_input")
    frame = found.to_dataframe(batch.target)
    sums = frame.groupby(["side", "text"])["relevance"].sum()
    np.testing.assert_allclose(sums["target"], found.target_tokens.sum(-1).numpy())
    np.testing.assert_allclose(sums["source"], found.tokens.sum(-1).numpy())
    assert set(found.to_dataframe()["side"]) == {"source"}
    with pytest.raises(UserError, match="does not translate"):
        lo.explain(classifier(), ["a dog"], "gradient_x_input").to_dataframe(batch.target)


def test_the_parts_of_a_prompt_add_up_to_their_tokens():
    subject = gpt2()
    prompts = [lo.prompt(document="the cat sat .", question="it was"), lo.prompt(question="a dog", document="ran")]
    found = lo.explain(subject, prompts, "gradient_x_input", lo.Next(" good"))
    frame = found.by_part()
    assert frame["part"].tolist() == ["document", "question", "question", "document"]
    assert frame["tokens"].tolist() == [4, 2, 2, 1]
    first, second = found.tokens.tolist()
    expected = [sum(first[:4]), sum(first[4:6]), sum(second[:2]), second[2]]
    assert frame["relevance"].tolist() == pytest.approx(expected)
    assert frame["explained"].tolist() == [each for each in found.explained for _ in range(2)]
    with pytest.raises(UserError, match="Text 1 has no named parts"):
        lo.explain(subject, ["a dog"], "gradient_x_input", lo.Next(" good")).by_part()


def test_a_logit_is_called_one():
    found = lo.explain(classifier(), ["a dog"], "gradient_x_input")
    assert f"{found.explained[0]} (logit " in repr(found)
