"""Tokens that stand for pictures: which they are, where on the picture, and what lenses say of them."""

import copy

import numpy as np
import pytest
import torch
import transformers as hf
from tiny.pictures import EXACT, picture_model

import lorgnette as lo
from lorgnette.texts.tower import tower_batch

PARTS = ("image", "text", "special")
PLACED = {"llava": 4, "paligemma": 4, "gemma3": 2, "internvl": 2, "smolvlm": 2, "qwen2_vl": 2, "mistral3": 2}
"""Rows, and columns, of the tokens of a picture of 4 × 4 patches."""


@pytest.mark.parametrize("kind", PLACED)
def test_image_tokens_are_a_part_with_their_places(kind):
    model, inputs = picture_model(kind)
    source = lo.batch(inputs, config=model.config).source
    image = inputs["input_ids"] == 90
    assert torch.equal(source.categories["image"], image)
    assert torch.equal(source.categories["text"], inputs["attention_mask"].bool() & ~image)
    side, patches = PLACED[kind], source.patches
    assert patches is not None
    for text in (0, 1):
        number = torch.arange(side * side)
        assert torch.equal(patches.row[text][image[text]], number // side)
        assert torch.equal(patches.column[text][image[text]], number % side)
        assert set(patches.tile[text].tolist()) == {-1, 0}
        assert bool((patches.row[text][~image[text]] == -1).all())


def test_tiles_and_frames_are_counted():
    """Two videos of two frames in the first text, one picture in the second: by hand."""
    model, _ = picture_model("qwen2_vl")
    ids = torch.tensor([[2, *[90] * 16, 7], [2, *[90] * 6, *[0] * 11]])
    grids = torch.tensor([[2, 4, 4], [2, 4, 4], [1, 4, 6]])
    given = {"input_ids": ids, "attention_mask": (ids != 0).long(), "image_grid_thw": grids}
    patches = lo.batch(given, config=model.config).source.patches
    assert patches.tile[0].tolist() == [-1, *[0] * 8, *[1] * 8, -1]
    assert patches.frame[0].tolist() == [-1, *[0] * 4, *[1] * 4, *[0] * 4, *[1] * 4, -1]
    assert patches.row[1, 1:7].tolist() == [0, 0, 0, 1, 1, 1]
    assert patches.column[1, 1:7].tolist() == [0, 1, 2, 0, 1, 2]


def test_numbers_of_tokens_become_tables():
    model, inputs = picture_model("llava")
    patches = lo.batch(inputs, config=model.config).source.patches
    (table,) = patches.pictures(torch.arange(21.0))
    assert np.array_equal(table, np.arange(1.0, 17.0).reshape(4, 4))


def test_unknown_grids_are_not_guessed():
    """The ends of lines are among LLaVA-NeXT's tokens: without the sizes of pictures, only the user can say more."""
    model, inputs = picture_model("llava_next")
    inputs = {name: tensor for name, tensor in inputs.items() if name != "image_sizes"}
    batch = lo.batch(inputs, config=model.config)
    assert batch.source.patches is None
    assert int(batch.source.categories["image"].sum()) == 2 * 36
    assert lo.batch(inputs, config=model.config, grid=(4, 9)).source.patches is not None
    with pytest.raises(lo.UserError, match="expected whole grids"):
        lo.batch(inputs, config=model.config, grid=(5, 5))


def test_a_tower_by_itself_gets_its_grid():
    pixels = {"pixel_values": torch.zeros(2, 3, 16, 16)}
    patches = lo.batch(pixels, tokens=17, grid=(4, 4)).source.patches
    assert patches.row[0].tolist() == [-1, *[row for row in range(4) for _ in range(4)]]
    with pytest.raises(lo.UserError, match="25 patches, and a picture has 17 tokens"):
        lo.batch(pixels, tokens=17, grid=(5, 5))
    with pytest.raises(lo.UserError, match="no token stands for a picture"):
        lo.batch({"input_ids": torch.ones(1, 4, dtype=torch.long)}, grid=(2, 2))


def test_a_moved_batch_keeps_its_places():
    model, inputs = picture_model("llava")
    batch = lo.batch(inputs, config=model.config)
    assert torch.equal(batch.to("cpu").source.patches.row, batch.source.patches.row)


@pytest.mark.parametrize("kind", [kind for kind in EXACT if kind not in ("clip", "siglip", "blip")])
def test_mass_on_the_image_is_the_sum_of_its_columns(kind):
    """The lens against the weights of `lo.attention`, text by text; with standard errors over texts."""
    model, inputs = picture_model(kind)
    lens = lo.lens.get("weights", parts=PARTS)
    batch = lo.batch(inputs, config=model.config)
    with torch.no_grad(), lo.watch(model, lens, batch=batch):
        model(**inputs)
    with torch.no_grad():
        seen = lo.attention(model, **inputs)
    data, masks = lens.compute().data, batch.source.categories
    stack = "encoder" if kind == "florence2" else "decoder"
    assert stack in data["stack"].values
    assert "vision" not in data["stack"].values
    real = inputs["attention_mask"].bool()
    for name in PARTS if "image" in masks else ():
        sites = [site for site in seen.sites if site.name == stack]
        for site in sites:
            weights = seen.records[site]["weights"]
            part = torch.zeros_like(real) if name not in masks else masks[name]
            mass = (weights * part[:, None, None]).sum(-1)  # [text head query]
            each = torch.stack([mass[text][:, real[text]].mean(-1) for text in range(len(real))])
            got = data["mass"].sel(stack=stack, layer=site.layer + 1, category=name).values
            if name != "special":
                np.testing.assert_allclose(got, each.mean(0).numpy(), rtol=2e-5)
                error = data["mass_se"].sel(stack=stack, layer=site.layer + 1, category=name).values
                np.testing.assert_allclose(error, each.std(0).numpy() / 2**0.5, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["norms", "sinks", "geometry"])
@pytest.mark.parametrize("kind", ["llava", "smolvlm", "gemma3", "cohere2_vision", "mllama"])
def test_lenses_read_the_language_model_of_a_model_of_pictures(kind, name):
    model, inputs = picture_model(kind)
    lens = lo.lens.get(name)
    with torch.no_grad(), lo.watch(model, lens, batch=lo.batch(inputs, config=model.config)):
        model(**inputs, output_hidden_states=True)
    data = lens.compute().data
    assert list(data["stack"].values) == ["decoder"]
    assert data.sizes["head"] == 4


def test_packed_patches_of_a_tower_stand_in_squares():
    """As Qwen-VL's processor orders them: those that become one token stand together."""
    example, grid = lo.Example("1", "it"), torch.tensor([[1, 4, 6]])
    pixels = {"pixel_values": torch.zeros(24, 48), "image_grid_thw": grid}
    config = type("Config", (), {"vision_config": type("Vision", (), {"spatial_merge_size": 2})})
    tokens = tower_batch(example, pixels, config, 24, 0).source
    assert tokens.pieces[0][:6] == ("[1,1]", "[1,2]", "[2,1]", "[2,2]", "[1,3]", "[1,4]")
    assert tokens.patches.pictures(torch.arange(24.0))[0][1].tolist() == [2, 3, 6, 7, 10, 11]


def test_patches_of_a_windowed_tower_stand_where_their_numbers_are():
    """Qwen2.5-VL sorts its patches into windows, here of 4 × 4, of which some are cut off at the edge."""
    base, _ = picture_model("qwen2_5_vl")
    config = copy.deepcopy(base.config)
    config.vision_config.window_size = 16
    tower, rows, columns = hf.Qwen2_5_VLModel(config).eval().visual, 6, 10
    grid, states = torch.tensor([[1, rows, columns]]), []
    hook = tower.blocks[0].register_forward_pre_hook(lambda module, given: states.append(given[0]))
    given = torch.randn(rows * columns, 96, generator=torch.Generator().manual_seed(0))
    pixels = {"pixel_values": given, "image_grid_thw": grid}
    places = tower_batch(lo.Example("1", "it"), pixels, config, len(given), 0).source.patches
    with torch.no_grad():
        tower(given, grid)
        for row in range(rows):
            for column in range(columns):
                square = (row // 2) * (columns // 2) + column // 2
                changed = given.clone()
                changed[4 * square + 2 * (row % 2) + column % 2] += 1
                tower(changed, grid)
                (moved,) = (states[-1] - states[0]).abs().amax(-1).nonzero()[:, 0].tolist()
                assert (int(places.row[0, moved]), int(places.column[0, moved])) == (row, column)
    hook.remove()
