"""The subject of an analysis: a model, its tokenizer, and the places of its attention."""

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import ModelOutput

from lorgnette.attending import Site, Tap
from lorgnette.constraints import checked
from lorgnette.display import Facts
from lorgnette.errors import UserError, optional, shown
from lorgnette.models.anatomy import Anatomy, AttentionSite
from lorgnette.models.checksums import Checksums, checksums
from lorgnette.models.families import anatomy_of, longest_text
from lorgnette.models.interface import padding_known
from lorgnette.models.loading import Loaded, refuse_unreadable, state_hash, weights_hash
from lorgnette.models.offloading import is_offloaded, refuse_offloaded
from lorgnette.models.quantised import refuse_no_gradients
from lorgnette.models.switching import evaluating
from lorgnette.models.tapping import tapped
from lorgnette.models.text_states import text_states
from lorgnette.models.watching import refuse_compiled
from lorgnette.subject.changes import changes
from lorgnette.texts import as_examples, texts_of
from lorgnette.texts.batch import Batch
from lorgnette.texts.encoding import Encoder
from lorgnette.texts.example import Example
from lorgnette.texts.pictures import Picture
from lorgnette.texts.sides import Encoded
from lorgnette.texts.with_pictures import PictureEncoder
from lorgnette.types import PreTrainedModel

if TYPE_CHECKING:
    from lorgnette.subject.checks import Check
    from lorgnette.subject.generation import Generation
    from lorgnette.subject.knockout import Head
    from lorgnette.subject.trace import Trace

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


_CAPTURING = "transformers.utils.output_capturing"
"""The module of the hooks by which transformers keeps hidden states."""


