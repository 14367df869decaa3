"""Options of lenses as text: read by the lens's own signature, the same on the command line and in Python."""

import pytest
from tiny import EXAMPLES, bert
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.lens.options import parameters, split


@pytest.mark.parametrize(
    ("texts", "parts"),
    [
        ("weights,norms", ["weights", "norms"]),
        (["weights", "norms:sample=0"], ["weights", "norms:sample=0"]),
        ("norms:sample=0,by=token,weights", ["norms:sample=0,by=token", "weights"]),
        ("attention-probe:vectors=a:b,steps=2", ["attention-probe:vectors=a:b,steps=2"]),
        ("norms,sample=0", ["norms:sample=0"]),
        (["weights", " weights ,"], ["weights"]),
    ],
)
def test_lenses_between_commas_with_their_options(texts, parts):
    assert split(texts) == parts


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("norms:sample=0,by=token", {"sample": 0, "by": "token"}),
        ("norms:measures=alti", {"extra": ("alti",)}),
        ("rationales:methods=attnlrp+ah,top=3", {"top": 3}),
        ("geometry:specials=cls,words=false", {"specials": "cls", "words": False}),
        ("geometry:specials=false", {"specials": False}),
        ("distances:smoothing=0.01", {"smoothing": 0.01}),
        ("probes:hidden=none,seeds=0+1", {"hidden": None, "seeds": (0, 1)}),
        ("importance:ablations=zero,stacks=encoder", {"ablations": ("zero",), "stacks": ("encoder",)}),
    ],
)
def test_values_have_the_types_of_the_signature(text, attributes):
    lens = lo.lens.get(text)
    assert lens.name == text.partition(":")[0]
    for name, value in attributes.items():
        if hasattr(lens, name):
            assert getattr(lens, name) == value
            assert type(getattr(lens, name)) is type(value)


def test_one_explanation_or_several():
    assert lo.lens.get("rationales:methods=attnlrp").methods[:1] == ("attnlrp",)
    assert lo.lens.get("rationales:methods=attnlrp+ah").methods[:2] == ("attnlrp", "ah")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("norms:sampel=0", "Did you mean 'sample'"),
        ("norms:sample=few", "a whole number of at least 0. Got 'few' instead"),
        ("norms:sample", "needs a value"),
        ("norms:residual=yes", "true or false. Got 'yes' instead"),
        ("probes:seeds=a", "whole numbers"),
        ("patching:by=text", "has no option 'by'. It has none"),
        ("nroms:sample=0", "Did you mean 'norms'"),
    ],
)
def test_slips_are_one_line(text, words):
    with pytest.raises(UserError, match=words):
        lo.lens.get(text)


def test_look_takes_them_in_python_and_from_the_shell(tmp_path):
    subject = bert()
    plain = lo.look(subject, EXAMPLES, [lo.lens.Norms(sample=0, all_heads=False)], progress=False)["norms"]
    asked = lo.look(subject, EXAMPLES, "norms:sample=0,all_heads=false", progress=False)["norms"]
    assert plain.data.identical(asked.data)
    with pytest.raises(UserError, match="listed twice"):
        lo.look(subject, EXAMPLES, ["weights", "weights:by=token"], progress=False)


@pytest.mark.parametrize("name", lo.lens.OURS)
def test_every_lens_shows_its_options(name):
    done = CliRunner().invoke(app, ["lens", name, "--help"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{name}: {lo.lenses()[name]}"[:60])
    for option in parameters(lo.lens.find(name)):
        assert f"  {option}=" in done.output


def test_the_command_without_a_name_lists_them():
    done = CliRunner().invoke(app, ["lens"])
    assert all(name in done.output for name in lo.lenses())
    assert "Usage" in CliRunner().invoke(app, ["lens", "--help"]).output
    assert "no lens 'nroms'" in CliRunner().invoke(app, ["lens", "nroms"]).output
