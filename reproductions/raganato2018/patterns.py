"""Where the encoder heads of a translation model look: the word itself, its neighbours, the end of the sentence."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call
from lorgnette.attending.sweep import Wanted
from lorgnette.lens.base import Lens
from lorgnette.looking.look import look
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts import Corpus, Example
from lorgnette.texts.batch import Batch

PATTERNS = ("self", "previous", "next", "last")
"""The four of Raganato & Tiedemann 2018."""
OFFSETS = (0, -1, 1)
NUMBERS = (*(f"peak_{name}" for name in PATTERNS), *(f"mass_{name}" for name in PATTERNS), "confidence", "rarest")
DIGITS = 4
_BATCH = 4096


class Patterns(Lens):
    """Per encoder head, means over the pieces of words (</s> asks nothing): how often the largest weight is at a
    pattern, how much weight is there, the largest weight on a word (confidence), and how often that is the rarest.

    The patterns overlap: the last word's next token is the last token. Every number is over all pieces of words, also
    for the previous token, which the first has not.
    """

    name: ClassVar[str] = "patterns"
    summary: ClassVar[str] = "the word itself, its neighbours, the end of the sentence"
    totals: Tensor
    pieces: Tensor

    def __init__(self, rarity: Float[Tensor, " piece"]) -> None:
        super().__init__()
        self.rarity = rarity

    def allocate(self, subject: Subject) -> None:
        self.encoder = [site for site in self.sites if site.stack == "encoder"]
        self.sums("totals", len(self.encoder), self.heads, len(NUMBERS))
        self.sums("pieces", 1)

    def update(self, call: Call, batch: Batch) -> None:
        if call.site not in self.encoder:
            return
        tokens = batch.source
        word = tokens.mask & ~tokens.special
        last = tokens.mask.sum(-1) - 1
        position = torch.arange(tokens.ids.shape[1], device=last.device)
        end = (position == last[:, None])[..., None].to(call.query.dtype)
        wanted = Wanted(features=end, peak=True, among=word, positions=True, offsets=OFFSETS)
        rows = call.measure(wanted)
        goals = [*((position + offset).expand_as(word) for offset in OFFSETS), last[:, None].expand_as(word)]
        peaks = torch.stack([rows["peak_position"] == goal[:, None] for goal in goals], -1)
        rarest = self.rarity.to(last.device)[tokens.ids].masked_fill(~word, -1).argmax(-1)
        found = (rows["peak_among_position"] == rarest[:, None, None])[..., None]
        parts = (peaks, rows["at"], rows["average"], rows["peak_among"][..., None], found)
        values = torch.cat([part.double() for part in parts], -1) * word[:, None, :, None]
        layer = self.encoder.index(call.site)
        self.totals[layer, : values.shape[1]] += values.sum((0, 2)).cpu()
        if layer == 0:
            self.pieces += float(word.sum())

    def compute(self) -> Result:
        shares = (self.totals / self.pieces.clamp(min=1)).permute(2, 0, 1).cpu().numpy()
        names = {"number": list(NUMBERS)}
        array = xr.DataArray(shares, dims=("number", axes.LAYER, axes.HEAD), coords=names)
        return self.result({"patterns": array, "pieces": float(self.pieces)})


def patterns(subject: Subject, texts: Sequence[Example], counts: Mapping[int, int]) -> dict[str, Any]:
    """The numbers of every encoder head in these texts; `counts` of pieces in the training texts say which are rare."""
    rarity = torch.ones(max(len(subject.tokenizer), int(subject.model.config.vocab_size)))
    for piece, count in counts.items():
        rarity[piece] = 1 / (1 + count)
    lens = Patterns(rarity)
    # Raw text and no reference: the encoder reads pieces, and nobody asks the decoder.
    plain = [Example(f"{number} {one.id}", one.text) for number, one in enumerate(texts)]
    found = look(subject, Corpus.of(plain, name="patterns"), [lens], batch_tokens=_BATCH, progress=False)
    data = found[lens.name].data
    numbers = {name: data["patterns"].sel(number=name).values.round(DIGITS).tolist() for name in NUMBERS}
    return {"words": float(data["pieces"]), "texts": len(texts), **numbers}