class Subject(Facts):
    """A model and its tokenizer, from `lorgnette.load` or from a model in memory.

    >>> lo.Subject(model, tokenizer)
    Subject('BertForSequenceClassification': BertForSequenceClassification, 3 encoder layers of 4 heads)
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase | ProcessorMixin | None = None,
        *,
        name: str | None = None,
        loaded: Loaded | None = None,
        inputs: Mapping[str, object] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UserError(
                f"A Subject is made from a model, such as AutoModel.from_pretrained(…). Got {_kind(model)} instead."
            )
        self.processor: ProcessorMixin | None = tokenizer if isinstance(tokenizer, ProcessorMixin) else None
        """It turns a text with a picture into ids and pixels; None for a model of texts."""
        tokenizer = tokenizer.tokenizer if isinstance(tokenizer, ProcessorMixin) else tokenizer
        refuse_tokenizer(tokenizer, "Subject")
        refuse_compiled(model)
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module  # which it calls, so that what is watched there is what runs
        self.model: PreTrainedModel = model
        self._tokenizer = tokenizer
        if name is not None and not isinstance(name, str):
            raise UserError(f"The name of a Subject must be a string. Got {shown(name)} instead.")
        self.name: str = name or type(model).__name__
        self.loaded = loaded
        self._hashed: tuple[Checksums, str] | None = None
        refuse_unreadable(self.name, model)
        if self.processor is not None and inputs is None:
            inputs = self._first_pictures()
        self.shown: Mapping[str, object] | None = inputs
        """Example inputs of a model that sees more than texts."""
        self.anatomy: Anatomy = anatomy_of(model, inputs)
        if self.anatomy.shim is not None and any(is_offloaded(site.module) for site in self.anatomy.sites):
            refuse_offloaded(model, f"Watching a {type(model).__name__}")  # whose attention has weights of its own

    def _first_pictures(self) -> Mapping[str, object]:
        """Two texts with a picture of noise each, to find out what the model does with pictures."""
        pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        noise = Picture("noise", image=optional("PIL.Image", "pictures").fromarray(pixels))
        texts = ("what is in this picture", "what is it")
        return self.encode([Example(text, text, image=noise) for text in texts]).inputs

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        """What `pickle` writes: the model without transformers' hooks, which it puts in again when it needs them."""
        hooks = _local_hooks(self.model)
        if foreign := [hook for _, _, hook in hooks if hook.__module__ != _CAPTURING]:
            raise UserError(
                f"{self.name!r} cannot be pickled: the model has the hook {foreign[0].__qualname__}, a function within "
                "a function. Remove it first."
            )
        if not hooks:
            return super().__reduce_ex__(protocol)
        tensors = (*self.model.parameters(), *self.model.buffers())
        state = copy.deepcopy(vars(self), {id(tensor): tensor for tensor in tensors})  # which shares the weights
        for module, number, _ in _local_hooks(state["model"]):
            del module._forward_hooks[number]
        for module in state["model"].modules():
            vars(module).pop("_output_capturing_hooks_installed", None)
        return object.__new__, (type(self),), state

    def __deepcopy__(self, memo: dict[int, object]) -> "Subject":
        made = memo[id(self)] = type(self).__new__(type(self))
        vars(made).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
        return made

    def __repr__(self) -> str:
        stacks = ", ".join(f"{self._count(name)} {name} {self._heads(sites)}" for name, sites in self.layers.items())
        return f"Subject({self.name!r}: {type(self.model).__name__}, {stacks})"

    def _heads(self, sites: list[Site]) -> str:
        """How many heads these layers have: those that are there, and how many were removed."""
        there = [len(self.anatomy[site].numbers) for site in sites]
        gone = sum(self.anatomy[site].total for site in sites) - sum(there)
        each = str(min(there)) if min(there) == max(there) else f"{min(there)} to {max(there)}"
        return f"layers of {each} heads" + (f" ({gone} {'head' if gone == 1 else 'heads'} removed)" if gone else "")

    def _count(self, stack: str) -> str:
        """How many layers of a stack have attention: "16 of 64" where others have none."""
        total = self.layers_in_all.get(stack)
        return str(len(self.layers[stack])) if total is None else f"{len(self.layers[stack])} of {total}"

    @property
    def layers_in_all(self) -> dict[str, int]:
        """How many layers each stack has, of those stacks in which some layers have no attention."""
        return {stack.name: stack.total for stack in self.anatomy.stacks if stack.total is not None}

    @property
    def attending(self) -> str | None:
        """Which layers have attention, in words; None if all have."""
        told = [
            f"attention in {len(self.layers[name])} of the {total} {name} layers: "
            f"{', '.join(str(site.layer + 1) for site in self.layers[name])}"
            for name, total in self.layers_in_all.items()
        ]
        return "; ".join(told) or None

    def facts(self) -> dict[str, object]:
        stacks = [f"{name}: {self._count(name)} {self._heads(sites)}" for name, sites in self.layers.items()]
        return {
            "name": self.name,
            "class": type(self.model).__name__,
            "stacks": "; ".join(stacks),
            "attention": self.attending,
            "classes": None if self.labels is None else ", ".join(self.labels),
            "longest text": None if self._tokenizer is None else self.limit,
            "parameters": f"{sum(parameter.numel() for parameter in self.model.parameters()):,}",
            "precision": f"{self.precision} on {self.device}",
        }

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer; a subject made from a bare model has none, and asking for it is an error."""
        if self._tokenizer is None:
            raise UserError(
                f"{self.name!r} has no tokenizer, so it accepts only tensors. Pass one: Subject(model, tokenizer)."
            )
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        return self._tokenizer is not None

    @cached_property
    def encoder(self) -> Encoder:
        """Turns texts into token ids."""
        if self.processor is not None:
            return PictureEncoder(self.processor, self.model.config, self.limit)
        return Encoder(self.tokenizer, self.model.config, self.limit)

    @property
    def device(self) -> torch.device:
        """The device for inputs: that of the first weights."""
        return next((p.device for p in self.model.parameters() if not p.is_meta), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first weights, or, in a quantised model, of the first that are not packed."""
        kinds = (parameter.dtype for parameter in self.model.parameters())
        first = next(kinds)
        return first if first in DTYPES.values() else next((kind for kind in kinds if kind in DTYPES.values()), first)

    @property
    def precision(self) -> str:
        """The precision of passes, as results state it: the dtype of the weights, and autocast's if it is on."""
        own, kind = str(self.dtype).removeprefix("torch."), self.device.type
        if self.dtype == torch.float64 or not torch.is_autocast_enabled(kind):  # autocast leaves float64 alone
            return own
        return f"{own} under autocast to {str(torch.get_autocast_dtype(kind)).removeprefix('torch.')}"

    @property
    def sites(self) -> tuple[Site, ...]:
        """All attention modules: encoder, decoder, cross; layers in order."""
        return tuple(site.site for site in self.anatomy.sites)

    @property
    def text_sites(self) -> tuple[Site, ...]:
        """The modules that lenses read, whose queries and keys are tokens of texts, not patches of a picture."""
        across = self.anatomy.sees and not getattr(self.model.config, "is_encoder_decoder", False)
        return tuple(site for site in self.sites if site.of_texts and not (across and site.kind == "cross"))

    @property
    def tower_sites(self) -> tuple[Site, ...]:
        """The modules of the tower of pictures, in which patches attend to each other."""
        return tuple(site for site in self.sites if site.name == "vision")

    @property
    def text_attention(self) -> tuple[AttentionSite, ...]:
        """The attention at `text_sites`."""
        return tuple(self.anatomy[site] for site in self.text_sites)

    @property
    def layers(self) -> dict[str, list[Site]]:
        """Sites by the name of their stack in results."""
        out: dict[str, list[Site]] = {}
        for site in self.sites:
            out.setdefault(site.name, []).append(site)
        return out

    @property
    def heads(self) -> int:
        """The largest number of heads of any layer that lenses read, including removed heads."""
        return max((self.anatomy[site].total for site in self.text_sites), default=0)

    @property
    def missing(self) -> tuple[str, ...]:
        """Parameters that the checkpoint lacks; the modules that need them were left out."""
        return self.loaded.missing if self.loaded else ()

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Class names, if the subject is a classifier."""
        if not hasattr(self.model, "classifier") and "Classif" not in type(self.model).__name__:
            return None
        names = self.model.config.id2label
        return tuple(names[number] for number in sorted(names))

    @property
    def limit(self) -> int | None:
        """The maximum length in tokens, special tokens included; None if there is no limit."""
        config = self.model.config if self.processor is None else self.model.config.get_text_config()
        return longest_text(config, self._tokenizer)

    @property
    def weights_hash(self) -> str:
        """The SHA-256 of the weights file, or, if the weights were made or changed in memory, of all parameters.

        While something edits the model (`changes`), it is that of the weights and the edits: another model, in effect.
        Every call reads all weights to see whether they have changed, at some gigabytes a second.
        """
        now = checksums(self.model)
        if self._hashed is None or self._hashed[0] != now:
            as_loaded = self.loaded is not None and self._equal(self.loaded.checksums, now)
            self._hashed = now, weights_hash(self.loaded) if self.loaded and as_loaded else state_hash(self.model)
        edits = self.changes
        return sha256("\n".join([self._hashed[1], *edits]).encode()).hexdigest() if edits else self._hashed[1]

    @property
    def changes(self) -> tuple[str, ...]:
        """The edits of the model now in force, in a phrase each: `lo.without`, `lo.scaled`, taps, hooks of others …"""
        return tuple(changes(self.model, self.anatomy))

    def _equal(self, before: Checksums, now: Checksums) -> bool:
        """Whether the weights are those of before, when the model may have been on another device."""
        same_kinds = all(now[name][0] == kind for name, (kind, _) in before.items() if name in now)
        return before == (now if same_kinds else checksums(self.model, before))

    def tokenize(self, example: Example, *, truncate: bool = False) -> Encoded:
        """One example as token ids."""
        return self.encoder.encode(example, truncate=truncate)

    def encode(self, examples: Iterable[Example | str], *, truncate: bool = False) -> Batch:
        """Examples (or plain texts) as a padded batch on the model's device.

        >>> batch = subject.encode(["the cat sat", "a dog ran , and it was good !"])
        >>> batch.source.mask.sum(-1).tolist() == [len(pieces) for pieces in batch.source.pieces]
        True
        """
        if isinstance(examples, str):
            raise UserError("encode takes a list of texts: for a single text, pass [text].")
        made = as_examples(texts_of(examples))
        if not made:
            raise UserError("There is no text to encode: pass at least one.")
        return self.collate([self.tokenize(example, truncate=truncate) for example in made])

    def collate(self, encoded: Sequence[Encoded]) -> Batch:
        """Tokenised texts as a padded batch on the model's device."""
        return self.encoder.collate(list(encoded)).to(self.device)

    @contextmanager
    def tapped(self, *taps: Tap) -> Iterator[None]:
        """Pass every attention call to these taps while the context is open; the model is in evaluation mode.

        >>> class Peak(lo.Tap):
        ...     def see(self, call):
        ...         print(call.site.layer + 1, call.weights.amax() <= 1)
        >>> with subject.tapped(Peak()), torch.no_grad():
        ...     outputs = subject.run(subject.encode(["the cat sat"]))
        1 tensor(True)
        ...
        """
        with evaluating(self.model), tapped(self, *taps):
            yield

    def run(self, batch: Batch, **options: object) -> ModelOutput:
        """One forward pass, in evaluation mode."""
        if torch.is_grad_enabled():
            _ = self._passes_gradients
        try:
            with evaluating(self.model), padding_known(batch.inputs, batch.padded):
                return self.forward(batch.inputs, **options)
        except ValueError as error:
            if "padding token" not in str(error):
                raise
            raise UserError(
                f"{type(self.model).__name__} {self.name!r} does not know its padding token, so it takes one text at a "
                "time. Set pad_token_id in its config.json (GPT-2: the id of <|endoftext|>)."
            ) from error

    def forward(self, inputs: Mapping[str, object], **options: object) -> ModelOutput:
        """The output of the model for these inputs; hidden states, if requested, are those of its texts."""
        if not options.get("output_hidden_states"):
            return self.model(**inputs, **options)
        with text_states(self.model, self.anatomy) as states:
            return states.placed(self.model(**inputs, **options))

    @cached_property
    def _passes_gradients(self) -> bool:
        refuse_no_gradients(self.name, self.model)
        return True

    def example(
        self, text: str, pair: str | None = None, *, target: str | None = None, image: object = None
    ) -> Example:
        """One text to analyse; `target` is its translation, for translation models, `image` a picture or its path."""
        if target is not None and not self.encoder.translates:
            instead = " To explain a class, name it (--class)." if self.labels is not None else ""
            raise UserError(f"{self.name!r} is not a translation model, so it takes no translation (target).{instead}")
        picture = None if image is None else Picture.of(image, "text")
        return Example("text", text, pair=pair, target=target, image=picture)

    def trace(
        self,
        text: str | Example,
        pair: str | None = None,
        *,
        target: str | None = None,
        image: object = None,
        without: "Iterable[Head]" = (),
        generate: "int | Generation | None" = None,
    ) -> "Trace":
        """One forward pass over one text (or pair, or text and its translation), with all activations.

        `without=["encoder.3.7"]` (or `[("encoder", 3, 7)]`) switches heads off; `trace.effect` has the effect.
        `generate=40` makes a language model generate 40 tokens and traces them too (`trace.generated`);
        `generate=Generation(40, temperature=0.8, seed=1)` samples them. `image`: a picture (of Pillow) or its path, for
        a subject with a processor; the trace is of the language model, `lo.attention` has the tower of pictures too.

        >>> trace = subject.trace("the cat sat", without=["encoder.2.1"])
        >>> trace["encoder.1.weights"].shape[1:]
        torch.Size([5, 5])
        >>> trace.effect.without
        ('encoder.2.1',)
        """
        from lorgnette.subject.generation import traced

        if not isinstance(text, str | Example):
            raise UserError(f"trace takes one text, a string or an Example. Got {shown(text)} instead.")
        if isinstance(text, Example):
            example = text if image is None else replace(text, image=Picture.of(image, text.id))
        else:
            example = self.example(text, pair, target=target, image=image)
        return traced(self, example, without, generate)

    @checked
    def check(self, inputs: Mapping[str, torch.Tensor] | None = None) -> "list[Check]":
        """Verify on every way to run the model that attention is captured exactly; see `lorgnette.subject.checks`.

        `inputs`: of a model that sees pictures, what its processor made of two texts or more with their pictures.

        >>> all(check.ok for check in subject.check())
        True
        """
        from lorgnette.subject.checks import check

        return check(self, inputs)


