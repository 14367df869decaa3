"""Fosse 2023, many classes: planted ones, real label sets, tagging, and what is said of made-up cells."""

import json
import math

import pytest
import torch
from fosse_made_up import spread_out, tagger
from made_cells import finished
from tiny import word_pieces
from transformers import BertConfig, BertModel

from lorgnette.lens.cones.formulas import class_cosines
from lorgnette.texts import Example
from reproductions.fosse2023 import STUDY, grid
from reproductions.fosse2023.claims import claims
from reproductions.fosse2023.classes import labels as labels_of
from reproductions.fosse2023.classes.measure import direction_numbers, labelled, planted
from reproductions.fosse2023.classes.planted import CLS, FIRST, PlantedClasses
from reproductions.fosse2023.classes.training import train_steps
from reproductions.fosse2023.figures import figures
from reproductions.fosse2023.tables import tables
from reproductions.fosse2023.tagging.measure import NOTHING, tagged
from reproductions.frame.settings import Machine

SENTENCES = (
    ("The dog saw a cat .", "DET NOUN VERB DET NOUN PUNCT"),
    ("A cat ran .", "DET NOUN VERB PUNCT"),
    ("Dogs ran and slept .", "NOUN VERB CCONJ VERB PUNCT"),
    ("The cat slept .", "DET NOUN VERB PUNCT"),
)


def write_treebank(folder, name, genre=None):
    """Each split: the four sentences, several times over, in documents of two."""
    where = folder / f"ud_{name}"
    where.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        lines = []
        for number in range(8 if split == "train" else 4):
            text, tags = SENTENCES[number % 4]
            if number % 2 == 0 and genre:
                lines.append(f"# newdoc id = GUM_{genre[number // 2 % len(genre)]}_{split}{number}")
            lines += [f"# sent_id = {split}-{number}", f"# text = {text}"]
            for place, (word, tag) in enumerate(zip(text.split(), tags.split(), strict=True), 1):
                head = 0 if place == 1 else 1
                feats = "Number=Plur" if word == "Dogs" else "_"
                relation = "root" if head == 0 else "dep"
                lines.append(f"{place}\t{word}\t{word.lower()}\t{tag}\t{tag[:2]}\t{feats}\t{head}\t{relation}\t_\t_")
            lines.append("")
        (where / f"{name}-ud-{split}.conllu").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("treebanks")
    write_treebank(folder, "en_ewt")
    write_treebank(folder, "en_gum", ("news", "fiction"))
    return folder


def test_planted_texts_say_their_class():
    texts = PlantedClasses(7)
    ids, labels = texts.draw(500, torch.Generator().manual_seed(0))
    assert ids.shape == (500, 13)
    assert (ids[:, 0] == CLS).all()
    assert int(ids[:, 1:].min()) >= FIRST
    assert int(ids.max()) < texts.vocabulary
    assert torch.equal(texts.class_of(ids), labels)
    assert torch.bincount(labels, minlength=7).min() > 40
    again = texts.draw(500, torch.Generator().manual_seed(0))[0]
    assert torch.equal(ids, again)


def test_directions_of_a_simplex_reach_the_bound_and_agree_with_the_lens():
    corners = torch.eye(5, dtype=torch.float64) - 1 / 5
    states, labels = corners.repeat(6, 1) * 3, torch.arange(5).repeat(6)
    found = direction_numbers(states, labels, torch.ones(30, dtype=torch.float64), 5)
    assert found["raw"]["largest"] == pytest.approx(-0.25, abs=1e-6)
    assert found["raw"]["least"] == pytest.approx(-0.25, abs=1e-6)
    assert found["centred"]["effective_rank"] == pytest.approx(4.0, abs=1e-6)
    assert found["centred"]["participation"] == pytest.approx(4.0, abs=1e-6)
    assert found["own_cosine"] == found["auroc"] == 1.0
    shifted = direction_numbers(states + 2.0, labels, torch.ones(30, dtype=torch.float64), 5)
    assert shifted["raw"]["mean"] > 0.5
    assert shifted["centred"]["largest"] == pytest.approx(-0.25, abs=1e-6)
    draw = torch.Generator().manual_seed(0)
    some = torch.randn(60, 4, generator=draw, dtype=torch.float64)
    labels = torch.arange(60) % 5
    for name, centred in (("raw", False), ("centred", True)):
        units = some / some.norm(dim=-1, keepdim=True)
        matrix = class_cosines(units, labels, 5, centred=centred)
        off = matrix[~torch.eye(5, dtype=torch.bool)]
        found = direction_numbers(some, labels, torch.ones(60, dtype=torch.float64), 5)[name]
        assert found["largest"] == pytest.approx(float(off.max()), abs=1e-6)
        assert found["mean"] == pytest.approx(float(off.mean()), abs=1e-6)


