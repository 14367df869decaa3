"""The logit lens of one text: what each layer would predict at each position."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.display import Facts
from lorgnette.errors import UserError
from lorgnette.explaining.output_head import OutputHead, Predictions
from lorgnette.explaining.target import positions
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.subject.trace import translated
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.texts.readable import readable_piece

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.figures.plot import Plot


@dataclass(frozen=True, repr=False)
class LayerPredictions(Facts):
    """The top token of every layer at every position of a text that predicts.

        >>> found = lo.logit_lens(language_model, "the cat sat on the mat .")
        >>> found.top.shape                                 # [state position]: embeddings, then each layer
        torch.Size([3, 7])
        >>> list(found.to_dataframe().columns)
        ['state', 'position', 'token', 'prediction', 'probability', 'agrees']

    `plot()` draws them as a table whose colours are the probabilities.
    """

    positions: tuple[int, ...]
    """which tokens of the text (counted from 0) predict: the token behind them, or themselves if they are masked"""
    tokens: tuple[str, ...]
    """these tokens, as the model reads them"""
    top: Int[Tensor, "state position"]
    """the id of the token with the largest logit; the last row is the model's own prediction"""
    probability: Float[Tensor, "state position"]
    """its probability"""
    pieces: tuple[tuple[str, ...], ...]
    """the same tokens as text, by state and position"""

    @property
    def settled(self) -> Int[Tensor, " position"]:
        """The first state from which on the top token is the model's own."""
        same = (self.top == self.top[-1]).long()
        return (1 - same.flip(0).cumprod(0)).sum(0)

    def facts(self) -> dict[str, object]:
        """The model's own prediction at each position, and where it settles."""
        out: dict[str, object] = {}
        for number, (place, token) in enumerate(zip(self.positions, self.tokens, strict=True)):
            state = int(self.settled[number])
            where = f"after layer {state}" if state else "in the embeddings"
            out[f"{place} {token}"] = f"{self.pieces[-1][number]}, settled {where}"
        return out

    def __repr__(self) -> str:
        return f"LayerPredictions({len(self.top) - 1} layers, {len(self.tokens)} positions)"

    def to_dataframe(self) -> "pd.DataFrame":
        """A row per state and position: the token that is read, the one that is predicted, and its probability."""
        import pandas as pd

        rows = [
            (state, place, self.tokens[number], self.pieces[state][number],
             float(self.probability[state, number]), bool(self.top[state, number] == self.top[-1, number]))
            for state in range(len(self.top)) for number, place in enumerate(self.positions)
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["state", "position", "token", "prediction", "probability", "agrees"])

    def plot(self) -> "Plot":
        """The top token of each layer (rows, the last on top) at each position (columns)."""
        import altair as alt

        from lorgnette.figures.plot import Plot

        frame = self.to_dataframe()
        columns = [f"{place} {token}" for place, token in zip(self.positions, self.tokens, strict=True)]
        rows = [
            {"column": columns[number % len(columns)], "state": row.state, "prediction": row.prediction,
             "probability": row.probability, "strong": row.probability > _DARK}
            for number, row in enumerate(frame.itertuples())
        ]  # fmt: skip
        base = alt.Chart(alt.Data(values=rows), width=alt.Step(64), height=alt.Step(22)).encode(
            x=alt.X(field="column", type="nominal", sort=None, title="token", axis=alt.Axis(labelAngle=-40)),
            y=alt.Y(field="state", type="ordinal", sort="descending", title="layer (0: embeddings)"),
        )
        scale = alt.Scale(scheme="blues", domain=[0, 1])
        cells = base.mark_rect().encode(color=alt.Color(field="probability", type="quantitative", scale=scale))
        colour = alt.condition("datum.strong", alt.value("white"), alt.value("black"))
        words = base.mark_text(fontSize=10, limit=60).encode(
            text=alt.Text(field="prediction", type="nominal"), color=colour
        )
        return Plot(cells + words, "What each layer would predict")


_DARK = 0.6
"""A cell of this probability is so dark that its text is white."""


def logit_lens(subject: Subject, text: str | Example, *, target: str | None = None) -> LayerPredictions:
    """What each layer of a language or translation model would predict at each position of one text.

        >>> lo.logit_lens(language_model, "the cat sat")
        LayerPredictions(2 layers, 3 positions)

    Every state of the residual stream is read by the model's own final norm and output head (nostalgebraist 2020). A
    causal model predicts behind every token; a masked one at the masked tokens of the text, or at all of them if none
    is masked; a translation model at every token of the translation (`target`, or its own). Over a corpus, with
    standard errors and a control: the lens `logitlens`.
    """
    refuse_no_subject(subject, "logit_lens")
    OutputHead(subject)  # a model without one is refused before it translates
    example = text if isinstance(text, Example) else subject.example(text, target=target)
    return layer_predictions(subject, subject.encode([translated(subject, example)]))


def layer_predictions(subject: Subject, batch: Batch) -> LayerPredictions:
    """The same for a text that is tokenised already: the only one of the batch."""
    head = OutputHead(subject)
    tokens = batch.source if batch.target is None else batch.target
    if not bool(tokens.mask.any()):
        raise UserError("The text has no token to predict from. Pass a text with at least one word.")
    head.check(batch)
    where = tokens.mask if subject.anatomy.causal else positions(subject, batch)
    places = Predictions.at(where)
    tops, shares = [], []
    with torch.no_grad():
        read = head.read(batch)
        for state in read.states:
            logits = head.logits(batch, places.of(state))[0]
            wide = logits.float() if logits.dtype.itemsize < 4 else logits
            share, top = wide.softmax(-1).max(-1)
            tops.append(top.cpu())
            shares.append(share.cpu())
    shown, numbers = tokens.shown(), places.where[0].tolist()
    first = int(tokens.mask[0].to(torch.uint8).argmax())
    return LayerPredictions(
        tuple(number - first for number in numbers),
        tuple(shown[number - first] for number in numbers),
        torch.stack(tops),
        torch.stack(shares),
        tuple(tuple(map(readable_piece, _pieces(subject, top))) for top in tops),
    )


def _pieces(subject: Subject, ids: Int[Tensor, " position"]) -> list[str]:
    """Tokens as the tokenizer spells them; a model may have more ids than its tokenizer has tokens."""
    pieces = subject.tokenizer.convert_ids_to_tokens(ids.tolist())
    return [str(number) if piece is None else str(piece) for piece, number in zip(pieces, ids.tolist(), strict=True)]
