"""Tiny random models of pictures or sound alone, and noise for them."""

import torch
import transformers as hf

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
PICTURE = {"image_size": 12, "patch_size": 4}
WHISPER = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "num_mel_bins": 8, "max_source_positions": 10,
    "max_target_positions": 20, "vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
SPEECH = {
    **{name: WHISPER[name] for name in WHISPER if name not in ("num_mel_bins", "max_source_positions")},
    "input_feat_per_channel": 8, "conv_channels": 16, "max_source_positions": 60,
}  # fmt: skip
TRANSCRIBERS = ("whisper", "speech2text", "vision-encoder-decoder")
"""Those with a decoder of texts."""
SOUND = {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 4,
         "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2}  # fmt: skip


def _captioner():
    """A ViT whose picture a GPT-2 puts into words."""
    words = hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50)
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(hf.ViTConfig(**SIZE, **PICTURE), words)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    return config


MODELS = {
    "vit": (lambda: hf.ViTModel(hf.ViTConfig(**SIZE, **PICTURE)), 10),
    "dinov2": (lambda: hf.Dinov2Model(hf.Dinov2Config(**SIZE, **PICTURE)), 10),
    "dinov2-registers": (
        lambda: hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(**SIZE, **PICTURE, num_register_tokens=4)),
        14,
    ),
    "dinov3": (lambda: hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**SIZE, **PICTURE, num_register_tokens=4)), 14),
    "clip_vision_model": (lambda: hf.CLIPVisionModel(hf.CLIPVisionConfig(**SIZE, **PICTURE)), 10),
    "siglip_vision_model": (lambda: hf.SiglipVisionModel(hf.SiglipVisionConfig(**SIZE, **PICTURE)), 9),
    "wav2vec2": (lambda: hf.Wav2Vec2Model(hf.Wav2Vec2Config(**SIZE, **SOUND)), 49),
    "wavlm": (lambda: hf.WavLMModel(hf.WavLMConfig(**SIZE, **SOUND)), 49),
    "wavlm-stable": (lambda: hf.WavLMModel(hf.WavLMConfig(**SIZE, **SOUND, do_stable_layer_norm=True)), 49),
    "whisper": (lambda: hf.WhisperModel(hf.WhisperConfig(**WHISPER)), 10),
    "speech2text": (lambda: hf.Speech2TextModel(hf.Speech2TextConfig(**SPEECH)), 5),
    "vision-encoder-decoder": (lambda: hf.VisionEncoderDecoderModel(_captioner()), 10),
}
"""A model of each, and how many tokens its encoder makes of the inputs below."""


def made(name):
    torch.manual_seed(0)
    model = MODELS[name][0]().eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4.0)
    generator = torch.Generator().manual_seed(1)
    shapes = dict.fromkeys(("wav2vec2", "wavlm", "wavlm-stable"), ("input_values", (2, 500)))
    shapes |= {"whisper": ("input_features", (2, 8, 20)), "speech2text": ("input_features", (2, 20, 8))}
    key, shape = shapes.get(name, ("pixel_values", (2, 3, 12, 12)))
    inputs = {key: torch.randn(shape, generator=generator, dtype=torch.float64)}
    if name in TRANSCRIBERS:
        inputs["decoder_input_ids"] = torch.randint(3, 50, (2, 6), generator=generator)
    return model, inputs
