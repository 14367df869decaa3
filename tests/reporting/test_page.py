"""The page: one file, no network, no script but ours; text from outside stays text; the same for the same results."""

import base64
import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pandas as pd
import pytest
from made import IMAGE, SCRIPT, TEMPLATE, hostile, norms, plugin, weights

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.figures.drawing import INK, inline_svg, numbered_ids, remove_foreign
from lorgnette.reporting import figures, figures_of, findings, heat_map
from lorgnette.reporting.page import MOST_FIGURES
from lorgnette.reporting.views.page import hashed
from lorgnette.results import Results
from lorgnette.results.result import WHOLE_MODEL

# fmt: off
KNOWN = {
    "html", "head", "meta", "title", "link", "style", "body", "header", "nav", "main", "article", "section", "footer",
    "h1", "h2", "h3", "p", "br", "a", "ul", "li", "b", "small", "span", "div", "figure", "figcaption", "details", "pre",
    "summary", "table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "code", "svg", "g", "path", "text",
    "tspan", "defs", "lineargradient", "stop", "clippath", "rect", "line", "circle", "h4", "ol", "i", "u", "button",
    "label", "input", "select", "option", "output", "script", "noscript",
}
# fmt: on


class Page(HTMLParser):
    """Tags with their attributes, and the text of the page."""

    def __init__(self, html: str):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@pytest.fixture(scope="module")
def results() -> Results:
    return Results([weights(), norms(), plugin()])


@pytest.fixture(scope="module")
def html(results) -> str:
    return lo.Report(results).html()


def test_it_says_what_was_found_and_where_from(html, results):
    text = Page(html).text
    for finding in findings(results):
        assert finding.text in text
    for words in ("Attention report: tiny", "11 heads over 5 texts of texts.txt, 60 tokens", "2026-01-01"):
        assert words in text
    assert results["weights"].provenance.command in text


def test_every_figure_has_its_numbers(html, results):
    page = Page(html)
    drawings = [attributes for tag, attributes in page.tags if tag == "figure"]
    links = [attributes for tag, attributes in page.tags if tag == "a" and "download" in attributes]
    assert len(drawings) == len(links) == sum(tag == "svg" for tag, _ in page.tags) >= 8
    by_name = {link["download"]: link["href"] for link in links}
    kind, content = by_name["weights-confidence.csv"].split(",")
    assert kind == "data:text/csv;charset=utf-8;base64"
    frame = pd.read_csv(io.BytesIO(base64.b64decode(content)))
    expected = results["weights"].to_dataframe("confidence")
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)
    value = results["weights"].data["confidence"].sel(stack="encoder", layer=2, head=3).item()
    assert f"{value:.3f}" in html


def assert_inert(html: str) -> Page:
    """No tag that acts or loads but our one script, no handler, no address but inside the page."""
    page = Page(html)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1].replace("&#39;", "'")
    assert "unsafe" not in policy
    for tag, start in (("script", '<script type="module">'), ("style", "<style>")):
        (ours,) = re.findall(f"{start}(.*?)</{tag}>", html, flags=re.DOTALL)
        assert hashed(ours) in policy
    assert [a.get("type") for tag, a in page.tags if tag == "script" and "id" not in a] == ["module"]
    html = re.sub(r'<script type="module">.*?</script>', "", html, flags=re.DOTALL)
    assert {tag for tag, _ in page.tags} <= KNOWN
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:,", "data:text/csv;"))
    outside = re.findall(r"https?://[^\"'\s<)]+", html)
    assert set(outside) <= {"http://www.w3.org/2000/svg"}
    assert "url(http" not in html
    assert "@import" not in html
    return page


def test_it_needs_no_network(html):
    assert_inert(html)
    assert "default-src &#39;none&#39;" in html


def test_text_from_outside_stays_text():
    page = assert_inert(lo.Report({SCRIPT: hostile(), IMAGE: hostile()}, title=SCRIPT + IMAGE).html())
    for words in (SCRIPT, IMAGE, TEMPLATE, SCRIPT + IMAGE):
        assert words in page.text


def test_the_same_results_give_the_same_page(results, html):
    assert lo.Report(results).html() == html


