"""One pass over a small batch, and what happened in it."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from lorgnette.attending import ACTIVE, Call, Site, Tap
from lorgnette.attending.taps import Arrival
from lorgnette.models.families.table import drift
from lorgnette.models.linear import is_linear
from lorgnette.models.norms import is_norm

LENGTHS = (9, 5)
"""Real tokens of the two texts: one is padded."""
TARGET = 6
"""Tokens on a decoder's side; the encoder has another number, so that cross-attention can be told apart."""
SAMPLES, FRAMES = 4000, 48
"""Samples of a sound, a quarter of a second; and frames, where a model takes features over time."""


@dataclass(frozen=True)
class Ran:
    """A linear map or a norm with its input and output, the tokens of all texts in one row."""

    module: nn.Module
    kind: str
    given: Float[Tensor, "token in"]
    gave: Float[Tensor, "token out"]


@dataclass(frozen=True)
class Attended:
    """An attention call, and the input of the module that made it."""

    module: nn.Module
    query: Float[Tensor, "batch head query dim"]
    key: Float[Tensor, "batch head key dim"]
    value: Float[Tensor, "batch head key value_dim"]
    context: Float[Tensor, "batch head query value_dim"]
    causal: bool
    given: Float[Tensor, "token model"] | None
    crosses: bool = False
    """whether its module was given other states to attend to"""


Event = Ran | Attended


@dataclass
class Pass:
    """All events of one pass, in order; `called`: the modules whose forward ran."""

    events: list[Event] = field(default_factory=list)
    called: set[int] = field(default_factory=set)
    mixes: bool = False
    """whether tokens reach each other without attention"""
    mixers: tuple[nn.Module, ...] = ()
    """the modules in which they do, if these are all"""


class _Explorer(Tap):
    """Watch and tap in one: takes every attention call of the model, whatever its site."""

    def __init__(self, model: nn.Module, recorded: Pass) -> None:
        self.modules = {id(module) for module in model.modules()}
        self.recorded, self.taps = recorded, (self,)
        self.given: dict[int, Tensor] = {}
        self.crossing: set[int] = set()
        self.caller: nn.Module | None = None

    def contains(self, module: nn.Module) -> bool:
        return id(module) in self.modules

    def arrive(self, module: nn.Module) -> Arrival:
        self.caller = module
        return Arrival(Site("discovery", "self", 0))

    def see(self, call: Call) -> None:
        assert self.caller is not None
        given = self.given.get(id(self.caller))
        visible = call.scores.visible_keys()[:, 0]
        ahead = torch.ones_like(visible[0]).triu(1 + visible.shape[-1] - visible.shape[-2])
        self.recorded.events.append(
            Attended(
                self.caller,
                call.query.clone(),
                call.key.clone(),
                call.value.clone(),
                call.context.clone(),
                causal=not bool((visible & ahead).any()),
                given=None if given is None else in_a_row(given),
                crosses=id(self.caller) in self.crossing,
            )
        )


class _Silent(_Explorer):
    """A tap that replaces every head's output by zeros."""

    def context(self, call: Call, context: Tensor) -> Tensor:
        return torch.zeros_like(context)

    def see(self, call: Call) -> None:
        pass


@contextmanager
def silenced(model: nn.Module) -> Iterator[None]:
    """Make every attention call return zeros while the context is open."""
    token = ACTIVE.set((*ACTIVE.get(), _Silent(model, Pass())))
    try:
        yield
    finally:
        ACTIVE.reset(token)


def in_a_row(states: Tensor) -> Float[Tensor, "token width"]:
    return states.detach().flatten(0, -2).clone()


_OTHERS = ("encoder_hidden_states", "cross_attention_states", "key_value_states")
"""What modules call the states that they attend to beside their own."""


