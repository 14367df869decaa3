"""Generation: the cached steps of a language model, combined into one trace."""

import inspect
import operator
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Annotated, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.utils import ModelOutput

from lorgnette.attending import Call, Site, Tap
from lorgnette.attending.scores import Scores
from lorgnette.constraints import Interval, Seed, check
from lorgnette.errors import CaptureError, UserError, listed, shown, whole_number
from lorgnette.subject import Subject
from lorgnette.subject.knockout import Head, Knockout
from lorgnette.subject.trace import Trace
from lorgnette.texts.continuation import continued
from lorgnette.texts.example import Example


@dataclass(frozen=True)
class Generation:
    """How a model generates: the maximum number of tokens, greedy or sampled at a temperature.

        >>> lo.Generation(20, temperature=0.7, top_p=0.9, seed=1).tokens  # subject.trace(prompt, generate=…)
        20

    `top_k` and `top_p` restrict the sampling. Of the checkpoint's own generation settings, the end-of-text tokens and
    the penalties are used, the sampling settings are not.
    """

    tokens: int
    temperature: Annotated[float, Interval(0, closed="right")] | None = None
    top_k: Annotated[int, Interval(1)] | None = None
    top_p: Annotated[float, Interval(0, 1, "right")] | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", whole_number(self.tokens, "The number of tokens to generate", at_least=1))
        for each in fields(self):
            check(value := getattr(self, each.name), each.type, f"{each.name} of a Generation")
            if value is not None:  # transformers takes no 1 for 1.0, and no whole number of NumPy
                number = float if each.name in ("temperature", "top_p") else operator.index
                object.__setattr__(self, each.name, number(value))
        if self.temperature is None and (self.top_k is not None or self.top_p is not None):
            raise UserError(
                "top_k and top_p are for sampling: set a temperature too (1 keeps the model's probabilities)."
            )

    def options(self) -> dict[str, object]:
        """Options for transformers' `generate`, without those that would need a larger batch or another cache."""
        drawn = {"temperature": self.temperature, "top_k": self.top_k or 0, "top_p": self.top_p or 1.0}
        chosen = {"do_sample": True, **drawn} if self.temperature is not None else {"do_sample": False}
        off = {"temperature": None, "top_k": None, "top_p": None, "min_p": None, "typical_p": None}
        one = {"num_beams": 1, "num_return_sequences": 1, "use_cache": True, "cache_implementation": None}
        return {**off, **one, **chosen, "max_new_tokens": self.tokens, "max_length": None, "min_length": 0}


@dataclass(frozen=True)
class Generated:
    """What was generated: `text`, from the token `start` on, and how; `ended` if the model closed the text itself."""

    start: int
    text: str
    settings: Generation
    ended: bool

    def to_dict(self) -> dict[str, object]:
        return {"start": self.start, "text": self.text, "ended": self.ended, **vars(self.settings)}


def traced(
    subject: Subject,
    example: Example,
    without: Iterable[Head] = (),
    how: "int | Generation | None" = None,
    *,
    truncate: bool = False,
) -> Trace:
    """The trace of a text, or of a prompt and its continuation, with or without some of the heads.

    With both, the effect is that on the text which the whole model says, and `effect.said` has both continuations.
    """
    if listed(without) is None:
        raise UserError(f"without must be a list of heads, such as ['1.2']. Got {shown(without)} instead.")
    heads = [without] if isinstance(without, str) else list(without)
    if how is None:
        if heads:
            return Trace.of_without(subject, example, heads)
        return Trace.of(subject, example, truncate=truncate)
    how = how if isinstance(how, Generation) else Generation(how)
    intact = generated(subject, example, how)
    if not heads:
        return intact
    knockout = Knockout.of(subject, heads)
    changed = generated(subject, example, how, knockout)
    assert intact.generated is not None
    assert changed.generated is not None
    said = intact.generated.text, changed.generated.text
    effect = intact.compared(Trace.over(subject, intact.batch, knockout), knockout, said).effect
    return replace(changed, effect=effect)


