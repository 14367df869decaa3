"""`lo.watch` takes one pass, on the texts of its batch, and refuses any other before it counts."""

import threading

import pytest
import torch
import transformers as hf
from tiny import BERT, LLAMA, MARIAN, TEXTS, loud, word_pieces

import lorgnette as lo
from lorgnette.errors import UserError

TWO = [TEXTS[0], TEXTS[2]]


@pytest.fixture(scope="module")
def llama():
    return loud(hf.LlamaForCausalLM, hf.LlamaConfig(**LLAMA))


def inputs_of(texts):
    return dict(word_pieces()(list(texts), padding=True, return_tensors="pt", return_token_type_ids=False))


def refused(model, batch, run, said):
    """The pass is refused with this line, and nothing of it is in the lens."""
    lens = lo.lens.get("weights")
    with pytest.raises(UserError, match=said), lo.watch(model, lens, batch=batch), torch.no_grad():
        run()
    assert lens.states.at_start()


def entropies(model, batch, run):
    lens = lo.lens.get("weights")
    with lo.watch(model, lens, batch=batch), torch.no_grad():
        run()
    return torch.tensor(lens.compute().data["entropy"].values)


def test_other_texts_are_refused(llama):
    one, two = inputs_of(TWO[:1]), inputs_of(TWO)
    ids, mask = two["input_ids"], two["attention_mask"]
    for known, given, said in (
        (one, {"input_ids": one["input_ids"].flip(1)}, r"input_ids of the pass are not those of the batch \(text 1\)"),
        (two, {**two, "input_ids": ids.clone().index_fill(1, torch.tensor([1]), 9)}, "are not those of the batch"),
        (one, two, "input_ids of the pass are 2 × .*, and those of the batch 1 × "),
        (two, one, "input_ids of the pass are 1 × "),
        (two, {"input_ids": ids}, "The pass has no attention_mask, and the batch has padding"),
        (two, {**two, "attention_mask": torch.ones_like(mask)}, "attention_mask of the pass is not that of the batch"),
        (
            two,
            {"inputs_embeds": torch.rand(2, 3, 32), "attention_mask": mask[:, :3]},
            "input_ids of the pass are 2 × 3",
        ),
    ):
        for tokenizer in (None, word_pieces()):
            batch = lo.batch(known, tokenizer)
            refused(llama, batch, lambda given=given: llama(**given), said)
            entropies(llama, batch, lambda known=known: llama(**known))  # which makes words and kinds
            refused(llama, batch, lambda given=given: llama(**given), said)


def test_the_same_texts_in_another_form_are_taken(llama):
    inputs = inputs_of(TWO)
    batch = lo.batch(inputs, word_pieces())
    expected = entropies(llama, batch, lambda: llama(**inputs))
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    for run in (
        lambda: llama(ids, mask),
        lambda: llama(ids.int(), attention_mask=mask.bool()),
        lambda: llama(inputs_embeds=llama.get_input_embeddings()(ids), attention_mask=mask),
        lambda: llama(**inputs, past_key_values=hf.DynamicCache(), use_cache=True),
    ):
        torch.testing.assert_close(entropies(llama, batch, run), expected, equal_nan=True)


def test_a_second_pass_is_refused_at_its_start(llama):
    inputs = inputs_of(TWO[:1])
    batch, ran = lo.batch(inputs, word_pieces()), []
    hook = llama.model.register_forward_hook(lambda *_: ran.append(1))

    def twice():
        llama(**inputs)
        llama(**inputs)

    refused(llama, batch, twice, "one pass of the model, and a second one began")
    refused(llama, batch, lambda: llama.generate(**inputs, max_new_tokens=3, do_sample=False), "a second one began")
    hook.remove()
    assert len(ran) == 2
    refused(llama, batch, lambda: None, "one pass of the model; 0 ran")


def test_a_pass_that_goes_on_from_a_cache_is_refused(llama):
    inputs = inputs_of(TWO[:1])
    ids = inputs["input_ids"]
    with torch.no_grad():
        begun = llama(ids[:, :-2], use_cache=True).past_key_values
    last = ids[:, -2:]
    refused(llama, lo.batch({"input_ids": last}), lambda: llama(last, past_key_values=begun), "goes on from past_key")


def test_another_thread_may_run_the_same_model(llama):
    inputs, others = inputs_of(TWO), inputs_of(TWO[:1])
    batch = lo.batch(inputs, word_pieces())
    expected = entropies(llama, batch, lambda: llama(**inputs))

    def run():
        llama(**inputs)
        thread = threading.Thread(target=lambda: llama(**others))
        thread.start()
        thread.join()

    torch.testing.assert_close(entropies(llama, batch, run), expected, equal_nan=True)


def test_translations_and_classifiers():
    source, target = inputs_of(TWO), inputs_of(TWO[::-1])
    model = loud(hf.MarianMTModel, hf.MarianConfig(**MARIAN))
    known = {
        **source, "decoder_input_ids": target["input_ids"], "decoder_attention_mask": target["attention_mask"],
    }  # fmt: skip
    batch = lo.batch(known, word_pieces())
    entropies(model, batch, lambda: model(**known))
    other = {**known, "decoder_input_ids": source["input_ids"]}
    refused(model, batch, lambda: model(**other), "decoder_input_ids of the pass are")
    open_mask = {**known, "decoder_attention_mask": torch.ones_like(target["attention_mask"])}
    refused(model, batch, lambda: model(**open_mask), "decoder_attention_mask of the pass is not")
    bert = loud(hf.BertForSequenceClassification, hf.BertConfig(**BERT))
    entropies(bert, lo.batch(source, word_pieces()), lambda: bert(**source, labels=torch.tensor([0, 1])))
