"""Progress: a line now and then in a log, and a bar that keeps its count and its time at 80 columns."""

import io

from rich.console import Console

import lorgnette as lo
from lorgnette import progress
from lorgnette.looking.texts import text_count


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    clock = iter(range(0, 1000, 4))  # every look at the clock is four seconds later
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with progress.progress_bar("looking", 40) as advance:
        for _ in range(4):
            advance(10, 500)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert len(lines) < 4
    assert lines[0].startswith("looking: ")
    assert " of 40 texts, " in lines[0]
    assert lines[0].endswith(" left")


def test_nothing_is_said_of_what_is_quick(capsys):
    with progress.progress_bar("looking", 40) as advance:
        advance(40, 500)
    assert capsys.readouterr().err == ""


def test_bar_count_and_time_stay_at_eighty_columns():
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, legacy_windows=False)
    bars = progress.bars(console)
    said = "loss 0.693 accuracy 0.512 · 36 of 72 heads open · validation 0.681 0.561"
    task = bars.add_task("a model with a long name on a corpus, seed 0", total=1000, said=said)
    bars.update(task, completed=500)
    with console.capture() as drawn:
        console.print(bars.get_renderable())
    line = drawn.get().splitlines()[0]
    assert "500/1000" in line
    assert ":" in line.split("500/1000")[1][:12]  # the time left, or -:--:--
    assert "━" in line


def test_a_lens_with_many_passes_says_how_long_a_text_takes(monkeypatch, capsys):
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with progress.progress_bar("looking", 3) as advance:
        advance(1, 20)
    (line,) = capsys.readouterr().err.splitlines()
    assert "tokens/s" not in line
    assert " s a text" in line


def test_a_limit_is_an_end_of_the_bar(tmp_path):
    (tmp_path / "texts.txt").write_text("one\ntwo\nthree\n")
    texts = lo.corpus(str(tmp_path / "texts.txt"), limit=2)
    assert text_count(texts) == 2
    assert text_count(texts.named("other")) == 2
    assert text_count(texts.shuffled(0).take(1)) == 1
    assert text_count(lo.corpus(str(tmp_path / "texts.txt"))) is None