def generated(subject: Subject, example: Example, how: Generation, *taps: Tap) -> Trace:
    """The trace of a prompt and of what the model says next, every row as it was when its token was read.

    The prompt is one pass; each further token reads the keys and values that the cache kept for it. The last token is
    read too. In exact arithmetic this is one pass over the whole text.
    """
    refuse_silent(subject)
    encoded = subject.tokenize(example)
    if len(encoded.source) == 0:
        raise UserError("The prompt has no tokens for this model. Enter a prompt that is not empty.")
    if subject.limit is not None and len(encoded.source) + how.tokens > subject.limit:
        raise UserError(
            f"The prompt has {len(encoded.source)} tokens and the model takes {subject.limit} in all: it cannot go on "
            f"for {how.tokens}. Generate at most {max(subject.limit - len(encoded.source), 0)}, or shorten the prompt."
        )
    prompt = subject.collate([encoded]).inputs
    steps, outputs = _StepRows(subject.text_sites, subject.tower_sites), _Outputs()
    with outputs.recorded(subject.model):
        ids = generate(subject, prompt, how, *taps, steps)
    new = ids[0, prompt["input_ids"].shape[1] :].tolist()
    whole = continued(subject.encoder, encoded, new)
    batch = subject.collate([whole])
    text = whole.example.text[len(encoded.example.text) :]
    about = Generated(len(encoded.source), text, how, bool(new) and new[-1] in _ends(subject))
    calls = {site: _joined(site, calls_of) for site, calls_of in steps.steps.items()}
    return Trace.of_calls(subject, batch, calls | steps.pictured, outputs.joined(), about)


def generate(subject: Subject, prompt: dict[str, Tensor], how: Generation, *taps: Tap) -> Int[Tensor, "1 token"]:
    """Prompt and continuation, while these taps see every call; the first pass has the prompt, each other one token."""
    devices = [subject.device] if subject.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices), subject.tapped(*taps):
        torch.manual_seed(how.seed)
        return _run(subject, prompt, how)


def can_generate(subject: Subject) -> bool:
    """Whether the model can continue a text: a causal language model with its output head."""
    has_output_head = getattr(subject.model, "can_generate", lambda: False)() and not _generates_otherwise(
        subject.model
    )
    return bool(subject.anatomy.causal and has_output_head and not subject.encoder.translates)


def _generates_otherwise(model: nn.Module) -> bool:
    """Whether a model's `generate` is its own, and runs a part of it alone (BLIP)."""
    inner = getattr(model, "get_base_model", lambda: model)()  # PEFT hands everything through
    return getattr(type(inner), "generate", None) is not GenerationMixin.generate


def refuse_silent(subject: Subject) -> None:
    """Refuse a model that cannot continue a text."""
    if subject.encoder.translates:
        raise UserError(
            f"{subject.name!r} is a translation model: its trace already has the translation. Omit generate."
        )
    if subject.anatomy.causal and _generates_otherwise(subject.model) and hasattr(subject.model, "generate"):
        raise UserError(
            f"The generate of {type(subject.model).__name__} runs a part of the model alone, so {subject.name!r} "
            "cannot continue a text here. Omit generate, and trace the text that it wrote."
        )
    if not can_generate(subject):
        raise UserError(
            f"{subject.name!r} ({type(subject.model).__name__}) cannot continue a text: it is not a language model "
            "with its output head. Omit generate, or load a language model."
        )


def _run(subject: Subject, prompt: dict[str, Tensor], how: Generation) -> Int[Tensor, "1 token"]:
    """Prompt and continuation; the last token is read as well, from the same cache.

    It stands one place further on than the one before it, where `generate` says places: of a text with a picture, some
    models (Qwen-VL) would otherwise give it as many places as the text has tokens.
    """
    model = subject.model
    given = {name: tensor for name, tensor in prompt.items() if name in forward_arguments(model)}
    last: dict[str, Tensor] = {}

    def keep(module: nn.Module, arguments: tuple[object, ...], named: dict[str, object]) -> None:
        if isinstance(places := named.get("position_ids"), Tensor):
            last["position_ids"] = places[..., -1:]

    hook = model.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        made = model.generate(
            **given, **how.options(), return_dict_in_generate=True, pad_token_id=subject.encoder.padding
        )
    finally:
        hook.remove()
    ids = made.sequences
    types = {"token_type_ids": kind[:, -1:]} if (kind := given.get("token_type_ids")) is not None else {}
    model(
        **types,
        **{name: places + 1 for name, places in last.items()},
        input_ids=ids[:, -1:],
        attention_mask=torch.ones_like(ids),
        past_key_values=made.past_key_values,
        use_cache=True,
        return_dict=True,
    )
    return ids


def forward_arguments(model: nn.Module) -> Set[str]:
    """What a model reads by name; `generate` refuses the rest, which a tokenizer may return (token_type_ids)."""
    inner = getattr(model, "get_base_model", lambda: model)()  # PEFT hands everything through
    return inspect.signature(inner.forward).parameters.keys()


