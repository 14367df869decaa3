"""Translation models: learnt from made-up languages, reopened, resumed, and what they refuse."""

import json
import random
import warnings

import pytest
import torch
import transformers as hf

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.models.marian_small import quiet_tokenizer, translator_sizes
from lorgnette.texts import Corpus, Example
from lorgnette.texts.encoding import Encoder
from lorgnette.training import Splits, Trained, TrainingSettings, train
from lorgnette.training.preparation import prepare
from lorgnette.training.translation.data import IGNORED, PairCollator, PairReader
from lorgnette.training.translation.generation import translate
from lorgnette.training.translation.task import TRANSLATIONS, languages_of
from lorgnette.training.translation.trainer import TokenTally, TranslationTrainer, per_text, token_metrics

NOUNS = ("bato", "kiru", "mena", "doli", "suva", "paro")
SIZES = {"layers": 1, "heads": 2, "width": 32, "feed_forward": 64, "pieces": 60, "dropout": 0.0}


def pairs(count, seed):
    """Each word has one translation, its letters the other way round."""
    draw = random.Random(seed)
    out = []
    for number in range(count):
        words = [draw.choice(NOUNS) for _ in range(draw.randint(2, 5))]
        out.append(Example(str(number), " ".join(words), target=" ".join(word[::-1] for word in words)))
    return out


PARTS = Splits(*(Corpus.of(pairs(*sizes), name="made-up:en-fr") for sizes in ((300, 0), (20, 1), (20, 2))))


