"""The entropy of every head while a small classifier trains with the Trainer of transformers."""

import tempfile

import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import lorgnette as lo

tokenizer = lo.load("minilm").tokenizer
texts = ["a good film", "a bad film", "good and kind", "bad and dull"] * 8
labels = [1, 0, 1, 0] * 8
data = Dataset.from_dict({**tokenizer(texts, padding="max_length", max_length=8), "labels": labels})

torch.manual_seed(0)
shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **shape))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=20, learning_rate=1e-3, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True
    )
    trainer = Trainer(model, arguments, train_dataset=data, processing_class=tokenizer)
    callback = lo.LensCallback(["weights"], corpus=texts[:4], every=5).attach(trainer)
    trainer.train()

entropy = callback.by_step("weights")["entropy"]  # [step stack layer head]
for step in entropy["step"].values:
    print(f"step {step:>2}: mean entropy {float(entropy.sel(step=step).mean()):.3f} nats")
