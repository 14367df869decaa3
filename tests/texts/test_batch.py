import pickle
from dataclasses import dataclass

import pytest
import torch
from tiny import bert

from lorgnette.errors import UserError
from lorgnette.texts.batch import Batch, Tokens, TokenTexts
from lorgnette.texts.example import Example


@dataclass
class Site:
    stack: str
    kind: str


def tokens(*lengths: int) -> Tokens:
    width = max(lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return Tokens(
        ids=mask.long() * 7,
        mask=mask,
        special=torch.zeros_like(mask),
        categories={"other": mask},
        text=TokenTexts.of(
            torch.where(mask, torch.arange(width), -1),
            tuple(("x",) * n for n in lengths),
            tuple(("x",) * n for n in lengths),
        ),
    )


def batch(target: Tokens | None) -> Batch:
    source = tokens(3, 1)
    examples = (Example("a", "x x x"), Example("b", "x"))
    return Batch({"input_ids": source.ids}, source, target, examples)


def test_a_translation_asks_from_the_target_and_cross_attention_reads_the_source():
    both = batch(tokens(2, 4))
    assert both.queries(Site("encoder", "self")) is both.source
    assert both.keys(Site("encoder", "self")) is both.source
    assert both.queries(Site("decoder", "self")) is both.target
    assert both.keys(Site("decoder", "self")) is both.target
    assert both.queries(Site("decoder", "cross")) is both.target
    assert both.keys(Site("decoder", "cross")) is both.source


def test_a_decoder_without_target_asks_and_reads_its_one_text():
    alone = batch(None)
    site = Site("decoder", "self")
    assert alone.queries(site) is alone.source
    assert alone.keys(site) is alone.source


def test_lengths_leave_padding_out():
    assert batch(None).lengths.tolist() == [3, 1]
    assert tokens(2, 4).lengths.tolist() == [2, 4]


def test_to_moves_every_tensor():
    moved = batch(tokens(2, 4)).to("meta")
    assert moved.inputs["input_ids"].device.type == "meta"
    for side in (moved.source, moved.target):
        assert {side.ids.device.type, side.mask.device.type, side.special.device.type, side.word.device.type} == {
            "meta"
        }
        assert side.categories["other"].device.type == "meta"
    assert len(moved) == 2


def test_an_example_whose_annotation_does_not_fit_its_words_is_refused():
    with pytest.raises(UserError, match=r"2 values of 'rationale' for 1 words"):
        Example("a", "x", words=("x",), rationale=(0.0, 1.0))
    with pytest.raises(UserError, match=r"1 values of 'upos' for no words"):
        Example("a", "x", tags={"upos": ("NOUN",)})


def test_examples_travel_between_processes():
    example = Example("a", "x", words=("x",), tags={"upos": ("X",)})
    assert pickle.loads(pickle.dumps(example)) == example


def test_units_are_words_with_special_tokens_among_them():
    tokens = bert().encode(["the cats, sat"]).source
    units = tokens.units()
    assert len(units.number) == len(tokens.pieces[0])
    for place, piece in enumerate(tokens.pieces[0]):  # slowly: what each piece belongs to
        own, unit = tokens.word[0, place].item(), units.number[place].item()
        assert units.index[unit] == own
        assert units.labels[unit] == (piece if own < 0 else tokens.words[0][own])
    assert list(units.number) == sorted(units.number)
    assert len(units.labels) == len(set(units.number.tolist())) == len(tokens.words[0]) + 2
