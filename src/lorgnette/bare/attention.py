"""`lo.attention(model, **inputs)`: the attention of one pass of any Hugging Face model, by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn
from transformers.utils import ModelOutput

from lorgnette import axes
from lorgnette.attending import Call, Recorder, Site
from lorgnette.attending.recorder import PARTS
from lorgnette.attending.scores import row_positions
from lorgnette.bare.inputs import fresh, model_inputs, running
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.norms import head_norms
from lorgnette.display import Facts
from lorgnette.errors import UserError, near, shown, whole_numbers
from lorgnette.models.tapping import tapped
from lorgnette.subject import Subject, subject_of
from lorgnette.subject.recorded import RecordedPass
from lorgnette.texts.padding import SIDES, real_tokens

_DIMS = {
    "query": (axes.TEXT, axes.HEAD, axes.QUERY, axes.DIM),
    "key": (axes.TEXT, axes.HEAD, axes.KEY, axes.DIM),
    "value": (axes.TEXT, axes.HEAD, axes.KEY, axes.DIM),
    "weights": (axes.TEXT, axes.HEAD, axes.QUERY, axes.KEY),
    "context": (axes.TEXT, axes.HEAD, axes.QUERY, axes.DIM),
    "norms": (axes.TEXT, axes.HEAD, axes.QUERY, axes.KEY),
}


@dataclass(frozen=True, repr=False)
class Attention(Facts, RecordedPass):
    """Queries, keys, values, weights and contexts of one forward pass, by site.

        >>> seen = lo.attention(model, **inputs)
        >>> seen["encoder.3.weights"].shape                 # [batch head query key]
        torch.Size([2, 4, 11, 11])
        >>> seen.data("weights").dims                       # all layers of the only stack, stacked
        ('layer', 'text', 'head', 'query', 'key')

    `seen["encoder.3.norms"]` is ‖α f(x)‖ (Kobayashi et al. 2020), from weights, values, the output projection and the
    gate behind the heads where there is one.
    `output` is what the model returned.
    """

    subject: Subject
    records: dict[Site, dict[str, Tensor]]
    output: ModelOutput
    heads: tuple[int, ...] | None = None
    projections: SiteWeights | None = None
    gates: Mapping[Site, Tensor] = field(default_factory=dict)
    """what multiplied the contexts before W_O, where anything did: of the stored heads and rows"""

    def __getstate__(self) -> dict[str, object]:
        """A copy holds numbers: gradients flow through the original only."""
        records = {site: {name: each.detach() for name, each in parts.items()} for site, parts in self.records.items()}
        gates = {site: gate.detach() for site, gate in self.gates.items()}
        return {**vars(self), "records": records, "gates": gates, "output": _detached(self.output)}

    def __repr__(self) -> str:
        return f"Attention({self.subject.name!r}: {'; '.join(map(self._stack_shapes, self.stacks))})"

    def _stack_shapes(self, stack: str) -> str:
        """The layers of a stack, and the shapes at the first of them."""
        sites = [site for site in self.sites if site.name == stack]
        shapes = (f"{part} {' × '.join(map(str, each.shape))}" for part, each in self.records[sites[0]].items())
        first, last = sites[0].layer + 1, sites[-1].layer + 1
        layers = f"layer {first}" if len(sites) == 1 else f"{len(sites)} layers from {first} to {last}"
        return f"{stack}, {layers}: {', '.join(shapes)}"

    def facts(self) -> dict[str, object]:
        shapes: dict[str, object] = {name: " × ".join(map(str, self[name].shape)) for name in self.names()}
        return {"model": self.subject.name, **shapes}

    @property
    def sites(self) -> tuple[Site, ...]:
        return tuple(self.records)

    @property
    def stored(self) -> tuple[str, ...]:
        parts = tuple(next(iter(self.records.values())))
        return (*parts, "norms") if {"weights", "value"} <= set(parts) else parts

    def contexts(self) -> dict[Site, Tensor]:
        return {site: parts["context"].detach() for site, parts in self.records.items() if "context" in parts}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __getitem__(self, name: str) -> Tensor:
        sites, part = self.placed(name)
        tensors = [self._norms(site) if part == "norms" else self.records[site][part] for site in sites]
        if name.count(".") == 2:
            return tensors[0]
        if len({tensor.shape for tensor in tensors}) > 1:
            raise UserError(
                f"The layers have {part} of different shapes: index one of them, such as {self.names()[0]!r}."
            )
        return torch.stack(tensors)

    def data(self, name: str) -> xr.DataArray:
        """One part as a labelled array; layers and heads are numbered from 1."""
        sites, part = self.placed(name)
        tensor = self[name].detach().float().cpu()
        numbers = self.subject.anatomy[sites[0]].numbers
        chosen = numbers if self.heads is None else [numbers[head] for head in self.heads]
        coordinates: dict[str, list[int]] = {axes.HEAD: [number + 1 for number in chosen]}
        dims: tuple[str, ...] = _DIMS[part]
        if name.count(".") < 2:
            dims = (axes.LAYER, *dims)
            coordinates[axes.LAYER] = [site.layer + 1 for site in sites]
        return xr.DataArray(tensor.numpy(), dims=dims, coords=coordinates, name=part)

    def _norms(self, site: Site) -> Float[Tensor, "batch head query key"]:
        record = self.records[site]
        projections = self.projections or SiteWeights(self.subject, layer_norm=False, gated=True)
        output = projections[site].output
        output = output if self.heads is None else output[list(self.heads)]
        if site in self.gates:
            value = record["value"].to(output)
            rows = self.gates[site].to(output).unbind(2)
            lengths = [((gate[:, :, None] * value) @ output).norm(dim=-1) for gate in rows]
            return record["weights"] * torch.stack(lengths, 2).to(record["weights"])
        flat = output.flatten(0, 1)
        products = (flat @ flat.T).unflatten(0, output.shape[:2])
        return record["weights"] * head_norms(record["value"].to(products.dtype), products)[:, :, None].to(
            record["weights"]
        )


def _detached(value: object) -> object:
    """Detach every tensor in a model's output, also inside tuples and mappings."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, ModelOutput):
        return type(value)(**{name: _detached(each) for name, each in value.items()})
    return tuple(map(_detached, value)) if type(value) is tuple else value


