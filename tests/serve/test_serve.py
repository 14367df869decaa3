"""The live page answers what the library says, and only whom it should."""

import asyncio
import base64
import io
import json
import threading

import httpx
import numpy as np
import pytest
from tiny import TEXTS, bert, classifier, gpt2
from tiny.pictures import picture_model
from tiny.processors import processor_of
from typer.testing import CliRunner

from lorgnette.cli.app import app as commands
from lorgnette.errors import UserError
from lorgnette.serve import Access, Models, make_app
from lorgnette.serve.app import PUBLIC, Limits
from lorgnette.serve.guard import COOKIE, LARGEST_BODY
from lorgnette.serve.models import MOST_LOADED
from lorgnette.serve.schemas import LONGEST_TEXT, Document, PageState, Without
from lorgnette.serve.work import MOST_WAITING
from lorgnette.subject import Subject
from lorgnette.subject.knockout import Knockout
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

TEXT = "the cat was not very good"
FOREIGN = (
    *("[::1].evil.com", "localhost:9471.evil.com", "127.0.0.1.evil.com", "localhost.evil.com", "localhost,evil.com"),
    *("localhost:", "localhost:1:2", "a@localhost", "localhost/", "[::1", "::1", "[127.0.0.1]x", "0x7f000001", "127.1"),
    *("", "localhost evil.com"),
    # The name or the port of something else on this machine.
    *("localhost:1", "127.0.0.1:99999", "127.0.0.1:08765", "127.0.0.2:8765", "127.0.0.2", "localhost", "[::1]"),
)
SUBJECTS = {"tiny": classifier(), "other": classifier(seed=1), "headless": bert()}


def page(access: Access | None = None, *, corpus: Corpus | None = None, names=tuple(SUBJECTS)):
    return make_app(Models(names, SUBJECTS.__getitem__), access, corpus)


def ask(app, method: str, path: str, *, base: str = "http://127.0.0.1:8765", **more) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=base) as client:
            return await client.request(method, path, **more)

    return asyncio.run(run())


def look(app, where: str = "/api/look", **question) -> httpx.Response:
    return ask(app, "POST", where, json={"model": "tiny", "text": TEXT, **question})


def detail(response: httpx.Response) -> str:
    return response.json()["detail"]


@pytest.fixture
def corpus():
    texts = [
        Example("1", "the cat sat", words=("the", "cat", "sat"), label=1, rationale=(0.0, 1.0, 0.0), heads=(2, 3, 0)),
        Example("2", "a dog ran", label=0),
    ]
    return Corpus("little", lambda: iter(texts), labels=("no", "yes"))


def test_the_page_and_its_files_are_there():
    app = page()
    first = ask(app, "GET", "/")
    assert first.headers["content-type"].startswith("text/html")
    for name in ("live.js", "viewer.js", "scene.js", "standalone.css", "views.css", "live.css"):
        found = ask(app, "GET", f"/static/{name}")
        assert found.status_code == 200
        assert found.headers["content-type"].startswith("text/")
    for name in (
        "app.py",
        "../app.py",
        "%2e%2e%2fapp.py",
        "page.html",
        "nothing.js",
        ".js",
        "a" * 5000,
        "a.js/../x.js",
    ):
        assert ask(app, "GET", f"/static/{name}").status_code == 404


