"""The picture view: patches, sinks and relevance on the picture that the model saw, in a page and on the live page."""

import json

import numpy as np
import pytest
import torch
from test_live_page import Served
from test_views_in_browser import frames, show
from tiny import classifier
from tiny.pictures import IMAGE
from tiny.planted_picture import planted
from tiny.processors import processor_of

import lorgnette as lo
from lorgnette.reporting.views import write_page
from lorgnette.reporting.views.gather import gathered

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")
PLACE = 6
"""The red patch, in the second row and the third column of four."""
TEXT = "what is it"


@pytest.fixture(scope="module")
def subject():
    return lo.Subject(planted(), processor_of("llava"), name="planted")


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    pixels = np.zeros((16, 16, 3), dtype=np.uint8)
    pixels[4:8, 8:12, 0] = 255
    path = tmp_path_factory.mktemp("pictures") / "red.png"
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture(scope="module")
def document(subject, picture):
    return gathered(subject, subject.example(TEXT, image=picture))


BLOCKS = """
  const { stage } = window.lorgnette;
  if (!stage.box) stage.paint(); // a change is drawn with the next frame only
  const { blocks } = stage.box;
"""
"""The pictures of the stage, also between a change and the frame that draws it."""

MIDDLE = f"""{BLOCKS}
  const middle = (number, at) => {{
    const block = blocks[number], [tile] = block.tiles;
    const x = block.x + tile.x + (tile.wide * ((at % 4) + 0.5)) / 4;
    return {{ x, y: block.y + tile.y + (tile.tall * (Math.floor(at / 4) + 0.5)) / 4 }};
  }};
"""
"""Where the middle of a patch of a block is on the stage."""


def stage_colours(page, block: int) -> list[list[int]]:
    """The colour in the middle of each of the 4 × 4 patches of a block, row by row."""
    frames(page)
    return page.evaluate(
        f"""(number) => {{ {MIDDLE}
          const {{ canvas }} = stage, dots = canvas.width / canvas.clientWidth;
          const copy = document.createElement("canvas");
          [copy.width, copy.height] = [canvas.width, canvas.height];
          const context = copy.getContext("2d", {{ willReadFrequently: true }});
          context.drawImage(canvas, 0, 0);
          return [...Array(16).keys()].map((at) => {{
            const {{ x, y }} = middle(number, at);
            return [...context.getImageData(Math.round(x * dots), Math.round(y * dots), 1, 1).data].slice(0, 3);
          }});
        }}""",
        block,
    )


def titles(page) -> list[str]:
    return page.evaluate(f"() => {{ {BLOCKS} return blocks.map((block) => block.item.method); }}")


def at_patch(page, block: int, place: int) -> dict[str, float]:
    return page.evaluate(f"([number, at]) => {{ {MIDDLE} return middle(number, at); }}", [block, place])


def is_red(colour: list[int]) -> bool:
    return colour[0] > 150 and max(colour[1:]) < 60


def is_blue(colour: list[int]) -> bool:
    return colour[2] > colour[0] + 60


def test_the_red_patch_is_where_it_is_in_every_measure(opened, document, tmp_path):
    window = opened()
    page = show(window, write_page(document, tmp_path / "page.html"))
    assert page.locator("[aria-selected=true]").text_content() == "Picture"
    frames(page)
    assert titles(page) == [
        "what the model sees", "attnlrp", "gradient_x_input", "weight from it, head 1.1", "norm from it, head 1.1",
    ]  # fmt: skip
    assert [number for number, colour in enumerate(stage_colours(page, 0)) if is_red(colour)] == [PLACE]
    for block in (1, 2, 3):
        assert [number for number, colour in enumerate(stage_colours(page, block)) if is_blue(colour)] == [PLACE]
    page.locator(".lv-stage").hover(position=at_patch(page, 3, PLACE))
    assert page.locator(".lv-readout").text_content() == "[2,3]: 1 (weight from it, head 1.1)"
    page.locator(".lv-stage").click(position=at_patch(page, 0, PLACE))
    assert page.locator(".lv-table caption").text_content() == "From [2,3]"
    assert titles(page)[3] == "weight from [2,3], head 1.1"
    page.locator(".lv-stage").click(position=at_patch(page, 0, PLACE))  # no query is chosen any more
    page.get_by_role("button", name="gradient_x_input").click()
    frames(page)
    assert titles(page)[3] == "norm ‖αf(x)‖, head 1.1"
    assert [number for number, colour in enumerate(stage_colours(page, 3)) if is_blue(colour)] == [PLACE]
    assert window.problems == []
    assert window.outside() == []


