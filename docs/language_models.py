"""The pictures of docs/language-models.md: `python docs/language_models.py MODEL`, a few seconds for 135M parameters.

MODEL is a folder (or hub name) of SmolLM2-135M-Instruct, or of another language model with a chat template.
"""

import sys
from pathlib import Path

import altair as alt
import numpy as np

import lorgnette as lo
from lorgnette.explaining import Next, explain
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.drawing import drawn

IMAGES = Path(__file__).parent / "images" / "language"
PROMPT = "The capital of France is"
CHAT = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "Why is the sky blue?"},
]


def save(chart: alt.TopLevelMixin, name: str) -> None:
    (IMAGES / f"{name}.svg").write_bytes(drawn(chart, "svg"))


def words_read(trace: lo.Trace) -> alt.Chart:
    """The mean over all heads, with the first token left out: nearly every head rests there."""
    weights = trace.data().mean(("layer", "head"))
    start, pieces = trace.generated.start, [piece.replace("Ġ", "␣").replace("Ċ", "⏎") for piece in trace.pieces()]
    name = [f"{place} {piece}" for place, piece in enumerate(pieces)]
    rows = [
        {"said": name[query], "read": name[key], "weight": float(weights[query, key])}
        for query in range(start, len(pieces))
        for key in range(1, query + 1)
    ]
    axis = alt.Axis(labelAngle=-60, title=None)
    return (
        alt.Chart(alt.Data(values=rows), width=alt.Step(20), height=alt.Step(18))
        .mark_rect()
        .encode(
            alt.X("read:N", sort=name, axis=axis),
            alt.Y("said:N", sort=name, title="generated token"),
            alt.Color("weight:Q", scale=alt.Scale(scheme="blues"), title="weight"),
        )
    )


def listeners(trace: lo.Trace) -> alt.Chart:
    """Whom the answer reads, layer by layer, mean over heads."""
    shares = trace.by_part().sel(query_part="generated").mean("head")
    rows = [
        {"layer": int(layer), "part": str(part), "weight": float(shares.sel(layer=layer, key_part=part))}
        for layer in shares["layer"].values
        for part in shares["key_part"].values
    ]
    return (
        alt.Chart(alt.Data(values=rows), width=420, height=200)
        .mark_area()
        .encode(
            alt.X("layer:Q", title="layer", scale=alt.Scale(domain=[1, len(shares["layer"])], nice=False)),
            alt.Y("weight:Q", stack="normalize", title="share of the weight"),
            alt.Color("part:N", title="attention to", scale=alt.Scale(range=list(COLOURS))),
        )
    )


def relevance(subject: lo.Subject) -> alt.Chart:
    """Why " Paris" and not " London"."""
    batch = subject.encode([PROMPT])
    made = explain(subject, batch, "attnlrp", Next(" Paris", instead_of=" London"))
    print(f"logit of Paris − logit of London: {float(made.start[0]):.2f}; explained: {made.explained[0]}")
    pieces = [piece.replace("Ġ", "") for piece in batch.source.pieces[0]]
    values = np.asarray(made.tokens[0].detach())
    for piece, value in zip(pieces, values, strict=True):
        print(f"  {piece:10} {value:+.2f}")
    rows = [{"token": piece, "relevance": float(value)} for piece, value in zip(pieces, values, strict=True)]
    return (
        alt.Chart(alt.Data(values=rows), width=alt.Step(46), height=160)
        .mark_bar()
        .encode(alt.X("token:N", sort=pieces, title=None, axis=alt.Axis(labelAngle=0)), alt.Y("relevance:Q"))
    )


def main(model: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    subject = lo.load(model)
    trace = subject.trace(PROMPT, generate=8)
    print(f"{PROMPT} → {trace.generated.text!r}")
    save(words_read(trace), "generated")
    chat = subject.trace(lo.chat(CHAT), generate=24)
    print(f"chat → {chat.generated.text!r}")
    shares, norms = chat.by_part().mean(("layer", "head")), chat.by_part("norms").mean(("layer", "head"))
    for part in shares["key_part"].values:
        weight, norm = (float(one.sel(query_part="generated", key_part=part)) for one in (shares, norms))
        total = float(norms.sel(query_part="generated").sum())
        print(
            f"  the answer reads {part}: {len(chat.parts[part])} tokens, weight {weight:.3f}, norm {norm / total:.3f}"
        )
    save(listeners(chat), "listeners")
    save(relevance(subject), "paris")


if __name__ == "__main__":
    main(sys.argv[1])
