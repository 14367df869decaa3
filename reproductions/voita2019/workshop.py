"""The models that the cells share, made once, and the short trainings that each of them does."""

import dataclasses
import fcntl
import gc
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import set_seed

from lorgnette.models.marian_small import quiet_tokenizer
from lorgnette.models.opening import find
from lorgnette.models.tapping import tapped
from lorgnette.texts import Corpus, Example, corpus
from lorgnette.training import TrainingSettings, train
from lorgnette.training.arguments import arguments_of
from lorgnette.training.fitting import trainer_of
from lorgnette.training.folder import RunFolder
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.preparation import Prepared, prepare
from lorgnette.training.settings import Splits
from lorgnette.training.translation.task import PreparedPairs
from reproductions.frame.running import ready_for_training
from reproductions.frame.settings import Machine
from reproductions.voita2019.grid import RELEASED

OPUS = "opus-mt-en-fr"
PAIR = "en-fr"
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2018_flickr")
TRAVEL = 20
"""How far log α could go in a run, in units, while its learning rate falls to 0: from ln 100 to −ln 11 are seven."""
_RATES = {"opus": 1e-4, "small": 3e-4}
"""Learning rate of the weights where a trained model is trained further, with gates or without."""


@dataclass(frozen=True)
class Workshop:
    """Where things lie, and how much is trained: what all cells are told."""

    sizes: Mapping[str, Any]
    machine: Machine

    @staticmethod
    def open(sizes: Mapping[str, Any], machine: Machine) -> "Workshop":
        """Ready for training; what this process held on the GPU and needs no more is for the others."""
        ready_for_training()
        make_room()
        warnings.filterwarnings("ignore", message=".* gates are neither open nor closed")  # both rules are recorded
        bf16 = sizes["bf16"] and torch.cuda.is_available()  # few CPUs have it
        return Workshop({**sizes, "bf16": bf16}, machine)

    @property
    def scratch(self) -> Path:
        return self.machine.scratch

    @property
    def own(self) -> str:
        """The pairs on which a model is pruned: two languages of Multi30k, or a corpus of the paper's."""
        return str(self.sizes.get("pairs", PAIR))

    def settings(self, model: str, pairs: str | Splits, epochs: int, **more: Any) -> TrainingSettings:
        told = {
            "batch_size": self.sizes["batch"],
            **more,
            "bf16": self.sizes["bf16"],
            "data": self.machine.data,
            "patience": 1000,
        }
        return TrainingSettings(model=model, corpus=pairs, out=self.scratch / "unused", epochs=epochs, **told)

    def pairs(self, languages: str) -> Splits:
        """A corpus of the paper's, or Multi30k, whose Flickr test sets are joined as far as they have the languages."""
        name, limit = named(languages), self.sizes["limit"]
        training, validation = (corpus(name, split=split, data=self.machine.data) for split in ("train", "validation"))
        test = Corpus.of(self.test(languages), name=f"{name}:test")
        if limit is None:
            return Splits(training, validation, test)
        return Splits(training.take(limit), validation.take(max(limit // 10, 20)), test)

    def test(self, languages: str) -> list[Example]:
        if languages in RELEASED.values():
            return list(corpus(languages, split="test", data=self.machine.data, limit=self.sizes["test_limit"]))
        found: list[Example] = []
        for split in TESTS if "cs" not in languages else (TESTS[0], TESTS[2]):
            found += corpus(
                f"multi30k:{languages}", split=split, data=self.machine.data, limit=self.sizes["test_limit"]
            )
        return found

    def source(self, name: str) -> str:
        """A model in the folder of models that was given, else where its name leads."""
        if self.machine.models and Path(self.machine.models, name).is_dir():
            return str(Path(self.machine.models, name))
        found = find(name)
        return name if found is None else str(found)

    # The models that others start from.

    def opus(self) -> Path:
        """opus-mt-en-fr, fine-tuned on Multi30k, so that pruning is not compared with a model of another domain."""

        def make(folder: Path) -> None:
            settings = self.settings(
                self.source(OPUS), self.pairs("en-fr"), self.sizes["tuning"], learning_rate=_RATES["opus"], warmup=0.1,
                batch_size=self.sizes["opus_batch"],
                allow_pickle=True,  # published as a pickle only; transformers reads nothing but tensors from it
            )  # fmt: skip
            ready = prepare(settings)
            set_seed(0)
            model = ready.builder.model()
            short_run(model, ready, settings)
            saved(model, ready, folder)

        return made_once(self.scratch / "opus", make)

    def small(self, languages: str = "en-fr") -> Path:
        """marian-small, trained from scratch as `lorgnette train` does it; the best epochs by validation loss."""

        def make(folder: Path) -> None:
            settings = self.small_settings(self.pairs(languages)).replace(out=folder.with_name(folder.name + ".run"))
            run = train(settings)
            shutil.move(run.folder, folder)

        return made_once(self.scratch / f"small-{languages}", make)

    def small_settings(self, pairs: Splits) -> TrainingSettings:
        steps = _size(pairs.train) // self.sizes["batch"] + 1
        return self.settings(
            self.sizes["preset"],
            pairs,
            self.sizes["small"],
            overrides={"pieces": self.sizes["pieces"], **self.sizes.get("shape", {})},
            learning_rate=1e-3,
            schedule="linear",
            warmup=0.15,
            evaluate_every=2 * steps,
        )

    def base(self, model: str) -> Path:
        return self.opus() if model == "opus" else self.small(self.own)

    def further(
        self, model: str, folder: Path, epochs: int, seed: int = 0
    ) -> tuple[Any, PreparedPairs, TrainingSettings]:
        """The model in a folder, to be trained some epochs more on the same pairs."""
        settings = self.settings(
            str(folder), self.pairs(self.own), epochs, learning_rate=_RATES[model], warmup=0.1, allow_pickle=True,
            batch_size=self.sizes["opus_batch" if model == "opus" else "batch"], seed=seed,
        )  # fmt: skip
        ready = prepare(settings)
        assert isinstance(ready, PreparedPairs)
        set_seed(seed)
        return ready.builder.model(), ready, settings


def named(languages: str) -> str:
    """The corpus of these pairs."""
    return languages if languages in RELEASED.values() else f"multi30k:{languages}"


def short_run(
    model: Any, ready: Prepared, settings: TrainingSettings, gates: HeadGates | None = None, steps: int = -1
) -> dict[str, float]:
    """Trains a model, and its gates if it has some, to the end of its epochs, or for so many steps: no evaluation,
    nothing on disk."""
    tally = ready.tally_class()
    quiet: dict[str, Any] = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
    quiet |= {"report_to": [], "max_steps": steps}
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder, ExitStack() as undo:
        arguments = dataclasses.replace(arguments_of(settings, RunFolder(Path(folder) / "run")), **quiet)
        own: dict[str, Any] = {}
        if gates is not None:
            own = {"gates": gates, "gates_learning_rate": gates_rate(settings, ready.count)}
            undo.enter_context(tapped(model, gates))
        trainer = trainer_of(settings, ready, model, arguments, tally=tally, **own)
        trainer.train()
    for name in ("forward", "_original_forward"):  # autocast's wrapper, which a copy would take for its own
        model.__dict__.pop(name, None)
    if gates is not None:
        gates.eval()
    return {"steps": float(trainer.state.global_step), **tally.means()}


def make_room() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def gates_rate(settings: TrainingSettings, texts: int) -> float:
    """The learning rate of log α, so that short runs polarise too."""
    assert settings.epochs is not None
    steps = settings.epochs * -(-texts // settings.batch_size)
    return min(0.3, max(0.05, 2 * TRAVEL / steps))


def saved(model: Any, ready: Prepared, folder: Path) -> None:
    model.save_pretrained(folder)
    ready.builder.tokenizer.save_pretrained(folder)


def opened(folder: Path) -> tuple[Any, Any]:
    """A model and its tokenizer, on the GPU if there is one."""
    with quiet_tokenizer():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    return model.to(device()).eval(), tokenizer


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made by whoever comes first; other processes wait until it is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f".{folder.name}.lock")):
        if not folder.is_dir():
            partial = folder.with_name(f".{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(folder)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time, and let go when it dies."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _size(texts: Corpus) -> int:
    return sum(1 for _ in texts)
