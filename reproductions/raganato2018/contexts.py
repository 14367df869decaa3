"""Words and sentences: does a state say more of the sentence than of the word, and what is a word alone?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Tap
from lorgnette.looking.controls import shuffled
from lorgnette.subject import Subject
from lorgnette.texts.example import Example
from lorgnette.types import ModelOutput
from reproductions.frame.conditions import origin_of
from reproductions.frame.plain import plain
from reproductions.frame.settings import Machine
from reproductions.raganato2018.measure import opened, sentences

CONTENT = ("NOUN", "PROPN", "VERB", "ADJ", "ADV")
SIMILARITIES = ("same_word", "same_sentence", "other")


def contexts(
    *, machine: Machine, model: str, condition: str, corpus: str, blocks: int, size: int, words: int, seed: int
) -> dict[str, Any]:
    """Everything by block of sentences, similarities by layer too; blocks take turns, so that topics are spread."""
    subject = opened(model, condition, seed, machine)
    texts = sentences(corpus, "test", 1, None, condition, seed, machine)
    parts = [list(texts)[start::blocks][:size] for start in range(blocks)]
    found = [_block(subject, part, words, seed) for part in parts]
    analogies = _analogies(subject, pairs_of(list(texts)), blocks)
    names = [*SIMILARITIES, "order", "alone"]
    return {
        **origin_of(subject, texts),
        "size": size,
        "by_block": {name: plain(np.stack([one[name] for one in found])) for name in names} | analogies,
        "singleton": {name: max(one[name] for one in found) for name in ("weight_gap", "context_gap")},
    }


@dataclass(frozen=True)
class Word:
    """A content word of a sentence: its form, and its vector in every layer."""

    form: str
    sentence: int
    vectors: Float[Tensor, "layer model"]


def _block(subject: Subject, examples: Sequence[Example], words: int, seed: int) -> dict[str, Any]:
    here = _words(subject, examples)
    there = _words(subject, [shuffled(example, seed) for example in examples])
    by_place = {(word.sentence, word.form): word for word in there}
    moved = [
        torch.cosine_similarity(word.vectors, other.vectors, dim=-1)
        for word in here
        if (other := by_place.get((word.sentence, word.form))) is not None
    ]
    out: dict[str, Any] = similarities(here)
    out["order"] = torch.stack(moved).mean(0).numpy()
    return out | _alone(subject, here, words)


def similarities(words: Sequence[Word]) -> dict[str, Float[np.ndarray, " layer"]]:
    """Mean cosine of one form in two sentences, of two forms in one sentence, and of two forms in two sentences."""
    unit = torch.nn.functional.normalize(torch.stack([word.vectors for word in words]), dim=-1)  # [word layer model]
    gram = torch.einsum("ild,jld->lij", unit, unit)
    forms = {form: number for number, form in enumerate(dict.fromkeys(word.form for word in words))}
    form = torch.tensor([forms[word.form] for word in words])
    sentence = torch.tensor([word.sentence for word in words])
    one_form, one_sentence = form[:, None] == form, sentence[:, None] == sentence
    which = (one_form & ~one_sentence, ~one_form & one_sentence, ~one_form & ~one_sentence)
    means = [gram[:, mask].mean(-1) if mask.any() else gram.new_full(gram.shape[:1], torch.nan) for mask in which]
    return {name: mean.numpy() for name, mean in zip(SIMILARITIES, means, strict=True)}


class _Single(Tap):
    """The largest |α − 1| and ‖context − value‖∞ of all heads."""

    def __init__(self) -> None:
        self.weight_gap = self.context_gap = 0.0

    def see(self, call: Call) -> None:
        if call.site.kind == "self" and call.value.shape[2] == 1:
            self.weight_gap = max(self.weight_gap, float((call.weights - 1).abs().max()))
            self.context_gap = max(self.context_gap, float((call.context - call.value).abs().max()))


def _alone(subject: Subject, words: Sequence[Word], most: int) -> dict[str, Any]:
    """Words of one piece without anything around them, not even special tokens: cosine with them in a sentence."""
    pieces = {form: piece for form in dict.fromkeys(word.form for word in words) if (piece := _piece(subject, form))}
    chosen = list(pieces)[:most]
    tap = _Single()
    ids = torch.tensor([[pieces[form]] for form in chosen], device=subject.device)
    inputs = dict(subject.encode(chosen).inputs)
    inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs |= {"token_type_ids": torch.zeros_like(ids)} if "token_type_ids" in inputs else {}
    with torch.no_grad(), subject.tapped(tap):
        states = _layers(subject.model(**inputs, output_hidden_states=True, return_dict=True))[:, :, 0]
    alone = {form: states[:, number].float() for number, form in enumerate(chosen)}
    near = [torch.cosine_similarity(word.vectors, alone[word.form], dim=-1) for word in words if word.form in alone]
    return {"alone": torch.stack(near).mean(0).numpy(), "weight_gap": tap.weight_gap, "context_gap": tap.context_gap}


def _words(subject: Subject, examples: Sequence[Example]) -> list[Word]:
    batch = subject.encode(examples)
    with torch.no_grad():
        states = _layers(subject.run(batch, output_hidden_states=True, return_dict=True)).float()
    out = []
    for text, example in enumerate(examples):
        for index, (form, tag) in enumerate(zip(example.words or (), example.tags["upos"], strict=True)):
            where = batch.source.word[text] == index
            if tag in CONTENT and bool(where.any()):
                out.append(Word(form.lower(), text, states[:, text, where].mean(1)))
    return out


def _layers(outputs: ModelOutput) -> Float[Tensor, "layer text token model"]:
    """The states of the encoder: embeddings, then every layer."""
    states = getattr(outputs, "encoder_hidden_states", None)
    return torch.stack(list(states if states is not None else outputs.hidden_states))


def _piece(subject: Subject, form: str) -> int | None:
    """The one piece that a form is, or None."""
    ids = subject.tokenizer(form, add_special_tokens=False)["input_ids"]
    return int(ids[0]) if len(ids) == 1 and ids[0] != subject.tokenizer.unk_token_id else None


def pairs_of(examples: Sequence[Example]) -> list[tuple[str, str]]:
    """Singular and plural of the nouns whose plural occurs."""
    found = {}
    for example in examples:
        columns = (example.words or (), *(example.tags[name] for name in ("lemma", "upos", "feats")))
        for form, lemma, tag, feats in zip(*columns, strict=True):
            if tag == "NOUN" and "Number=Plur" in feats and form.lower() != lemma.lower():
                found[lemma.lower()] = form.lower()
    return sorted(found.items())


def _analogies(subject: Subject, pairs: Sequence[tuple[str, str]], blocks: int) -> dict[str, Any]:
    """How often a : b = c : ? is solved, with input embeddings and with the last state of the word in a text alone."""
    whole = [pair for pair in pairs if all(_piece(subject, form) is not None for form in pair)]
    if len(whole) < 3 * blocks:
        return {"analogy_input": None, "analogy_state": None, "analogy_pairs": len(whole)}
    forms = [form for pair in whole for form in pair]
    batch = subject.encode(forms)
    with torch.no_grad():
        states = _layers(subject.run(batch, output_hidden_states=True, return_dict=True))[-1].float()
        table = subject.model.get_input_embeddings().weight
        given = table[torch.tensor([_piece(subject, form) for form in forms], device=table.device)].float()
    last = torch.stack([states[k, batch.source.word[k] == 0].mean(0) for k in range(len(forms))])
    both = {"analogy_input": given, "analogy_state": last}
    return {name: solved(vectors, blocks) for name, vectors in both.items()} | {"analogy_pairs": len(whole)}


def solved(vectors: Float[Tensor, "form model"], blocks: int) -> list[float]:
    """Forms come as a, b, a, b, …: the share of analogies within each block whose nearest form (3CosAdd) is right."""
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    out = []
    for start in range(blocks):
        pairs = range(start, len(vectors) // 2, blocks)
        right = []
        for one, other in permutations(pairs, 2):
            a, b, c, d = 2 * one, 2 * one + 1, 2 * other, 2 * other + 1
            near = unit @ (unit[b] - unit[a] + unit[c])
            near[[a, b, c]] = -torch.inf
            right.append(int(near.argmax()) == d)
        out.append(float(np.mean(right)))
    return out