def test_classes_of_few_texts_and_states_of_length_zero_are_left_out():
    states = torch.randn(16, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0] * 7 + [2] * 7 + [1] * 2)
    states[0] = 0
    found = direction_numbers(states, labels, torch.ones(16, dtype=torch.float64), 3)
    assert (found["classes_used"], found["zero_vectors"]) == (2, 1)
    json.dumps(found, allow_nan=False)


def test_a_planted_cell_learns():
    found = planted(width=8, counts=[2], seed=0, steps=200, batch_size=64, machine=Machine())
    assert found["2"]["accuracy"] > 0.9
    assert found["2"]["raw"]["largest"] < 0
    json.dumps(found, allow_nan=False)


def test_the_best_weights_are_kept_and_nan_is_not_silent():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.at = torch.nn.Parameter(torch.tensor(0.0))

        def forward(self, goal):
            return type("Out", (), {"loss": (self.at - goal) ** 2})

    model = Model()
    seen = []
    validate = lambda: seen.append(float(model.at.detach())) or abs(seen[-1] - 0.2)  # noqa: E731
    told = train_steps(model, lambda: {"goal": 1.0}, steps=40, learning_rate=0.05, validate=validate)
    best = min(seen, key=lambda one: abs(one - 0.2))
    assert float(model.at.detach()) == pytest.approx(best)
    assert told["best_step"] < 40
    with pytest.raises(FloatingPointError):
        train_steps(Model(), lambda: {"goal": float("nan")}, steps=4, learning_rate=0.05)


def test_a_word_stands_before_its_neighbours_nearest_first():
    example = Example(
        "1",
        "The dog saw",
        words=("The", "dog", "saw"),
        tags={"xpos": ("DT", "NN", "VB"), "lemma": ("the", "dog", "see")},
    )
    rows = list(labels_of._marked(example, "xpos"))
    assert rows[1][0][:5] == ["dog", "the", "saw", "<edge>", "<edge>"]
    assert rows[1][1] == "NN"
    assert list(labels_of._marked(example, "lemmas"))[2] == (
        ["<mask>", "dog", "<edge>", "the", *["<edge>"] * 13],
        "see",
    )


@pytest.mark.parametrize(("name", "count"), [("genres", 2), ("xpos", 5), ("features", 6), ("lemmas", 10)])
def test_label_sets(name, count, data):
    found = labels_of.label_set(name, str(data), None)
    assert len(found.classes) == count
    assert all((texts.ids[:, 0] == labels_of.CLS).all() for texts in found.splits.values())
    assert all(int(texts.labels.max()) < count for texts in found.splits.values())
    if name != "genres":
        assert found.splits["train"].ids.shape[1] == 2 + 2 * labels_of.NEIGHBOURS
        assert (found.splits["train"].ids[:, 1] == labels_of.MASK).all() == (name == "lemmas")


def test_a_labelled_cell_from_end_to_end(data):
    told = {"name": "xpos", "width": 8, "source": "random", "seed": 0, "steps": 30, "batch_size": 16, "limit": None}
    found = labelled(**told, machine=Machine(data=str(data)))
    json.dumps(found, allow_nan=False)
    assert found["classes"] == 5
    assert found["texts"]["train"] == 38
    assert 0 <= found["accuracy"] <= 1


def test_a_tagging_cell_from_end_to_end(data, tmp_path):
    tokenizer = word_pieces()
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(tmp_path / "minilm")
    tokenizer.save_pretrained(tmp_path / "minilm")
    for start in grid.STARTS:
        told = {"model": "minilm", "start": start, "seed": 0, "steps": 8, "batch_size": 4, "learning_rate": 1e-3}
        found = tagged(**told, draws=3, limit=None, machine=Machine(data=str(data), models=str(tmp_path)))
        json.dumps(found, allow_nan=False)
        assert found["tags"] == ["CCONJ", "DET", "NOUN", "PUNCT", "VERB"]
        assert sum(found["after"]["items"]) == 19  # words, whatever their pieces
    assert torch.nn.CrossEntropyLoss().ignore_index == NOTHING


