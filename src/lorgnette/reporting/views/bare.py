"""`lo.views(attentions, tokens)`: the views of weights that come from anywhere."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.constraints import checked
from lorgnette.display import NotebookDisplay
from lorgnette.errors import UserError, shown
from lorgnette.reporting.views.pack import FORMAT, VERSION, deflated, floats, root_bytes
from lorgnette.reporting.views.page import notebook_html, write_page
from lorgnette.texts.readable import readable_piece
from lorgnette.types import Json

Weights = Tensor | np.ndarray | Sequence[Tensor]
_ROUNDING = 1e-2  # of weights in half precision


class Views(NotebookDisplay):
    """The head, matrix, model and text views of one text, for a notebook or as an HTML page.

    >>> lo.views(torch.full((2, 3, 4, 4), 0.25), list("abcd")).save("page.html").name
    'page.html'
    """

    def __init__(self, document: Json) -> None:
        self.document = document

    def __repr__(self) -> str:
        stack = self.document["stacks"][0]
        name = self.document["model"] or stack["name"]
        return f"Views({name!r}: {stack['layers']} layers of {stack['heads']} heads)"

    @checked
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one page that needs no network, atomically."""
        return write_page(self.document, path)


def views_html(shown: Views) -> str:
    return notebook_html(shown.document)


def views(
    attentions: Weights,
    tokens: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    text: int | None = None,
    name: str = "attention",
    model: str | None = None,
) -> Views:
    """Show attention weights from any source in the views of `trace`.

        >>> weights = torch.rand(2, 3, 4, 4).softmax(-1)        # or output.attentions of a model
        >>> lo.views(weights, ["the", "cat", "sat", "."])
        Views('attention': 2 layers of 3 heads)

    `attentions` is a tensor [layer head query key], or [layer text head query key] for a batch, or a list with one
    tensor per layer, as transformers returns it. Of a batch of several texts, `text` (from 0) says whose weights these
    tokens belong to. `tokens` are the queries, and also the keys unless `keys` is given (cross-attention). Rows sum to
    one, or less with a sink. `model` names the model in the title. A notebook displays the views.

    What they do not show: norms, relevance and trees, which need the model (`subject.trace`).
    """
    for argument, names in (("tokens", tokens), ("keys", keys)):
        if (names is not None or argument == "tokens") and not isinstance(names, str | Sequence):
            raise UserError(f"{argument} must be a list of tokens. Got {shown(names)} instead.")
    weights = _checked(attentions, text)
    key_labels = tokens if keys is None else keys
    for side, labels, size in (("query", tokens, weights.shape[2]), ("key", key_labels, weights.shape[3])):
        if isinstance(labels, str) or len(labels) != size:
            count = "one text was" if isinstance(labels, str) else f"{len(labels)} tokens were"
            raise UserError(f"The weights have {size} {side} positions, and {count} given: give a list with as many.")
    sides = [_side(tokens)] + ([] if keys is None else [_side(keys)])
    entropy = -(torch.special.xlogy(weights, weights)).sum(-1).mean(-1)  # nats
    stack = {
        "name": name, "layers": len(weights), "heads": weights.shape[1], "gone": [], "queries": 0,
        "keys": len(sides) - 1, "weights": [deflated(layer) for layer in root_bytes(weights)],
        "entropy": floats(entropy.numpy()), "norms": None, "moved": None,
    }  # fmt: skip
    nothing: dict[str, None] = dict.fromkeys(
        ("pair", "target", "prediction", "rationale", "trees", "explained", "without")
    )
    head = {"format": FORMAT, "version": VERSION, "model": model, "text": " ".join(map(str, tokens))}
    return Views({**head, **nothing, "stacks": [stack], "explanations": [], "pictures": [], "sides": sides})


def _checked(attentions: Weights, text: int | None) -> Float[Tensor, "layer head query key"]:
    try:
        if isinstance(attentions, Tensor | np.ndarray):
            weights = torch.as_tensor(attentions)
        else:
            weights = torch.stack([torch.as_tensor(layer) for layer in attentions])
    except (RuntimeError, TypeError, ValueError, KeyError) as error:
        raise UserError("lo.views takes weights of layers of one shape: a tensor, or a list with one each.") from error
    if weights.dim() == 5:
        texts = weights.shape[1]
        if text is None and texts > 1:
            raise UserError(
                f"The weights are of {texts} texts, and the tokens of one: say which (text=0 to text={texts - 1})."
            )
        if text is not None and not -texts <= text < texts:
            raise UserError(f"There is no text {text}: the batch has {texts}, counted from 0.")
        weights = weights[:, text or 0]
    elif text is not None:
        raise UserError(f"The weights have no axis of texts, so there is no text {text}: leave out text.")
    if weights.dim() != 4 or 0 in weights.shape:
        raise UserError(
            f"lo.views takes weights [layer head query key], or with a batch [layer text head query key]. Got "
            f"{list(weights.shape)}."
        )
    weights = weights.detach().cpu().float()
    sums = weights.sum(-1)
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()) or bool((sums > 1 + _ROUNDING).any()):
        raise UserError(
            "These are not attention weights: a row has a negative number or NaN, or sums to more than one."
        )
    return weights


def _side(tokens: Sequence[str]) -> dict[str, list[str] | list[int]]:
    places, labels = list(range(len(tokens))), [readable_piece(str(token)) for token in tokens]
    return {"pieces": labels, "words": labels, "word": places, "index": places}
