"""Processors of pictures and text, built here: no file is read."""

from types import SimpleNamespace
from unittest.mock import patch

import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers.utils import is_torchvision_available

MARKS = ["<begin>", "<end>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
"""What processors write around the places of a picture."""
WORDS = ["<pad>", "</s>", "<s>", "<unk>", *[f"w{n}" for n in range(80)], "red", *MARKS]
WORDS += ["<image>", "<video>", "a", "cat", "what", "is", "it"]  # 90 and 91, as the tiny models have them
SIDE = 16
"""Pixels of a picture, as in the tiny models."""
PROCESSORS = ("llava", "gemma3", "paligemma", "idefics3", "clip", "blip")
"""Families whose processor needs Pillow alone."""
VIDEO_PROCESSORS = ("smolvlm", "qwen2_5_vl", "qwen3_vl", "internvl")
"""Families whose processor comes with one for videos, which needs torchvision; see `_beside_videos`."""
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
    return _beside_videos(kind)


def tiling_processor_of(kind: str):
    """The same family's processor, which cuts a large picture into tiles and puts the whole of it beside them."""
    longest = {"longest_edge": SIDE}
    if kind == "idefics3":
        pixels = hf.Idefics3ImageProcessorPil(size={"longest_edge": 2 * SIDE}, max_image_size=longest)
        return hf.Idefics3Processor(pixels, tokenizer_of(), image_seq_len=4)
    if kind == "smolvlm":
        pixels = hf.SmolVLMImageProcessorPil(size={"longest_edge": 2 * SIDE}, max_image_size=longest)
        return _beside_videos(kind, pixels)
    pinpoints = [[SIDE, SIDE], [SIDE, 2 * SIDE], [2 * SIDE, SIDE]]
    if kind == "llava_next":
        pixels = hf.LlavaNextImageProcessorPil(
            size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, image_grid_pinpoints=pinpoints
        )
        return hf.LlavaNextProcessor(
            pixels, tokenizer_of(), patch_size=4, vision_feature_select_strategy="default", image_token="<image>",
            num_additional_image_tokens=1,
        )  # fmt: skip
    if kind == "llava_onevision":
        pixels = hf.LlavaOnevisionImageProcessorPil(
            size={"height": SIDE, "width": SIDE}, image_grid_pinpoints=pinpoints
        )
        return _made(
            hf.LlavaOnevisionProcessor, "LlavaOnevisionVideoProcessor", pixels, tokenizer_of(), num_image_tokens=16,
            vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_9",
        )  # fmt: skip
    if kind == "internvl":
        pixels = hf.GotOcr2ImageProcessorPil(size={"height": SIDE, "width": SIDE}, crop_to_patches=True)
        return _beside_videos(kind, pixels)
    raise ValueError(kind)


def _beside_videos(kind: str, pixels=None):
    """A processor of pictures and videos; where torchvision is missing, without its part for videos.

    That part is asked about videos alone: ids and pixels of a picture are those of the whole processor.
    """
    size, longest = {"height": SIDE, "width": SIDE}, {"longest_edge": SIDE}
    if kind == "smolvlm":
        pixels = pixels or hf.SmolVLMImageProcessorPil(size=longest, max_image_size=longest, do_image_splitting=False)
        with patch("transformers.models.smolvlm.processing_smolvlm.num2words", str):  # which writes numbers of frames
            return _made(hf.SmolVLMProcessor, "SmolVLMVideoProcessor", pixels, tokenizer_of(), image_seq_len=4)
    if kind in ("qwen2_5_vl", "qwen3_vl"):
        made = hf.Qwen2_5_VLProcessor if kind == "qwen2_5_vl" else hf.Qwen3VLProcessor
        videos = "Qwen2VLVideoProcessor" if kind == "qwen2_5_vl" else "Qwen3VLVideoProcessor"
        area = {"shortest_edge": SIDE**2, "longest_edge": SIDE * 24}
        pixels = hf.Qwen2VLImageProcessorPil(size=area, patch_size=4, temporal_patch_size=2, merge_size=2)
        return _made(made, videos, pixels, tokenizer_of("qwen"))
    if kind == "internvl":
        pixels = pixels or hf.GotOcr2ImageProcessorPil(size=size, crop_to_patches=False)
        return _made(
            hf.InternVLProcessor, "InternVLVideoProcessor", pixels, tokenizer_of("internvl"), image_seq_length=4
        )
    raise ValueError(kind)


def _made(kind, videos: str, pixels, tokenizer, **given):
    if is_torchvision_available():
        return kind(pixels, tokenizer, getattr(hf, videos)(), **given)

    class OfPictures(kind):
        """Made without the part for videos."""

        def check_argument_for_proper_class(self, name, argument):
            return None if name == "video_processor" else super().check_argument_for_proper_class(name, argument)

    asked = SimpleNamespace(num_frames=8, fps=1)  # by the chat template of SmolVLM, whatever it writes
    return OfPictures(pixels, tokenizer, asked, **given)
