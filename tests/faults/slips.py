"""Wrong arguments of the functions about prompts, results and heads; each message names the argument.

Run by `test_fuzz_sample.py` in a process that does not check annotations: wrong types are what a user passes.
"""

import numpy as np
import pytest
from tiny import TEXTS, bert, classifier, gpt2

import lorgnette as lo


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lo.prompt({"doc": "a", "question": "b"}, separator=None), "separator of a prompt must be a word"),
        (lambda: lo.prompt(["a"]), "parts of a prompt must be a mapping"),
        (lambda: lo.Generation(3, temperature="hot"), "temperature of a Generation must be a number above 0"),
        (lambda: lo.Generation(3, temperature=1, seed=1.5), "seed of a Generation must be a whole number"),
        (lambda: lo.Next([5]), "piece, a piece of text or the id of a token, must be"),
        (lambda: lo.Next(at="x"), "at, the place of a token"),
        (lambda: lo.merge([3]), "A shard is what look"),
        (lambda: lo.report(3), "A report needs a run"),
        (lambda: lo.remove_heads(3, ["1.2"]), "remove_heads takes a Subject or a model"),
        (lambda: lo.remove_heads(bert(), 3), "Heads are a list of names"),
        (lambda: lo.remove_heads(bert(), ["1.2"], factors={"1.2": 0.5}), "factors of heads are named by Site"),
        (lambda: lo.logit_lens(bert().model, "a"), "logit_lens takes a Subject"),
        (lambda: lo.logit_lens(gpt2(), ""), "has no token"),
        (lambda: lo.look(bert(), TEXTS[:2], "weights", labels=[1]), "labels must be a mapping"),
        (lambda: lo.explain(classifier(), {"a b", "c"}), "a set has no order"),
        (lambda: lo.explain(gpt2(), "a b", "attnlrp", target={}), "The target .* is no token"),
        (lambda: lo.paths(gpt2(), "a b", count=0), "count must be a whole number"),
        (lambda: lo.paths(gpt2().model, "a b"), "paths takes a Subject"),
        (lambda: bert().trace("a b").head(1.5, 1), "layer must be a whole number"),
        (lambda: bert().trace("a b").words(stack="decoder"), "has no stack 'decoder'.* It has encoder"),
        (lambda: bert().trace("a b")[3], "name must be a word"),
        (lambda: bert().trace("a b").save(None), "path must be a word or a path"),
        (lambda: lo.look(bert(), TEXTS[:2], "weights", progress=False)["norms"], "no result 'norms'"),
        (lambda: lo.Corpus.of(TEXTS), "takes Examples of texts, not 'The cat sat"),
        (lambda: lo.corpus(TEXTS).shuffled("x"), "seed must be a whole number"),
        (lambda: lo.corpus(TEXTS).take(None), "n must be a whole number"),
        (lambda: lo.Results.load(None), "folder must be a word or a path"),
        (lambda: bert().check({}), "inputs have no tensors"),
        (lambda: lo.Report(lo.look(bert(), TEXTS[:2], "weights", progress=False), examples=["x"]), "examples, of one"),
    ],
)  # fmt: skip
def test_slips_get_one_line(call, message):
    with pytest.raises(lo.UserError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_numbers_of_any_type_sample_alike():
    """transformers itself refuses a temperature of 1 and NumPy's numbers."""
    model = gpt2()
    given = [lo.Generation(4, temperature=1, top_k=3), lo.Generation(np.int64(4), np.float64(1.0), np.int64(3))]
    one, other = (model.trace("the cat", generate=each) for each in given)
    assert one.batch.source.ids.tolist() == other.batch.source.ids.tolist()