def test_the_drawing_that_is_saved_has_the_picture_and_the_numbers(opened, document, tmp_path):
    page = show(opened(), write_page(document, tmp_path / "page.html"))
    with page.expect_download() as saved:
        page.locator("[data-tool=svg]").click()
    drawing = saved.value.path().read_text(encoding="utf-8")
    assert drawing.count("<image ") == 5
    assert "weight from it, head 1.1" in drawing
    with page.expect_download() as saved:
        page.locator("[data-tool=png]").click()
    with Image.open(saved.value.path()) as drawn:
        pixels = np.asarray(drawn.convert("RGB")).astype(int)
    assert (pixels[..., 0] - pixels[..., 1:].max(-1) > 90).any()


def test_a_sink_patch_is_framed_and_explained(opened, subject, document, picture, tmp_path):
    """Every word and patch asks for the red patch: it takes most of the head's weight."""
    model = planted()
    with torch.no_grad():
        parts = dict(model.named_parameters())
        parts[next(n for n in parts if "embed_tokens" in n)][IMAGE] = 0
        query = next(n for n in parts if "layers.0.self_attn.q_proj.weight" in n and "language" in n)
        parts[query][7, 3] = 3.0
        out = next(n for n in parts if "linear_2.bias" in n)
        parts[out][20] = 1.0
    asking = lo.Subject(model, processor_of("llava"), name="asking")
    trace = asking.trace(TEXT, image=picture)
    received = trace["weights"][0, 0].mean(0)
    assert float(received[1 + PLACE]) > 0.3
    page = show(opened(), write_page(gathered(asking, trace.example), tmp_path / "page.html"))
    with page.expect_download() as saved:
        page.locator("[data-tool=svg]").click()
    drawing = saved.value.path().read_text(encoding="utf-8")
    assert drawing.count('stroke-dasharray="5 3"') == 5 + 1  # one patch of each picture, and the legend
    assert "sink: receives more than 30 % of this head" in drawing
    assert 'stroke-dasharray="6 3"' in trace.overlay(1, 1).svg()


def test_a_text_without_a_picture_has_no_such_view(opened, subject, tmp_path):
    page = show(opened(), write_page(gathered(subject, subject.example(TEXT)), tmp_path / "page.html"), "view=picture")
    assert page.get_by_role("tab", name="Picture").count() == 0
    assert page.locator("[aria-selected=true]").text_content() == "Head"


def test_a_picture_on_the_live_page(opened, subject, picture):
    served = Served({"planted": subject, "tiny": classifier()})
    try:
        window = opened()
        page = window.page
        page.goto(served.address)
        page.wait_for_selector("#go:enabled")
        page.set_input_files("#picture", picture)
        page.wait_for_selector("#no-picture:visible")
        page.fill("#text", TEXT)
        page.click("#go")
        page.wait_for_selector(".lv[aria-busy=false]")
        assert page.locator("[aria-selected=true]").text_content() == "Picture"
        frames(page)
        assert [n for n, colour in enumerate(stage_colours(page, 0)) if is_red(colour)] == [PLACE]
        assert [n for n, colour in enumerate(stage_colours(page, 3)) if is_blue(colour)] == [PLACE]
        page.check("#tower")
        page.wait_for_function("() => window.lorgnette.scene.stacks[0].name === 'vision'")
        page.wait_for_selector(".lv[aria-busy=false]")
        page.uncheck("#tower")
        page.wait_for_function("() => window.lorgnette.scene.stacks[0].name === 'decoder'")
        page.click("#no-picture")
        page.wait_for_selector("#tower-field", state="hidden")
        page.click("#go")
        page.wait_for_function("() => window.lorgnette.scene.pictures.length === 0")
        page.select_option("#model", "tiny")
        page.wait_for_selector("#picture-field", state="hidden")
        assert window.problems == []
    finally:
        served.close()


def test_what_the_document_holds(document):
    (one,) = document["pictures"]
    assert (one["rows"], one["columns"], one["size"]) == (4, 4, [16, 16])
    assert one["pieces"] == list(range(1, 17))
    assert document["sides"][0]["pieces"][1 + PLACE] == "[2,3]"
    assert json.dumps(document)
