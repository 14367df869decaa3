"""Tiny random models of pictures and text, and inputs for them: two texts, each with its picture, the second padded."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tiny.architectures import model_class, tiny_config
from tiny.models import peaked

SIDE, PATCH, IMAGE, WORDS = 16, 4, 90, 97
"""Pixels of a picture and of a patch; the id that stands for a place of the picture; ids of the vocabulary."""
_GRID = (1, 4, 4)

Made = tuple[dict[str, Any], Callable[[Any], dict[str, Tensor]]]
"""What is said to the config, and the picture inputs for the model."""


def _vision(kind: str, **more: Any) -> dict[str, Any]:
    sizes = {"image_size": SIDE, "patch_size": PATCH}
    return tiny_config(kind, **{**sizes, **more}).to_dict()


def _text(kind: str, **more: Any) -> dict[str, Any]:
    return tiny_config(kind, **more).to_dict()


def _noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _pixels(model: Any) -> dict[str, Tensor]:
    return {"pixel_values": _noise(2, 3, SIDE, SIDE)}


def _sized(model: Any) -> dict[str, Tensor]:
    return {**_pixels(model), "image_sizes": torch.full((2, 2), SIDE)}


def _tiles(model: Any) -> dict[str, Tensor]:
    """Two tiles for each picture: the whole of it, and its only part."""
    return {"pixel_values": _noise(2, 2, 3, SIDE, SIDE), "image_sizes": torch.full((2, 2), SIDE)}


def _pictures_each(model: Any) -> dict[str, Tensor]:
    return {"pixel_values": _noise(2, 1, 3, SIDE, SIDE)}


def _packed(model: Any) -> dict[str, Tensor]:
    """All patches of both pictures in one row."""
    vision = model.config.vision_config
    times = getattr(vision, "temporal_patch_size", 1)
    width = 3 * times * vision.patch_size**2
    frames, rows, columns = _GRID
    return {
        "pixel_values": _noise(2 * frames * rows * columns, width),
        "image_grid_thw": torch.tensor([_GRID, _GRID]),
    }


def _in_patches(model: Any) -> dict[str, Tensor]:
    """Patches in a row, with how many rows and columns they have."""
    shapes = torch.tensor([_GRID[1:], _GRID[1:]])
    return {"pixel_values": _noise(2, 16, 3 * PATCH**2), "spatial_shapes": shapes,
            "pixel_attention_mask": torch.ones(2, 16, dtype=torch.long)}  # fmt: skip


def _at_places(model: Any) -> dict[str, Tensor]:
    """Patches in a row, with their columns and rows."""
    places = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy"), -1).reshape(1, 16, 2)
    return {"pixel_values": _noise(2, 16, 3 * PATCH**2).sigmoid(), "image_position_ids": places.repeat(2, 1, 1)}


def _tokens_of(model: Any, given: dict[str, Tensor]) -> list[int]:
    """How many places of the text each picture takes."""
    if hasattr(model.config, "num_query_tokens"):
        return [model.config.num_query_tokens] * 2
    with torch.no_grad():
        features = model.get_image_features(**given)
    features = getattr(features, "pooler_output", features)
    return [len(one) for one in features]


def _with_text(model: Any, given: dict[str, Tensor], counts: list[int], words: int = 4) -> dict[str, Tensor]:
    """A first id, the places of the picture, and words: one word less in the second text."""
    generator = torch.Generator().manual_seed(2)
    image = next(
        number
        for number in (getattr(model.config, name, None) for name in ("image_token_id", "image_token_index"))
        if number is not None
    )
    rows = [
        [2, *[image] * count, *torch.randint(5, 80, (words - row,), generator=generator).tolist()]
        for row, count in enumerate(counts)
    ]
    width = max(map(len, rows))
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask, **given}


def _prompted(pixels: Callable[[Any], dict[str, Tensor]]) -> Callable[[Any], dict[str, Tensor]]:
    """Pictures whose tokens stand in the text."""

    def made(model: Any) -> dict[str, Tensor]:
        given = pixels(model)
        out = _with_text(model, given, _tokens_of(model, given))
        kinds = (out["input_ids"] == model.config.image_token_id).long()
        takes = inspect.signature(model.forward).parameters
        if getattr(model.config, "is_encoder_decoder", False):
            out["decoder_input_ids"] = torch.tensor([[2, 7, 8], [2, 9, 3]])
        return out | {name: kinds for name in ("mm_token_type_ids", "token_type_ids") if name in takes}

    return made


def _counted(pixels: Callable[[Any], dict[str, Tensor]], count: int) -> Callable[[Any], dict[str, Tensor]]:
    """Pictures of so many tokens, of a model that does not say how many they are."""
    return lambda model: _with_text(model, pixels(model), [count, count])


def _beside(pixels: Callable[[Any], dict[str, Tensor]]) -> Callable[[Any], dict[str, Tensor]]:
    """Pictures that have no place in the text."""

    def made(model: Any) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(2)
        ids = torch.randint(5, 80, (2, 6), generator=generator)
        mask = torch.ones_like(ids)
        mask[1, -1:] = 0
        ids[0, -1] = ids[1, -2] = 1  # the end of a text, where CLIP looks for what it says
        return {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask, **pixels(model)}

    return made


_LLAMA = {"text_config": _text("llama")}
_TOKEN = {"image_token_id": IMAGE, "image_token_index": IMAGE}
_GOT = {
    "hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64,
    "patch_size": 4, "mlp_dim": 48, "window_size": 4, "global_attn_indexes": [1],
}  # fmt: skip
_CODES = {f"IMGIMG{''.join(chr(ord('A') + int(digit)) for digit in str(n))}Z": 40 + n for n in range(16)}
"""What Chameleon calls the words that stand for its pictures: digits as letters."""
_MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}}


_QWEN = {
    "depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 4, "patch_size": PATCH, "intermediate_size": 48,
}  # fmt: skip
_GLM = {**_QWEN, "image_size": SIDE}


def _instructed(model: Any) -> dict[str, Tensor]:
    out = _prompted(_pixels)(model)
    words = torch.randint(5, 80, (2, 3), generator=torch.Generator().manual_seed(3))
    return out | {"qformer_input_ids": words, "qformer_attention_mask": torch.ones_like(words)}


def _mllama(model: Any) -> dict[str, Tensor]:
    out = _beside(lambda _: {"pixel_values": _noise(2, 1, 1, 3, SIDE, SIDE)})(model)
    ones = torch.ones(2, 1, 1, dtype=torch.long)
    crossing = torch.ones(2, out["input_ids"].shape[1], 1, 1, dtype=torch.long)
    return {**out, "aspect_ratio_ids": ones[:, 0], "aspect_ratio_mask": ones, "cross_attention_mask": crossing}


def _scanned(model: Any) -> dict[str, Tensor]:
    """Words with boxes on a page."""
    out = _beside(_pixels)(model)
    return out | {"bbox": torch.zeros(2, 6, 4), "decoder_input_ids": torch.tensor([[2, 7, 8], [2, 9, 3]])}


def _kosmos(model: Any) -> dict[str, Tensor]:
    ids = torch.randint(5, 80, (2, 9), generator=torch.Generator().manual_seed(2))
    where = torch.zeros_like(ids)
    where[:, 1:5] = 1
    mask = torch.ones_like(ids)
    mask[1, -1:] = 0
    return {"input_ids": ids, "attention_mask": mask, "image_embeds_position_mask": where, **_pixels(model)}


MAKERS: dict[str, Callable[[], Made]] = {
    "llava": lambda: (
        {**_LLAMA, "vision_config": _vision("clip_vision_model"), **_TOKEN},
        _prompted(_pixels),
    ),
    "vipllava": lambda: (
        {**_LLAMA, "vision_config": _vision("clip_vision_model"), **_TOKEN, "vision_feature_layers": [-1, -2]},
        _prompted(_pixels),
    ),
    "llava_next": lambda: (
        {**_LLAMA, "vision_config": _vision("clip_vision_model"), **_TOKEN, "image_grid_pinpoints": [[SIDE, SIDE]]},
        _prompted(_tiles),
    ),
    "llava_onevision": lambda: (
        {
            "text_config": _text("qwen2"), "vision_config": _vision("siglip_vision_model", vision_use_head=False),
            **_TOKEN, "image_grid_pinpoints": [[SIDE, SIDE]],
        },
        _prompted(_tiles),
    ),
    "idefics2": lambda: (
        {
            "text_config": _text("mistral"), "vision_config": _vision("idefics2_vision"), **_TOKEN,
            "perceiver_config": {
                "hidden_size": 32, "resampler_n_latents": 4, "resampler_depth": 2, "resampler_n_heads": 4,
                "resampler_head_dim": 8, "num_key_value_heads": 2,
            },
        },
        _prompted(_pictures_each),
    ),
    "idefics3": lambda: (
        {**_LLAMA, "vision_config": _vision("idefics3_vision"), **_TOKEN, "scale_factor": 2},
        _prompted(_pictures_each),
    ),
    "smolvlm": lambda: (
        {**_LLAMA, "vision_config": _vision("smolvlm_vision"), **_TOKEN, "scale_factor": 2},
        _prompted(_pictures_each),
    ),
    "paligemma": lambda: (
        {
            "text_config": _text("gemma"), **_TOKEN, "projection_dim": 32,
            "vision_config": _vision("siglip_vision_model", vision_use_head=False),
        },
        _prompted(_pixels),
    ),
    "gemma3": lambda: (
        {
            "text_config": _text("gemma3_text"), **_TOKEN, "mm_tokens_per_image": 4,
            "vision_config": _vision("siglip_vision_model", vision_use_head=False),
        },
        _prompted(_pixels),
    ),
    "internvl": lambda: (
        {
            "text_config": _text("qwen2"), **_TOKEN, "downsample_ratio": 0.5,
            "vision_config": _vision("internvl_vision", image_size=[SIDE, SIDE], patch_size=[PATCH, PATCH]),
        },
        _prompted(_pixels),
    ),
    "aya_vision": lambda: (
        {
            "text_config": _text("cohere2"), **_TOKEN, "downsample_factor": 2,
            "vision_config": _vision("siglip_vision_model", vision_use_head=False),
        },
        _prompted(_pixels),
    ),
    "cohere2_vision": lambda: (
        {
            "text_config": _text("cohere2"), **_TOKEN, "downsample_factor": 2, "alignment_intermediate_size": 32,
            "vision_config": _vision("siglip_vision_model", vision_use_head=False),
        },
        _prompted(_pixels),
    ),
    "mistral3": lambda: (
        {
            "text_config": _text("mistral"), **_TOKEN, "spatial_merge_size": 2,
            "vision_config": _vision("pixtral"),
        },
        _prompted(_sized),
    ),
    "lighton_ocr": lambda: (
        {
            "text_config": _text("qwen3"), **_TOKEN, "spatial_merge_size": 2,
            "vision_config": _vision("pixtral"),
        },
        _prompted(_sized),
    ),
    "got_ocr2": lambda: (
        {"text_config": _text("qwen2"), **_TOKEN, "vision_config": _GOT},
        _prompted(lambda _: {"pixel_values": _noise(2, 3, 64, 64)}),
    ),
    "qwen2_vl": lambda: (
        {
            "text_config": _text("qwen2_vl_text", **_MROPE), **_TOKEN, "video_token_id": 91,
            "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": PATCH},
        },
        _prompted(_packed),
    ),
    "qwen2_5_vl": lambda: (
        {
            "text_config": _text("qwen2_5_vl_text", **_MROPE), **_TOKEN, "video_token_id": 91,
            "vision_config": {**_QWEN, "window_size": 8, "fullatt_block_indexes": [1]},
        },
        _prompted(_packed),
    ),
    "qwen3_vl": lambda: (
        {
            "text_config": _text("qwen3_vl_text", **_MROPE), **_TOKEN, "video_token_id": 91,
            "vision_config": {**_QWEN, "deepstack_visual_indexes": [0], "num_position_embeddings": 16},
        },
        _prompted(_packed),
    ),
    "qwen3_vl_moe": lambda: (
        {
            "text_config": _text("qwen3_vl_moe_text", **_MROPE), **_TOKEN, "video_token_id": 91,
            "vision_config": {**_QWEN, "deepstack_visual_indexes": [0], "num_position_embeddings": 16},
        },
        _prompted(_packed),
    ),
    "instructblip": lambda: (
        {
            "text_config": _text("opt"), "vision_config": _vision("instructblip_vision_model"), **_TOKEN,
            "qformer_config": _text("instructblip_qformer", encoder_hidden_size=32, cross_attention_frequency=1),
            "num_query_tokens": 4,
        },
        _instructed,
    ),
    "janus": lambda: (
        {
            **_LLAMA, **_TOKEN,
            "vision_config": _vision("janus_vision_model", projection_dim=32, depth=2),
            "vq_config": _text("janus_vqgan", projection_dim=32, image_token_embed_dim=32),
        },
        _prompted(_pixels),
    ),
    "qwen3_5": lambda: (
        {
            "text_config": _text("qwen3_5_text"), **_TOKEN, "video_token_id": 91,
            "vision_config": {**_QWEN, "num_position_embeddings": 16},
        },
        _prompted(_packed),
    ),
    "glm4v": lambda: (
        {
            "text_config": _text("glm4v_text", **_MROPE), **_TOKEN, "video_token_id": 91,
            "vision_config": _GLM,
        },
        _prompted(_packed),
    ),
    "mllama": lambda: (
        {
            "text_config": _text("mllama_text_model", cross_attention_layers=[1], num_hidden_layers=3), **_TOKEN,
            "vision_config": _vision(
                "mllama_vision_model", max_num_tiles=1, num_global_layers=1, intermediate_layers_indices=[0],
                vision_output_dim=64, supported_aspect_ratios=[[1, 1]], attention_heads=4,
            ),
        },
        _mllama,
    ),
    "clip": lambda: (
        {"text_config": _text("clip_text_model"), "vision_config": _vision("clip_vision_model"), "projection_dim": 32},
        _beside(_pixels),
    ),
    "siglip": lambda: (
        {"text_config": _text("siglip_text_model"), "vision_config": _vision("siglip_vision_model")},
        _beside(_pixels),
    ),
    "blip": lambda: (
        {"text_config": _text("blip_text_model"), "vision_config": _vision("blip_vision_model")},
        _beside(_pixels),
    ),
    "blip-2": lambda: (
        {
            "text_config": _text("opt"), "vision_config": _vision("blip_2_vision_model"), **_TOKEN,
            "qformer_config": _text("blip_2_qformer", encoder_hidden_size=32, cross_attention_frequency=1),
            "num_query_tokens": 4,
        },
        _prompted(_pixels),
    ),
    "kosmos-2": lambda: (
        {
            "text_config": _text("kosmos_2_text_model"), "vision_config": _vision("kosmos_2_vision_model"),
            "latent_query_num": 4,
        },
        _kosmos,
    ),
    "git": lambda: ({**_text("git"), "vision_config": _vision("git_vision_model")}, _beside(_pixels)),
    "udop": lambda: ({**_text("udop"), "image_size": SIDE, "patch_size": PATCH}, _scanned),
    "llama4": lambda: (
        {
            **_TOKEN, "boi_token_index": 88, "eoi_token_index": 89,
            "text_config": _text(
                "llama4_text", num_local_experts=4, intermediate_size_mlp=48, attention_chunk_size=64,
                no_rope_layers=[1, 0],
            ),
            "vision_config": _vision(
                "llama4_vision_model", intermediate_size=128, projector_input_dim=32, projector_output_dim=32,
                vision_output_dim=32,
            ),
        },
        _counted(_pixels, 4),
    ),
    "ovis2": lambda: (
        {
            **_TOKEN, "text_config": _text("qwen2"), "hidden_size": 32, "vocab_size": WORDS,
            "visual_indicator_token_ids": [81, 82, 83, 84, 85],
            "vision_config": {
                "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                "image_size": SIDE, "patch_size": PATCH, "vocab_size": 24,
            },
        },
        _prompted(_pixels),
    ),
    "lfm2_vl": lambda: (
        {
            **_TOKEN, "text_config": _text("lfm2"), "downsample_factor": 2, "projector_hidden_size": 32,
            "vision_config": tiny_config(
                "siglip2_vision_model", patch_size=PATCH, num_patches=16, vision_use_head=False
            ).to_dict(),
        },
        _prompted(_in_patches),
    ),
    "gemma4": lambda: (
        {
            **_TOKEN, "text_config": _text("gemma4_text"), "audio_config": None, "video_token_id": 91,
            "audio_token_id": 92, "boi_token_id": 88, "eoi_token_id": 89, "boa_token_id": 86, "eoa_token_index": 87,
            "vision_config": tiny_config(
                "gemma4_vision", patch_size=PATCH, pooling_kernel_size=2, position_embedding_size=8
            ).to_dict(),
        },
        _prompted(_at_places),
    ),
    "chameleon": lambda: (
        {
            **{name: value for name, value in _text("chameleon").items() if name != "image_token_id"},
            "vocabulary_map": {"<image>": IMAGE, **_CODES},
            "vq_config": {
                "embed_dim": 16, "num_embeddings": 16, "latent_channels": 16, "resolution": SIDE, "base_channels": 32,
                "channel_multiplier": [1, 1, 1], "num_res_blocks": 1,
            },
        },
        _counted(_pixels, 16),
    ),
    "glm4v_moe": lambda: (
        {"text_config": _text("glm4v_moe_text"), **_TOKEN, "video_token_id": 91, "vision_config": _GLM},
        _prompted(_packed),
    ),
    "glm46v": lambda: (
        {"text_config": _text("glm4v_text", **_MROPE), **_TOKEN, "video_token_id": 91, "vision_config": _GLM},
        _prompted(_packed),
    ),
    "glm_ocr": lambda: (
        {"text_config": _text("glm_ocr_text", **_MROPE), **_TOKEN, "video_token_id": 91, "vision_config": _GLM},
        _prompted(_packed),
    ),
    "qwen3_5_moe": lambda: (
        {
            "text_config": _text("qwen3_5_moe_text"), **_TOKEN, "video_token_id": 91,
            "vision_config": {**_QWEN, "num_position_embeddings": 16},
        },
        _prompted(_packed),
    ),
    "exaone4_5": lambda: (
        {
            "text_config": _text("exaone4"), **_TOKEN, "video_token_id": 91,
            "vision_config": {**_QWEN, "window_size": 8, "fullatt_block_indexes": [1], "num_key_value_heads": 2},
        },
        _prompted(_packed),
    ),
    "deepseek_vl": lambda: (
        {
            **_LLAMA, **_TOKEN, "num_image_tokens": 16,
            "vision_config": _vision("siglip_vision_model", vision_use_head=False),
        },
        _prompted(_pixels),
    ),
    "aria": lambda: (
        {
            **_TOKEN, "text_config": _text("aria_text"), "projector_patch_to_query_dict": {16: 4},
            "vision_config": _vision("idefics3_vision"),
        },
        _prompted(_pixels),
    ),
    "llava_next_video": lambda: (
        {**_LLAMA, "vision_config": _vision("clip_vision_model"), **_TOKEN, "image_grid_pinpoints": [[SIDE, SIDE]]},
        _prompted(_tiles),
    ),
    "florence2": lambda: (
        {
            "text_config": _text("bart"), **_TOKEN,
            "vision_config": {
                "embed_dim": [16, 32], "depths": [1, 1], "num_heads": [2, 4], "num_groups": [2, 4], "window_size": 4,
                "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True],
                "projection_dim": 32, "max_temporal_embeddings": 4, "max_position_embeddings": 8,
            },
        },
        _prompted(_pixels),
    ),
}  # fmt: skip
"""By model type: its config, and inputs for the model that is made of it."""


HEADS = {
    "BlipForConditionalGeneration": "blip", "BlipForQuestionAnswering": "blip", "BlipForImageTextRetrieval": "blip",
    "LlavaForConditionalGeneration": "llava", "Gemma3ForConditionalGeneration": "gemma3",
    "PaliGemmaForConditionalGeneration": "paligemma", "Idefics3ForConditionalGeneration": "idefics3",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl", "Qwen3VLForConditionalGeneration": "qwen3_vl",
}  # fmt: skip
"""Models with their head for a task, by class, and the type of which they are."""


def picture_types() -> tuple[str, ...]:
    return tuple(sorted(MAKERS))


def headed_model(name: str) -> tuple[Any, dict[str, Tensor]]:
    """A tiny model of this class, and inputs for it; questions come one by one, since BLIP reads their padding."""
    base, inputs = picture_model(HEADS[name])
    torch.manual_seed(0)
    model = peaked(getattr(transformers, name)(base.config).eval())
    if name == "BlipForQuestionAnswering":
        inputs = {each: tensor[:1] for each, tensor in inputs.items()} | {
            "decoder_input_ids": torch.tensor([[2, 7, 8]])
        }
    return model, inputs


def picture_model(kind: str, seed: int = 0) -> tuple[Any, dict[str, Tensor]]:
    """A tiny random model of this type, and a batch for it."""
    given, inputs = MAKERS[kind]()
    known = CONFIG_MAPPING[kind]
    names = {*known().to_dict(), *known.attribute_map}
    config = known(**{name: value for name, value in given.items() if name in names})
    torch.manual_seed(seed)
    model = model_class(kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and not parameter.any():  # Gemma 3 begins with a projection of pictures to zero
                parameter.normal_(0, 0.2)
    model = peaked(model)
    return model, inputs(model)


REFUSED = {
    "kosmos-2": "its sdpa and its eager attention give outputs that differ",
    "git": "some of its attention does not go through .* GitSelfAttention",
    "udop": "its encoder reads 22 tokens where the texts have 6: it puts the picture among the words by itself",
}
"""What cannot be captured, and what the message says."""
UNSEEN = {
    "got_ocr2": "its tower of pictures, which does not go through transformers' attention interface",
    "chameleon": "its tower of pictures, which makes words of them and has attention of its own",
    "siglip": "the pooling head of its tower of pictures, which has attention of its own",
}
"""What of a model is not captured."""
EXACT = tuple(kind for kind in sorted(MAKERS) if kind not in REFUSED)
