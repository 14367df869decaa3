"""Induced trees: what is drawn is what `trees` counts; the planted tree; the command."""

import json

import pytest
from tiny import TREEBANK, bert, planted, subject
from typer.testing import CliRunner

import lorgnette as lo
from benchmarks.planted_heads import HEADS
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.lens.trees.lens import Trees
from lorgnette.looking.look import look
from lorgnette.syntax.attention_tree import beside, drawn, induced
from lorgnette.texts.example import Example


@pytest.mark.parametrize("root", ["gold", "free"])
def test_the_planted_head_draws_the_gold_tree(root):
    heads, texts = planted()
    for example in texts.take(10):
        tree = induced(heads, example, 1, HEADS.index("tree") + 1, root=root)
        assert tree.predicted == example.heads
        assert tree.uas == 1.0
        assert all(score is None or score > 0.99 for score in tree.scores)


@pytest.mark.parametrize(("head", "way", "scores"), [(2, "to_head", "weights"), (None, "read_by_head", "norms")])
def test_what_is_drawn_is_what_is_counted(head, way, scores):
    tiny = bert()
    data = look(tiny, TREEBANK, [Trees(scores)], progress=False)["trees"].data
    trees = [induced(tiny, example, 3, head, way=way, scores=scores) for example in TREEBANK]
    right = sum(sum(tree.right) for tree in trees) / sum(len(tree.words) for tree in trees)
    cell = data.sel(stack="encoder", layer=3, way=way)
    counted = cell.layer_uas if head is None else cell.uas.sel(head=head)
    assert counted.item() == pytest.approx(right)


def test_lines():
    assert drawn(["The", "cat", "sat", "."], [2, 3, 0, 3], ["", "", "", " ✗"]) == [
        "sat", "├─ cat", "│  └─ The", "└─ . ✗",
    ]  # fmt: skip
    assert drawn(["a", "b"], [0, None], ["", ""]) == ["a", "(b: not seen)"]
    assert beside(["a", "bc"], ["d"]) == ["a     d", "bc"]


CONLLU = """# sent_id = s1
1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\tsat\tsit\tVERB\t_\t_\t0\troot\t_\t_

# sent_id = loop
1\ta\ta\tX\t_\t_\t2\tdep\t_\t_
2\tb\tb\tX\t_\t_\t1\tdep\t_\t_

# sent_id = s2
1\tdog\tdog\tNOUN\t_\t_\t2\tnsubj\t_\t_
2\tran\trun\tVERB\t_\t_\t0\troot\t_\t_

"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU)
    monkeypatch.setattr("lorgnette.subject.load", lambda name, **options: bert())
    return lambda *arguments: CliRunner().invoke(app, ["induced", "tiny", "-c", str(path), *arguments])


def test_the_command_shows_both_trees(run):
    done = run("--head", "2.3")
    assert done.exit_code == 0, done.output
    first, _, names, root, *_ = done.stdout.splitlines()
    assert first.startswith("s1: ")
    assert names.split() == ["encoder", "2.3", "gold"]
    assert root.split() == ["sat", "sat", "root"]
    assert "nsubj" in done.stdout
    document = json.loads(run("--head", "2", "--sentence", "s2", "--transpose", "--json").stdout)
    assert document["words"] == ["dog", "ran"]
    assert document["predicted"] == document["gold"] == [2, 0]
    assert document["head"] is None
    assert len(run("--head", "1.1", "--limit", "9", "--json", "--free-root", "--norms").stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--head", "x"), 2, "LAYER.HEAD"),
        (("--head", "9.1"), 1, "no head 9.1: it has 3 layers of 4 heads"),
        (("--head", "1.7"), 1, "no head 1.7"),
        (("--head", "1.1", "--sentence", "s9"), 1, "no sentence 's9'"),
        (("--head", "1.1", "--sentence", "loop"), 1, "heads are no tree"),
    ],
)
def test_bad_input(run, arguments, code, message):
    done = run(*arguments)
    assert done.exit_code == code
    assert message in " ".join(done.output.replace("│", " ").split())


def test_a_sentence_that_may_be_one_of_many_that_were_left_out(run, tmp_path):
    loop = CONLLU[CONLLU.index("# sent_id = loop") :].split("\n\n")[0]
    (tmp_path / "a.conllu").write_text(CONLLU + "".join(f"{loop.replace('loop', f'loop{n}')}\n\n" for n in range(12)))
    done = run("--head", "1.1", "--sentence", "loop11")
    assert "13 sentences were left out because their heads are no tree; it may be one" in " ".join(done.output.split())


def test_words_that_are_cut_off_hang_nowhere():
    chain = Example("cut", "", words=("w7",) * 9, heads=(0, *range(1, 9)), relations=("root",) + ("dep",) * 8)
    loop = Example("loop", "", words=("w7", "w8"), heads=(2, 1), relations=("dep", "dep"))
    tiny = subject("bert")
    assert None not in induced(tiny, chain, 1, 1).predicted
    with pytest.raises(UserError, match="no gold tree"):
        induced(tiny, loop, 1, 1)
    with pytest.raises(UserError, match="must be one of to_head"):
        induced(tiny, chain, 1, 1, way="row")


def test_plain_text_has_no_gold_tree():
    with pytest.raises(UserError, match="has no gold tree"):
        induced(bert(), lo.texts.example.Example("x", "The cat sat."), 1, 1)
