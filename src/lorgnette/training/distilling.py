"""Learning from the model as it was: its logits, and its states at the layers that both models have."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lorgnette.attending import Site
from lorgnette.models.families.layers import layers_of
from lorgnette.types import Json, PreTrainedModel

TEMPERATURE = 2.0
IGNORED = -100


class Teacher:
    """T² KL(p_T ‖ q_T) of the logits (Hinton et al. 2015) + mean over layers of |x − y|² / |y|² of the states.

    y are the states of the teacher behind each layer that the student has too, x the student's; padding does not count.
    """

    def __init__(self, model: PreTrainedModel, weight: float) -> None:
        self.model, self.weight = model.eval().requires_grad_(False), weight

    @contextmanager
    def watching(self, student: PreTrainedModel) -> Iterator[None]:
        """Keep the states of both models during their passes."""
        self.states: tuple[dict[Site, Tensor], dict[Site, Tensor]] = ({}, {})
        theirs = {each.site: each.module for each in layers_of(self.model)}
        with ExitStack() as undo:
            for each in layers_of(student):
                for module, kept in zip((each.module, theirs[each.site]), self.states, strict=True):
                    undo.callback(module.register_forward_hook(_Keep(kept, each.site)).remove)
            yield

    def loss(self, logits: Float[Tensor, "*batch class"], inputs: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The distance of the student, which has just run over these inputs, from the teacher."""
        given = {name: tensor for name, tensor in inputs.items() if name != "labels"}
        with torch.no_grad():
            taught = self.model(**given)["logits"]
        labels = inputs["labels"]
        real = labels != IGNORED
        if logits.dim() == 3:
            logits, taught = logits[real], taught[real]
        return distance(logits, taught) + self._states(inputs["attention_mask"].bool(), real)

    def _states(self, mask: Bool[Tensor, "batch token"], real: Tensor) -> Tensor:
        own, theirs = self.states
        terms = []
        for site, taught in theirs.items():
            if site not in own or own[site].shape != taught.shape:
                continue
            sides = [side for side in (mask, real) if side.shape == taught.shape[:2]]
            where = (sides[-1] if site.stack == "decoder" else sides[0]) if sides else slice(None)
            x, y = own[site][where], taught[where]
            terms.append((x - y).square().sum() / y.square().sum())
        return torch.stack(terms).mean() if terms else mask.new_zeros((), dtype=torch.float32)


def distance(logits: Float[Tensor, "row class"], taught: Float[Tensor, "row class"]) -> Float[Tensor, ""]:
    """T² KL(p_T ‖ q_T), the mean over rows."""
    p = (taught / TEMPERATURE).log_softmax(-1)
    q = (logits / TEMPERATURE).log_softmax(-1)
    return TEMPERATURE**2 * (p.exp() * (p - q)).sum(-1).mean()


class Taught:
    """A mixin for Trainer classes: adds the distance from the teacher to the training loss."""

    def __init__(self, *args: object, teacher: Teacher, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.teacher = teacher

    def compute_loss(
        self, model: PreTrainedModel, inputs: dict[str, Tensor], return_outputs: bool = False, **more: object
    ) -> Tensor | tuple[Tensor, Json]:
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, **more)  # type: ignore[misc]
        given = dict(inputs)  # label smoothing takes the labels out
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **more)  # type: ignore[misc]
        loss = loss + self.teacher.weight * self.teacher.loss(outputs["logits"], given)
        return (loss, outputs) if return_outputs else loss


class _Keep:
    """A forward hook that stores the output of a layer."""

    def __init__(self, kept: dict[Site, Tensor], site: Site) -> None:
        self.kept, self.site = kept, site

    def __call__(self, module: nn.Module, given: object, output: Tensor | tuple[Tensor, *tuple[object, ...]]) -> None:
        self.kept[self.site] = output[0] if isinstance(output, tuple) else output
