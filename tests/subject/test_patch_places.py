"""Where the tokens of a picture stand: one square of the picture is changed, and the tokens there change, no others.

The heads of each tower are silenced, so that what becomes of a square depends on its own pixels alone.
"""

import numpy as np
import pytest
import torch
from tiny.models import peaked
from tiny.pictures import picture_model
from tiny.processors import processor_of, tiling_processor_of

import lorgnette as lo
from lorgnette.texts.patches import Patches
from lorgnette.texts.pictures import Picture
from lorgnette.texts.seen import seen_pictures

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")

SMALL, TALL = (16, 16), (24, 16)
"""Columns and rows of pixels."""
ONE = {"llava": (SMALL, 4), "paligemma": (SMALL, 4), "gemma3": (SMALL, 8), "idefics3": (SMALL, 8),
       "smolvlm": (SMALL, 8), "qwen2_5_vl": (TALL, 8), "qwen3_vl": (TALL, 8)}  # fmt: skip
"""Pictures that become one table of tokens as they are: their size, and the pixels of the side of a token."""
TILED = {"idefics3": ((32, 32), 2), "smolvlm": ((32, 32), 2), "internvl": ((48, 32), 3)}
"""Pictures that are cut into tiles of 16 × 16 pixels, of 2 × 2 tokens each, and shown once more as a whole: their size,
and how many tiles stand side by side.
"""


def shown(kind, processor, size, squares, model=None):
    """A subject, a batch of the picture as it is and with each of these squares painted, and what enters."""
    subject = lo.Subject(peaked(picture_model(kind)[0] if model is None else model), processor)
    silenced(subject)
    pixels = np.random.default_rng(0).integers(64, 192, (size[1], size[0], 3), dtype=np.uint8)
    pictures = [pixels]
    for left, top, side in squares:
        painted = pixels.copy()
        painted[top : top + side, left : left + side] = 255 - painted[top : top + side, left : left + side]
        painted[top : top + side, left : left + side, 0] = 255
        pictures.append(painted)
    batch = subject.encode(
        [lo.Example(str(n), "it", image=Picture.of(Image.fromarray(p), "")) for n, p in enumerate(pictures)]
    )
    return subject, batch, entered(subject, lambda: subject.run(batch))


def silenced(subject):
    """Without what the heads of the tower write."""
    with torch.no_grad():
        for site in subject.anatomy.sites:
            if site.site.name == "vision":
                for parameter in site.output.parameters():
                    parameter.zero_()


def entered(subject, run):
    """The vectors that enter the language model."""
    stack, seen = next(stack for stack in subject.anatomy.stacks if stack.name == "decoder"), []
    hook = stack.module.register_forward_pre_hook(
        lambda module, given, named: seen.append(named["inputs_embeds"]), with_kwargs=True
    )
    with torch.no_grad():
        run()
    hook.remove()
    return seen[0]


def changed(batch, states):
    """By picture: how far each token that stands for a place is from the unchanged one, and its place."""
    patches = batch.source.patches
    assert isinstance(patches, Patches)
    for text in range(1, len(states)):
        far = (states[text] - states[0]).norm(dim=-1)
        assert float(far[patches.tile[text] < 0].max()) == 0.0
        yield far / far.max(), patches.tile[text], torch.stack([patches.row[text], patches.column[text]], -1)