def attention(
    model: nn.Module | Subject,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    parts: Sequence[str] = PARTS,
    **inputs: object,
) -> Attention:
    """Run `model(**inputs)` once and return its attention.

        >>> tokens = tokenizer("the cat sat", return_tensors="pt")
        >>> seen = lo.attention(model, **tokens, layers=[1], parts=["weights", "context"])
        >>> seen["encoder.1.weights"].shape                 # [batch head query key]
        torch.Size([1, 4, 5, 5])

    `inputs` are the model's own (input_ids, inputs_embeds, pixel_values, …). `layers` and `heads` count from 1, `rows`
    are query positions from 0, or from the end: −1 is the last position of every text, which may not be padding. Only
    these are stored, and the weights of other rows are never computed. With gradients enabled, the tensors are part of
    the graph; under `torch.no_grad()` they are not. In training mode, weights are those before dropout. They equal
    transformers' own weights (`attn_implementation="eager"`) up to rounding.

    What it does not tell you: how much a token contributes (ask for `norms`), or whether a head matters (`effect`).
    """
    subject = subject_of(model, inputs)
    inputs = model_inputs(subject, inputs)
    sites = _chosen_sites(subject, layers)
    picked = _chosen_heads(subject, heads)
    rows = None if rows is None else whole_numbers(rows, "rows")
    _refuse_padding_from_the_end(rows or (), inputs)
    recorder = Recorder.of(*_known_parts(parts), sites=sites, heads=picked, rows=rows, graph=torch.is_grad_enabled())
    gates = Recorder(lambda call: _gate(call, picked, rows), sites)
    with tapped(subject, recorder, gates), running(subject, inputs):
        output = subject.model(**fresh(inputs))
    if not recorder.records:
        raise UserError(f"{subject.name!r} made no attention call in this pass. Check that these are its inputs.")
    known = {site: gate for site, gate in gates.records.items() if gate is not None}
    return Attention(subject, dict(recorder.records), output, picked, gates=known)


def _gate(call: Call, heads: tuple[int, ...] | None, rows: Sequence[int] | None) -> Tensor | None:
    """The gate of the stored heads and rows, if there is one."""
    if call.gate is None:
        return None
    gate = call.gate if heads is None else call.gate[:, list(heads)]
    return gate if rows is None else gate[:, :, row_positions(rows, call.query.shape[2])]


def _refuse_padding_from_the_end(rows: Sequence[int], inputs: Mapping[str, object]) -> None:
    """A row that is counted from the end of the batch and is not counted from the end of a text."""
    for mask_name in SIDES.values():
        mask = inputs.get(mask_name)
        if not isinstance(mask, Tensor) or not any(row < 0 for row in rows):
            continue
        real = real_tokens(mask, None, mask_name)
        for row in rows:
            padded = (~real[:, row]).nonzero()[:, 0].tolist() if -real.shape[1] <= row < 0 else []
            if padded:
                raise UserError(
                    f"Row {row} is padding in text {padded[0] + 1} of this batch. Count rows from 0, pad on the left "
                    "(padding_side='left'), or pass one text at a time."
                )


def _known_parts(parts: Sequence[str]) -> Sequence[str]:
    parts = [parts] if isinstance(parts, str) else parts
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, str) for part in parts):
        raise UserError(f"parts must be a list of {', '.join(PARTS)}. Got {shown(parts)} instead.")
    for part in parts:
        if part not in PARTS:
            raise UserError(f"A pass has no {part!r}.{near(part, PARTS)} There are: {', '.join(PARTS)}.")
    return parts


def _chosen_sites(subject: Subject, layers: Sequence[int] | None) -> list[Site] | None:
    if layers is None:
        return None
    layers = whole_numbers(layers, "layers")
    if not layers:
        raise UserError("layers are empty: name at least one, from 1, or leave layers out for all of them.")
    sites = [site for site in subject.sites if site.layer + 1 in layers]
    missing = set(layers) - {site.layer + 1 for site in sites}
    if missing:
        most = max(site.layer + 1 for site in subject.sites)
        raise UserError(f"{subject.name!r} has no layer {min(missing)}: its layers are 1 to {most}.")
    return sites


def _chosen_heads(subject: Subject, heads: Sequence[int] | None) -> tuple[int, ...] | None:
    if heads is None:
        return None
    fewest = min(site.heads for site in subject.anatomy.sites)
    heads = whole_numbers(heads, "heads")
    for head in heads:
        if not 1 <= head <= fewest:
            raise UserError(f"{subject.name!r} has no head {head}: its heads are 1 to {fewest}.")
    return tuple(head - 1 for head in heads)