def test_every_answer_has_a_strict_policy():
    app = page()
    for path in ("/", "/api/state", "/static/viewer.js", "/nowhere"):
        headers = ask(app, "GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_look_is_a_document_as_described_and_what_the_library_says():
    answer = look(page())
    document = Document.model_validate(answer.json())
    assert answer.status_code == 200
    expected = SUBJECTS["tiny"].trace(TEXT).probabilities
    assert dict(zip(document.prediction.labels, document.prediction.shares, strict=True)) == pytest.approx(expected)
    assert [item.method for item in document.explanations] == ["attnlrp", "gradient_x_input"]
    assert document.without is None


def test_without_a_head_is_what_the_library_says():
    app, subject = page(), SUBJECTS["tiny"]
    part = Without.model_validate(look(app, "/api/without", off=["encoder.2.1", "encoder.1.3"]).json())
    with subject.tapped(Knockout.of(subject, ["2.1", "1.3"])):
        logits = subject.run(subject.encode([TEXT])).logits[0]
    np.testing.assert_allclose(part.prediction.shares, logits.softmax(-1).detach(), rtol=1e-6)
    assert {tuple(head) for head in part.off} == {("encoder", 1, 0), ("encoder", 0, 2)}
    whole = look(app, off=["encoder.2.1", "encoder.1.3"]).json()["without"]
    assert whole["prediction"] == part.prediction.model_dump()


def test_a_text_of_the_corpus_brings_what_is_known_of_it(corpus):
    app = page(corpus=corpus)
    found = ask(app, "GET", "/api/corpus").json()
    assert found["total"] == 2
    assert found["texts"][0] == {"number": 0, "text": "the cat sat", "pair": None, "label": "yes"}
    assert [item["number"] for item in ask(app, "GET", "/api/corpus?search=DOG").json()["texts"]] == [1]
    document = look(app, text="the cat sat", example=0).json()
    assert document["rationale"] == [0.0, 1.0, 0.0]
    assert document["trees"]["gold"] == [2, 3, 0]
    assert look(app, text="the cat sat on", example=0).json()["rationale"] is None
    assert "without a corpus" in detail(ask(page(), "GET", "/api/corpus"))


def test_a_model_without_prediction_still_has_views():
    document = look(page(), model="headless").json()
    assert document["prediction"] is None
    assert document["explanations"] == []


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ({"text": ""}, "text: String should have at least 1 character"),
        ({"text": "a " * LONGEST_TEXT}, f"text: String should have at most {LONGEST_TEXT} characters"),
        ({"text": "cat " * 200}, "longer|tokens"),
        ({"model": "hedless"}, "The page has no model 'hedless'. Did you mean 'headless'"),
        ({"methods": ["atnlrp"]}, "There is no explanation method 'atnlrp'. Did you mean"),
        ({"off": ["encoder.9.9"]}, "There is no head encoder.9.9"),
        ({"off": ["../../etc"]}, "off.0: String should match pattern"),
        ({"off": ["encoder.1.1"] * 401}, "off: List should have at most 400 items"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"text": 3}, "text: Input should be a valid string"),
    ],
)
def test_wrong_questions_get_one_clear_line(question, why):
    import re

    answer = look(page(), **question)
    assert answer.status_code == 422
    assert re.search(why, detail(answer)), detail(answer)
    assert "\n" not in detail(answer)


def test_switching_nothing_off_is_said():
    assert "No head is switched off" in detail(look(page(), "/api/without"))