def test_ids_are_unique_and_references_find_them():
    html = lo.Report({"one": Results([weights()]), "two": Results([weights(seed=1)])}).html()
    ids = [attributes["id"] for _, attributes in Page(html).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = re.findall(r"url\(#([^)]+)\)", html) + re.findall(r'href="#([^"]+)"', html)
    assert used
    assert set(used) <= set(ids)


def test_light_dark_and_print(html):
    for rule in ("prefers-color-scheme: dark", "@media print", "max-width: 46rem"):
        assert rule in html
    assert "currentColor" in html
    assert INK not in html


def article(html, place=1):
    return html.split(f'<article id="s{place}">')[1].split("</article>")[0]


def test_it_opens_with_what_the_model_is_and_its_first_findings_with_their_figures(html, results):
    page = article(html)
    first, rest = page.split('<nav class="contents"')
    assert "tiny: <b>11</b> heads in <b>3</b> layers." in first
    by_lens = lo.Report(results).findings["tiny"]
    # One for each chapter, the lens of the highest rank; what a lens of any kind says comes before both of ours here.
    opening = [by_lens["plug"][0], by_lens["norms"][0]]
    texts = [Page(part).text for part in first.split('class="headline')[2:]]
    assert len(texts) == len(opening)
    for finding, text in zip(opening, texts, strict=True):
        assert finding.text in text
        assert text.count("Numbers") == 1
        assert finding.text not in Page(rest).text
    assert first.count("<figure") == 2
    for lens in ("weights", "norms", "plug"):
        assert all(one.text in Page(page).text for one in by_lens[lens])


def test_the_contents_lead_to_every_part(html):
    page = article(html)
    contents = page.split('<nav class="contents"')[1].split("</nav>")[0]
    linked = re.findall(r'href="#([^"]+)"', contents)
    sections = re.findall(r'<(?:section|footer) id="([^"]+)"', page)
    assert set(linked) == {one for one in sections if "-first-" not in one}


def test_a_figure_stands_once_and_few_are_unfolded(html, results):
    page = article(html)
    names = re.findall(r'<figure id="[^"]+" data-name="([^"]+)"', page)
    drawn = [f"{lens}-{figure.name}" for lens, result in results.items() for figure in figures_of(result)]
    assert sorted(names) == sorted(drawn)
    unfolded = re.sub(r'<details class="rest">.*?</section>', "", page, flags=re.DOTALL)
    shown = re.findall(r'data-name="(\w+)-', unfolded)
    assert max(shown.count(lens) for lens in results) <= 1 + MOST_FIGURES


def test_a_classifier_comes_before_its_backbone():
    decides = weights()
    decides.data.attrs[WHOLE_MODEL] = {"accuracy": 0.9, "loss": 0.3, "texts": 100}
    html = lo.Report({"backbone": Results([weights()]), "classifier": Results([decides])}).html()
    assert "<h2>classifier</h2>" in article(html, 1)
    assert "accuracy <b>0.900</b> (95 % CI" in article(html, 1)
    assert "<h2>backbone</h2>" in article(html, 2)


def test_several_subjects_are_named():
    results = Results([plugin()])
    text = Page(lo.Report({"one": results, "two": results}).html()).text
    assert "Attention report: one and two" in text


def test_a_run_folder_and_one_result(tmp_path, results, html):
    results.save(tmp_path / "run")
    assert lo.Report(tmp_path / "run").html() == html
    path = lo.Report(results["plug"], title="Mine").write(tmp_path / "new" / "page.html")
    assert "<title>Mine</title>" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({}, "no results"),
        ({"a": 1}, "dictionary of Results"),
        ("nowhere", "no results folder"),
        (Results(), "no results"),
    ],
)
def test_wrong_sources_are_refused(source, said):
    with pytest.raises(UserError, match=said):
        lo.Report(source)


def test_marks_have_tooltips_and_nothing_else_survives():
    drawing = ElementTree.fromstring(inline_svg(heat_map(weights(), "confidence"), "p-", "Title"))
    titles = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 11
    assert all(re.fullmatch(r"layer \d, head \d: 0\.\d{3} ± 0\.\d{3}", title) for title in titles)
    attempt = ElementTree.fromstring(
        '<svg xmlns="http://www.w3.org/2000/svg" onload="x()"><script>x()</script><foreignObject/>'
        '<a href="javascript:x()"/><image href="http://x/y.png"/>'
        '<path id="i" onclick="x()" style="fill:url(http://x)" fill="url(#i)" d="M0,0"/></svg>'
    )
    remove_foreign(attempt, numbered_ids(attempt, "p-"))
    left = ElementTree.tostring(attempt, encoding="unicode")
    assert "x()" not in left
    assert "http://x" not in left
    assert 'id="p-0"' in left
    assert 'fill="url(#p-0)"' in left


def test_figures_for_a_paper(tmp_path):
    paths = figures(Results([plugin()]), tmp_path / "figures", "png,svg,pdf")
    assert sorted(path.name for path in paths) == sorted(
        f"plug-{name}.{kind}" for name in ("score", "depth") for kind in ("png", "svg", "pdf")
    )
    starts = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<svg"}
    for path in paths:
        assert path.read_bytes().startswith(starts[path.suffix])
    svg = (tmp_path / "figures" / "plug-score.svg").read_text()
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', svg)]
    assert min(sizes) >= 12
    assert ">score<" in svg  # the colours are named where there is no page around them
    with pytest.raises(UserError, match="cannot be written as 'gif'"):
        figures(Results([plugin()]), tmp_path, ("gif",))