def _ends(subject: Subject) -> set[int]:
    own = getattr(subject.model.generation_config, "eos_token_id", None)
    return set(own if isinstance(own, list) else [] if own is None else [own])


@dataclass(frozen=True)
class _Step:
    """The rows of one call, with the keys and values that it added to the cache."""

    query: Tensor
    key: Tensor
    value: Tensor
    weights: Float[Tensor, "1 head row key"] | None
    """only where a tap edited them"""
    context: Tensor
    allowed: Tensor
    scores: Scores
    gate: Tensor | None


class _StepRows(Tap):
    """Keeps the calls of all steps; those of a tower of pictures, which runs with the prompt alone, as they are."""

    def __init__(self, sites: Sequence[Site], towers: Sequence[Site] = ()) -> None:
        self.sites, self.towers = sites, towers
        self.steps: dict[Site, list[_Step]] = {}
        self.pictured: dict[Site, Call] = {}

    def see(self, call: Call) -> None:
        if call.site in self.towers:
            self.pictured[call.site] = call
        if call.site not in self.sites:
            return
        rows = call.query.shape[2]
        allowed = call.scores.visible_keys().expand(-1, -1, rows, call.key.shape[2])
        key, value = (tensor[:, :, -rows:].clone() for tensor in (call.key, call.value))
        # Only what the scores have beside queries and keys: the cache of every step would be a square of the text.
        bare = replace(call.scores, query=call.query, key=key, allowed=None, causal=False)
        edited = call.weights if call.has_weights else None
        step = _Step(call.query, key, value, edited, call.context, allowed, bare, call.gate)
        self.steps.setdefault(call.site, []).append(step)


def _joined(site: Site, steps: list[_Step]) -> Call:
    """One call with the rows of all steps; it has the keys of the last step."""
    query, key, value, context = (
        torch.cat([getattr(step, name) for step in steps], 2) for name in ("query", "key", "value", "context")
    )
    first = steps[0].scores
    bias = None
    if first.bias is not None:
        bias = _placed(
            [step.scores.bias.expand(*step.query.shape[:3], -1) for step in steps if step.scores.bias is not None]
        )
    allowed = _placed([step.allowed for step in steps])
    scores = replace(first, query=query, key=key, allowed=allowed, bias=bias)
    gates = [step.gate for step in steps if step.gate is not None]
    call = Call(site, scores, value, gate=(lambda _: torch.cat(gates, 2)) if gates else None)
    edited = [step.weights for step in steps if step.weights is not None]
    if edited:
        call.weights = _placed(edited)
    call.context = context
    return call


def _placed(rows: list[Tensor]) -> Tensor:
    total = sum(step.shape[2] for step in rows)
    out = rows[0].new_zeros(*rows[0].shape[:2], total, total)
    end = 0
    for step in rows:
        begin, end = end, end + step.shape[2]
        if step.shape[3] > end:
            raise CaptureError(f"The cache gave {step.shape[3]} keys where {end} tokens had been read.")
        out[:, :, begin:end, end - step.shape[3] : end] = step
    return out


_Called = tuple[tuple[object, ...], dict[str, object]]
"""Positional and keyword arguments of a call."""


@runtime_checkable
class _Said(Protocol):
    """The output of a language model for one step."""

    logits: Tensor
    hidden_states: tuple[Tensor, ...]


class _Outputs:
    """Logits and hidden states of every step, for all tokens: `generate` would ask for the last ones alone."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.states: list[tuple[Tensor, ...]] = []

    @contextmanager
    def recorded(self, model: nn.Module) -> Iterator[None]:
        def before(module: nn.Module, given: tuple[object, ...], named: dict[str, object]) -> _Called:
            whole = {"logits_to_keep": 0} if "logits_to_keep" in named else {}
            return given, {**named, **whole, "output_hidden_states": True, "return_dict": True}

        def after(module: nn.Module, given: tuple[object, ...], output: _Said) -> None:
            self.logits.append(output.logits.detach())
            self.states.append(output.hidden_states)

        hooks = model.register_forward_pre_hook(before, with_kwargs=True), model.register_forward_hook(after)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def joined(self) -> ModelOutput:
        states = tuple(torch.cat(layer, 1) for layer in zip(*self.states, strict=True))
        return ModelOutput(logits=torch.cat(self.logits, 1), hidden_states=states)
