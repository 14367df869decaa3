"""Training and pruning a model that classifies already: labels of the corpus and its classes are matched by name."""

import numpy as np
import pytest
import transformers as hf
from planted_runs import PARTS
from tiny import tokenizer
from transformers import EvalPrediction

from lorgnette.errors import UserError
from lorgnette.training import TrainingSettings
from lorgnette.training.preparation import prepare
from lorgnette.training.trainer import metrics_of


def checkpoint(folder, classes):
    names = dict(enumerate(classes))
    config = hf.BertConfig(vocab_size=97, hidden_size=16, num_attention_heads=2, num_hidden_layers=1,
                           intermediate_size=16, id2label=names, label2id={n: i for i, n in names.items()})  # fmt: skip
    hf.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer("bert").save_pretrained(folder)
    return str(folder)


def labels_of(folder, trained=False, **changes):
    ready = prepare(TrainingSettings(model=folder, corpus=PARTS, out="unused", **changes), trained=trained)
    return ready.parts.labels, [item["labels"] for item in ready.validation.items]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The classes of the corpus, in its order."""
    return labels_of(checkpoint(tmp_path_factory.mktemp("own"), ("negative", "positive")))


def test_classes_in_another_order_are_matched_by_name(own, tmp_path):
    classes, labels = labels_of(checkpoint(tmp_path, ("Positive", "NEGATIVE")))
    assert classes == ("Positive", "NEGATIVE")
    assert labels == [1 - label for label in own[1]]
    assert set(labels) == {0, 1}


def test_other_names_are_refused_until_they_are_mapped(own, tmp_path):
    folder = checkpoint(tmp_path, ("good", "bad"))
    with pytest.raises(UserError, match=r"\(negative, positive\) are not the classes .*\(good, bad\).*--labels"):
        labels_of(folder)
    mapped = {"negative": "bad", "positive": "good"}
    assert labels_of(folder, labels=mapped) == (("good", "bad"), [1 - label for label in own[1]])


def test_a_head_without_names_is_trained_but_not_pruned(own, tmp_path):
    folder = checkpoint(tmp_path, ("LABEL_0", "LABEL_1"))
    assert labels_of(folder) == own
    with pytest.raises(UserError, match="--labels negative=LABEL_0"):
        labels_of(folder, trained=True)
    mapped = {"negative": "LABEL_1", "positive": "LABEL_0"}
    assert labels_of(folder, trained=True, labels=mapped)[1] == [1 - label for label in own[1]]


def test_labels_of_a_preset_cannot_be_mapped(tmp_path):
    with pytest.raises(UserError, match="omit --labels"):
        labels_of("tp9-cls", labels={"negative": "bad"}, embeddings="random")


def frame(classes, count=12):
    """As many texts of each class; the words say which."""
    import pandas as pd

    rows = [{"text": f"{name} {name}", "label": name} for name in classes for _ in range(count // len(classes))]
    return pd.DataFrame(rows)


def splits_of(**frames):
    given = {"model": "tp9-cls", "embeddings": "random", "out": "unused", "label_column": "label"}
    ready = prepare(TrainingSettings(**given, corpus={name: frame(classes) for name, classes in frames.items()}))
    texts = {"validation": ready.parts.validation, "test": ready.parts.test}
    return {name: {example.text.split()[0]: example.label for example in part} for name, part in texts.items()}


def test_a_split_without_some_class_counts_in_those_of_the_training_texts():
    """A table counts the classes that it has: without texts of 'neu', 'pos' would be counted as 'neu'."""
    three = ("neg", "neu", "pos")
    found = splits_of(train=three, validation=three, test=("neg", "pos"))
    assert found == {"validation": {"neg": 0, "neu": 1, "pos": 2}, "test": {"neg": 0, "pos": 2}}
    assert splits_of(train=("1", "2"), validation=("1", "2"), test=("2",))["test"] == {"2": 1}


@pytest.mark.parametrize("which", ["validation", "test"])
def test_a_class_that_no_training_text_has_is_refused_before_training(which):
    two = ("neg", "pos")
    given = {"train": two, "validation": two, "test": two, which: ("neg", "nice")}
    with pytest.raises(UserError, match=rf"the {which} texts have the class 'nice', which the training texts do not"):
        splits_of(**given)
    with pytest.raises(UserError, match="have the class '0'"):  # no number of a class
        splits_of(**{**dict.fromkeys(("train", "validation"), ("1", "2")), "test": ("0", "1")})


@pytest.mark.parametrize(
    "setting", [{"style": "whitespace"}, {"min_count": 2}, {"max_vocabulary": 9}, {"freeze": True}]
)
def test_settings_of_a_vocabulary_are_for_presets(tmp_path, setting):
    """A pretrained model has its own; to read the setting and not to heed it would be a wrong number."""
    with pytest.raises(UserError, match=rf"{next(iter(setting))} is a setting of presets"):
        labels_of(checkpoint(tmp_path, ("negative", "positive")), **setting)


def test_a_corpus_without_training_texts_says_what_it_has():
    with pytest.raises(UserError, match="'wikitext2' has no training split, only test and valid: give a file"):
        prepare(TrainingSettings(model="tp9-cls", embeddings="random", out="unused", corpus="wikitext2"))


def test_macro_f1_is_the_mean_over_the_classes_that_occur():
    chosen, labels = np.array([0, 0, 1, 2, 0, 2]), np.array([0, 1, 1, 0, 0, 0])
    logits = np.eye(5)[chosen]  # classes 3 and 4 are neither there nor predicted; 2 is only predicted
    found = metrics_of(EvalPrediction(logits, labels))["macro_f1"]
    pairs = [(2, 3 + 4), (1, 1 + 2), (0, 2 + 0)]  # right, predicted + there
    assert found == pytest.approx(sum(2 * both / either for both, either in pairs) / 3, abs=1e-15)