def subject_of(model: object, inputs: object = None) -> Subject:
    """The subject, or one without a tokenizer for a bare model: for functions that take tensors.

    `inputs` find the stacks that pictures pass through, where a model has such.
    """
    given = inputs if isinstance(inputs, Mapping) else None
    if not isinstance(model, Subject):
        return Subject(model, inputs=given)  # type: ignore[arg-type]
    if given is not None:
        model.anatomy, model.shown = anatomy_of(model.model, given), given
    return model


def refuse_tokenizer(tokenizer: object, function: str) -> None:
    """Refuse anything that is not a tokenizer."""
    if tokenizer is not None and not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise UserError(
            f"{function} takes a tokenizer of transformers (AutoTokenizer.from_pretrained(…)). Got a "
            f"{type(tokenizer).__name__} instead."
        )


def refuse_no_subject(subject: object, function: str) -> None:
    """Refuse anything that is not a `Subject` where texts must be tokenised, and say how to make one."""
    if isinstance(subject, Subject):
        return
    if isinstance(subject, nn.Module):
        how = "a model without its tokenizer; pass lo.Subject(model, tokenizer)."
    else:
        how = f"{_kind(subject)}."
    raise UserError(f"{function} takes a Subject (lo.load, or lo.Subject). Got {how}")


def _kind(value: object) -> str:
    if isinstance(value, str | os.PathLike):
        return f"the name {str(value)!r}; open it with lo.load({str(value)!r})"
    return "None" if value is None else f"a {type(value).__name__}"


def _local_hooks(model: nn.Module) -> list[tuple[nn.Module, int, Callable[..., object]]]:
    """The forward hooks that are functions within functions, which `pickle` cannot name."""
    return [
        (module, number, hook)
        for module in model.modules()
        for number, hook in module._forward_hooks.items()
        if "<locals>" in getattr(hook, "__qualname__", "")
    ]