@pytest.mark.parametrize("kind", ONE)
def test_a_token_stands_where_its_pixels_are(kind):
    size, side = ONE[kind]
    places = [(row, column) for row in range(size[1] // side) for column in range(size[0] // side)]
    subject, batch, states = shown(kind, processor_of(kind), size, [(side * c, side * r, side) for r, c in places])
    for place, (far, tile, at) in zip(places, changed(batch, states), strict=True):
        assert {tuple(one) for one in at[far > 1e-3].tolist()} == {place}
        assert tile[tile >= 0].unique().tolist() == [0]
    under(subject, batch, [(0, *place) for place in places], (size[1] // side, size[0] // side))


@pytest.mark.parametrize("kind", TILED)
def test_a_token_of_a_tile_stands_where_its_pixels_are(kind):
    """Tiles are counted row by row, and the whole picture is the last one."""
    size, wide = TILED[kind]
    places = [(tile, row, column) for tile in range(wide * size[1] // 16) for row in (0, 1) for column in (0, 1)]
    squares = [(16 * (tile % wide) + 8 * c, 16 * (tile // wide) + 8 * r, 8) for tile, r, c in places]
    subject, batch, states = shown(kind, tiling_processor_of(kind), size, squares)
    whole = 1 + places[-1][0]
    for (number, *place), (left, top, _), (far, tile, at) in zip(places, squares, changed(batch, states), strict=True):
        assert int(tile.max()) == whole
        seen = {
            (int(t), *one)
            for t, one in zip(tile, at.tolist(), strict=True)
            if t < whole and far[t == tile].max() > 1e-3
        }
        strong = {
            (int(t), *one) for t, one, f in zip(tile, at.tolist(), far, strict=True) if 0 <= t < whole and f > 1e-3
        }
        assert strong == {(number, *place)}, seen
        strongest = int(far.where(tile == whole, 0).argmax())
        assert at[strongest].tolist() == [2 * (top + 4) // size[1], 2 * (left + 4) // size[0]]
    under(subject, batch, places, (2, 2))


def under(subject, batch, places, shape):
    """The pixels that an overlay has under a token are those that were painted."""
    patches = batch.source.patches
    pictures = [seen_pictures(batch.inputs, patches, text, subject.processor) for text in range(len(batch))]
    if pictures[0] is None:  # packed patches: the picture itself lies under them
        assert "image_grid_thw" in batch.inputs
        return
    for (tile, row, column), seen in zip(places, pictures[1:], strict=True):
        painted = (seen[tile].astype(int) != pictures[0][tile].astype(int)).any(-1)
        high, wide = (pixels // count for pixels, count in zip(painted.shape, shape, strict=True))
        expected = np.zeros_like(painted)
        expected[row * high : (row + 1) * high, column * wide : (column + 1) * wide] = True
        np.testing.assert_array_equal(painted, expected)


LINED = [("llava_next", (32, 16)), ("llava_next", (16, 32)), ("llava_next", (32, 8)), ("llava_onevision", (32, 16))]


@pytest.mark.parametrize(("kind", "size"), LINED)
def test_a_token_of_lines_stands_where_its_pixels_are(kind, size):
    """LLaVA-NeXT and OneVision show the whole picture, then its tiles as one table whose lines end in a token.

    A picture that is flatter than its tiles is padded, and the padding is left out of the table.
    """
    wide, high = size[0] // 4, size[1] // 4
    places = [(row, column) for row in range(high) for column in range(wide)]
    processor, model = tiling_processor_of(kind), picture_model(kind)[0]
    model.config.image_grid_pinpoints = processor.image_processor.image_grid_pinpoints
    squares = [(4 * column, 4 * row, 4) for row, column in places]
    subject, batch, states = shown(kind, processor, size, squares, model)
    image = batch.source.categories["image"][0]
    assert int(image.sum()) == 16 + high * (wide + 1)
    for (row, column), (far, tile, at) in zip(places, changed(batch, states), strict=True):
        assert [one for t, one, f in zip(tile, at.tolist(), far, strict=True) if t == 1 and f > 1e-3] == [[row, column]]
        strongest = int(far.where(tile == 0, 0).argmax())
        for found, one, pixels in zip(at[strongest].tolist(), (row, column), (size[1], size[0]), strict=True):
            assert 16 * one // pixels <= found < -(-16 * (one + 1) // pixels)  # of the four that the whole has
    tables = batch.source.patches.tables()
    assert tables == [(0, 0), (1, 0)]
    trace = subject.trace("it", image=batch.examples[0].image.image)
    assert trace.overlay(1, 1, table=1).numbers.shape == (high, wide)
    assert trace.overlay(1, 1, table=1).picture.size == size
    assert trace.overlay(1, 1).picture.size == (16, 16)


@pytest.mark.parametrize("kind", ["llama4", "ovis2", "lfm2_vl", "gemma4", "qwen2_5_vl"])
def test_a_token_stands_where_its_numbers_are(kind):
    """Of models without a processor here: the numbers of one square of four patches are changed, or of one patch."""
    model, given = picture_model(kind)
    subject = lo.Subject(model, inputs=given)
    silenced(subject)
    batch = lo.batch(given, config=model.config)
    patches, packed = batch.source.patches, given["pixel_values"].dim() < 4
    side = int(patches.row.max()) + 1
    states = entered(subject, lambda: model(**given))
    for row in range(side):
        for column in range(side):
            changed, wide = given["pixel_values"].clone(), 4 // side
            for r in range(row * wide, (row + 1) * wide):
                for c in range(column * wide, (column + 1) * wide):
                    if not packed:
                        changed[0, :, 4 * r : 4 * r + 4, 4 * c : 4 * c + 4] += 1
                    elif changed.dim() == 3:
                        changed[0, 4 * r + c] += 1
                    else:  # squares of patches stand together
                        changed[4 * (2 * (r // 2) + c // 2) + 2 * (r % 2) + c % 2] += 1
            after = entered(subject, lambda changed=changed: model(**{**given, "pixel_values": changed}))
            far = (after - states).norm(dim=-1)
            moved = (far > 1e-3 * far.max()).nonzero().tolist()
            assert [(t, int(patches.row[t, n]), int(patches.column[t, n])) for t, n in moved] == [(0, row, column)]
