"""The live page as a person uses it: type, look, switch heads off, compare, share."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
from shown import percent
from tiny import bert, classifier, gpt2, word_pieces
from transformers import BertConfig, BertModel

import lorgnette as lo
from lorgnette.serve import Access, Models, make_app
from lorgnette.serve.app import Limits
from lorgnette.serve.questions import in_lines
from lorgnette.serve.server import Server
from lorgnette.subject import Subject
from lorgnette.subject.knockout import Knockout
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

SUBJECTS = {"tiny": classifier(), "other": classifier(seed=3), "headless": bert(), "gpt2": gpt2()}
TEXT = "the cat was not very good"
NASTY = 'the <script>alert(1)</script> cat "><img src=x onerror=alert(2)> sat'


class Served:
    """The page on a free port of this machine, in a thread."""

    def __init__(
        self, subjects: dict[str, Subject] = SUBJECTS, access: Access | None = None, limits: Limits | None = None
    ) -> None:
        texts = [Example("1", NASTY, label=0), Example("2", "a good dog ran", label=1)]
        corpus = Corpus("little", lambda: iter(texts), labels=("no", "<b>yes</b>"))
        app = make_app(Models((*subjects, "broken"), subjects.__getitem__), access, corpus, limits)
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        self.server = Server(app)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        asyncio.run(self.server.serve(sockets=[self.socket]))

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.socket.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    running = Served()
    yield running
    running.close()


def look(page, text: str = TEXT) -> None:
    page.fill("#text", text)
    page.click("#go")
    page.locator(".lv[aria-busy=false]").first.wait_for()
    done(page)


def done(page) -> None:
    page.locator("#now:not(.live-busy)").wait_for(state="attached")


def shares(page) -> list[str]:
    return [item.text_content() for item in page.locator(".lv-share").all()]


@pytest.mark.parametrize("where", ["#go", "body"])
def test_shift_and_an_arrow_move_over_heads_wherever_the_focus_is(opened, served, where):
    page = opened().page
    page.goto(served.address)
    look(page)
    page.evaluate("() => window.lorgnette.set({ layer: 0, head: 0 })")
    if where == "body":
        page.evaluate("() => document.activeElement.blur()")
    else:
        page.focus(where)
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    assert page.evaluate("() => [window.lorgnette.state.layer, window.lorgnette.state.head]") == [1, 1]


def test_what_answers_another_question_does_not_stay(opened, served):
    page = opened().page
    page.goto(served.address)
    look(page)
    assert page.locator("#shown").is_visible()
    page.fill("#text", " ")
    page.click("#go")
    assert not page.locator("#shown").is_visible()
    assert "no text" in page.locator("#problem").text_content()
    look(page)
    assert page.locator("#shown").is_visible()
    assert not page.locator("#problem").is_visible()
    page.fill("#text", "cat " * 400)
    page.click("#go")
    page.locator("#problem:not([hidden])").wait_for()
    assert not page.locator("#shown").is_visible()


def test_a_head_that_is_switched_off_changes_the_prediction_as_the_library_says(opened, served):
    window = opened()
    page = window.page
    page.goto(served.address)
    look(page)
    subject = SUBJECTS["tiny"]
    before = subject.trace(TEXT).probabilities
    assert sorted(shares(page)) == sorted(map(percent, before.values()))
    page.locator(".lv-map").click(position={"x": 24 + 28 + 10, "y": 22 + 28 + 10})
    page.get_by_role("button", name="Switch 2.2 off").click()
    page.locator(".lv-off").wait_for()
    with subject.tapped(Knockout.of(subject, ["2.2"])):
        logits = subject.run(subject.encode([TEXT])).logits[0]
    after = dict(zip(before, logits.softmax(-1).tolist(), strict=True))
    for label, share in before.items():
        item = page.locator(".lv-classes li", has_text=label).text_content()
        assert item == f"{label}{percent(share)} → {percent(after[label])}"
    page.get_by_role("tab", name="Compare").click()
    page.keyboard.press("x")
    page.locator(".lv-off").wait_for(state="detached")
    assert window.problems == []
    assert {url.split("/")[2] for url in window.requests if url.startswith("http")} == {served.address.split("/")[2]}


def test_what_is_typed_before_the_page_is_ready_stays(opened, served):
    page = opened().page
    slow = threading.Event()
    page.route("**/api/state", lambda route: (slow.wait(1), route.continue_()))
    page.goto(served.address, wait_until="commit")
    page.fill("#text", TEXT)
    assert page.locator("#go").is_disabled()
    slow.set()
    page.click("#go")
    page.locator(".lv[aria-busy=false]").wait_for()


def test_two_models_are_compared_on_the_same_sentence(opened, served):
    page = opened().page
    page.goto(served.address)
    look(page)
    page.select_option("#other", "other")
    page.locator(".lv[aria-busy=false]").nth(1).wait_for()
    done(page)
    page.locator(".lv-map").first.focus()
    page.keyboard.press("ArrowDown")
    heads = page.locator(".lv-numbers h3").all_text_contents()
    assert heads[0] == heads[1]
    said = [part.text_content() for part in page.locator(".lv-said").all()]
    assert said[0] != said[1]


def test_a_head_stays_off_when_another_model_is_put_beside(opened, served):
    page = opened(width=390, height=844, has_touch=True, is_mobile=True).page
    page.goto(served.address)
    look(page)
    page.keyboard.press("x")
    page.locator(".lv-off").wait_for()
    said = page.locator(".lv-said").text_content()
    page.select_option("#other", "other")
    page.locator(".lv[aria-busy=false]").nth(1).wait_for()
    done(page)
    assert page.locator(".lv-said").first.text_content() == said
    assert page.locator(".lv-off").count() == 1
    page.get_by_role("tab", name="Compare").first.click()  # four columns do not fit on a phone
    cue = page.locator(".cue").first
    cue.wait_for()
    page.locator(".lv-stage").first.evaluate("(stage) => { stage.scrollLeft = stage.scrollWidth; }")
    cue.wait_for(state="hidden")


def test_a_link_shows_what_its_sender_saw(opened, served):
    page = opened().page
    page.goto(served.address)
    look(page)
    page.locator(".lv-map").click(position={"x": 24 + 10, "y": 22 + 10})
    page.keyboard.press("x")
    page.locator(".lv-off").wait_for()
    page.get_by_role("tab", name="Matrix").click()
    page.locator(".lv-stage").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**view=matrix**token=2&off=encoder.1.1**")
    other = opened().page
    other.goto(page.url)
    other.locator(".lv-off").wait_for()
    assert other.locator("[aria-selected=true]").text_content() == "Matrix"
    assert other.locator(".lv-said").text_content() == page.locator(".lv-said").text_content()
    assert other.input_value("#text") == TEXT
    assert other.locator(".lv-table caption").text_content() == "From the"


def test_corpus_text_and_typed_text_stay_text(opened, served):
    window = opened()
    page = window.page
    page.goto(served.address)
    page.click("#from-corpus")
    assert page.locator("#texts small").first.text_content() == "no"
    page.locator("#texts button").first.click()
    page.locator(".lv[aria-busy=false]").wait_for()
    assert page.input_value("#text") == NASTY
    look(page, NASTY + ' <img src="x" onerror="alert(3)">')
    assert page.locator("img").count() == 0
    assert page.locator("#texts small b").count() == 0
    assert window.problems == []


def test_what_is_wrong_is_said_in_the_page(opened, served):
    page = opened().page
    page.goto(served.address)
    page.fill("#text", "cat " * 100)
    page.click("#go")
    page.locator("#problem:visible").wait_for()
    assert "100" in page.locator("#problem").text_content() or "token" in page.locator("#problem").text_content()
    look(page)
    assert page.locator("#problem").is_hidden()


def test_what_is_shown_belongs_to_the_text_that_was_asked_for_last(opened, served):
    """The first answer is held back until the second was asked for; a question that fails leaves nothing behind."""
    page = opened().page
    page.goto(served.address)
    late, asked = threading.Event(), []

    def hold(route):
        asked.append(route.request.post_data_json["text"])
        if len(asked) == 1:
            late.wait(0.5)
        route.continue_()

    page.route("**/api/look", hold)
    page.fill("#text", "the first cat")
    page.click("#go")
    look(page, "a second dog")
    words = "() => lorgnette.scene.doc.text"
    assert page.evaluate(words) == "a second dog"
    page.fill("#text", "cat " * 100)
    page.click("#go")
    page.locator("#problem:visible").wait_for()
    assert page.locator("#shown article:visible").count() == 0
    look(page, "a third dog")
    assert page.evaluate(words) == "a third dog"
    assert page.locator("#shown article[inert]:visible").count() == 0


def test_a_model_that_breaks_is_said_and_another_can_be_chosen(opened, served):
    page = opened().page
    page.goto(served.address)
    page.select_option("#model", "broken")
    page.fill("#text", TEXT)
    page.click("#go")
    page.locator("#problem:visible").wait_for()
    assert "'broken' cannot be opened" in page.locator("#problem").text_content()
    page.select_option("#model", "tiny")
    page.locator(".lv[aria-busy=false]").wait_for()
    assert page.locator("#problem").is_hidden()


def test_a_class_to_explain_can_be_chosen(opened, served):
    page = opened().page
    page.goto(served.address)
    look(page)
    page.click("#how")
    for name in SUBJECTS["tiny"].labels:
        with page.expect_response("**/api/look") as answer:
            page.select_option("#class", name)
        assert answer.value.json()["explained"] == name


def test_a_link_keeps_the_class_that_is_explained(opened, served):
    """Also where it is not the predicted one, for both models; one that no model has is let go."""
    page, name = opened().page, min(SUBJECTS["tiny"].trace(TEXT).probabilities.items(), key=lambda item: item[1])[0]
    page.goto(served.address)
    look(page)
    page.select_option("#other", "other")
    done(page)
    page.click("#how")
    page.select_option("#class", name)
    page.wait_for_url(f"**class={name}**")
    done(page)
    other, answers = opened().page, []
    other.on("response", lambda answer: answers.append(answer) if answer.url.endswith("/api/look") else None)
    other.goto(page.url)
    other.locator(".lv[aria-busy=false]").nth(1).wait_for()
    done(other)
    assert other.input_value("#class") == name
    explained = {answer.request.post_data_json["model"]: answer.json()["explained"] for answer in answers}
    assert explained == {"tiny": name, "other": name}
    other.goto(page.url.replace(f"class={name}", "class=nobody"))
    other.reload()
    other.locator(".lv[aria-busy=false]").first.wait_for()
    done(other)
    assert other.input_value("#class") == ""
    assert other.locator("#problem").is_hidden()


def test_only_language_models_are_asked_to_generate(opened, served):
    """A number that was typed for a language model is not sent to a classifier, and is there again after it."""
    page = opened().page
    asked = []
    page.on("request", lambda sent: asked.append(sent.post_data_json) if sent.url.endswith("/api/look") else None)
    page.goto(served.address)
    page.select_option("#model", "gpt2")
    page.fill("#generate", "3")
    look(page)
    assert page.evaluate("() => lorgnette.scene.doc.generated.tokens") == 3
    page.wait_for_url("**generate=3**")
    page.select_option("#model", "tiny")
    page.locator("#generate-field").wait_for(state="hidden")
    done(page)
    assert page.locator("#problem").is_hidden()
    assert page.evaluate("() => lorgnette.scene.doc.generated") is None
    assert {question["generate"] for question in asked if question["model"] == "tiny"} == {None}
    page.wait_for_url(lambda url: "generate" not in url)
    page.select_option("#model", "gpt2")
    page.locator("#generate-field").wait_for()
    done(page)
    assert page.evaluate("() => lorgnette.scene.doc.generated.tokens") == 3
    page.select_option("#other", "tiny")  # beside a classifier, the language model still generates
    page.locator(".lv[aria-busy=false]").nth(1).wait_for()
    done(page)
    assert page.locator("#problem").is_hidden()
    assert page.locator("#generate-field").is_visible()


LEFT = """() => {
  const canvas = document.querySelector(".lv-map canvas"), { width, height } = canvas;
  const context = canvas.getContext("2d"), paper = context.getImageData(0, 0, 1, 1).data.join();
  const column = context.getImageData(0, 0, Math.ceil(devicePixelRatio), height).data;
  for (let at = 0; at < column.length; at += 4) if (column.slice(at, at + 4).join() !== paper) return at / 4;
  return null;
}"""


@pytest.mark.parametrize("layer", [0, 20, 21])
def test_the_number_of_the_chosen_layer_is_not_clipped(opened, layer):
    """Bold two-digit numbers are wider than the margin of the small map: nothing may touch its left edge."""
    served = Served({"deep": deep()})
    try:
        page = opened().page
        page.goto(served.address)
        look(page)
        page.evaluate("(layer) => window.lorgnette.set({ layer, head: 0 })", layer)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate(LEFT) is None
    finally:
        served.close()


def deep() -> Subject:
    config = BertConfig(vocab_size=200, hidden_size=8, num_hidden_layers=22, num_attention_heads=2, intermediate_size=8)
    return Subject(BertModel(config).eval(), word_pieces(), name="deep")


def test_a_cut_text_is_said_to_be_cut(opened):
    served = Served(limits=Limits(truncate=True))
    try:
        page = opened().page
        page.goto(served.address)
        look(page, "cat " * 100)
        assert page.locator(".live-cut").first.is_visible()
        look(page)
        assert page.locator(".live-cut").first.is_hidden()
    finally:
        served.close()


def test_more_explanations_can_be_asked_for(opened, served):
    page = opened().page
    page.goto(served.address)
    look(page)
    page.click("#how")
    page.check("#methods input[value=rollout]")
    page.locator(".lv-bar").wait_for()
    page.get_by_role("tab", name="Text").click()
    page.get_by_role("button", name="rollout", exact=True).wait_for()


def test_a_phone_and_a_model_without_prediction(opened, served):
    window = opened(width=360, height=740, has_touch=True, is_mobile=True)
    page = window.page
    page.goto(served.address)
    page.select_option("#model", "headless")
    look(page)
    assert page.locator(".lv-classes").count() == 0
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert window.problems == []


def test_with_a_token_the_address_that_was_printed_opens_the_page(opened):
    access = Access("127.0.0.1", token="a-token-that-nobody-guesses")
    served = Served(access=access)
    try:
        window = opened()
        window.page.goto(f"{served.address}#enter={access.token}")
        look(window.page)
        assert access.token not in window.page.url
        assert not any(access.token in url.partition("#")[0] for url in window.requests)
        stranger = opened().page
        stranger.goto(served.address)
        stranger.locator("#problem:visible").wait_for()
        assert "A token is needed" in stranger.locator("#problem").text_content()
    finally:
        served.close()


def test_questions_about_the_text_are_answered_below_it(opened, served):
    window = opened()
    page = window.page
    page.goto(f"{served.address}#model=gpt2")
    look(page, "the cat sat .\na dog ran\nit was not")
    page.evaluate("() => window.lorgnette.set({ layer: 0, head: 0 })")
    questions = page.locator("#questions details")
    assert questions.count() == 4
    for number, rows in enumerate((3, None, 24, 3)):  # embeddings and two layers; writers; edges; lines
        one = questions.nth(number)
        one.locator("summary").click()
        if number == 3:
            one.locator("input").fill("good")
        one.locator("button").click()
        one.locator("table").wait_for()
        assert rows is None or one.locator("tbody tr").count() == rows
    found = lo.sources(SUBJECTS["gpt2"], in_lines("the cat sat .\na dog ran\nit was not", 9), " good")
    first = questions.nth(3).locator("tbody tr").first.locator("td").first.text_content()
    assert float(first.replace("−", "-")) == pytest.approx(float(found.data["drop"][0]), rel=0.01)
    paths = questions.nth(2)
    mine = lo.paths(SUBJECTS["gpt2"], "the cat sat .\na dog ran\nit was not")
    assert paths.locator("svg path").count() == len(mine.edges)
    assert paths.locator("svg text").all_text_contents()[-1] == mine.explained
    strongest = paths.locator("tbody tr").first.locator("td").text_content()
    assert float(strongest.replace("−", "-")) == pytest.approx(mine.edges[0].attribution, rel=0.05)  # two digits
    heads = lo.paths(SUBJECTS["gpt2"], "the cat sat .\na dog ran\nit was not", among="heads").edges
    paths.locator("select").select_option("heads")
    paths.locator("button").click()
    paths.locator("tbody tr").first.get_by_text(f"{heads[0].writer} → logits").wait_for()
    assert paths.locator("tbody tr").count() == len(heads)
    why = questions.nth(1)
    assert why.locator("summary").text_content() == "Why does head 1.1 attend there?"
    page.evaluate("() => window.lorgnette.set({ layer: 1, head: 2, token: 3 })")
    assert why.locator("summary").text_content() == "Why does head 2.3 attend there?"
    assert why.locator("table").count() == 0  # it was about another head
    assert why.locator("select").first.input_value() == "3"
    why.locator("button").click()
    why.locator("table").wait_for()
    mine = lo.why(SUBJECTS["gpt2"], "the cat sat .\na dog ran\nit was not", "2.3", query=3)
    assert why.locator("caption").text_content().startswith(f"decoder.2.3 from {mine.query} to {mine.key}: weight")
    page.select_option("#model", "tiny")
    done(page)
    shown = [one.is_visible() for one in questions.all()]
    assert shown == [False, True, True, False]  # a classifier has neither layers that predict words nor an answer
    assert window.problems == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
