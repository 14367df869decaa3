"""Benches of the report and the token views: bytes beside BertViz's, and how fast they are drawn again."""

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.harness import Figure
from benchmarks.shapes import E5_SMALL, subject, texts
from lorgnette.looking.look import look
from lorgnette.reporting import Report
from lorgnette.reporting.views import pack, page_html
from lorgnette.subject.trace import Trace

SHARPNESS = (0.5, 1.0, 1.6, 2.5, 4.0, 6.0)
"""Standard deviations of the scores, by layer: broad heads and sharp ones, as trained models have them. The root of a
weight then holds 3.7 bits, where e5-small has 3.5 on real text; all heads at 1.6, the worst, would hold 4.5."""


def traced(tokens: int) -> Trace:
    """144 heads over a text of this length, with weights that are no easier to pack than those of a trained model."""
    watched = subject(E5_SMALL)
    with torch.no_grad():
        for place, layer in enumerate(watched.model.encoder.layer):
            for projection in (layer.attention.self.query, layer.attention.self.key):
                projection.weight.normal_(0, (SHARPNESS[place % len(SHARPNESS)] / 384) ** 0.5)
    return watched.trace(next(iter(texts(1, tokens))))


def bertviz_bytes(trace: Trace) -> int:
    """The size of BertViz 1.4.1's head_view: its parameters are JSON with all weights as lists of floats.

    Computed as it writes them, layer by layer. Its page holds them twice (a comment of its script names their place
    holder too) and is by so much larger: they are counted once, and its script (14 kB; d3 and jQuery come from
    elsewhere) not at all.
    """
    tokens = list(trace.pieces())
    rest = {"name": None, "attn": [], "left_text": tokens, "right_text": tokens}
    layers = (json.dumps(layer.tolist()) for layer in trace["weights"])
    return len(json.dumps(rest)) + sum(len(layer) + 2 for layer in layers)


def size() -> Iterator[Figure]:
    """n = 256: our whole page against BertViz's data; n = 512: megabytes of the page."""
    trace = traced(256)
    start = time.perf_counter()
    ours = len(page_html(pack(trace)).encode())
    packed = time.perf_counter()
    theirs = bertviz_bytes(trace)
    written = time.perf_counter()
    details = {
        "bytes": ours,
        "bertviz_bytes": theirs,
        "seconds": round(packed - start, 2),
        "bertviz_seconds": round(written - packed, 2),
        "bertviz": "JSON as 1.4.1 writes it, counted once; its page holds it twice",
    }
    yield Figure("views_bytes_over_bertviz", ours / theirs, 1 / 20, details=details)
    yield Figure("views_seconds_over_bertviz", (packed - start) / (written - packed), 1.0)
    whole = len(page_html(pack(traced(512))).encode())
    yield Figure("views_512_tokens_megabytes", whole / 1e6, 25.0, details={"heads": 144})


def report() -> Iterator[Figure]:
    """The whole report of a 144-head subject, with one text of n = 256 in it, against BertViz's page of that text."""
    trace = traced(256)
    corpus = list(texts(4, 64))
    results = look(trace.subject, corpus, ("weights", "norms"), progress=False)
    document = pack(trace)
    start = time.perf_counter()
    ours = len(Report(results, examples=[document]).html().encode())
    seconds = time.perf_counter() - start
    theirs = bertviz_bytes(trace)
    details = {"bytes": ours, "bertviz_bytes": theirs, "seconds": round(seconds, 2), "heads": 144, "lenses": 2}
    yield Figure("report_bytes_over_bertviz", ours / theirs, 1 / 20, details=details)


def redraw() -> Iterator[Figure]:
    """From a key press to the last pixel, 512 tokens × 144 heads, in Chromium: the median of the slowest view."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        print("views_redraw: no Chromium is installed, nothing is measured", file=sys.stderr)
        return
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        path.write_text(page_html(pack(traced(512))), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        start = time.perf_counter()
        page.goto(f"{path.as_uri()}#layer=1&head=1")
        page.wait_for_selector(".lv[aria-busy=false]", timeout=60_000)
        opened = time.perf_counter() - start
        times = page.evaluate(_REDRAWS)
        browser.close()
    medians = {view: round(statistics.median(found), 1) for view, found in times.items()}
    details = {"milliseconds": medians, "open_s": round(opened, 2)}
    yield Figure("views_redraw_ms", max(medians.values()), 100.0, details=details)


_REDRAWS = """async () => {
    const viewer = window.lorgnette, out = {};
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    for (const view of ["head", "matrix", "model", "text", "compare"]) {
        viewer.set({ view });
        await frame();
        out[view] = [];
        for (let k = 0; k < 12; k++) {
            const start = performance.now();
            viewer.set({ layer: k, head: (5 * k) % 12, token: 7 * k });
            for (const stage of [viewer.stage, viewer.mapStage, viewer.key_]) stage.paint();
            out[view].push(performance.now() - start);
            await frame();
        }
    }
    return out;
}"""

BENCHES = {"views_size": size, "report_size": report, "views_redraw": redraw}
