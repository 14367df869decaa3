"""The table of verified models: a sample is checked again, and the page is what the table says."""

from pathlib import Path

import pytest
from verified import packed, pictured, sensed, verified

from lorgnette.models.families import model_types
from lorgnette.models.families.verified import page, pictures, quantised, senses, table

SAMPLE = {
    "opt": "exact",
    "bart": "exact",
    "gpt_neox": "exact",
    "phi3": "exact",
    "mixtral": "exact",
    "olmo2": "exact",
    "mt5": "exact",
    "deepseek_v3": "exact",
    "gpt_oss": "exact",
    "jamba": "exact",
    "mamba": "refused",
    "bigbird_pegasus": "refused",
}


@pytest.mark.parametrize("kind", SAMPLE)
def test_a_sample_of_the_table_holds(kind):
    row = next(row for row in table()[1] if row.model_type == kind)
    again = verified(kind)
    assert again.outcome == row.outcome == SAMPLE[kind]
    assert (again.found_by, again.lacks, again.relevance) == (row.found_by, row.lacks, row.relevance)
    assert again.hybrid == row.hybrid == ("1 of 2" if kind == "jamba" else "")


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "blip", "kosmos-2"])
def test_a_sample_of_the_pictures_holds(kind):
    row = next(row for row in pictures() if row.model_type == kind)
    assert pictured(kind) == row


@pytest.mark.parametrize("kind", ["vit", "wavlm", "speech2text"])
def test_a_sample_of_pictures_or_sound_alone_holds(kind):
    row = next(row for row in senses() if row.model_type == kind)
    assert sensed(kind) == row
    assert row.outcome == "exact"


@pytest.mark.parametrize("kind", ["GPTQ, 4 bits (by hand)", "FP8 with inputs in FP8 (by hand)"])
def test_a_sample_of_quantised_weights_holds(kind):
    row = next(row for row in quantised() if row.model_type == kind)
    again = packed(kind)
    assert (again.outcome, again.lacks, again.relevance) == (row.outcome, row.lacks, row.relevance)
    assert again.outcome == "exact"


def test_at_least_twelve_models_of_pictures_are_exact():
    assert len([row for row in pictures() if row.outcome == "exact"]) >= 12


def test_every_record_is_in_the_table_and_exact():
    exact = {row.model_type for row in table()[1] if row.outcome == "exact"}
    exact |= {row.model_type for row in pictures() if row.outcome == "exact"}
    # WavLM reads sound, ViT pictures: tests/bare/test_other_inputs.py proves both; BLIP: tests/models/test_pictures.py
    not_of_text = {"wavlm", "vit", "blip_text_model", "blip_vision_model"}
    assert set(model_types()) - {"lorgnette-classifier"} - not_of_text <= exact
    assert len(exact) >= 120


def test_what_is_not_exact_has_a_reason():
    assert all(row.why for row in table()[1] if row.outcome != "exact")


def test_the_page_is_the_table():
    assert (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8") == page()
