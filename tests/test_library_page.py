"""docs/library.md: its Python blocks run, in order, in one namespace."""

import re
from pathlib import Path

import torch
from tiny import classifier

PAGE = Path(__file__).parent.parent / "docs" / "library.md"


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subject = classifier(torch.float32)
    names = {"model": subject.model, "tokenizer": subject.tokenizer}
    names["texts"] = ["the cat sat on the mat .", "a dog ran", "it was good", "was it not ?"]
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(block, names)
    written = {path.name for path in tmp_path.iterdir()}
    expected = {
        "entropy.svg",
        "report.html",
        "figures",
        "weights.pdf",
        "sep.png",
        "head.svg",
        "views.html",
        "bare.html",
    }
    assert expected <= written
    assert int(names["weights"].shape[0]) == 3
    assert names["norms"].compute().data["norm"].sizes["layer"] == 3
    weights = torch.stack([subject.trace(text)["weights"].amax(-1).mean(-1) for text in names["texts"]]).mean(0)
    torch.testing.assert_close(
        torch.from_numpy(names["sharpness"].values[0]).float(), weights.float(), atol=1e-5, rtol=0
    )
