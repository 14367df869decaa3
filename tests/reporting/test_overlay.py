"""Numbers of patches on their picture."""

import re

import numpy as np
import pytest
import torch
from tiny.pictures import picture_model

import lorgnette as lo
from lorgnette.reporting.overlay import MOST, overlay

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
    assert boxes[5] == ("96.00", "96.00", "#d62728", f"{MOST:.3f}")
    assert boxes[12] == ("0.00", "288.00", "#1f77b4", f"{MOST / 2:.3f}")
    assert all(float(box[3]) == 0 for number, box in enumerate(boxes) if number not in (5, 12))
    framed = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"[^>]*fill="none"', made.svg())
    assert framed == [("288.00", "288.00")]
    assert "layer 2, head 3: -1 to 2, framed: sinks" in made.svg()
    assert made.save(tmp_path / "one.svg").read_text(encoding="utf-8") == made.svg()
    with Image.open(made.save(tmp_path / "one.png")) as drawn:
        pixels = np.asarray(drawn.convert("RGB")).astype(int)
    red, plain = pixels[140, 140], pixels[40, 300]
    assert red[0] - red[2] > 100
    assert abs(plain - 230).max() < 5
    with pytest.raises(lo.UserError, match=r"as \.svg or \.png"):
        made.save(tmp_path / "one.gif")


def test_what_cannot_be_drawn_is_one_line(shown, tmp_path):
    batch, picture = shown
    with pytest.raises(lo.UserError, match="no picture to draw on"):
        overlay(batch, torch.zeros(21))
    with pytest.raises(lo.UserError, match="1 tiles and frames"):
        overlay(batch, torch.zeros(21), picture, table=1)
    with pytest.raises(lo.UserError, match=r"There is no picture 'none\.png'"):
        overlay(batch, torch.zeros(21), tmp_path / "none.png").svg()
    blind = lo.batch({"input_ids": torch.ones(1, 4, dtype=torch.long)})
    with pytest.raises(lo.UserError, match="not known"):
        overlay(blind, torch.zeros(4), picture)
