"""The report as a reader uses it: sort the cards, open a head, save a figure; offline, with a keyboard, on a phone."""

import re
from pathlib import Path

import pytest
from tiny import TREEBANK, classifier
from tiny.models import BERT
from transformers import BertConfig, BertModel

import lorgnette as lo
from lorgnette import demo
from lorgnette.reporting import Comparison, examples_of
from lorgnette.subject import Subject
from lorgnette.texts.example import Example
from lorgnette.training.demo import DEMO

NASTY = 'the <script>alert(1)</script> cat "><img src=x onerror=alert(2)> sat on the mat'
SUBJECT = classifier()


@pytest.fixture(scope="module")
def results():
    return lo.look(SUBJECT, TREEBANK, ["weights", "norms", "importance", "roles"], progress=False)


@pytest.fixture(scope="module")
def report(results, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    return lo.Report(results, examples=examples_of(SUBJECT, TREEBANK)).write(path)


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory) -> Path:
    """The page of the demo with all its lenses, on few texts and by a classifier that has hardly learnt."""
    english = demo.english().take(12)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"epochs": 1, "limit": 64, "test_limit": 20}.items():
            patch.setitem(DEMO, name, value)
        patch.setattr(demo, "REVIEWS", 12)
        patch.setattr(demo, "english", lambda: english)
        return demo.demo(tmp_path_factory.mktemp("demo"), progress=False).page


def show(window, path):
    window.page.goto(path.as_uri())
    window.page.wait_for_selector(".lv[aria-busy=false]")
    return window.page


def quiet(window) -> None:
    assert window.problems == []
    assert window.outside() == []


