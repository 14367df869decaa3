"""Processors of pictures and text, built here: no file is read."""

import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = [
    "<pad>",
    "</s>",
    "<s>",
    "<unk>",
    *[f"w{n}" for n in range(86)],
    "<image>",
    "a",
    "cat",
    "what",
    "is",
    "it",
    "red",
]


def processor_of(kind: str):
    """The family's own processor, with a tokenizer of a few words in which <image> has the id of the tiny models."""
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", bos_token="<s>", unk_token="<unk>",
        additional_special_tokens=["<image>"],
    )  # fmt: skip
    size = {"height": 16, "width": 16}
    if kind == "llava":
        pixels = hf.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size=size)
        return hf.LlavaProcessor(
            pixels, tokenizer, patch_size=4, vision_feature_select_strategy="default", image_token="<image>",
            num_additional_image_tokens=1,
        )  # fmt: skip
    raise ValueError(kind)
