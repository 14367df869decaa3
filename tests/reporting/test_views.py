"""What is packed for the views is what the model does, small, and only text where it is text."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import zlib
from importlib.resources import files

import numpy as np
import pytest
import torch
from tiny import EXAMPLES, bert, classifier, gpt2, marian, planted
from typer.testing import CliRunner

from lorgnette.attending.words import to_words
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.explaining import explain
from lorgnette.reporting.views import notebook_html, pack, page_html
from lorgnette.reporting.views.gather import gathered, induced_trees
from lorgnette.reporting.views.page import bundle, inline_json, source
from lorgnette.subject.knockout import Knockout
from lorgnette.texts.batch import spans
from lorgnette.texts.example import Example
from lorgnette.training.pruning.removal import remove_heads

NASTY = 'the </script><script>alert(1)</script> cat "><img src=x onerror=alert(2)> sat <!-- & on'


def unpacked(text: str, dtype: str, shape: list[int] | tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype).reshape(shape)


def numbers(packed: dict, dtype: str = "<f4") -> np.ndarray:
    return unpacked(packed["data"], dtype, packed["shape"])


def norms_oracle(trace, site) -> torch.Tensor:
    """‖f^h(x_j)‖ with f written out: value times output projection, head by head, token by token."""
    call, output = trace.calls[site], trace.subject.anatomy[site].head_weights().output.detach()
    out = torch.zeros(call.value.shape[1:3], dtype=torch.float64)
    for head in range(out.shape[0]):
        for token in range(out.shape[1]):
            out[head, token] = (call.value[0, head, token] @ output[head]).norm()
    return out


@pytest.mark.parametrize("make", [bert, gpt2, marian])
def test_weights_and_norms_are_those_of_the_trace(make):
    subject = make()
    translation = "le chat" if subject.encoder.translates else None
    trace = subject.trace("the cat sat on the unbelievable good mat .", target=translation)
    document = pack(trace)
    assert [stack["name"] for stack in document["stacks"]] == list(trace.stacks)
    for stack in document["stacks"]:
        sites = [site for site in trace.subject.sites if site.name == stack["name"]]
        query_tokens, key_tokens = trace.tokens(stack["name"])
        shape = (stack["heads"], len(query_tokens.pieces[0]), len(key_tokens.pieces[0]))
        norms, moved, entropy = (numbers(stack[name]) for name in ("norms", "moved", "entropy"))
        for layer, site in enumerate(sites):
            weights = trace.calls[site].weights[0]
            kept = (unpacked(stack["weights"][layer], "u1", shape) / 255.0) ** 2
            # Half a step of the root: |α − α'| ≤ √α/255 + 1/(2·255)².
            assert np.all(np.abs(kept - weights.numpy()) <= np.sqrt(weights.numpy()) / 255 + 4e-6)
            lengths = norms_oracle(trace, site)
            np.testing.assert_allclose(norms[layer], lengths, rtol=1e-5)
            np.testing.assert_allclose(moved[layer], (weights * lengths[:, None]).sum((1, 2)), rtol=1e-5)
            nats = -(weights * weights.clamp(min=1e-300).log()).sum(-1).mean(-1)
            np.testing.assert_allclose(entropy[layer], nats, rtol=1e-5, atol=1e-6)


def test_heads_that_were_removed_keep_their_place():
    subject = classifier()
    sites = subject.sites
    kept = {sites[0]: [1, 3], sites[1]: [], sites[2]: [0, 1, 2, 3]}
    pruned = remove_heads(subject, kept)
    document = gathered(pruned, Example("1", "the cat sat"), without=["1.4"])
    (stack,) = document["stacks"]
    assert (stack["layers"], stack["heads"]) == (3, 4)
    assert stack["gone"] == [[0, 0], [0, 2], [1, 0], [1, 1], [1, 2], [1, 3]]
    first = (unpacked(stack["weights"][0], "u1", (4, 5, 5)) / 255.0) ** 2
    np.testing.assert_allclose(first[[1, 3]].sum(-1), 1, atol=0.02)
    assert not first[[0, 2]].any()
    assert document["without"]["off"] == [["encoder", 0, 3]]


def test_words_and_pieces_know_each_other():
    trace = bert().trace("The unbelievable good cat")
    (side,) = pack(trace)["sides"]
    assert side["words"] == ["[CLS]", "The", "unbelievable", "good", "cat", "[SEP]"]
    assert side["pieces"] == ["[CLS]", "the", "un", "##believ", "##able", "good", "cat", "[SEP]"]
    assert side["word"] == [0, 1, 2, 2, 2, 3, 4, 5]
    assert side["index"] == [-1, 0, 1, 2, 3, -1]


def test_no_list_of_floats_is_packed():
    document = gathered(classifier(), Example("1", "the cat sat"), without=["1.1"])

    def look(value):
        if isinstance(value, list) and value and isinstance(value[0], float):
            assert len(value) <= 2  # one number per class
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            look(part)

    look(document)


def test_relevance_is_what_explain_says_and_of_the_same_class_without_a_head():
    subject = classifier()
    example = Example("1", "the cat was not very good")
    document = gathered(subject, example, methods=["attnlrp", "rollout"], without=["encoder.1.2"])
    batch = subject.encode([example])
    assert [item["method"] for item in document["explanations"]] == ["attnlrp", "rollout"]
    for item in document["explanations"]:
        expected = explain(subject, batch, item["method"]).tokens[0]
        np.testing.assert_allclose(numbers(item["values"]), expected.detach(), rtol=1e-5, atol=1e-7)
    said = int(subject.run(batch).logits.argmax())
    with subject.tapped(Knockout.of(subject, ["1.2"])):
        logits = subject.run(batch).logits[0]
        expected = explain(subject, batch, "attnlrp", said).tokens[0]
    without = document["without"]
    assert without["off"] == [["encoder", 0, 1]]
    np.testing.assert_allclose(without["prediction"]["shares"], logits.softmax(-1).detach(), rtol=1e-6)
    np.testing.assert_allclose(numbers(without["explanations"][0]["values"]), expected.detach(), rtol=1e-5, atol=1e-7)
    assert not np.allclose(without["prediction"]["shares"], document["prediction"]["shares"])
    assert without["moved"] > 0


def test_a_model_that_predicts_nothing_has_no_relevance_and_says_so_when_asked():
    assert gathered(bert(), Example("1", "the cat"))["explanations"] == []
    with pytest.raises(UserError, match="no logits to explain"):
        gathered(bert(), Example("1", "the cat"), methods=["attnlrp"])


def test_next_pieces_of_a_language_model():
    said = gathered(gpt2(), Example("1", "the cat sat"))["prediction"]
    assert said["what"] == "Next piece"
    assert said["shares"] == sorted(said["shares"], reverse=True)


def test_wrong_shapes_are_refused():
    trace = bert().trace("the cat")
    with pytest.raises(UserError, match=r"has shape \(2,\): expected \(4,\)"):
        pack(trace, relevance={"mine": torch.zeros(2)})
    with pytest.raises(UserError, match="The trees have 3 words, the text 2"):
        pack(trace, induced=np.zeros((2, 4, 3), int))


def best_tree(scores: np.ndarray, root: int) -> float:
    """The largest sum of any tree, by trying all."""
    from itertools import product

    words, best = len(scores), -np.inf
    for heads in product(range(words), repeat=words):

        def climbs(word: int, heads: tuple[int, ...] = heads) -> bool:
            for _ in range(words):
                if word == root:
                    return True
                word = heads[word]
            return word == root

        if all(climbs(word) for word in range(words)):
            best = max(best, sum(scores[word, heads[word]] for word in range(words) if word != root))
    return best


def test_induced_trees_are_the_best_that_the_weights_allow():
    example = Example("1", "the unbelievable good cat sat", words=("the", "unbelievable", "good", "cat", "sat"),
                      heads=(4, 3, 4, 5, 0), relations=("det", "advmod", "amod", "nsubj", "root"))  # fmt: skip
    trace = bert().trace(example)
    heads = induced_trees(trace)
    number = spans(trace.batch.source.word[0])
    words = to_words(trace["weights"], number, number)[..., 1:-1, 1:-1].numpy()
    assert heads.shape == (*words.shape[:2], 5)
    for layer in range(words.shape[0]):
        found, scores = heads[layer, 1], words[layer, 1]
        assert found[4] == 0
        total = sum(scores[word, found[word] - 1] for word in range(4))
        assert total == pytest.approx(best_tree(scores, 4))
    trees = pack(trace, induced=heads)["trees"]
    assert trees["gold"] == [4, 3, 4, 5, 0]
    np.testing.assert_array_equal(numbers(trees["induced"], "<i2"), heads)


def test_the_planted_tree_is_found():
    subject, texts = planted()
    example = next(e for e in texts if e.heads is not None and len(e.heads) > 4)
    document = gathered(subject, example, methods=[])
    heads = numbers(document["trees"]["induced"], "<i2")
    right = (heads == np.array(document["trees"]["gold"])).mean(-1)
    assert right.max() == 1.0


def test_a_rationale_comes_along():
    example = Example("1", "a good cat", words=("a", "good", "cat"), rationale=(0.0, 1.0, 0.5))
    assert gathered(classifier(), example)["rationale"] == [0.0, 1.0, 0.5]


def test_the_page_lets_only_its_own_script_run_and_text_stays_text():
    page = page_html(gathered(bert(), Example("1", NASTY)))
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert len(re.findall("<script", page)) == 2
    assert "<img" not in page
    packed = re.search(r'<script type="application/json" id="packed">(.*?)</script>', page, flags=re.DOTALL)[1]
    assert json.loads(packed)["text"] == NASTY
    assert not re.search(r"(?:src|href)=[\"']?https?:", page)


def test_a_notebook_shows_it_in_a_frame_that_can_do_nothing_outside():
    trace = classifier().trace(NASTY)
    shown = trace._repr_mimebundle_()
    assert shown["text/plain"] == repr(trace)
    assert shown["text/html"] == trace._repr_html_()
    frame = re.fullmatch(
        r'<iframe sandbox="([^"]*)" srcdoc="([^"]*)" .*></iframe>', shown["text/html"], flags=re.DOTALL
    )
    assert frame[1] == "allow-scripts allow-downloads"
    assert html.unescape(frame[2]).startswith("<!doctype html>")
    assert "alert(1)" in html.unescape(frame[2])
    assert notebook_html(pack(trace), height=300).count("height: 300px") == 1


def test_json_in_a_page_cannot_end_its_element():
    assert inline_json({"</script>": "<!--\u2028"}) == '{"\\u003c/script>":"\\u003c!--\\u2028"}'


def test_modules_import_only_what_is_exported_and_nothing_from_elsewhere():
    names = [entry.name for entry in files("lorgnette.reporting.views").iterdir() if entry.name.endswith(".js")]
    assert len(names) > 10
    for name in names:
        text = source(name)
        for wanted, module in re.findall(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', text, flags=re.MULTILINE):
            exported = set(
                re.findall(
                    r"^export (?:async )?(?:const|function|class) (\w+)", source(f"{module}.js"), flags=re.MULTILINE
                )
            )
            assert {part.strip() for part in wanted.split(",")} <= exported, f"{name} from {module}"
        assert len(re.findall(r"^import ", text, flags=re.MULTILINE)) == len(
            re.findall(r'^import \{[^}]*\} from "\./\w+\.js";$', text, flags=re.MULTILINE)
        )
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in text
    assert bundle("start").count("const module_scene =") == 1


def test_the_bundle_is_javascript(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is not installed, so the syntax of the bundle is checked in the browser tests only")
    path = tmp_path / "bundle.mjs"
    path.write_text(bundle("start"))
    subprocess.run(["node", "--check", str(path)], check=True, timeout=60)


def test_every_page_says_how_many_keys_choose_a_view():
    views = re.search(r"^const VIEWS = \[(.*)\];", source("viewer.js"), flags=re.MULTILINE)[1].split(", ")
    pages = [page_html(pack(bert().trace("the cat")))]
    for package in ("lorgnette.reporting", "lorgnette.serve"):
        pages.append((files(package) / "page.html").read_text(encoding="utf-8"))
    assert [re.search(r"1–(\d)(?:</kbd>)? choose a view", page)[1] for page in pages] == [str(len(views))] * 3


def test_trace_writes_the_page(tmp_path, monkeypatch):
    subject = classifier()
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    path = tmp_path / "cat.html"
    arguments = ["trace", "tiny", "the cat sat", "--html", str(path), "--without", "1.2", "--explain", "ah"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(path)
    packed = json.loads(re.search(r'id="packed">(.*?)</script>', path.read_text(encoding="utf-8"))[1])
    assert packed["without"]["off"] == [["encoder", 0, 1]]
    assert [item["method"] for item in packed["explanations"]] == ["ah"]


def test_a_result_shows_its_figure_in_a_notebook():
    import lorgnette as lo

    result = lo.look(bert(), list(EXAMPLES), [lo.lens.Weights()])["weights"]
    shown = result._repr_mimebundle_()["text/html"]
    assert shown.count("<svg") == 2
    assert "<script" not in shown
    assert "Variables and numbers" in shown
