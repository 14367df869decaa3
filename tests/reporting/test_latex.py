"""LaTeX tables: the numbers are those of the result, text is escaped, and what is left out is named."""

import re

import numpy as np
import pytest
from made import weights
from tiny import EXAMPLES, bert
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.cli.app import app
from lorgnette.reporting.latex import escaped, latex_table
from lorgnette.results import Result
from lorgnette.results.provenance import Provenance


def rows(table):
    return {line.split(" & ")[0].strip(): line.strip().removesuffix(" \\\\").split(" & ")
            for line in table.splitlines() if line.endswith("\\\\")}  # fmt: skip


def test_means_errors_and_the_highest_heads():
    result = lo.look(bert(), EXAMPLES, ["weights"], progress=False)["weights"]
    _, mean, highest = rows(latex_table(result))["confidence (mean maximum weight)"]
    data = result.data.sel(stack="encoder")
    value, error = (float(part) for part in re.fullmatch(r"\$(\S+) \\pm (\S+)\$", mean).groups())
    assert value == pytest.approx(data["confidence"].mean().item(), abs=error / 10)
    assert error == pytest.approx(data["confidence_se"].mean().item(), rel=0.06)
    layer, head = np.unravel_index(np.argsort(-data["confidence"].values, axis=None)[:3], data["confidence"].shape)
    assert re.findall(r"(\d+\.\d+) \(\$", highest) == [f"{a + 1}.{b + 1}" for a, b in zip(layer, head, strict=True)]


@pytest.mark.parametrize("name", ["norms", "geometry", "sinks", "rollout", "circuits", "distances"])
def test_every_table_is_balanced_and_says_what_it_leaves_out(name):
    result = lo.look(bert(), EXAMPLES, [lenses.get(name)], progress=False)[name]
    table = latex_table(result)
    assert "nan" not in table
    plain = re.sub(r"\\[{}$]", "", "\n".join(line for line in table.splitlines() if not line.startswith("%")))
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert {len(row) for row in rows(table).values()} == {3}
    if name == "geometry":
        assert "% Left out, because an axis has more than 16 labels: state_mean_direction" in table


def test_text_is_escaped():
    assert escaped("a_b & 50 % {x} \\input") == r"a\_b \& 50 \% \{x\} \textbackslash{}input"
    assert escaped("norm ‖αf(x)‖, α") == r"norm $\|\alpha f(x)\|$, $\alpha$"
    assert escaped("‖ a_b ‖") == r"$\|$ a\_b $\|$"
    assert escaped("x\n\x1b^") == r"x \textasciicircum{}"
    made = weights()
    odd = Result("weights", made.data, Provenance(model="my_model&{}", corpus="a%b", texts=3))
    assert r"my\_model\&\{\} on a\%b, 3 texts" in latex_table(odd)


def test_the_command_writes_one_table_or_all(tmp_path):
    lo.look(bert(), EXAMPLES, ["weights", "norms"], progress=False, out=tmp_path / "run")
    run = str(tmp_path / "run")
    done = CliRunner().invoke(app, ["export", run, "--latex"])
    assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "run" / "tables").iterdir()} == {"weights.tex", "norms.tex"}
    done = CliRunner().invoke(app, ["export", run, "--latex", "--lens", "norms", "--out", str(tmp_path / "one")])
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["norms.tex"]
    for wrong, status in ((["--latex", "--lens", "norm"], 1), (["--lens", "norms"], 2), (["--latex", "--parquet"], 2)):
        assert CliRunner().invoke(app, ["export", run, *wrong]).exit_code == status
