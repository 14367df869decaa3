"""The addresses of the live page."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from lorgnette import __version__
from lorgnette.errors import UserError, reason
from lorgnette.explaining import explanations
from lorgnette.reporting.views.gather import METHODS, document_of, knocked_out, methods_of, target_of
from lorgnette.serve import schemas
from lorgnette.serve.guard import COOKIE, LARGEST_BODY, Access, Guard
from lorgnette.serve.models import Models
from lorgnette.serve.questions import has_layers, has_prediction, in_lines, layers_of, paths_of, sources_of, why_of
from lorgnette.serve.work import AnswerCache, Busy, Desk, WorkingThread, as_json
from lorgnette.subject import Subject
from lorgnette.subject.generation import can_generate, traced
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.pictures import Picture
from lorgnette.types import Json

MOST_TEXTS = 2000
"""Texts of the corpus that can be chosen."""
_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_PROBLEMS: dict[int | str, Json] = {
    400: {"model": schemas.Problem, "description": "The request has two Host or two Origin headers."},
    401: {"model": schemas.Problem, "description": "A token is required."},
    403: {"model": schemas.Problem, "description": "The request came from another site."},
    413: {"model": schemas.Problem, "description": "The request is too large."},
    421: {"model": schemas.Problem, "description": "The Host header is not this page's name."},
    422: {"model": schemas.Problem, "description": "The request is invalid."},
    500: {"model": schemas.Problem, "description": "Internal error; see the terminal that runs the page."},
    503: {"model": schemas.Problem, "description": "Too many requests from this address are waiting."},
}


class Texts:
    """The texts of a corpus that can be chosen, read once, in a thread of its own."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._reading: asyncio.Future[list[Example]] | None = None
        self._thread = WorkingThread("reading")

    async def read(self) -> list[Example]:
        if self._reading is None or (self._reading.done() and self._reading.exception() is not None):
            self._reading = self._thread.do(lambda: list(self.corpus.take(MOST_TEXTS)))
        return await asyncio.shield(self._reading)

    def label(self, example: Example) -> str | None:
        labels = self.corpus.labels
        return labels[example.label] if labels is not None and example.label is not None else None


@dataclass(frozen=True)
class Limits:
    """The limits of one request: lengths, methods, generated tokens."""

    text: int = schemas.LONGEST_TEXT
    methods: int = schemas.MOST_METHODS
    generate: int = schemas.MOST_GENERATED
    sources: int = 40
    """Lines of a prompt that are compared: each takes two copies of the text."""
    truncate: bool = False
    """Texts that are longer than the model takes are cut, and the page says so; else they are refused."""

    def check(self, question: "Asked") -> None:
        for name in ("text", "pair", "target", "answer", "against"):
            text = getattr(question, name, None)
            if text is not None and len(text) > self.text:
                raise UserError(f"{name}: {len(text):,} characters; this page takes {self.text:,}. Shorten it.")
        methods = question.methods or () if isinstance(question, schemas.Question) else ()
        if len(methods) > self.methods:
            raise UserError(f"methods: {len(methods)} were asked for; this page takes {self.methods}.")
        if (question.generate or 0) > self.generate:
            raise UserError(f"generate: {question.generate} tokens; this page generates at most {self.generate}.")


Asked = schemas.ShownText | schemas.SourcesQuestion

PUBLIC = Limits(text=1_000, methods=2, generate=20, sources=8)
"""Limits of a public page: one request takes at most some hundred milliseconds on MiniLM."""


@dataclass
class Page:
    """What handlers of requests share: the models, the corpus, the limits and the cache."""

    models: Models
    texts: Texts | None = None
    limits: Limits = Limits()
    desk: Desk = field(default_factory=Desk)
    answers: AnswerCache = field(default_factory=AnswerCache)

    def __post_init__(self) -> None:
        # After reloading, the name may belong to another model.
        self.models.on_load = lambda name: self.answers.forget(lambda key: key[1] != name)

    async def answer(self, kind: str, question: Asked, request: Request, work: "Work") -> Response:
        """The answer of `work`, computed once for equal requests, including those that arrive while it runs."""
        self.limits.check(question)

        async def make() -> bytes:
            subject = await self.models.get(question.model)
            example = await self._example(subject, question)
            return await self.desk.do(lambda: as_json(work(subject, example, question, self.limits)))

        asked = hashlib.sha256(question.model_dump_json().encode()).digest()  # which may hold a picture
        key = (kind, self.models.known(question.model), asked)
        with self.desk.place(request.client.host if request.client else ""):
            return Response(await self.answers.get(key, make), media_type="application/json")

    async def _example(self, subject: Subject, question: Asked) -> Example:
        """The example of the corpus with its annotations, if the text is unchanged; otherwise the text alone."""
        if isinstance(question, schemas.SourcesQuestion):
            return in_lines(question.text, self.limits.sources)
        image = None if question.image is None else Picture.sent(question.image)
        if question.example is not None and self.texts is not None and image is None:
            known = (await self.texts.read())[question.example : question.example + 1]
            if known and (known[0].text, known[0].pair) == (question.text, question.pair):
                return known[0]
        return subject.example(question.text, question.pair, target=question.target, image=image)


Work = Callable[[Subject, Example, Any, Limits], Json]


def make_app(
    models: Models, access: Access | None = None, corpus: Corpus | None = None, limits: Limits | None = None
) -> Any:
    """The page as an ASGI application, behind its guard."""
    page = Page(models, None if corpus is None else Texts(corpus), limits or Limits())
    # The pages that FastAPI makes of its description load scripts from elsewhere: only the description is given.
    app = FastAPI(title="Lorgnette", version=__version__, docs_url=None, redoc_url=None, responses=_PROBLEMS,
                  description="Attention, explanations and predictions of a model for one text.")  # fmt: skip
    _speak(app)
    _pages(app, access or Access())
    _questions(app, page)
    return Guard(app, access or Access())


