"""The commands as functions: same names, same options, same defaults, same results; and one way to list."""

import inspect
import json
import warnings

import pytest
from tiny import EXAMPLES, bert, classifier
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError


@pytest.mark.parametrize("name", ["train", "prune"])
def test_commands_and_functions_have_the_same_options_and_defaults(name):
    parameters = inspect.signature(getattr(lo, name)).parameters
    assert list(parameters)[:3] == ["model", "corpus", "out"]
    command = next(each for each in app.registered_commands if each.name == name).callback
    shown = inspect.signature(command).parameters
    assert len(shown) > 20
    for option, mine in shown.items():
        assert mine.default in (parameters[option].default, None), option


@pytest.mark.parametrize(
    ("command", "given", "said"),
    [
        ("prune", ["--keep", "1.5"], "--keep must be a number above 0 and at most 1"),
        ("prune", ["--keep", "0.5", "--lambda", "1"], "--keep sets how much remains, --lambda lets"),
        ("train", ["--epochs", "0"], "--epochs must be a whole number from 1 to 2,147,483,647"),
        ("train", ["--label-smoothing", "1"], "--label-smoothing must be a number of at least 0 and below 1"),
        ("prune", ["--stacks", "encodr"], "Did you mean 'encoder'?"),
        ("train", ["--seeds", "0,x"], "--seeds takes whole numbers between commas (0,1,2). Got '0,x' instead."),
        ("train", ["--select", "los"], "--select must be 'loss', 'cross_entropy', 'accuracy' or 'bleu'. Got 'los'"),
        ("train", ["--set", "layers"], "--set takes NAME=VALUE"),
        ("train", ["--bf16", "--fp16"], "--bf16 and --fp16 are two precisions"),
    ],
)
def test_an_error_names_the_option_as_it_was_written(command, given, said, tmp_path):
    done = CliRunner().invoke(app, [command, "tp9-cls", "-c", "planted", "--out", str(tmp_path / "x"), *given])
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "option", "bounds"),
    [
        ("train", "--label-smoothing", "[0<=x<1]"),
        ("train", "--learning-rate", "[x>0]"),
        ("train", "--epochs", "[x>=1]"),
        ("prune", "--keep", "SHARE [0<x<=1]"),
        ("prune", "--seed", "[0<=x<=4294967295]"),
    ],
)
def test_the_help_shows_the_bounds(command, option, bounds):
    lines = CliRunner(env={"COLUMNS": "160"}).invoke(app, [command, "--help"]).stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("│") and line.strip("│* ").startswith(f"{option} ")]
    assert bounds in line


@pytest.mark.parametrize("name", ["report", "compare"])
def test_shown_results_have_the_same_options(name):
    command = next(each for each in app.registered_commands if each.name == name).callback
    assert set(inspect.signature(command).parameters) <= set(inspect.signature(getattr(lo, name)).parameters)


def test_plain_names_become_sizes_and_penalties():
    from lorgnette.training.settings import TrainKeywords

    told = TrainKeywords("tp9-cls", "planted", "x", layers=2, overrides={"heads": 3}, entropy=0.1, entropy_layers=[1])
    settings = told.settings()
    assert settings.overrides == {"heads": 3, "layers": 2}
    assert [(penalty.name, penalty.weight, list(penalty.layers)) for penalty in settings.penalties] == [
        ("entropy", 0.1, [1])
    ]


@pytest.mark.parametrize("function", [lo.train, lo.prune])
def test_a_model_in_memory_is_told_to_be_saved_first(function, tmp_path):
    with pytest.raises(UserError, match=r"Save a model in memory first .* Got Subject instead"):
        function(classifier(), "planted", tmp_path / "out")


def test_train_and_prune(tmp_path):
    runs = lo.train(
        "tp9-cls", "planted", tmp_path / "runs", seeds=[0, 1], layers=1, heads=2, width=16, embeddings="random",
        epochs=1, limit=200, test_limit=50, max_length=20,
    )  # fmt: skip
    assert [run.record["seed"] for run in runs] == [0, 1]
    assert runs.folder == tmp_path / "runs"
    assert runs.accuracy == pytest.approx(sum(run.accuracy for run in runs) / 2)
    assert runs.accuracy_sd is not None
    pruned = lo.prune(runs[0].folder, "planted", tmp_path / "small", method="importance", keep=0.5,
                      only=["heads"], settle=0, controls=0, onnx=False, limit=100, test_limit=50)  # fmt: skip
    assert pruned.record["heads"]["after"] == {"encoder": [1]}
    with pytest.raises(UserError, match="`seed` or `seeds`"):
        lo.train("tp9-cls", "planted", tmp_path / "other", seed=1, seeds=[0])


def test_report_and_compare_are_what_the_commands_write(tmp_path):
    texts = [example.text for example in EXAMPLES]
    runs = [lo.look(bert(seed=seed), texts, ["weights"], progress=False) for seed in (0, 1)]
    folders = [runs[seed].save(tmp_path / f"run{seed}") for seed in (0, 1)]
    page, *figures = lo.report(folders[0], tmp_path / "mine.html", figures=["svg"])
    done = CliRunner().invoke(app, ["report", str(folders[0]), "--out", str(tmp_path / "theirs.html")])
    assert done.output.split() == [str(tmp_path / "theirs.html")]
    assert page.read_text() == (tmp_path / "theirs.html").read_text()
    assert figures
    assert all(path.suffix == ".svg" for path in figures)
    assert lo.report(folders[0])[0] == folders[0] / "report.html"
    with pytest.raises(UserError, match="in memory"):
        lo.report(runs[0])
    compared = lo.compare(*folders, tmp_path / "compare.html")
    assert (tmp_path / "compare.html").is_file()
    in_memory = lo.compare(*runs).differences().results["weights"]
    assert in_memory.data.equals(compared.differences().results["weights"].data)


def test_explain_takes_texts_or_a_batch():
    subject, texts = classifier(), ["the cat sat", "a dog ran fast"]
    of_texts = lo.explain(subject, texts, "gradient_x_input")
    of_batch = lo.explain(subject, subject.encode(texts), "gradient_x_input")
    assert of_texts.tokens.equal(of_batch.tokens)
    assert lo.explain(subject, texts[0], "gradient_x_input").tokens[0].tolist() == pytest.approx(
        of_batch.tokens[0, : len(subject.encode([texts[0]]).source.pieces[0])].tolist(), rel=1e-5
    )


def test_explain_translates_what_has_no_translation():
    from tiny import MAKERS

    found = lo.explain(MAKERS["marian"](), "the cat sat", "gradient_x_input")
    assert found.target_tokens is not None


@pytest.mark.parametrize(("kind", "listed"), [("lenses", lo.lenses), ("families", lo.families),
                                              ("corpora", lo.corpora), ("explanations", lo.explanations)])  # fmt: skip
def test_one_way_to_list(kind, listed):
    found = listed()
    assert all(isinstance(about, str) and about and "\n" not in about for about in found.values())
    shown = CliRunner().invoke(app, ["list", kind]).output
    assert all(name in shown for name in found)


def test_an_old_name_works_and_says_so():
    with pytest.warns(DeprecationWarning, match=r"lo\.corpora"):
        assert list(lo.corpus_names()) == list(lo.corpora())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        json.dumps(lo.corpora())
