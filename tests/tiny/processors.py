"""Processors of pictures and text, built here: no file is read."""

import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

MARKS = ["<begin>", "<end>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
"""What processors write around the places of a picture."""
WORDS = ["<pad>", "</s>", "<s>", "<unk>", *[f"w{n}" for n in range(80)], "red", *MARKS]
WORDS += ["<image>", "<video>", "a", "cat", "what", "is", "it"]  # 90 and 91, as the tiny models have them
SIDE = 16
"""Pixels of a picture, as in the tiny models."""
PROCESSORS = ("llava", "gemma3", "paligemma", "idefics3", "clip", "blip")
"""Families whose processor needs Pillow alone."""
VIDEO_PROCESSORS = ("smolvlm", "qwen2_5_vl", "qwen3_vl", "internvl")
"""Families whose processor comes with one for videos, which needs torchvision (and num2words for SmolVLM)."""
_MARKS = {
    "gemma3": {"image_token": "<image>", "boi_token": "<begin>", "eoi_token": "<end>"},
    "qwen": {"image_token": "<image>", "video_token": "<video>", "vision_start_token": "<begin>",
             "vision_end_token": "<end>"},
    "internvl": {"start_image_token": "<begin>", "end_image_token": "<end>", "context_image_token": "<image>",
                 "video_token": "<video>"},
}  # fmt: skip
"""What a processor asks its tokenizer for."""


def tokenizer_of(marks: str = ""):
    """A tokenizer of a few words in which <image> has the id of the tiny models."""
    named = _MARKS.get(marks, ["<image>"])
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", bos_token="<s>", unk_token="<unk>",
        extra_special_tokens=named,
    )  # fmt: skip


def processor_of(kind: str):
    """The family's own processor, for the tiny model of that name."""
    size, square = {"height": SIDE, "width": SIDE}, {"shortest_edge": SIDE}
    if kind == "llava":
        pixels = hf.CLIPImageProcessorPil(size=square, crop_size=size)
        return hf.LlavaProcessor(
            pixels, tokenizer_of(), patch_size=4, vision_feature_select_strategy="default", image_token="<image>",
            num_additional_image_tokens=1,
        )  # fmt: skip
    if kind == "gemma3":
        return hf.Gemma3Processor(hf.Gemma3ImageProcessorPil(size=size), tokenizer_of("gemma3"), image_seq_length=4)
    if kind == "paligemma":
        pixels = hf.SiglipImageProcessorPil(size=size)
        pixels.image_seq_length = 16
        return hf.PaliGemmaProcessor(pixels, tokenizer_of("gemma3"))
    if kind == "idefics3":
        pixels = hf.Idefics3ImageProcessorPil(
            size={"longest_edge": SIDE}, max_image_size={"longest_edge": SIDE}, do_image_splitting=False
        )
        return hf.Idefics3Processor(pixels, tokenizer_of(), image_seq_len=4)
    if kind == "clip":
        return hf.CLIPProcessor(hf.CLIPImageProcessorPil(size=square, crop_size=size), tokenizer_of())
    if kind == "blip":
        return hf.BlipProcessor(hf.BlipImageProcessorPil(size=size), tokenizer_of())
    raise ValueError(kind)
