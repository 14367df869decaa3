"""Which heads read, far away, the token that comes next: the retrieval score on ordinary texts.

Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality" (arXiv 2404.15574), count how often a
head's largest weight is on the token that the model is about to copy out of a needle. Here the text itself is the
haystack, and the token that the text has next is the one to be copied.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.lens.context.windowed import Stream
from lorgnette.texts.batch import Tokens

SCORES = ("retrieval", "retrieval_control", "retrieval_excess")


def retrieval_scores(
    peaks: Int[Tensor, "text head query"], tokens: Tokens, stream: Stream
) -> tuple[Float[Tensor, "text head score"], Bool[Tensor, " text"]]:
    """`SCORES` of every text and head, and which texts have a token that could be copied from far away.

        score    share of queries i with h's largest weight on a far key j, x_j = x_{i+1}
        control  share of the tokens that come next anywhere in the text and stand far before i, that x_j is
        excess   score − control

    Both are means over the queries whose next token stands among their far keys. The control is what the score would
    be, on average, if the next tokens of the text were dealt to its queries at random: a head that likes commas has it.
    """
    scores = torch.zeros(*peaks.shape[:2], len(SCORES), dtype=torch.float64, device=peaks.device)
    exists = torch.zeros(len(peaks), dtype=torch.bool, device=peaks.device)
    for text, mask in enumerate(tokens.mask.to(peaks.device)):
        ids = tokens.ids[text].to(peaks.device)[mask]
        places = mask.long().cumsum(0) - 1
        found = _one_text(places[peaks[text][:, mask]], ids, stream)
        if found is not None:
            scores[text], exists[text] = found, True
    return scores, exists


def _one_text(
    peaks: Int[Tensor, "head token"], ids: Int[Tensor, " token"], stream: Stream
) -> Float[Tensor, "head score"] | None:
    if len(ids) - 1 <= stream.size:
        return None
    queries = torch.arange(stream.size, len(ids) - 1, device=ids.device)
    following, last = ids[queries + 1], queries - stream.window  # a query's far keys are sinks … last
    same = following[:, None] == ids[stream.sinks :]
    first = torch.where(same.any(-1), stream.sinks + same.to(torch.uint8).argmax(-1), len(ids))
    counted = first <= last
    if not bool(counted.any()):
        return None
    peaks, last = peaks[:, queries[counted]], last[counted]
    far = (peaks >= stream.sinks) & (peaks <= last)
    read = ids[peaks]
    score = (far & (read == following[counted])).double().mean(-1)
    dealt = (following == read[..., None]).sum(-1).double() / (first <= last[:, None]).sum(-1)  # read is far too
    control = (far * dealt).mean(-1)
    return torch.stack([score, control, score - control], -1)
