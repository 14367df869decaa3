"""What an answer used of its prompt, as a plot, in a notebook and as a page."""

import os
from html import escape
from itertools import pairwise
from pathlib import Path

from lorgnette.explaining.sources.measuring import Sources
from lorgnette.figures.plain_page import write_page
from lorgnette.figures.plot import Plot, plot_html
from lorgnette.figures.prompt_parts import part_bars
from lorgnette.texts.readable import readable

_ABOUT = (
    "drop: log P(answer) minus log P(answer) with the part masked out in every layer; alone: log P(answer) with this "
    "source as the only one, minus log P(answer) with none; both in nats. attention: mean weight over heads and the "
    "rows that say the answer; norm: share of the norm that these rows take; relevance: of the answer's summed logits."
)


def sources_plot(sources: Sources) -> Plot:
    """A panel for each number, a bar for each part."""
    return Plot(part_bars(sources.to_dataframe().to_dict("records"), sources.first), f"Sources of {sources.answer!r}")


def sources_html(sources: Sources) -> str:
    """The sentence, the figure and the table."""
    notes = "".join(f"<p>{escape(note)}</p>" for note in sources.notes)
    return f"<div><p>{escape(told(sources))}</p>{plot_html(sources_plot(sources))}{_table(sources)}{notes}</div>"


def sources_page(sources: Sources, path: str | os.PathLike[str]) -> Path:
    """The page of an answer with its prompt, as one file that needs no network."""
    title = f"What did {readable(sources.answer)!r} use?"
    about = f"<p><small>{escape(_ABOUT)}</small></p>"
    return write_page(path, title, f"{sources_html(sources)}{about}<h2>The prompt</h2>{_prompt(sources)}")


def told(sources: Sources) -> str:
    """The numbers in one sentence."""
    whole = f"The answer {readable(sources.answer)!r} has log-probability {_number(sources.log_probability)} nats"
    none = f"{_number(sources.without_any)} with all sources masked out"
    if sources.first is None:
        return f"{whole}, {none}; masking no single source makes it half as likely or less."
    drop = float(sources.data["drop"].sel(source=sources.first))
    return f"{whole}, {none}; it falls most without {sources.first}, by {_number(drop)}."


def _table(sources: Sources) -> str:
    frame = sources.to_dataframe().drop(columns="compared")
    numbers = {name: (lambda value: _number(value)) for name in ("attention", "norm", "relevance", "drop", "alone")}
    return str(frame.to_html(index=False, border=0, na_rep="–", escape=True, formatters=numbers))


def _prompt(sources: Sources) -> str:
    """The text, its parts marked."""
    text, spans = sources.prompt.text, sources.prompt.parts
    named = {str(name) for name in sources.data["source"].values}
    ends = [0, *(edge for span in spans for edge in (span.start, span.end)), len(text)]
    out = []
    for place, (start, end) in enumerate(pairwise(ends)):
        piece = escape(text[start:end])
        span = spans[place // 2] if place % 2 else None
        if span is not None and span.name in named:
            kind = ' class="first"' if span.name == sources.first else ""
            piece = f'<mark{kind} title="{escape(span.name)}">{piece}</mark>'
        out.append(piece)
    return f"<pre>{''.join(out)}</pre>"


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.3f}".replace("-", "−")