def made_up(labels):
    """Accuracy that falls beyond four classes for each dimension; a set of twelve labels; taggers with three cones."""
    seed = labels.get("seed", 0)
    if labels["part"] == "tagging" and labels["start"] == "pretrained":
        return tagger(seed)
    if labels.get("set") == "planted":
        width = labels["width"]
        if width not in (8, 100) or 4096 in labels["counts"]:
            return None
        return {str(c): spread_out(c, width, seed, 0.99 if c <= 4 * width else 0.5) for c in labels["counts"]}
    if labels.get("set") == "xpos" and labels["vectors"] in ("glove-100", "random-8"):
        more = {"classes": 12, "majority": 0.2, "texts": {}, "left_out": {}}
        return {**spread_out(12, grid.SET_VECTORS[labels["vectors"]], seed, 0.8), **more}
    return None


@pytest.fixture(scope="module")
def cells():
    small = ((2, 64), (4, 32), (8, 16))  # 512 directions take long to measure
    before, grid.COUNTS = grid.COUNTS, small
    yield finished(STUDY, made_up, seeds=(0, 1, 2))
    grid.COUNTS = before


def test_claims_about_planted_and_real_classes(cells):
    judged = {claim.id: claim for claim in claims(cells)}
    verdicts = {id: claim.verdict for id, claim in judged.items()}
    assert verdicts["planted-simplex-w100-c8"] == "holds"
    for id, cosine in (("planted-orthogonal-w100-c8", 1 / 7), ("planted-every-orthogonal-w100-c8", -1 / 7)):
        assert verdicts[id] == "holds"
        assert judged[id].estimate.value == pytest.approx(cosine, abs=0.02)
    assert verdicts["planted-accuracy-w8-c64"] == "does not hold"
    assert verdicts["planted-accuracy-w8-c8"] == "holds"
    # Two centred directions are opposite whatever they are, and the slides speak of many.
    assert {"planted-simplex-w100-c2", "planted-orthogonal-w100-c2"}.isdisjoint(judged)
    assert judged["labels-spearman-xpos"].published.value == 0.808


def test_tables_of_classes_and_tags(cells):
    frames = {table.id: table.frame for table in tables(cells)}
    planted_ = frames["planted"]
    simplex = planted_[(planted_.width == 100) & (planted_.classes == 8)].iloc[0]
    assert simplex["bound"] == pytest.approx(-1 / 7)
    assert simplex["of at most"] == 7
    assert (planted_["largest, centred"] >= planted_["bound"] - 1e-6).all()
    assert frames["labels"]["vectors"].tolist() == ["glove-100", "random-8"]
    assert frames["tags-pretrained"].tag.tolist() == ["ADJ", "NOUN", "VERB", "X"]
    assert math.isnan(frames["tags-pretrained"]["own tag"].iloc[3])
    assert {"sim-hatexplain", "encoders"}.isdisjoint(frames)  # what is not run is left out
    assert [figure.name for figure in figures(cells)] == ["classes-accuracy", "classes-cosines", "tags"]


def test_claims_about_tags(cells):
    judged = {claim.id: claim for claim in claims(cells)}
    assert judged["tags-cones-pretrained"].verdict == "holds"  # every tag that has words has a cone
    assert judged["tags-every-orthogonal-pretrained"].verdict == "does not hold"
    assert judged["tags-orthogonal-pretrained"].estimate.value == pytest.approx(math.cos(1.2), abs=0.05)
    assert len(judged["tags-every-orthogonal-pretrained"].also) == 5
    assert not any(id.endswith("-random") for id in judged)


def test_cells_and_their_keys():
    for part, name, count in ((grid.classes, "classes", 48 + 45 + 9), (grid.tagging, "tagging", 6 + 3)):
        cells = part(False, range(5))
        assert len(cells) == count
        assert all(key.startswith(f"{name}-") for key in cells)
        json.dumps([cell.record() for cell in cells.values()], allow_nan=False)
        assert set(part(True, (0,))) != set(cells)