@contextmanager
def explored(model: nn.Module) -> Iterator[Pass]:
    """Record the events of the passes inside the context."""
    recorded = Pass()
    explorer = _Explorer(model, recorded)

    def before(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        recorded.called.add(id(module))
        states = arguments[0] if arguments else keywords.get("hidden_states")
        if isinstance(states, Tensor) and states.is_floating_point():
            explorer.given[id(module)] = states
        if any(isinstance(keywords.get(name), Tensor) for name in _OTHERS):
            explorer.crossing.add(id(module))

    def after(kind: str) -> Any:
        def note(module: nn.Module, arguments: tuple[object, ...], output: object) -> None:
            if arguments and isinstance(arguments[0], Tensor) and isinstance(output, Tensor):
                given, gave = in_a_row(arguments[0]), in_a_row(output)
                if len(given) == len(gave):  # what makes other tokens is no map of these
                    recorded.events.append(Ran(module, kind, given, gave))

        return note

    with ExitStack() as undo:
        for module in model.modules():
            undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        for module, kind in _noted(model):
            undo.callback(module.register_forward_hook(after(kind)).remove)
        undo.callback(ACTIVE.reset, ACTIVE.set((*ACTIVE.get(), explorer)))
        yield recorded


def _noted(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Linear maps and norms; of a map with something around it (an adapter), what is around it."""
    if is_linear(module) or hasattr(module, "in_features") or hasattr(module, "infeatures"):
        yield module, "linear"
    elif is_norm(module):
        yield module, "norm"
    else:
        for child in module.children():
            yield from _noted(child)


def _sensed(model: PreTrainedModel) -> tuple[dict[str, Tensor], Bool[Tensor, "batch token"]] | None:
    """Noise as input for a model of pictures or sound, sized by its config; None for a model of texts.

    A decoder beside it gets a few token ids.
    """
    config, generator = model.config, torch.Generator().manual_seed(0)
    name = main_input(model)
    if name == "pixel_values" and "input_ids" not in inspect.signature(model.forward).parameters:
        config = getattr(config, "vision_config", config)  # the tower of a pair, with a classifier on it
    config = getattr(config, "encoder", config) if name == "pixel_values" else config  # of an encoder and a decoder
    if name == "pixel_values" and hasattr(config, "image_size"):
        size = config.image_size if isinstance(config.image_size, list | tuple) else (config.image_size,) * 2
        shape = (getattr(config, "num_channels", 3), *size)
    elif name == "input_features" and hasattr(config, "input_feat_per_channel"):  # Speech2Text: time comes first
        shape = (FRAMES, config.input_feat_per_channel * config.input_channels)
    elif name == "input_features" and hasattr(config, "num_mel_bins"):
        shape = (config.num_mel_bins, 2 * config.max_source_positions)
    elif name == "input_values":
        shape = (SAMPLES,)
    else:
        return None
    parameter = next(p for p in model.parameters() if p.is_floating_point() and not p.is_meta)
    noise = torch.randn(len(LENGTHS), *shape, generator=generator).to(parameter)
    given = {name: noise}
    if getattr(model.config, "is_encoder_decoder", False):
        words = getattr(model.config, "decoder", model.config).vocab_size
        ids = torch.randint(0, words, (len(LENGTHS), TARGET), generator=generator)
        given["decoder_input_ids"] = ids.to(parameter.device)
    return given, torch.ones(len(LENGTHS), TARGET, dtype=torch.bool, device=parameter.device)


def main_input(model: nn.Module) -> str:
    """The name of a model's first input."""
    name = str(getattr(model, "main_input_name", "input_ids"))
    takes = inspect.signature(model.forward).parameters
    return name if name in takes or "pixel_values" not in takes or "input_ids" in takes else "pixel_values"


def seen_in(inputs: Mapping[str, object]) -> tuple[str, ...]:
    """The inputs that are neither ids nor text: pictures, sounds."""
    return tuple(
        sorted(
            name
            for name, each in inputs.items()
            if isinstance(each, Tensor) and each.is_floating_point() and not name.endswith(("embeds", "mask", "labels"))
        )
    )


def _given(model: PreTrainedModel, inputs: Mapping[str, object]) -> tuple[dict[str, Tensor], Tensor]:
    """The tensors of these inputs that the model's forward takes, and which tokens of the texts are real."""
    takes = inspect.signature(model.forward).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    given = {
        name: each
        for name, each in inputs.items()
        if isinstance(each, Tensor) and "labels" not in name and (name in takes or open_ended)
    }
    if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" not in given:
        first = next(iter(given.values()))
        given["decoder_input_ids"] = torch.full((len(first), TARGET), 3, device=first.device)
    side = "decoder_" if "decoder_input_ids" in given else ""
    like = given.get(f"{side}input_ids", given.get("inputs_embeds"))
    mask = given.get(f"{side}attention_mask")
    if like is None or (mask is not None and mask.shape == like.shape[:2]):
        return given, torch.zeros(0, 0, dtype=torch.bool) if mask is None else mask.bool()
    return given, torch.ones(like.shape[:2], dtype=torch.bool, device=like.device)


def small_batch(
    model: PreTrainedModel, inputs: Mapping[str, object] | None = None
) -> tuple[dict[str, Tensor], Bool[Tensor, "batch token"]]:
    """Inputs that the base model's forward takes, and which tokens of its output are real.

    A model that sees a picture beside a text is run on the given inputs: only its processor can make them.
    """
    if inputs is not None and seen_in(inputs):
        return _given(model, inputs)
    sensed = _sensed(model)
    if sensed is not None:
        return sensed
    try:
        table = model.get_input_embeddings()
        size = min(int(getattr(table, "num_embeddings", 0) or model.config.vocab_size), 900)
    except (NotImplementedError, AttributeError) as error:
        raise drift(model, "it has no embedding table: its inputs are not token ids") from error
    generator = torch.Generator().manual_seed(0)
    low = min(10, size // 2)

    def ids(width: int) -> Tensor:
        return torch.randint(low, size, (len(LENGTHS), width), generator=generator)

    width = max(LENGTHS)
    mask = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    padding = getattr(model.config, "pad_token_id", None)
    source = ids(width)
    given = {"input_ids": source.masked_fill(~mask, 0 if padding is None else padding), "attention_mask": mask.long()}
    takes = inspect.signature(model.forward).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    if "decoder_input_ids" in takes and getattr(model.config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = ids(TARGET)
        mask = torch.ones(len(LENGTHS), TARGET, dtype=torch.bool)
    device = next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))
    given = {name: tensor.to(device) for name, tensor in given.items() if name in takes or open_ended}
    return given, mask.to(device)