def _speak(app: FastAPI) -> None:
    """Install handlers that turn errors into one line of JSON."""

    @app.exception_handler(UserError)
    async def wrong(_: object, error: UserError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    @app.exception_handler(Busy)
    async def busy(_: object, error: Busy) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})

    @app.exception_handler(Exception)
    async def bug(_: object, error: Exception) -> JSONResponse:
        # The client gets this line alone; Starlette raises the error again, so the terminal shows the traceback.
        said = f"Lorgnette failed ({reason(error)}). This is a bug; see the terminal that runs the page."
        return JSONResponse({"detail": said}, 500)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: object, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"detail": f"{where or 'The request'}: {first['msg']}."}, 422)


def _pages(app: FastAPI, access: Access) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(_file("lorgnette.serve", "page.html"))

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in _static():
            raise HTTPException(404, f"There is no file {name[:80]!r}.")
        return PlainTextResponse(_file(_static()[name], name), media_type=_TYPES[name.rpartition(".")[2]])

    @app.post("/api/enter", status_code=204, summary="Keep the token as a cookie")
    async def enter(response: Response) -> None:
        if access.token is not None:
            response.set_cookie(COOKIE, access.token, httponly=True, samesite="strict")


def _questions(app: FastAPI, page: Page) -> None:
    models, texts = page.models, page.texts

    @app.get("/api/state", summary="What the page can do")
    async def state() -> schemas.PageState:
        known = [
            schemas.ModelState.model_validate(
                {"name": name, "state": models.state(name), "message": models.failed.get(name)}
            )
            for name in models.names
        ]
        limits = {"text": page.limits.text, "body": LARGEST_BODY, "waiting": page.desk.most,
                  "methods": page.limits.methods, "generate": page.limits.generate}  # fmt: skip
        name = None if texts is None else texts.corpus.name
        return schemas.PageState(models=known, methods=explanations(), default_methods=list(METHODS),
                                corpus=name, limits=limits)  # fmt: skip

    @app.get("/api/corpus", summary="Texts of the corpus")
    async def corpus(
        start: int = Query(0, ge=0), count: int = Query(20, ge=1, le=100), search: str = Query("", max_length=200)
    ) -> schemas.CorpusPage:
        if texts is None:
            raise UserError("The page was started without a corpus. Give one with --corpus.")
        chosen = [(n, e) for n, e in enumerate(await texts.read()) if search.lower() in e.text.lower()]
        some = [schemas.CorpusText(number=n, text=e.text, pair=e.pair, label=texts.label(e))
                for n, e in chosen[start : start + count]]  # fmt: skip
        return schemas.CorpusPage(name=texts.corpus.name, total=len(chosen), texts=some)

    @app.post("/api/look", response_model=schemas.Document, summary="All views of a text")
    async def look(question: schemas.Question, request: Request) -> Response:
        return await page.answer("look", question, request, _looked)

    @app.post("/api/without", response_model=schemas.Without, summary="What changes without some heads")
    async def without(question: schemas.Question, request: Request) -> Response:
        if not question.off:
            raise UserError("No head is switched off: name some in `off`.")
        return await page.answer("without", question, request, _without)

    @app.post("/api/layers", response_model=schemas.LayersAnswer, summary="What each layer would predict")
    async def layers(question: schemas.ShownText, request: Request) -> Response:
        return await page.answer("layers", question, request, layers_of)

    @app.post("/api/why", response_model=schemas.WhyAnswer, summary="What made a head attend to a token")
    async def why(question: schemas.WhyQuestion, request: Request) -> Response:
        return await page.answer("why", question, request, why_of)

    @app.post("/api/paths", response_model=schemas.PathsAnswer, summary="The strongest paths to the prediction")
    async def paths(question: schemas.PathsQuestion, request: Request) -> Response:
        return await page.answer("paths", question, request, paths_of)

    @app.post("/api/sources", response_model=schemas.SourcesAnswer, summary="Which lines of a prompt the answer used")
    async def sources(question: schemas.SourcesQuestion, request: Request) -> Response:
        return await page.answer("sources", question, request, sources_of)


def _looked(subject: Subject, example: Example, question: schemas.Question, limits: Limits) -> Json:
    trace = traced(subject, example, how=question.generate, truncate=limits.truncate)
    can = {"generates": can_generate(subject), "sees": subject.processor is not None}
    if question.tower:
        if question.off:
            raise UserError("off: heads are switched off in the language model. Leave them out to see the tower.")
        document = document_of(trace.tower(), methods=[], trees=False)
        return {**document, **can, "layered": False, "predicts": False}
    document = document_of(trace, methods=question.methods, without=question.off, target=question.explained)
    return {**document, **can, "layered": has_layers(subject), "predicts": has_prediction(subject)}


def _without(subject: Subject, example: Example, question: schemas.Question, limits: Limits) -> Json:
    trace = traced(subject, example, how=question.generate, truncate=limits.truncate)
    methods = methods_of(trace, question.methods)
    return knocked_out(trace, question.off, methods, target=target_of(trace, question.explained))


@cache
def _static() -> dict[str, str]:
    """The files that the page may ask for, and the package of each."""
    packages = ("lorgnette.serve", "lorgnette.reporting.views")
    return {
        file.name: package for package in packages for file in files(package).iterdir()
        if file.name.rpartition(".")[2] in _TYPES
    }  # fmt: skip


@cache
def _file(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")
