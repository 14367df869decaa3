"""What the rows that say an answer take from each part of the prompt, at every head."""

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.explaining.sources.parts import AnsweredPrompt
from lorgnette.subject import Subject


class AnswerRows(Tap):
    """Attention and norms of each part, at every head: means over the rows whose output says a token of the answer.

        attention    Σ_{j in the part} α_ij                norm    Σ_{j in the part} ‖α_ij f(x_j)‖

    The last "part" is everything else: the answer so far, and what the template and the tokenizer add.
    """

    attention: dict[Site, Float[Tensor, "head part"]]
    norm: dict[Site, Float[Tensor, "head part"]]

    def __init__(self, subject: Subject, prompt: AnsweredPrompt) -> None:
        self.subject = subject
        masks = prompt.masks[:, :-1]  # the answer's last token is not read
        self.members: Float[Tensor, "key part"] = torch.cat([masks, ~masks.any(0)[None]]).T.double()
        self.rows = list(range(prompt.answer.start - 1, prompt.answer.stop - 1))
        self.attention, self.norm = {}, {}

    def see(self, call: Call) -> None:
        weights = call.block(rows=self.rows)[0].detach().double()
        value = call.value[0].detach()
        value = value.to(torch.promote_types(value.dtype, torch.float32))
        output = self.subject.anatomy[call.site].output_weights()[0].detach().to(value)
        lengths = (value @ output).norm(dim=-1).double()
        members = self.members.to(weights.device)
        self.attention[call.site] = (weights @ members).mean(1).cpu()
        self.norm[call.site] = ((weights * lengths[:, None]) @ members).mean(1).cpu()
