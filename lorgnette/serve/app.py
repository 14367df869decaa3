"""The addresses of the live page."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, Query, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from lorgnette import __version__
from lorgnette.errors import UserError
from lorgnette.explaining import explanations
from lorgnette.reporting.views.gather import METHODS, gathered, knocked_out, methods_of, target_of
from lorgnette.serve import shapes
from lorgnette.serve.guard import COOKIE, LARGEST_BODY, Access, Guard
from lorgnette.serve.work import MOST_WAITING, Busy, Desk, Models
from lorgnette.subject import Subject
from lorgnette.subject.trace import Trace
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

MOST_TEXTS = 2000
"""Texts of the corpus that can be chosen."""
_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"model": shapes.Problem, "description": "No token, where one is needed."},
    403: {"model": shapes.Problem, "description": "Asked by another site's page."},
    413: {"model": shapes.Problem, "description": "The request is too large."},
    421: {"model": shapes.Problem, "description": "Asked by a name that is not the page's."},
    422: {"model": shapes.Problem, "description": "What was wrong with the question."},
    503: {"model": shapes.Problem, "description": "Too much is waiting."},
}


class Texts:
    """The texts of a corpus that can be chosen, read once, in the working thread."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.examples: list[Example] | None = None

    def read(self) -> list[Example]:
        if self.examples is None:
            self.examples = list(self.corpus.take(MOST_TEXTS))
        return self.examples

    def label(self, example: Example) -> str | None:
        labels = self.corpus.labels
        return labels[example.label] if labels is not None and example.label is not None else None


def make_app(models: Models, access: Access | None = None, corpus: Corpus | None = None) -> Any:
    """The page as an ASGI application, behind its guard."""
    desk, texts = Desk(), None if corpus is None else Texts(corpus)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    # The pages that FastAPI makes of its description load scripts from elsewhere: only the description is given.
    app = FastAPI(title="Lorgnette", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
                  description="What each head of a model reads in one text.", responses=_PROBLEMS)  # fmt: skip
    _speak(app)
    _pages(app, access or Access())
    _questions(app, models, desk, texts)
    return Guard(app, access or Access())


def _speak(app: FastAPI) -> None:
    """Errors in one line each."""

    @app.exception_handler(UserError)
    async def wrong(_: Any, error: UserError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    @app.exception_handler(Busy)
    async def busy(_: Any, error: Busy) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Any, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"detail": f"{where or 'The request'}: {first['msg']}."}, 422)


def _pages(app: FastAPI, access: Access) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(_file("lorgnette.serve", "page.html"))

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        stem, _, kind = name.rpartition(".")
        for package in ("lorgnette.serve", "lorgnette.reporting.views"):
            if stem.isalpha() and kind in _TYPES and (files(package) / name).is_file():
                return PlainTextResponse(_file(package, name), media_type=_TYPES[kind])
        raise HTTPException(404, f"There is no {name!r}.")

    @app.post("/api/enter", status_code=204, summary="Keep the token as a cookie")
    async def enter(response: Response) -> None:
        if access.token is not None:
            response.set_cookie(COOKIE, access.token, httponly=True, samesite="strict")


def _questions(app: FastAPI, models: Models, desk: Desk, texts: Texts | None) -> None:
    @app.get("/api/state", summary="What the page can do")
    async def state() -> shapes.PageState:
        known = [
            shapes.ModelState.model_validate(
                {"name": name, "state": models.state(name), "message": models.failed.get(name)}
            )
            for name in models.names
        ]
        limits = {"text": shapes.LONGEST_TEXT, "body": LARGEST_BODY, "waiting": MOST_WAITING,
                  "methods": shapes.MOST_METHODS}  # fmt: skip
        name = None if texts is None else texts.corpus.name
        return shapes.PageState(models=known, methods=explanations(), default_methods=list(METHODS),
                                corpus=name, limits=limits)  # fmt: skip

    @app.get("/api/corpus", summary="Texts of the corpus")
    async def corpus(
        start: int = Query(0, ge=0), count: int = Query(20, ge=1, le=100), search: str = Query("", max_length=200)
    ) -> shapes.CorpusPage:
        if texts is None:
            raise UserError("The page was started without a corpus. Give one with --corpus.")
        chosen = [(n, e) for n, e in enumerate(await desk.do(texts.read)) if search.lower() in e.text.lower()]
        some = [shapes.CorpusText(number=n, text=e.text, pair=e.pair, label=texts.label(e))
                for n, e in chosen[start : start + count]]  # fmt: skip
        return shapes.CorpusPage(name=texts.corpus.name, total=len(chosen), texts=some)

    @app.post("/api/look", response_model=shapes.Document, summary="All views of a text")
    async def look(question: shapes.Question) -> JSONResponse:
        subject = await models.get(question.model)
        return JSONResponse(await desk.do(_looked, subject, question, texts))

    @app.post("/api/without", response_model=shapes.Without, summary="What changes without some heads")
    async def without(question: shapes.Question) -> JSONResponse:
        if not question.off:
            raise UserError("No head is switched off: name some in `off`.")
        subject = await models.get(question.model)
        return JSONResponse(await desk.do(_without, subject, question, texts))


def _looked(subject: Subject, question: shapes.Question, texts: Texts | None) -> dict[str, Any]:
    example = _example(subject, question, texts)
    return gathered(subject, example, methods=question.methods, without=question.off, target=question.explained)


def _without(subject: Subject, question: shapes.Question, texts: Texts | None) -> dict[str, Any]:
    trace = Trace.of(subject, _example(subject, question, texts))
    off: Sequence[str] = question.off
    return knocked_out(trace, off, methods_of(trace, question.methods), target=target_of(trace, question.explained))


def _example(subject: Subject, question: shapes.Question, texts: Texts | None) -> Example:
    """The text of the corpus with all that is known of it, if it is still that text; else just the words."""
    if question.example is not None and texts is not None and question.example < len(texts.read()):
        found = texts.read()[question.example]
        if (found.text, found.pair) == (question.text, question.pair):
            return found
    return subject.example(question.text, question.pair, target=question.target)


@cache
def _file(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")
