"""Questions of the live page: what each layer predicts, why a head attends, the strongest paths, and the lines used."""

from typing import TYPE_CHECKING

from lorgnette.errors import UserError
from lorgnette.explaining.logit_lens import layer_predictions
from lorgnette.explaining.output_head import OutputHead
from lorgnette.explaining.paths import strongest_paths
from lorgnette.explaining.sources.measuring import sources
from lorgnette.explaining.target import require_head
from lorgnette.explaining.why import split_score
from lorgnette.serve import schemas
from lorgnette.subject import Subject
from lorgnette.subject.generation import traced
from lorgnette.texts.example import Example, Span
from lorgnette.types import Json

if TYPE_CHECKING:
    from lorgnette.serve.app import Limits


def has_layers(subject: Subject) -> bool:
    """Whether what follows the last layer can be applied to every layer."""
    try:
        OutputHead(subject)
    except UserError:
        return False
    return True


def has_prediction(subject: Subject) -> bool:
    """Whether there are logits that paths could lead to."""
    try:
        require_head(subject)
    except UserError:
        return False
    return True


def in_lines(text: str, most: int) -> Example:
    """A prompt whose lines are its parts, "line 1", "line 2" …; empty ones are not counted."""
    spans: list[Span] = []
    place = 0
    for line in text.splitlines(keepends=True):
        if line.strip():  # the line end before it belongs to it, as in `lo.prompt`
            start = spans[-1].end if spans else 0
            spans.append(Span(f"line {len(spans) + 1}", start, place + len(line.rstrip())))
        place += len(line)
    if len(spans) < 2:
        raise UserError("Write each source on a line of its own, and the question on the last line.")
    if len(spans) > most + 1:
        raise UserError(f"{len(spans) - 1} lines before the question; this page compares at most {most}.")
    return Example("prompt", text.rstrip(), parts=tuple(spans))


def layers_of(subject: Subject, example: Example, question: schemas.ShownText, limits: "Limits") -> Json:
    """The logit lens of the text, with what the model generated."""
    OutputHead(subject)
    trace = traced(subject, example, how=question.generate, truncate=limits.truncate)
    found = layer_predictions(subject, trace.batch)
    return {
        "tokens": list(found.tokens),
        "predictions": [list(row) for row in found.pieces],
        "probabilities": found.probability.double().tolist(),
        "settled": found.settled.tolist(),
    }


def why_of(subject: Subject, example: Example, question: schemas.WhyQuestion, limits: "Limits") -> Json:
    """What wrote the query and the key that a head brings together."""
    trace = traced(subject, example, how=question.generate, truncate=limits.truncate)
    found = split_score(subject, trace.batch, question.head, question.query, question.key)
    frame = found.to_dataframe()
    order = frame[["query_beyond", "key_beyond"]].abs().max(axis=1).sort_values(ascending=False, kind="stable").index
    return {
        "head": found.head,
        "query": found.query,
        "key": found.key,
        "score": found.score,
        "beyond": float(found.beyond.sum()),
        "weight": found.weight,
        "parts": [
            {"writer": row["writer"], "query": row["query_beyond"], "key": row["key_beyond"]}
            for row in frame.loc[order].to_dict("records")
        ],
    }


def paths_of(subject: Subject, example: Example, question: schemas.PathsQuestion, limits: "Limits") -> Json:
    """The strongest paths to what the model predicts for the text, with what it generated."""
    trace = traced(subject, example, how=question.generate, truncate=limits.truncate)
    found = strongest_paths(subject, trace.batch, against=question.against, count=question.count, among=question.among)
    parts, edges = found.drawn()
    return {"explained": found.explained, "logit": found.value, "parts": parts, "edges": edges}


def sources_of(subject: Subject, example: Example, question: schemas.SourcesQuestion, limits: "Limits") -> Json:
    """What the answer loses without each line; a space is put before an answer that is typed without one."""
    answer = question.answer
    if answer is not None and not answer[:1].isspace():
        answer = f" {answer}"
    found = sources(subject, example, answer, generate=question.generate, progress=False)
    lines = {span.name: example.text[span.start : span.end].strip() for span in example.parts}
    return {
        "answer": found.answer,
        "log_probability": found.log_probability,
        "without_any": found.without_any,
        "first": found.first,
        "parts": [
            {**row, "text": lines[row["part"]], "alone": None if row["alone"] != row["alone"] else row["alone"]}
            for row in found.to_dataframe().to_dict("records")
        ],
        "notes": list(found.notes),
    }
