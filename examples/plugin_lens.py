"""A lens of your own: how far back each head looks, on average.

    reach_h = mean over queries i of Σ_j α_ij (i − j)

`lorgnette new lens reach` writes a whole package with one. It is named in `pyproject.toml`, and `look`, the report,
`compare` and `lorgnette list lenses` know it:

    [project.entry-points."lorgnette.lenses"]
    reach = "my_package.reach:Reach"
"""

from typing import ClassVar

import torch

import lorgnette as lo
from lorgnette.attending import Call
from lorgnette.lens import Lens, Moments
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch


class Reach(Lens):
    """Mean distance between a query and what it attends to, in tokens; positive looks back."""

    name: ClassVar[str] = "reach"
    summary: ClassVar[str] = "how far back each head looks"

    def allocate(self, subject: Subject) -> None:
        self.reaches = Moments(self, "reach")  # a mean over queries with its standard error, for every head

    def update(self, call: Call, batch: Batch) -> None:
        if call.site.kind != "self":
            return  # a decoder's position in the other text is no distance
        mask = batch.queries(call.site).mask
        place = torch.arange(mask.shape[1], device=mask.device, dtype=call.query.dtype)
        attended = call.average(place.expand(len(mask), -1)[..., None])[..., 0]  # Σ_j α_ij j
        queries = mask.sum(-1, keepdim=True)
        of_text = ((place - attended) * mask[:, None]).sum(-1) / queries.clamp(min=1)  # [text head]
        self.reaches.add(call.site, reach=(of_text, queries))

    def compute(self) -> Result:
        return self.result(self.reaches.arrays())


if __name__ == "__main__":
    subject = lo.load("minilm")
    texts = ["The cat sat on the mat.", "Dogs bark at night.", "Slow, but moving."]
    reach = lo.look(subject, texts, [Reach()], progress=False)["reach"]
    print(reach.data["reach"].squeeze().mean("head").round(2).values)
    lo.report(reach, "reach.html")