def cards(page) -> list[str]:
    return page.eval_on_selector_all(".card:not([hidden])", "cards => cards.map((card) => card.dataset.name)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_an_error_or_a_request(opened, report, scheme):
    window = opened(scheme=scheme)
    page = show(window, report)
    assert page.locator(".headline").count() == 3
    assert page.locator(".headline figure svg").count() == 3
    assert page.locator(".findings li").count() > 2
    assert page.locator(".cards .card").count() == 12
    for summary in page.locator("figure summary").all()[:3]:
        summary.click()
    assert page.locator("figure table").first.is_visible()
    quiet(window)


def test_the_atlas_is_filtered_and_sorted(opened, report, results):
    page = show(opened(), report)
    loss = results["importance"].data["loss_change"].sel(stack="encoder", ablation="mean")
    flat = loss.stack(cell=("layer", "head")).to_series().sort_values(ascending=False, kind="stable")
    assert cards(page) == [f"{layer}.{head}" for layer, head in flat.index]
    page.get_by_label("Sort by").select_option("")
    assert cards(page)[:5] == ["1.1", "1.2", "1.3", "1.4", "2.1"]
    page.get_by_label("Find").fill("2.3")
    assert "2.3" in cards(page)
    assert len(cards(page)) < 12
    assert page.locator(".atlas-tools output").text_content() == f"{len(cards(page))} of 12 heads"
    page.get_by_label("Find").fill("")
    assert len(cards(page)) == 12


def test_a_card_opens_its_head_with_the_keyboard(opened, report):
    window = opened()
    page = show(window, report)
    card = page.locator('.card[data-name="2.3"]')
    card.get_by_role("button", name="Open head 2.3").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.lv-numbers h3').textContent === 'Head 2.3'")
    assert page.evaluate("() => document.activeElement.className") == "lv-stage"
    shown = page.locator(".texts [aria-pressed=true]").text_content()
    words = [word for word in card.locator(".example").text_content().split() if not word.startswith("[")]
    assert shown.split() == words
    quiet(window)


def test_another_text_can_be_chosen(opened, report):
    page = show(opened(), report)
    second = page.locator(".texts button").nth(1)
    second.click()
    page.wait_for_function("() => document.querySelectorAll('.texts [aria-pressed=true]').length === 1")
    assert second.get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("kind", ["svg", "png", "csv"])
def test_figures_can_be_saved(opened, report, kind):
    window = opened()
    page = show(window, report)
    figure = page.locator("figure[data-name='importance-order']")
    with page.expect_download() as waiting:
        figure.locator(".saves").get_by_text(kind.upper(), exact=True).click()
    saved = Path(waiting.value.path()).read_bytes()
    assert waiting.value.suggested_filename == f"{figure.get_attribute('data-name')}.{kind}"
    assert saved.startswith({"svg": b"<svg", "png": b"\x89PNG", "csv": b"which,stack,layer,head"}[kind])
    assert len(saved) > 400
    quiet(window)


def test_text_stays_text(opened, tmp_path):
    examples = [Example("1", NASTY, label=0), Example("2", "the cat sat on the mat", label=1)]
    results = lo.look(SUBJECT, examples, ["weights"], progress=False)
    window = opened()
    page = show(
        window, lo.Report(results, title=NASTY, examples=examples_of(SUBJECT, examples)).write(tmp_path / "r.html")
    )
    assert page.locator("h1").text_content() == NASTY
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    quiet(window)


def test_a_phone_shows_it_without_scrolling_sideways(opened, report):
    window = opened(width=360, height=740, has_touch=True, is_mobile=True)
    page = show(window, report)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    quiet(window)


def test_a_drawing_that_is_too_wide_says_so(opened, report):
    page = show(opened(width=360, height=740), report)
    page.evaluate("() => { for (const one of document.querySelectorAll('details.rest')) one.open = true; }")
    page.wait_for_function("() => [...document.querySelectorAll('.cue')].some((cue) => !cue.hidden)")
    state = """() => [...document.querySelectorAll(".drawing")].map((place) =>
        [place.scrollWidth - place.clientWidth >= 8, !place.previousElementSibling.hidden, place.tabIndex === 0])"""
    # Each drawing notices its own width, when it is laid out.
    page.wait_for_function(f"() => ({state})().every(([wide, said, reached]) => wide === said && said === reached)")
    before = page.evaluate(state)
    assert any(wide for wide, *_ in before)
    assert all(wide == said == reached for wide, said, reached in before)
    page.evaluate("() => { for (const one of document.querySelectorAll('.drawing')) one.scrollLeft = 9999; }")
    page.wait_for_function("() => [...document.querySelectorAll('.cue')].every((cue) => cue.hidden)")


LABELS = """(font) => [...document.querySelectorAll(".drawing svg")].map((svg) => {
    const rectangle = (thing) => { const { left, right, top, bottom } = thing.getBoundingClientRect(); return { left, right, top, bottom }; };
    const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim());
    for (const text of texts) text.setAttribute("font-family", font);
    return { title: svg.getAttribute("aria-label"), room: rectangle(svg), texts: texts.map((text) => [text.textContent, rectangle(text)]) };
})"""  # noqa: E501


@pytest.mark.parametrize("font", ["DejaVu Sans", "Liberation Sans", "sans-serif"])
def test_no_label_of_a_chart_is_cut_or_runs_into_the_next(opened, report, font):
    """Whatever font stands in for those that were asked for."""
    page = show(opened(width=1400), report)
    page.evaluate("() => { for (const one of document.querySelectorAll('details.rest')) one.open = true; }")
    drawings = page.evaluate(LABELS, font)
    assert len(drawings) > 5
    wrong = []
    for drawing in drawings:
        room = drawing["room"]
        for place, (one, a) in enumerate(drawing["texts"]):
            assert "…" not in one, "Vega cut it"
            inside = room["left"] - 0.5 <= a["left"] and a["right"] <= room["right"] + 0.5
            if not (inside and room["top"] - 1.5 <= a["top"] and a["bottom"] <= room["bottom"] + 1.5):
                wrong.append((drawing["title"], one, "is cut"))
            for two, b in drawing["texts"][place + 1 :]:
                if abs(a["top"] - b["top"]) < 1 and min(a["right"], b["right"]) - max(a["left"], b["left"]) > 1:
                    wrong.append((drawing["title"], one, f"runs into {two}"))
    assert wrong == []


def test_print_shows_the_cards_of_the_screen_and_no_buttons(opened, report):
    page = show(opened(), report)
    page.get_by_label("Find").fill("2.3")
    found = cards(page)
    page.emulate_media(media="print")
    assert [card.get_attribute("data-name") for card in page.locator(".card").all() if card.is_visible()] == found
    assert not page.locator(".atlas-tools").is_visible()
    assert not page.locator(".saves").first.is_visible()


def test_the_report_of_the_demo_prints_to_ten_pages(opened, demonstrated):
    page = opened().page
    page.goto(demonstrated.as_uri())
    page.locator(".lv[aria-busy=false]").first.wait_for()
    printed = page.pdf(format="A4", print_background=True)
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", printed))
    assert 4 <= pages <= 10


def test_without_script_everything_can_be_read(opened, report):
    window = opened(java_script_enabled=False)
    window.page.goto(report.as_uri())
    assert window.page.locator(".card").last.is_visible()
    assert not window.page.locator(".atlas-tools").is_visible()
    assert window.outside() == []


def test_a_comparison_opens_too(opened, results, tmp_path):
    other = lo.look(classifier(seed=1), TREEBANK, ["weights", "roles"], progress=False)
    window = opened()
    window.page.goto(Comparison(results, other).write(tmp_path / "compare.html").as_uri())
    assert window.page.locator("figure button").count() > 2
    assert window.page.evaluate("() => document.documentElement.scrollWidth") <= 1280
    quiet(window)


def test_a_deep_model_has_a_low_map_of_its_heads_and_a_phone_shows_few_cards(opened, tmp_path):
    subject = Subject(BertModel(BertConfig(**{**BERT, "num_hidden_layers": 24})).eval(), SUBJECT.tokenizer)
    results = lo.look(subject, TREEBANK, ["weights"], progress=False)
    path = lo.Report(results, examples=examples_of(subject, TREEBANK)).write(tmp_path / "report.html")
    heights = "() => document.querySelector('.lv-map').scrollHeight"
    page = show(opened(), path)
    assert page.evaluate(heights) <= 520
    assert len(cards(page)) == 12
    page = show(opened(width=390), path)
    assert page.evaluate(heights) <= 520
    assert len(cards(page)) == 4
    page.get_by_role("button", name="Show all").click()
    assert len(cards(page)) == 24 * BERT["num_attention_heads"]
