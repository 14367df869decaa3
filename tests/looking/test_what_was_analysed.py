"""A result says which weights, in which precision and by how many processes; nothing else is mixed into it."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from processes import run
from tiny import EXAMPLES, bert, classifier, gpt2

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.looking.processes import ProcessRank, is_first
from lorgnette.testing import assert_close

TEXTS = [example.text for example in EXAMPLES]


def looked(subject, lenses=("weights",), **options):
    return lo.look(subject, TEXTS, list(lenses), progress=False, **options)


@pytest.fixture
def loaded(tmp_path):
    made = classifier(torch.float32)
    made.model.save_pretrained(tmp_path / "model")
    made.tokenizer.save_pretrained(tmp_path / "model")
    return lo.load(str(tmp_path / "model"), dtype="float32")


def by_optimizer(weight, **options):
    weight.grad = torch.ones_like(weight)
    torch.optim.AdamW([weight], lr=0.1, **options).step()


def in_place(weight):
    with torch.no_grad():
        weight.mul_(3)


def by_numpy(weight):
    weight.detach().numpy()[0] += 0.1


def replaced(weight):
    weight.data = weight.data * 1.5


CHANGES = {
    "optimizer": by_optimizer,
    "fused optimizer": lambda weight: by_optimizer(weight, fused=True),
    "in place": in_place,
    "through data": lambda weight: weight.data.mul_(1.5),
    "through numpy": by_numpy,
    "replaced": replaced,
    "rows exchanged": lambda weight: weight.data.copy_(weight.data.flip(0)),
}


def query_weight(subject):
    return subject.model.get_submodule("bert.encoder.layer.0.attention.self.query").weight


@pytest.mark.parametrize("change", CHANGES)
def test_the_hash_follows_the_weights_in_memory(loaded, change):
    in_memory = lo.Subject(loaded.model, loaded.tokenizer)
    before = [loaded.weights_hash, in_memory.weights_hash]
    assert before == [loaded.weights_hash, in_memory.weights_hash]
    kept = query_weight(loaded).detach().clone()
    CHANGES[change](query_weight(loaded))
    assert loaded.weights_hash not in before
    assert loaded.weights_hash == in_memory.weights_hash
    query_weight(loaded).data = kept
    assert [loaded.weights_hash, in_memory.weights_hash] == before


def test_weights_changed_before_the_first_hash_are_not_those_of_the_file(loaded):
    by_optimizer(query_weight(loaded), fused=True)
    assert loaded.weights_hash == lo.Subject(loaded.model, loaded.tokenizer).weights_hash


def test_resume_after_training_analyses_the_trained_model(loaded, tmp_path):
    before = looked(loaded, out=tmp_path / "run")["weights"]
    in_place(query_weight(loaded))
    after = looked(loaded, out=tmp_path / "run", resume=True)["weights"]
    assert after.provenance.weights_hash != before.provenance.weights_hash
    assert_close(after.data, looked(loaded)["weights"].data, "trained", 1e-12)
    assert not np.allclose(after.data["entropy"], before.data["entropy"], equal_nan=True)


def test_two_states_of_training_do_not_share_a_folder(loaded, tmp_path):
    looked(loaded, out=tmp_path / "run")
    in_place(query_weight(loaded))
    with pytest.raises(UserError, match="results"):
        looked(loaded, ["distances"], out=tmp_path / "run")


def test_a_lens_with_numbers_is_refused_until_it_is_reset():
    subject, other = bert(), bert()
    lenses = [lo.lens.Norms(sample=0), lo.lens.get("weights")]
    first = looked(subject, lenses)
    with pytest.raises(UserError, match=r"'norms' already holds the numbers of other texts; create a new lens"):
        looked(subject, lenses)
    with pytest.raises(UserError, match=r"'norms' has already been used with another model; create a new lens"):
        looked(other, lenses)
    for lens in lenses:
        lens.reset()
    again = looked(subject, lenses)
    for name, result in first.items():
        assert_close(result.data, again[name].data, name, 1e-12)
    for lens in lenses:
        lens.reset()
    with pytest.raises(UserError, match="another model"):  # it may hold parts of the first model
        looked(other, lenses)


def test_a_lens_that_watched_is_refused_and_goes_on_watching():
    subject, lens = bert(), lo.lens.get("weights")
    batch = subject.encode(TEXTS)
    for passes in (1, 2):
        with lo.watch(subject.model, lens, batch=batch), torch.no_grad():
            subject.model(**batch.inputs)
        assert int(lens.compute().data["entropy_count"].max()) == passes * len(TEXTS)
    with pytest.raises(UserError, match="already holds the numbers"):
        looked(subject, [lens])


def test_a_bound_lens_without_numbers_is_taken():
    subject, lens = bert(), lo.lens.get("weights")
    lens.bind(subject)
    assert looked(subject, [lens])["weights"].provenance.texts == len(TEXTS)


def test_autocast_is_part_of_the_provenance(tmp_path):
    subject = bert(torch.float32)
    plain = looked(subject, out=tmp_path / "run")["weights"]
    assert plain.provenance.dtype == "float32"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = looked(subject, out=tmp_path / "run", resume=True)["weights"]
        with torch.autocast("cpu", enabled=False):
            assert subject.precision == "float32"
        assert bert(torch.float64).precision == "float64"
    assert mixed.provenance.dtype == "float32 under autocast to bfloat16"
    assert not np.allclose(plain.data["entropy"], mixed.data["entropy"], rtol=1e-6, equal_nan=True)
    with pytest.raises(UserError, match="results"):
        looked(subject, ["distances"], out=tmp_path / "run")


@pytest.fixture
def environment(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return lambda **given: [monkeypatch.setenv(name, value) for name, value in given.items()]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE is 'x', not a number of processes. Remove it"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0', not a number"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE is '-2', not a number"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE is '', not a number"),
        ({"WORLD_SIZE": "2"}, "there are 2 processes, but RANK, MASTER_ADDR, MASTER_PORT are not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"}, "but MASTER_PORT is not set"),
        (
            {"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
            "RANK is '2'; expected a number from 0 to 1",
        ),
    ],
)
def test_what_is_left_of_another_launch_is_one_line(environment, given, said):
    environment(**given)
    with pytest.raises(UserError) as error:
        ProcessRank.join()
    assert said in str(error.value)


def test_a_rank_without_other_processes_is_noted_and_ignored(environment, capsys):
    environment(RANK="1")
    assert ProcessRank.join() == ProcessRank(0, 1)
    assert is_first()
    assert "RANK is '1', but there is only one process" in capsys.readouterr().err


def test_the_command_under_a_leftover_rank_prints_and_writes_its_report(tmp_path, environment):
    subject = classifier(torch.float32)
    subject.model.save_pretrained(tmp_path / "model")
    subject.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    look = ["-m", "lorgnette", "look", "model", "-c", "texts.txt", "-o", "run", "--device", "cpu"]
    done = run(*look, env={"RANK": "1"}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "it is ignored" in done.stderr
    assert "Results are in" in done.stdout
    assert (tmp_path / "run" / "report.html").is_file()
    done = run(*look, env={"WORLD_SIZE": "2"}, cwd=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("lorgnette: The environment variable WORLD_SIZE")


def test_parts_of_prompts_that_no_category_counts_are_named(capsys):
    prompts = [lo.prompt(document="the cat sat", question="it was"), "a dog ran"]
    lo.look(gpt2(), prompts, ["weights", "norms"])
    said = capsys.readouterr().err
    for name, kind in (("weights", "Weights"), ("norms", "Norms")):
        assert f"{name}: the parts of these prompts (document, question) are not counted as categories" in said
        assert f"lo.lens.{kind}(parts=['document', 'question']) counts them." in said
    result = lo.look(gpt2(), prompts, [lo.lens.Weights(parts=["document", "question"])])["weights"]
    assert "categories" not in capsys.readouterr().err
    assert result.data["mass"].sel(category="document").notnull().any()


def test_notes_say_how_a_gpu_computed_the_rows(monkeypatch):
    from lorgnette.looking import corpus_pass

    def on_a_gpu(*given, **options):
        counts, keeper, _ = corpus_pass.passed(*given, **options)
        return counts, keeper, {"the sweep", "kernels"}

    monkeypatch.setattr("lorgnette.looking.look.passed", on_a_gpu)
    notes = looked(bert())["weights"].provenance.notes
    assert "row statistics on the GPU computed by kernels and the sweep" in notes


def test_where_triton_is_missing_nothing_is_imported_and_the_sweep_is_used(monkeypatch):
    from lorgnette import kernels
    from lorgnette.attending import Call, Site
    from lorgnette.attending.scores import Scores
    from lorgnette.attending.sweep import Wanted

    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    kernels.kernels.cache_clear()
    try:
        module = kernels.kernels("attention")
    finally:
        kernels.kernels.cache_clear()
    assert module is None
    query, key, value = torch.randn(3, 1, 2, 5, 8)
    call = Call(Site("encoder", "self", 0), Scores(query, key, 0.3), value)
    monkeypatch.setattr(call, "kernels", lambda wanted: module)
    entropy = call.measure(Wanted(entropy=True))["entropy"]
    weights = (query @ key.mT * 0.3).softmax(-1)
    torch.testing.assert_close(entropy, -(weights * weights.log()).sum(-1), rtol=1e-5, atol=1e-6)
    assert call.paths == {"the sweep"}


def double_first(module, arguments, output):
    return (output[0] * 2, *output[1:]) if isinstance(output, tuple) else output * 2


@contextmanager
def hooked(subject):
    handle = subject.model.encoder.layer[0].register_forward_hook(double_first)
    try:
        yield
    finally:
        handle.remove()


class Uniform(lo.Tap):
    def weights(self, call, weights):
        return weights.new_full(weights.shape, 1 / weights.shape[-1])


EDITS = {
    "without": (lambda s: lo.without(s.model, ["1.2", "1.1"]), "without encoder.1.1, encoder.1.2"),
    "scaled": (lambda s: lo.scaled(s, {"1.1": 0.5}), "scaled encoder.1.1 × 0.5"),
    "hook": (hooked, "with a hook of others: double_first at encoder.layer.0"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_results_of_an_edited_model_are_those_of_another_model(edit, tmp_path):
    subject = bert(torch.float32)
    edited, said = EDITS[edit]
    intact = looked(subject, out=tmp_path / "run")["weights"]
    assert not subject.changes
    with edited(subject):
        with pytest.raises(UserError, match="results"):
            looked(subject, ["distances"], out=tmp_path / "run")
        expected = looked(subject)["weights"]
        found = looked(subject, out=tmp_path / "other")["weights"]
        again = looked(subject, out=tmp_path / "run", resume=True)["weights"]
        same = looked(subject, out=tmp_path / "other", resume=True)["weights"]
    for result in (expected, found, again, same):
        assert said in result.provenance.notes
        assert result.provenance.weights_hash == expected.provenance.weights_hash != intact.provenance.weights_hash
        assert_close(result.data, expected.data, edit, 1e-12)
    assert not np.allclose(expected.data["entropy"], intact.data["entropy"], equal_nan=True)
    assert looked(subject)["weights"].provenance.weights_hash == intact.provenance.weights_hash


def test_edits_are_told_apart():
    subject = bert(torch.float32)
    first, second = (
        lo.attention(subject.model, parts=["context"], **subject.encode([text]).inputs) for text in TEXTS[:2]
    )
    edits = (
        lo.without(subject, ["1.1"]), lo.without(subject, ["1.2"]), lo.scaled(subject, {"1.1": 0.5}),
        lo.scaled(subject, {"1.1": 0.25}), lo.patched(subject, first, ["1.1"]), lo.patched(subject, second, ["1.1"]),
        lo.patched(subject, first, ["1.1"], positions=[0]), lo.patched(subject, first, ["1.2"]),
    )  # fmt: skip
    hashes = {subject.weights_hash}
    for edit in edits:
        with edit:
            hashes.add(subject.weights_hash)
    assert len(hashes) == len(edits) + 1
    with lo.without(subject, ["1.2", "1.1"]):
        order = subject.weights_hash
    with lo.without(subject, ["1.1", "1.2"]):
        assert subject.weights_hash == order
    with lo.without(bert().model, ["1.1"]):  # of another model
        assert subject.weights_hash in hashes


def test_a_tap_that_does_not_say_what_it_does_writes_no_results(tmp_path):
    subject, tap = bert(torch.float32), Uniform()
    with lo.tapped(subject, tap):
        assert "edited by the tap Uniform" in looked(subject)["weights"].provenance.notes
        with pytest.raises(UserError, match="The tap Uniform edits the model"):
            looked(subject, out=tmp_path / "run")
        tap.change = "all weights equal"
        assert "all weights equal" in looked(subject, out=tmp_path / "run")["weights"].provenance.notes
    with pytest.raises(UserError, match="results"):
        looked(subject, ["distances"], out=tmp_path / "run")


def test_few_texts_are_noted():
    """Below fifty texts, t intervals of uneven values err more often than they say (docs/tests.md)."""
    few = looked(bert(torch.float32))["weights"].provenance
    assert f"Fewer than 50 texts ({len(TEXTS)}): t intervals and tests of uneven values are too sure" in few.notes
    many = lo.look(bert(torch.float32), [f"the cat sat {n}" for n in range(50)], ["weights"], progress=False)
    assert not any("too sure" in note for note in many["weights"].provenance.notes)
    one = lo.look(bert(torch.float32), TEXTS[:1], ["weights"], progress=False)
    assert not any("too sure" in note for note in one["weights"].provenance.notes)
