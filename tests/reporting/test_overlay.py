"""Numbers of patches on their picture."""

import re

import numpy as np
import pytest
import torch
from tiny.pictures import picture_model
from tiny.processors import processor_of

import lorgnette as lo
from lorgnette.reporting.overlay import MOST, overlay
from lorgnette.texts.patches import Patches
from lorgnette.texts.seen import seen_pictures

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")


@pytest.fixture
def shown():
    model, inputs = picture_model("llava")
    return lo.batch(inputs, config=model.config), Image.fromarray(np.full((40, 40, 3), 230, dtype=np.uint8))


def test_each_patch_is_as_opaque_as_its_number(shown, tmp_path):
    batch, picture = shown
    values = torch.zeros(21)
    values[1 + 5], values[1 + 12] = 2.0, -1.0
    received = torch.zeros(21)
    received[1 + 15] = 0.4
    made = overlay(batch, values, picture, received=received, title="layer 2, head 3")
    boxes = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"[^>]*fill="(#\w+)" fill-opacity="([\d.]+)"', made.svg())
    assert len(boxes) == 16
    assert boxes[5] == ("96.00", "96.00", "#0072b2", f"{MOST:.3f}")
    assert boxes[12] == ("0.00", "288.00", "#c04d00", f"{MOST / 2:.3f}")
    assert all(float(box[3]) == 0 for number, box in enumerate(boxes) if number not in (5, 12))
    framed = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"[^>]*fill="none"', made.svg())
    assert framed == [("288.00", "288.00")]
    assert "layer 2, head 3: -1 to 2, framed: sinks" in made.svg()
    assert made.save(tmp_path / "one.svg").read_text(encoding="utf-8") == made.svg()
    with Image.open(made.save(tmp_path / "one.png")) as drawn:
        pixels = np.asarray(drawn.convert("RGB")).astype(int)
    strong, plain = pixels[140, 140], pixels[40, 300]
    assert strong[2] - strong[0] > 100
    assert abs(plain - 230).max() < 5
    with pytest.raises(lo.UserError, match=r"as \.svg or \.png"):
        made.save(tmp_path / "one.gif")


def test_what_cannot_be_drawn_is_one_line(shown, tmp_path):
    batch, picture = shown
    words = lo.batch(
        {"input_ids": torch.tensor([[2, 90, 5], [2, 5, 6]])}, config=picture_model("llava")[0].config, grid=(1, 1)
    )
    with pytest.raises(lo.UserError, match="no picture to draw on"):
        overlay(words, torch.zeros(3), text=1)
    with pytest.raises(lo.UserError, match="1 tiles and frames"):
        overlay(batch, torch.zeros(21), picture, table=1)
    with pytest.raises(lo.UserError, match=r"There is no picture 'none\.png'"):
        overlay(batch, torch.zeros(21), tmp_path / "none.png").svg()
    blind = lo.batch({"input_ids": torch.ones(1, 4, dtype=torch.long)})
    with pytest.raises(lo.UserError, match="not known"):
        overlay(blind, torch.zeros(4), picture)


def test_it_is_drawn_on_what_the_model_saw():
    """The processor keeps the middle of a wide picture: what it cut off lies under no patch."""
    wide = np.zeros((16, 32, 3), dtype=np.uint8)
    wide[:, :8], wide[:, 8:16], wide[:, 16:24], wide[:, 24:] = (255, 0, 0), (200, 200, 40), (40, 40, 200), (0, 255, 0)
    subject = lo.Subject(picture_model("llava")[0], processor_of("llava"))
    trace = subject.trace("a cat", image=Image.fromarray(wide))
    (seen,) = seen_pictures(trace.batch.inputs, trace.batch.source.patches, 0, subject.processor)
    assert seen.shape == (16, 16, 3)
    assert np.abs(seen[:, 2:6].astype(int) - (200, 200, 40)).max() <= 3
    assert np.abs(seen[:, 10:14].astype(int) - (40, 40, 200)).max() <= 3
    drawn = trace.overlay(2, 3, query=-1)
    assert drawn.picture.size == (16, 16)
    np.testing.assert_allclose(drawn.numbers.ravel(), trace["weights"][1, 2, -1, 1:17], rtol=1e-6)
    assert "head 2.3, weights from 'cat'" in drawn.svg()
    site = trace.sites[1]
    output = subject.anatomy[site].output.weight.detach().T.unflatten(0, (4, -1))[2]
    sent = (trace.calls[site].value[0, 2] @ output).norm(dim=-1) * trace["weights"][1, 2, 5]
    np.testing.assert_allclose(
        trace.overlay(2, 3, query=5, measure="norms").numbers.ravel(), sent[1:17], rtol=1e-5, atol=1e-7
    )
    for wrong, why in (({"query": 40}, "There is no token 40"), ({"measure": "sums"}, "'weights' or 'norms'")):
        with pytest.raises(lo.UserError, match=why):
            trace.overlay(2, 3, **wrong)
    with pytest.raises(lo.UserError, match=r"There is no head 9\.1"):
        trace.overlay(9, 1)


def test_tiles_and_padding_are_those_of_the_inputs():
    places = Patches(*(torch.tensor([[-1, 0, 1], [-1, 0, -1]]) for _ in range(1)), *[torch.zeros(2, 3).long()] * 3)
    tiles = torch.arange(3.0)[:, None, None, None].expand(3, 3, 4, 4) + torch.eye(4)
    for text, numbers in ((0, [0, 1]), (1, [2])):
        for given in (tiles, None):
            pixels = tiles if given is not None else torch.stack([tiles[:2], torch.stack([tiles[2], 0 * tiles[0]])])
            made = seen_pictures({"pixel_values": pixels}, places, text)
            assert len(made) == len(numbers)
    cut = seen_pictures({"pixel_values": tiles, "image_sizes": torch.tensor([[4, 4], [2, 3], [4, 4]])}, places, 0)
    assert [one.shape for one in cut] == [(4, 4, 3), (2, 3, 3)]
    assert seen_pictures({"pixel_values": torch.zeros(32, 48)}, places, 0) is None
