"""docs/cookbook.md: each recipe runs by itself, as it stands, and gives what its heading promises."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tiny import classifier, gpt2
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app

PAGE = (Path(__file__).parent.parent / "docs" / "cookbook.md").read_text(encoding="utf-8")
START, *SECTIONS = re.split(r"^###? ", PAGE, flags=re.MULTILINE)
RECIPES = {section.partition("\n")[0]: section for section in SECTIONS if "```" in section}
CLASSES = {0: "negative", 1: "positive"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The two models and the fine-tuned one of the page, in a folder."""
    folder = tmp_path_factory.mktemp("models")
    made = {
        "my-classifier": classifier(torch.float32),
        "my-fine-tuned-classifier": classifier(torch.float32, seed=1),
        "my-language-model": gpt2(torch.float32),
    }
    for name, subject in made.items():
        if "classifier" in name:
            subject.model.config.id2label = CLASSES
            subject.model.config.label2id = {label: number for number, label in CLASSES.items()}
        subject.model.save_pretrained(folder / name)
        subject.tokenizer.save_pretrained(folder / name)
    return folder


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def cook(models, tmp_path, monkeypatch):
    """A function that runs one recipe behind the first block of the page; it returns the names that both define."""
    for model in models.iterdir():
        (tmp_path / model.name).symlink_to(model)
    monkeypatch.chdir(tmp_path)
    for module in ("speed", "budget"):  # for how long the recipe for pruning measures times
        monkeypatch.setattr(f"lorgnette.training.pruning.{module}.SECONDS", 0.04)

    def run(heading):
        names = {}
        exec(blocks(START, "python")[0], names)
        Path("texts.txt").write_text("\n".join(names["texts"]) + "\n", encoding="utf-8")
        rows = [f"{text},{CLASSES[n % 2]}" for n, text in enumerate(names["texts"] * 4)]
        Path("reviews.csv").write_text("\n".join(["text,label", *rows, ""]), encoding="utf-8")
        for code in blocks(RECIPES[heading], "python"):
            exec(code, names)
        for code in blocks(RECIPES[heading], "console"):
            for line in code.replace("\\\n", "").splitlines():
                done = CliRunner().invoke(app, shlex.split(line.removeprefix("$ lorgnette ")))
                assert done.exit_code == 0, done.output
        return names

    return run


def eager(text, layer, head, model="my-classifier"):
    """[query key]: the weights that transformers itself returns."""
    model = AutoModelForSequenceClassification.from_pretrained(model, attn_implementation="eager").eval()
    inputs = lo.load("my-classifier").tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs, output_attentions=True).attentions[layer - 1][0, head - 1]


def written(*names):
    return all(Path(name).stat().st_size > 100 for name in names)


def close(one, other):
    one, other = (each.numpy() if isinstance(each, torch.Tensor) else each for each in (one, other))
    np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-4)


FIRST = "the cat sat on the mat ."


def heatmap(names):
    assert "<svg" in Path("head.svg").read_text(encoding="utf-8")


def all_heads(names):
    assert "</html>" in Path("views.html").read_text(encoding="utf-8")


def arrays(names):
    close(names["matrix"], eager(FIRST, 2, 3))
    close(names["weights"].sel(layer=3, head=1).values, eager(FIRST, 3, 1))
    assert names["tokens"][2] == "cat"


def span(names):
    whole = eager(FIRST, 3, 2)  # a token for every word: [CLS] the cat sat on the mat . [SEP]
    close(names["to_span"].sel(layer=3, head=2).values, whole[:, [1, 5, 6]].sum(-1).mean())


def norms(names):
    close(names["weights"].detach(), eager(FIRST, 2, 3))
    close(names["share"].sum(-1).detach(), torch.ones(9))
    values = names["seen"]["encoder.2.norms"] / names["seen"]["encoder.2.weights"]
    close(values[0, 2, 0].detach(), values[0, 2, 4].detach())  # ‖f(x)‖ of a key is the same for all queries


def without_eager(names):
    assert names["model"].config._attn_implementation == "sdpa"
    length = len(names["texts"][0].split()) + 2
    close(names["weights"][0, 2, :length, :length].detach(), eager(names["texts"][0], 3, 3))


def previous(names):
    each = [eager(text, 2, 1).diagonal(-1).mean() for text in names["texts"]]
    close(names["mass"].sel(category="previous", layer=2, head=1).item(), torch.stack(each).mean())


def induction(names):
    assert names["found"]["score"].data.sel(test="induction").sizes == {"stack": 1, "layer": 2, "head": 4}
    assert written("induction.svg")


def sinks(names):
    received = [eager(text, 1, 2).mean(0) for text in names["texts"]]
    rate = sum(float(share[0] > 0.3) for share in received) / len(received)
    assert names["rate"].sel(threshold=0.3, category="cls", layer=1, head=2).item() == pytest.approx(rate)