def test_large_bodies_are_refused_whatever_they_claim():
    app = page()
    body = json.dumps({"model": "tiny", "text": "a" * LARGEST_BODY}).encode()
    assert ask(app, "POST", "/api/look", content=body).status_code == 413

    async def pieces():
        for _ in range(LARGEST_BODY // 1024 + 6):
            yield b" " * 1024

    answer = ask(app, "POST", "/api/look", content=pieces())
    assert answer.status_code == 413
    assert f"{LARGEST_BODY // 1024} KiB" in detail(answer)


def test_foreign_names_and_origins_are_refused():
    app = page()
    assert ask(app, "GET", "/api/state", base="http://evil.example:8765").status_code == 421
    assert ask(app, "GET", "/", base="http://evil.example").status_code == 421
    for base in ("http://localhost:8765", "http://[::1]:8765", "http://127.0.0.1", "http://LOCALHOST:8765"):
        assert ask(app, "GET", "/api/state", base=base).status_code == 200
    for host in FOREIGN:
        assert ask(app, "GET", "/api/state", headers={"Host": host}).status_code == 421, host
    other = ask(
        app, "POST", "/api/look", json={"model": "tiny", "text": TEXT}, headers={"Origin": "http://evil.example"}
    )
    assert other.status_code == 403
    assert ask(app, "GET", "/api/state", headers={"Origin": "null"}).status_code == 403
    own = ask(app, "GET", "/api/state", headers={"Origin": "http://127.0.0.1:8765"})
    assert own.status_code == 200


@pytest.mark.parametrize("public", [False, True])
def test_two_origins_or_two_hosts_are_refused(public):
    app, own = page(Access(is_public=public)), ("Origin", "http://127.0.0.1:8765")
    for twice in (
        [("Origin", "http://evil.example"), own],
        [own, own],
        [("Host", "evil.example"), ("Host", "127.0.0.1:8765")],
    ):
        refused = ask(app, "GET", "/api/state", headers=twice)
        assert refused.status_code == 400
        assert f"more than one {twice[0][0]} header" in detail(refused)


def test_a_page_answers_to_the_address_that_it_listens_on():
    lan, everywhere = Access("192.0.2.7"), Access("0.0.0.0")
    assert lan.names("192.0.2.7:8765", 8765)
    assert not lan.names("192.0.2.8:8765", 8765)
    assert not lan.names("192.0.2.7:8766", 8765)
    assert everywhere.names("192.0.2.8:8765", 8765)
    assert not everywhere.names("192.0.2.8", 8765)
    assert not everywhere.names("evil.example:8765", 8765)
    assert Access("127.0.0.2").names("127.0.0.2:8765", 8765)
    assert Access("fd00::1").names("[fd00::1]:8765", 8765)


def test_a_sender_with_invented_pages_does_not_push_others_out(monkeypatch):
    """Five people wait, then one sender asks 210 times under 210 page names: the five are served, and so is a sixth."""
    hold = threading.Event()
    monkeypatch.setattr("lorgnette.serve.app._looked", lambda *_: hold.wait(30) and {})
    app = page(Access.at("0.0.0.0", public=True))

    async def asked(address: str, text: str, name: str) -> httpx.Response:
        transport = httpx.ASGITransport(app=app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://demo.example") as client:
            question = {"model": "tiny", "text": text}
            return await client.post("/api/look", json=question, headers={"X-Page": name, "X-Forwarded-For": name})

    async def crowd() -> tuple[list[int], list[int], list[str]]:
        people = [asyncio.create_task(asked(f"192.0.2.{n}", f"person {n}", f"page {n}")) for n in range(5)]
        await asyncio.sleep(0.05)
        sender = [asyncio.create_task(asked("198.51.100.1", f"flood {n}", f"10.0.0.{n}")) for n in range(210)]
        await asyncio.wait(sender, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        people.append(asyncio.create_task(asked("192.0.2.9", "the sixth", "page 9")))
        await asyncio.sleep(0.05)
        hold.set()
        people, sender = await asyncio.gather(*people), await asyncio.gather(*sender)
        said = [detail(answer) for answer in sender if answer.status_code == 503]
        return [answer.status_code for answer in people], [answer.status_code for answer in sender], said

    people, sender, said = asyncio.run(crowd())
    assert people == [200] * 6
    assert (sender.count(200), sender.count(503)) == (MOST_WAITING, 210 - MOST_WAITING)
    assert sender[:MOST_WAITING] == [200] * MOST_WAITING  # the newest are refused
    assert set(said) == {"20 requests from your address are waiting already. Try again in a moment."}


def test_beyond_loopback_a_token_is_needed():
    assert Access.at("127.0.0.1").token is None
    assert Access.at("localhost").token is None
    access = Access.at("0.0.0.0")
    assert len(access.token) >= 24
    assert access.token not in repr(access)
    app, base = page(access), "http://192.0.2.7:8765"
    assert ask(app, "GET", "/", base=base).status_code == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"{COOKIE}=wrong"}, {"Cookie": "=;=,;"}):
        refused = ask(app, "GET", "/api/state", base=base, headers=headers)
        assert refused.status_code == 401
        assert "token is needed" in detail(refused)
    assert ask(app, "POST", "/api/enter", base=base).status_code == 401
    entered = ask(app, "POST", "/api/enter", base=base, headers={"Authorization": f"Bearer {access.token}"})
    assert entered.status_code == 204
    assert "HttpOnly" in entered.headers["set-cookie"]
    assert "samesite=strict" in entered.headers["set-cookie"].lower()
    cookie = {"Cookie": f"{COOKIE}={access.token}"}
    assert ask(app, "GET", "/api/state", base=base, headers=cookie).status_code == 200
    assert ask(app, "GET", "/api/state", base="http://evil.example", headers=cookie).status_code == 421


def test_the_description_is_complete():
    description = ask(page(), "GET", "/openapi.json").json()
    names = ("enter", "state", "corpus", "look", "without", "layers", "why", "paths", "sources")
    assert set(description["paths"]) == {f"/api/{name}" for name in names}
    answer = description["paths"]["/api/look"]["post"]["responses"]
    assert answer["200"]["content"]["application/json"]["schema"]["$ref"].endswith("Document")
    assert {"401", "403", "413", "422", "503"} <= set(answer)
    state = PageState.model_validate(ask(page(), "GET", "/api/state").json())
    assert state.limits["text"] == LONGEST_TEXT
    assert ask(page(), "GET", "/docs").status_code == 404


def test_models_are_loaded_one_at_a_time_and_the_page_answers_meanwhile():
    running, most, hold = 0, 0, threading.Event()

    def load(name):
        nonlocal running, most
        running += 1
        most = max(most, running)
        hold.wait(10)
        running -= 1
        return SUBJECTS[name]

    async def run():
        models = Models(tuple(SUBJECTS), load)
        tasks = [asyncio.create_task(models.get(name)) for name in SUBJECTS]
        while models.loading is None:
            await asyncio.sleep(0)
        assert [models.state(name) for name in SUBJECTS] == ["loading", "waiting", "waiting"]
        hold.set()
        assert [subject.name for subject in await asyncio.gather(*tasks)] == [s.name for s in SUBJECTS.values()]
        assert len(models.ready) == MOST_LOADED
        assert models.state("tiny") == "waiting"

    asyncio.run(run())
    assert most == 1


def test_a_model_that_cannot_be_opened_is_said_and_tried_again():
    def load(name):
        raise UserError("There is no model there.")

    app = make_app(Models(["gone"], load))
    assert detail(look(app, model="gone")) == "There is no model there."
    state = ask(app, "GET", "/api/state").json()["models"]
    assert state == [{"name": "gone", "state": "failed", "message": "There is no model there."}]


def test_a_model_that_breaks_while_it_is_loaded_leaves_the_page_usable(capsys):
    def load(name):
        return SUBJECTS[name] if name == "tiny" else {}["no such weight"]

    app = make_app(Models(["tiny", "broken"], load))
    refused = look(app, model="broken")
    assert refused.status_code == 422
    assert "'broken' cannot be opened: there is no 'no such weight'" in detail(refused)
    assert "KeyError" in capsys.readouterr().err
    assert look(app).status_code == 200
    states = {model["name"]: model["state"] for model in ask(app, "GET", "/api/state").json()["models"]}
    assert states == {"tiny": "ready", "broken": "failed"}


def test_a_bug_is_one_line_on_the_page(monkeypatch):
    monkeypatch.setattr("lorgnette.serve.app._looked", lambda *_: {}["gone"])
    app = page()

    async def run():
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/api/look", json={"model": "tiny", "text": TEXT})

    answer = asyncio.run(run())
    assert answer.status_code == 500
    assert "This is a bug" in detail(answer)
    assert "content-security-policy" in answer.headers


def test_a_class_can_be_chosen():
    app, labels = page(), SUBJECTS["tiny"].labels
    values = {name: look(app, **{"class": name}).json() for name in labels}
    assert {name: document["explained"] for name, document in values.items()} == {name: name for name in labels}
    one, two = (values[name]["explanations"][0]["values"] for name in labels[:2])
    assert one != two
    assert "no class 'nothing'" in detail(look(app, **{"class": "nothing"}))


def test_a_long_text_is_cut_where_that_was_asked_for():
    app = make_app(Models(["tiny"], SUBJECTS.__getitem__), limits=Limits(truncate=True))
    assert look(app).json()["cut"] is False
    answer = look(app, text="cat " * 200, off=["encoder.1.1"])
    document = Document.model_validate(answer.json())
    assert document.cut
    assert len(document.sides[0].pieces) == SUBJECTS["tiny"].limit
    assert document.without.prediction is not None
    assert look(app, "/api/without", text="cat " * 200, off=["encoder.1.1"]).status_code == 200


def test_a_public_page_needs_no_token_and_is_bounded():
    access = Access.at("0.0.0.0", public=True)
    assert access.token is None
    app = make_app(Models(["tiny"], SUBJECTS.__getitem__), access, limits=PUBLIC)
    base = "https://someone-lorgnette.hf.space"
    assert look(app, text="the cat").status_code == 200
    state = ask(app, "GET", "/api/state", base=base)
    assert state.json()["limits"]["text"] == PUBLIC.text
    assert "frame-ancestors *" in state.headers["content-security-policy"]
    assert "unsafe" not in state.headers["content-security-policy"]
    assert "1,001 characters; this page takes 1,000" in detail(look(app, text="a" * 1001))
    assert "this page takes 2" in detail(look(app, methods=["attnlrp", "rollout", "gradient_x_input"]))
    assert "generate: 500 tokens; this page generates at most 20" in detail(look(app, generate=500))
    assert state.json()["limits"]["generate"] == PUBLIC.generate
    assert "has no model '/etc'" in detail(look(app, model="/etc"))
    assert ask(app, "GET", "/", headers={"Origin": "https://evil.example"}, base=base).status_code == 403


def test_a_language_model_generates_and_a_classifier_says_that_it_does_not():
    app = make_app(Models(["tiny", "gpt2"], {"tiny": SUBJECTS["tiny"], "gpt2": gpt2()}.__getitem__))
    document = Document.model_validate(look(app, model="gpt2", generate=2).json())
    assert document.generates
    assert document.generated["tokens"] == 2
    assert not look(app).json()["generates"]
    assert "cannot continue a text" in detail(look(app, generate=2))


def test_a_public_page_has_one_model_which_is_opened_first():
    done = CliRunner().invoke(commands, ["serve", "a", "b", "--public", "--no-open"])
    assert (done.exit_code, "one model; got 2" in done.stderr) == (1, True)
    done = CliRunner().invoke(commands, ["serve", "./no-such-folder", "--public", "--no-open"])
    assert done.exit_code == 1
    assert "no-such-folder" in done.stderr


def test_a_proxy_is_named_by_its_address():
    done = CliRunner().invoke(commands, ["serve", "tiny", "--no-open", "--proxy", "*"])
    assert done.exit_code == 1
    assert "--proxy '*' is not an address or a network" in done.stderr


def test_a_port_that_is_taken_is_one_line():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(commands, ["serve", "tiny", "--no-open", "--port", str(port)])
    assert done.exit_code == 1
    assert f"Cannot listen at 127.0.0.1:{port}" in done.stderr
    assert "another --port" in done.stderr


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_it_went(text):
    nasty = f'{text} "><img src=x onerror=alert(1)></script>'
    assert look(page(), text=nasty).json()["text"] == nasty


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("data:image/png;base64,bm90aGluZw==", "The picture that was sent cannot be read"),
        ("data:image/png;base64,%%%", "The picture that was sent cannot be read"),
        ("data:image/svg+xml;base64,PHN2Zy8+", "String should match pattern"),
        ("https://example.org/cat.png", "String should match pattern"),
        ("LARGE", "has 3000 × 10 pixels"),
        ("FINE", "a tokenizer reads none"),
    ],
)
def test_a_picture_that_cannot_be_taken_is_one_line(image, why):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")
    if image in ("LARGE", "FINE"):
        file = io.BytesIO()
        pillow.new("RGB", (3000 if image == "LARGE" else 30, 10)).save(file, format="PNG")
        image = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    answer = look(page(), image=image)
    assert answer.status_code == 422
    assert why in detail(answer)
    assert "\n" not in detail(answer)


def test_the_tower_of_a_picture_is_shown_in_place_of_the_text():
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'lorgnette[pictures]'")
    file = io.BytesIO()
    pillow.new("RGB", (30, 20), "red").save(file, format="PNG")
    image = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    seeing = Subject(picture_model("llava")[0], processor_of("llava"), name="seeing")
    app = make_app(Models(("seeing",), lambda _: seeing))
    shown = look(app, model="seeing", image=image, text="a red cat", tower=True).json()
    assert [stack["name"] for stack in shown["stacks"]] == ["vision"]
    assert (shown["stacks"][0]["queries"], len(shown["sides"][0]["pieces"])) == (0, 17)
    assert (shown["sees"], shown["layered"], shown["predicts"], shown["prediction"]) == (True, False, False, None)
    assert shown["pictures"][0]["pieces"] == list(range(1, 17))
    refused = look(app, model="seeing", image=image, text="a red cat", tower=True, off=["decoder.1.1"])
    assert "Leave them out to see the tower" in detail(refused)
    assert "read no picture here" in detail(look(app, model="seeing", text="a red cat", tower=True))
