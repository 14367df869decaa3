"""A lens is an attribute of a LightningModule, as any metric is."""

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy
from tiny import classifier
from torch.utils.data import DataLoader

import lorgnette as lo

TEXTS = ["the cat sat on the mat .", "a dog ran", "it was good", "was it not ?"]
# Lightning advises more workers, and calls what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:lightning", "ignore:.*LeafSpec:FutureWarning")


class Watched(lightning.LightningModule):
    def __init__(self, subject: lo.Subject) -> None:
        super().__init__()
        self.model, self.tokenizer = subject.model, subject.tokenizer
        self.lens, self.training_lens = lo.lens.get("weights"), lo.lens.get("weights")
        self.entropies: list[np.ndarray] = []

    def loader(self) -> DataLoader:
        def collate(texts):
            return dict(self.tokenizer(texts, padding=True, return_tensors="pt"))

        return DataLoader(TEXTS, batch_size=1, collate_fn=collate)

    def validation_step(self, batch, _):
        with lo.watch(self.model, self.lens, batch=lo.batch(batch, self.tokenizer)):
            self.model(**batch)

    def on_validation_epoch_end(self):
        entropy = self.lens.compute()["entropy"].data
        self.entropies.append(entropy.to_numpy())
        self.log("entropy", float(entropy.mean()), sync_dist=False)
        self.lens.reset()

    def training_step(self, batch, _):
        with lo.watch(self.model, self.training_lens, batch=lo.batch(batch, self.tokenizer)):
            return self.model(**batch).logits.square().mean()

    def on_train_epoch_end(self):
        self.entropies.append(self.training_lens.compute()["entropy"].data.to_numpy())
        self.training_lens.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def trainer(**options) -> lightning.Trainer:
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    return lightning.Trainer(accelerator="cpu", max_epochs=1, num_sanity_val_steps=0, **quiet, **options)


def test_a_lens_in_validation_and_in_training_gives_what_look_gives(tmp_path):
    subject = classifier(torch.float32)
    watched = Watched(subject)
    expected = lo.look(subject, TEXTS, "weights")["weights"]["entropy"].data.to_numpy()
    logged = trainer(default_root_dir=tmp_path).validate(watched, watched.loader(), verbose=False)
    trainer(default_root_dir=tmp_path).fit(watched, watched.loader(), watched.loader())
    assert len(watched.entropies) == 3
    for entropy in watched.entropies:
        np.testing.assert_allclose(entropy, expected, atol=1e-6)
    assert logged[0]["entropy"] == pytest.approx(float(np.nanmean(expected)), abs=1e-6)


def by_hand_two_processes() -> None:
    """`PYTHONPATH=.:tests python tests/bare/test_lightning.py`: states merge over the processes of DDP."""
    torch.manual_seed(0)
    subject = classifier(torch.float32)
    watched = Watched(subject)
    strategy = DDPStrategy(process_group_backend="gloo", find_unused_parameters=True)
    trainer(devices=2, strategy=strategy).validate(watched, watched.loader(), verbose=False)
    expected = lo.look(subject, TEXTS, "weights")["weights"]["entropy"].data.to_numpy()
    np.testing.assert_allclose(watched.entropies[0], expected, atol=1e-6)
    print("rank", watched.global_rank, "equal to look")


if __name__ == "__main__":
    by_hand_two_processes()
