"""`lorgnette trace … --logit-lens`: what each layer would predict at each position."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from lorgnette.explaining.logit_lens import LayerPredictions

_COLUMN = 14  # columns of a prediction with its probability


def layer_table(found: "LayerPredictions", width: int) -> "Table":
    """Positions in rows, as many layers in columns as there is room for, the first and the last among them."""
    from rich.markup import escape
    from rich.table import Table

    states = len(found.top)
    room = max(2, min(states, width // _COLUMN - 1))
    chosen = sorted({round(number * (states - 1) / (room - 1)) for number in range(room)})
    table = Table("token", *(f"layer {state}" if state else "embeddings" for state in chosen), box=None, pad_edge=False)
    for number, token in enumerate(found.tokens):
        cells = [f"{found.pieces[s][number][: _COLUMN - 6]} {float(found.probability[s, number]):.2f}" for s in chosen]
        table.add_row(escape(token), *map(escape, cells))
    return table
