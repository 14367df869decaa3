"""One batch, run with one head after another replaced; layers below the replaced head are not run again."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import ACTIVE, Arrival, Call, Site, Tap
from lorgnette.lens.ablation.copies import copies_together
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.switching import run_as, switched
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch


@dataclass(frozen=True)
class Replacement:
    """One head of a site, and what it gives instead (None: zero): one vector, or one for each text and query.

    Or several neighbouring heads, with the vectors of each.
    """

    head: int | slice
    vector: Float[Tensor, "*position dim"] | None


class Rerun:
    """A batch whose layers' outputs are kept, so that a pass with a changed head can begin at that head's layer.

    `with rerun.recording(): model(...)` is the pass that is kept. A model whose layers share modules (ALBERT) is run
    from the start each time.
    """

    def __init__(self, subject: Subject, batch: Batch) -> None:
        self.subject, self.batch = subject, batch
        self.order: list[AttentionSite] = [site for stack in subject.anatomy.stacks for site in stack.sites]
        self.outputs: dict[int, Any] = {}
        pairs = {(attention.site.stack, attention.site.layer, id(attention.layer)) for attention in self.order}
        self.shared: bool = len({layer for _, _, layer in pairs}) < len(pairs)
        caches = hasattr(subject.model.config, "use_cache")
        self.options: dict[str, object] = {"return_dict": True, **({"use_cache": False} if caches else {})}

    @contextmanager
    def recording(self) -> Iterator[None]:
        def keep(module: nn.Module, arguments: object, output: object) -> None:
            self.outputs[id(module)] = _mapped(output, Tensor.detach)

        with ExitStack() as undo:
            for layer in self._layers(self.order):
                undo.callback(layer.register_forward_hook(keep).remove)
            yield

    def each(self, site: Site, replacements: Sequence[Replacement]) -> Iterator[Float[Tensor, "text *rest"]]:
        """The model's logits with each of these heads replaced in turn, many copies of the batch at a time."""
        together = copies_together(self.batch)
        for start in range(0, len(replacements), together):
            yield from self.logits(site, replacements[start : start + together])

    def logits(self, site: Site, replacements: Sequence[Replacement]) -> Float[Tensor, "copy text *rest"]:
        """The model's logits with each of these heads of one site replaced, each in its own copy of the batch."""
        copies = len(replacements)
        at = next(number for number, attention in enumerate(self.order) if attention.site == site)
        attention = self.order[at]
        watch = _OneSite(attention, self.order, _Replaced(replacements))
        inputs = {name: tensor.repeat(copies, *(1,) * (tensor.dim() - 1)) for name, tensor in self.batch.inputs.items()}
        with ExitStack() as undo:
            undo.enter_context(switched(self.subject.model.modules(), self.subject.anatomy))
            undo.callback(ACTIVE.reset, ACTIVE.set((*ACTIVE.get(), watch)))
            if not self.shared:
                for layer in self._layers(self.order[:at]):
                    if layer is not attention.layer and _by_text(self.outputs[id(layer)], len(self.batch)):
                        undo.callback(_replayed(layer, _copied(self.outputs[id(layer)], len(self.batch), copies)))
            output = self.subject.model(**inputs, **self.options)
        if watch.arrived == 0:
            raise RuntimeError(f"{site} was not reached")
        return output.logits.unflatten(0, (copies, len(self.batch)))

    @staticmethod
    def _layers(sites: Sequence[AttentionSite]) -> list[nn.Module]:
        return list({id(attention.layer): attention.layer for attention in sites}.values())


class _Replaced(Tap):
    """Replaces the output of a different head in each copy of a batch."""

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self.replacements = replacements

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        copies = context.unflatten(0, (len(self.replacements), -1)).clone()
        for copy, replacement in zip(copies, self.replacements, strict=True):
            vector = replacement.vector
            copy[:, replacement.head] = 0.0 if vector is None else vector[..., : copy.shape[-1]].to(copy)
        return copies.flatten(0, 1)


class _OneSite:
    """Watches one site of a model whose earlier layers may not run; a module of several layers by counting calls."""

    def __init__(self, attention: AttentionSite, order: Sequence[AttentionSite], tap: Tap) -> None:
        self.module, self.tap = attention.module, tap
        self.sites = [other.site for other in order if other.module is attention.module]
        self.wanted, self.arrived = attention.site, 0
        self.current: Site | None = None

    @property
    def taps(self) -> Sequence[Tap]:
        return (self.tap,) if self.current == self.wanted else ()

    def contains(self, module: nn.Module) -> bool:
        return module is self.module

    def arrive(self, module: nn.Module) -> Arrival:
        self.current = self.sites[self.arrived]
        self.arrived += 1
        return Arrival(self.current)


def _replayed(layer: nn.Module, output: object) -> Any:
    """Make a layer return this output instead of running; the returned function undoes it."""
    return run_as(layer, lambda *arguments, **keywords: output)


def _copied(output: object, texts: int, copies: int) -> Any:
    def copied(tensor: Tensor) -> Tensor:
        # What has no batch axis (a position bias shared by all texts) stays one.
        return tensor.repeat(copies, *(1,) * (tensor.dim() - 1)) if tensor.dim() and len(tensor) == texts else tensor

    return _mapped(output, copied)


def _by_text(output: Tensor | tuple[Tensor | None, ...], texts: int) -> bool:
    """Whether the output of a layer has a row for each text: patches of several pictures may share a row."""
    state = output[0] if isinstance(output, tuple) else output  # what follows, such as a cache, may be None
    return state is not None and len(state) == texts


def _mapped(output: object, function: Any) -> Any:
    if isinstance(output, Tensor):
        return function(output)
    return tuple(_mapped(part, function) for part in output) if isinstance(output, tuple) else output
