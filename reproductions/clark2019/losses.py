"""Losses whose gradients can be looked at, and the text that they are taken on."""

from dataclasses import dataclass

COLUMNS = ("cls", "sep", "period_comma", "other", "all")


@dataclass(frozen=True)
class Losing:
    """A model with a loss, and text that it can be taken on."""

    model: str
    corpus: str
    loss: str
    names: dict[str, str]
    """what its opening and closing tokens are called"""
    stacks: dict[str, str]
    sink: str = "sep"
    """the special token that gets most of the weight"""
    made: str = ""


LOSSES = {
    "gradients": Losing(
        "opus-mt-en-fr",
        "multi30k:en-fr",
        "the cross-entropy of the reference translation",
        {"cls": "start", "sep": "</s>"},
        {"encoder": "encoder", "cross": "decoder reads encoder"},
    ),
    "gradients-classifier": Losing(
        "minilm-sst2",
        "sst2",
        "the cross-entropy of the class, after fine-tuning",
        {"cls": "[CLS]", "sep": "[SEP]"},
        {"encoder": "encoder"},
        sink="cls",
        made="lorgnette train minilm --corpus sst2 --epochs 2 --learning-rate 5e-5 --batch-size 32",
    ),
}
"""By the name of their cell."""