def ablation(names):
    model = AutoModelForSequenceClassification.from_pretrained("my-classifier").eval()
    width = model.config.hidden_size // 4
    with torch.no_grad():
        for layer, head in ((2, 3), (3, 1)):
            output = model.bert.encoder.layer[layer - 1].attention.output.dense
            output.weight[:, (head - 1) * width : head * width] = 0
        close(names["logits"].detach(), model(**names["inputs"]).logits)
    assert names["effect"] > 0


def saliency(names):
    assert set(names["relevance"].text) == {1, 2, 3, 4}
    relevance = lo.explain(names["subject"], names["texts"][2:3], "attnlrp").tokens[0]  # of the text by itself
    close(names["relevance"].query("text == 3").relevance.values, relevance)


def rollout(names):
    mixed = torch.eye(9)
    for layer in (1, 2, 3):
        weights = torch.stack([eager(FIRST, layer, head) for head in (1, 2, 3, 4)]).mean(0)
        mixed = (weights + torch.eye(9)) / 2 @ mixed
    close(names["scores"][0, :9], mixed[0])


def answer(names):
    assert list(names["used"].to_dataframe().part[:3]) == ["question", "document", "note"]
    assert written("sources.html")


def logit_lens(names):
    model, tokenizer = names["language_model"].model, names["language_model"].tokenizer
    with torch.no_grad():
        said = model(**tokenizer(FIRST, return_tensors="pt")).logits[0].argmax(-1)
    assert names["layers"].top[-1].tolist() == said.tolist()
    assert written("logit-lens.svg")


def frame(names):
    plain = lo.look(names["subject"], names["texts"], "weights", progress=False)
    close(names["results"]["weights"]["entropy"].data.values, plain["weights"]["entropy"].data.values)
    assert "gradients" in names["results"]


def texts(names):
    mean = names["entropy"].query("layer == 2 and head == 3")["value"].mean()
    assert names["results"]["weights"]["entropy"].data.sel(layer=2, head=3).item() == pytest.approx(mean, rel=1e-5)


def parquet(names):
    found = pd.read_parquet("runs/mine/tables/weights.heads.parquet")
    assert len(found) == 12
    table = lo.Results.load("runs/mine")["weights"].to_dataframe("entropy")
    close(found["entropy"].values, table["entropy"].values)


def shards(names):
    whole = lo.look(names["subject"], names["texts"], "weights", progress=False)["weights"]["entropy"].data
    close(lo.Results.load("runs/all")["weights"]["entropy"].data.values, whole.values)


def training(names):
    assert names["callback"].by_step("weights").step.values.tolist() == [0, 1, 2]
    assert written("entropy.svg")


def compared(names):
    assert len(names["comparison"].findings()) > 0
    assert "</html>" in Path("compare.html").read_text(encoding="utf-8")


def pruned(names):
    small = AutoModelForSequenceClassification.from_pretrained("small")
    assert type(small).__module__.startswith("transformers.")
    assert small.num_parameters() < names["subject"].model.num_parameters()


def column(names):
    width = re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+)", Path("confidence.pdf").read_bytes())[1]
    assert 200 < float(width) <= 240


def latex(names):
    table = Path("runs/paper/tables/weights.tex").read_text(encoding="utf-8")
    assert "\\toprule" in table
    assert "\\pm" in table


def report(names):
    assert "</html>" in Path("report.html").read_text(encoding="utf-8")


CHECKS = {
    "heatmap": heatmap, "all heads": all_heads, "NumPy": arrays, "span": span, "beside norms": norms,
    "eager": without_eager, "previous token": previous, "Induction": induction, "sinks": sinks,
    "ablation": ablation, "Saliency": saliency, "rollout": rollout, "answer use": answer, "Logit lens": logit_lens,
    "data frame": frame, "each text": texts, "Parquet": parquet, "shards": shards, "during training": training,
    "Compare": compared, "Prune": pruned, "column": column, "LaTeX": latex, "report": report,
}  # fmt: skip


def test_every_recipe_has_its_check():
    for heading in RECIPES:
        assert sum(words in heading for words in CHECKS) == 1, heading
    assert len(RECIPES) == len(CHECKS)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # the Trainer's, on a machine without a GPU
@pytest.mark.parametrize("heading", RECIPES)
def test_the_recipe_works(heading, cook):
    names = cook(heading)
    next(check for words, check in CHECKS.items() if words in heading)(names)


def test_recipes_are_short():
    for heading, text in RECIPES.items():
        for code in [*blocks(text, "python"), *blocks(text, "console")]:
            assert len(code.splitlines()) <= 10, heading