def settings(out, **changes):
    given = {"model": "marian-tiny", "corpus": PARTS, "overrides": SIZES, "epochs": 2, "batch_size": 50, "warmup": 0.1}
    return TrainingSettings(**{**given, "out": out, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained until it has learnt the language."""
    out = tmp_path_factory.mktemp("run") / "model"
    told = {"epochs": 40, "learning_rate": 5e-3, "schedule": "linear", "evaluate_every": 40, "patience": 100}
    return train(settings(out, **told))


def test_it_learns_to_translate_word_by_word(run):
    assert run.bleu > 70
    assert run.metrics["test"]["accuracy"] > 0.85
    assert "tok:13a" in run.metrics["test"]["signature"]
    said = (run.folder / TRANSLATIONS).read_text(encoding="utf-8").splitlines()
    assert len(said) == 20
    assert sum(one == pair.target for one, pair in zip(said, PARTS.test, strict=True)) > 10
    record = json.loads((run.folder / "training.json").read_text())
    assert record["texts"] == {"train": 300, "validation": 20, "test": 20}
    assert "translations" not in record["metrics"]["test"]


def test_the_folder_is_an_ordinary_marian(run):
    with quiet_tokenizer():
        tokenizer = hf.AutoTokenizer.from_pretrained(run.folder)
    assert isinstance(tokenizer, hf.MarianTokenizer)
    assert (tokenizer.source_lang, tokenizer.target_lang) == ("en", "fr")
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(run.folder).eval()
    assert isinstance(model, hf.MarianMTModel)
    texts = [pair.text for pair in PARTS.test]
    said = translate(model, tokenizer, texts, batch_size=7)
    assert said == (run.folder / TRANSLATIONS).read_text(encoding="utf-8").splitlines()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # no advice to install sacremoses
        subject = lo.load(str(run.folder))
    assert list(subject.layers) == ["encoder", "decoder", "cross"]
    assert all(check.ok for check in subject.check())


def test_order_and_batches_do_not_change_translations(run):
    with quiet_tokenizer():
        tokenizer = hf.AutoTokenizer.from_pretrained(run.folder)
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(run.folder).double().eval()
    texts = [pair.text for pair in PARTS.test]
    whole = translate(model, tokenizer, texts, batch_size=20)
    assert [translate(model, tokenizer, [text])[0] for text in texts[:5]] == whole[:5]
    assert translate(model, tokenizer, texts[::-1], batch_size=3) == whole[::-1]
    assert translate(model, tokenizer, []) == []
    wide = translate(model, tokenizer, texts[:4], beams=3)
    assert len(wide) == 4


def test_a_translation_that_never_ends_does_not_depend_on_its_neighbours(run):
    """Random weights hardly ever end a sentence: each is cut by the length of its own source."""
    with quiet_tokenizer():
        tokenizer = hf.AutoTokenizer.from_pretrained(run.folder)
    torch.manual_seed(0)
    model = hf.MarianMTModel(hf.AutoConfig.from_pretrained(run.folder)).double().eval()
    texts = ["bato", "kiru mena doli suva paro bato kiru mena"]
    for beams in (1, 2):
        alone = [translate(model, tokenizer, [text], beams=beams)[0] for text in texts]
        assert translate(model, tokenizer, texts, beams=beams) == alone
    assert len(alone[0]) < len(alone[1])


def test_a_translator_is_fine_tuned_and_resumed(run, tmp_path):
    told = {"model": str(run.folder), "overrides": {}, "epochs": 1, "limit": 100, "learning_rate": 1e-4}
    again = train(settings(tmp_path / "tuned", **told))
    assert again.bleu > run.bleu - 15
    assert again.record["resolved"]["max_length"] == 256
    resumed = train(settings(tmp_path / "tuned", **told, resume=True))
    assert resumed.metrics == again.metrics
    assert Trained.load(tmp_path / "tuned").bleu == again.bleu


def test_the_best_checkpoint_can_be_chosen_by_bleu(tmp_path):
    run = train(settings(tmp_path / "run", select="bleu", limit=60))
    assert {"bleu", "loss", "accuracy", "cross_entropy"} <= run.curve[0]["validation"].keys()
    assert "bleu" in run.metrics["validation"]


def test_without_a_test_split_validation_is_translated(tmp_path):
    run = train(settings(tmp_path / "run", corpus=Splits(PARTS.train.take(40), PARTS.validation), epochs=1))
    assert run.metrics["test"] is None
    assert run.bleu == run.metrics["validation"]["bleu"]


def test_labels_are_shifted_and_padding_is_ignored():
    items = [{"input_ids": torch.tensor([5, 6, 0]), "labels": torch.tensor([7, 8, 9, 0])},
             {"input_ids": torch.tensor([5, 0]), "labels": torch.tensor([7, 0])}]  # fmt: skip
    batch = PairCollator(padding=1, start=2)(items)
    assert batch["input_ids"].tolist() == [[5, 6, 0], [5, 0, 1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["decoder_input_ids"].tolist() == [[2, 7, 8, 9], [2, 7, 1, 1]]
    assert batch["labels"].tolist() == [[7, 8, 9, 0], [7, 0, IGNORED, IGNORED]]


def test_scores_of_an_evaluation_are_means_over_tokens():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 5, 11), torch.randint(11, (3, 5))
    labels[1, 2:] = IGNORED
    kept = per_text((logits, None), labels)
    found = token_metrics(hf.trainer_utils.EvalPrediction(kept.numpy(), labels.numpy()))
    loss, right, count = 0.0, 0, 0
    for text in range(3):
        for place in range(5):
            if labels[text, place] == IGNORED:
                continue
            row = logits[text, place].double()
            loss -= float(row.log_softmax(-1)[labels[text, place]])
            right += int(row.argmax() == labels[text, place])
            count += 1
    assert found == pytest.approx({"cross_entropy": loss / count, "accuracy": right / count}, rel=1e-5)
    tally = TokenTally()
    tally.add(torch.tensor(2.0), logits, labels, {})
    assert tally.count == count
    assert tally.means() == pytest.approx({"loss": 2.0, "accuracy": right / count})


def test_the_smoothed_loss_is_the_trainers_own():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 5, 11, dtype=torch.float64), torch.randint(11, (3, 5))
    labels[1, 2:] = IGNORED
    theirs = hf.trainer_pt_utils.LabelSmoother(epsilon=0.1)({"logits": logits}, labels)

    class Told:
        args = hf.TrainingArguments(label_smoothing_factor=0.1, use_cpu=True, report_to="none")

    ours = TranslationTrainer._smoothed(Told(), {"logits": logits}, labels)
    assert float(ours) == pytest.approx(float(theirs), abs=1e-6)  # theirs sums in float32


def test_what_is_cut_is_counted(tmp_path):
    ready = prepare(settings(tmp_path, max_length=5))
    assert ready.train.cut > 0
    assert any("truncated to 5 tokens a side" in note for note in ready.notes)
    reader = PairReader(ready.builder.tokenizer, ready.builder.config, 5)
    for item, _ in reader.read(pairs(30, 4)):
        assert len(item["input_ids"]) <= 5
        assert item["labels"][-1] == ready.builder.tokenizer.eos_token_id  # the end stays


@pytest.mark.parametrize("limit", [None, 6])
def test_training_reads_pairs_as_look_does(tmp_path, limit):
    """The decoder's input is the labels behind its start token, also of pairs that are cut."""
    made = prepare(settings(tmp_path)).builder
    encoder = Encoder(made.tokenizer, made.config, limit)
    for pair, (item, cut) in zip(
        pairs(30, 4), PairReader(made.tokenizer, made.config, limit).read(pairs(30, 4)), strict=True
    ):
        looked = encoder.encode(pair, truncate=True)
        assert item["input_ids"].tolist() == looked.source.ids.tolist()
        assert item["labels"][:-1].tolist() == looked.target.ids[1:].tolist()
        assert cut == looked.cut


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"corpus": Splits(Corpus.of([Example("1", "a text", label=0)], name="texts"))}, "too few"),
        (
            {"corpus": Splits(Corpus.of([Example(str(n), "a text", label=0) for n in range(20)], name="t"))},
            "no translation",
        ),
        ({"overrides": {**SIZES, "width": 33}}, "cannot be divided into"),
        ({"overrides": {"depth": 3}}, "no setting 'depth'"),
        ({"select": "accuracy"}, "not by accuracy"),
        ({"stream": True}, "kept in memory"),
        ({"embeddings": "glove"}, "setting of classifiers"),
        ({"label_smoothing": 1.5}, "label_smoothing"),
        ({"max_length": 1000}, "more than the 256 positions"),
    ],
)
def test_wrong_settings_are_told(tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        train(settings(tmp_path / "out", **changes))


def test_bleu_does_not_choose_classifiers(tmp_path):
    with pytest.raises(UserError, match="needs a translation model"):
        prepare(TrainingSettings(model="tp9-cls", corpus="planted", out=tmp_path, embeddings="random", select="bleu"))


def test_a_pickle_is_opened_only_if_allowed(run, tmp_path):
    folder = tmp_path / "pickled"
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(run.folder)
    with quiet_tokenizer():
        hf.AutoTokenizer.from_pretrained(run.folder).save_pretrained(folder)
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    told = {"model": str(folder), "overrides": {}}
    with pytest.raises(UserError, match="--allow-pickle"):
        prepare(settings(tmp_path / "out", **told))
    opened = prepare(settings(tmp_path / "out", **told, allow_pickle=True)).builder.model()
    assert torch.equal(opened.get_input_embeddings().weight, model.get_input_embeddings().weight)


def test_languages_are_read_off_the_name_of_a_corpus():
    assert languages_of("multi30k:en-fr") == ("en", "fr")
    assert languages_of("parallel_en_ru:tatoeba") == ("en", "ru")
    assert languages_of("mine.tsv") == ("source", "target")
    assert translator_sizes("marian-small")["decoder_layers"] == 3
