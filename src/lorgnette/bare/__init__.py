"""Functions for models and tensors that you already have, in your own loop.

attention     → `attention`: what was seen of one pass, by name
batch         → `batch`: a Batch from tensors
calls         → `calls`: attention calls from queries and keys that were captured elsewhere
vllm          → `vllm_calls`: the same from what vllm-lens captured
watching      → `watch`: lenses on a pass that you run
interventions → `without`, `scaled`, `patched`: heads off, scaled, or with another text's output
effects       → `effect`, `gradient_effects`: what an intervention does to logits and loss
callback      → `LensCallback`: lenses during training with the Trainer
"""
