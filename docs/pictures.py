"""Makes the pictures of the site: `python docs/pictures.py DATA [lenses | screens | NAME …]`.

DATA is the folder with the named corpora. MiniLM comes from `lorgnette[demo]`; a MiniLM for SST-2, and the runs of the
learning curves, are trained into out/pictures. Screenshots need Chromium. Those of docs/language-models.md have a
script of their own.
"""

import asyncio
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from itertools import islice, permutations, product
from pathlib import Path

from PIL import Image
from transformers import Trainer, TrainingArguments, set_seed

import lorgnette as lo
from lorgnette.demo import demo, english
from lorgnette.looking.probing import probe
from lorgnette.reporting import figures
from lorgnette.reporting.views import write_page
from lorgnette.reporting.views.gather import gathered
from lorgnette.results import Results
from lorgnette.serve import Models, make_app
from lorgnette.serve.server import Server
from lorgnette.texts.parts import answered
from lorgnette.training import TrainingSettings, prepare

IMAGES = Path(__file__).resolve().parent / "images"
OUT = IMAGES.parents[1] / "out" / "pictures"
REVIEW = "The film is slow, but its last twenty minutes are among the most moving I have ever seen."
TREEBANK = "ud_en_ewt"
MINILM, SST2, HATS = "minilm", OUT / "minilm-sst2", OUT / "yelphat"
SMOLLM2 = os.environ.get("LORGNETTE_SMOLLM2", "HuggingFaceTB/SmolLM2-135M")
OPUS = os.environ.get("LORGNETTE_OPUS", "Helsinki-NLP/opus-mt-en-fr")
NAMES = ("Mary", "John", "Tom", "Anna", "James", "Paul", "Sarah", "David", "Peter", "Lisa", "Mark", "Emma")


def giving() -> lo.Corpus:
    """Who gets the drink? Pairs that differ in who gives it (Wang et al. 2022)."""
    texts = []
    for number, (one, two) in enumerate(permutations(NAMES, 2)):
        if number % 11 == 0:
            first = f"When {one} and {two} went to the store,"
            extra = {"counterpart": f"{first} {one} gave a drink to", "answer": f" {one}", "other": f" {two}"}
            texts.append(lo.Example(f"{one} {two}", f"{first} {two} gave a drink to", extra=extra))
    return lo.Corpus.of(texts, name="who gets the drink")


def un_or_une() -> lo.Corpus:
    """Pairs for a translation model: the first word of the French sentence agrees with a noun of the English one."""
    scenes = ("in a red shirt is walking", "is reading a book", "is riding a bike", "with a hat is sitting outside",
              "is waiting for the bus", "plays the guitar")  # fmt: skip
    texts = []
    for (one, two), scene in product((("man", "woman"), ("boy", "girl")), scenes):
        extra = {"counterpart": f"A {two} {scene}.", "answer": "Un", "other": "Une"}
        texts.append(lo.Example(f"{one} {scene}", f"A {one} {scene}.", extra=extra))
    return lo.Corpus.of(texts, name="un or une")


FACTS = (
    ("The captain's parrot is called", "What is the captain's parrot called?", "Pico Rosa Biscuit Otto Momo Juno"),
    ("The baker's shop is in", "In which street is the baker's shop?", "Mill Bridge Church Garden River Castle"),
    ("The museum's new roof is made of", "What is the museum's roof made of?", "copper glass slate straw steel wood"),
    ("The choir will sing on", "On which day will the choir sing?", "Monday Tuesday Wednesday Thursday Friday Sunday"),
    ("The farmer sold his field to", "Who bought the farmer's field?", "Anna Peter Clara Hugo Nina Felix"),
    ("The ferry to the island is painted", "What colour is the ferry?", "green yellow purple orange white black"),
    ("The teacher spends her holidays in", "Where does the teacher go?", "Norway Portugal Ireland Greece Poland Japan"),
    ("The doctor's daughter plays the", "What does the daughter play?", "harp flute cello trumpet piano violin"),
    ("The school garden is full of", "What grows in the school garden?", "roses tulips beans onions apples pears"),
    ("The lighthouse was bought by a", "Who bought the lighthouse?", "painter dentist singer lawyer sailor pilot"),
    ("The restaurant by the station serves", "What does the restaurant serve?", "fish soup rice pizza cheese eggs"),
    ("The mayor came to the wedding by", "How did the mayor come?", "train boat bicycle bus horse plane"),
)
"""How a document begins, what one may ask about it, and how it may end."""


def documents(count: int, *, told: bool = True) -> lo.Corpus:
    """Prompts of ten documents of one sentence, each with a fact, in random order; the question is about one of them.

    The same prompts, if it is not `told`, with a sentence about the weather in the place of that document.
    """
    draw, prompts = random.Random(0), []
    for number in range(count):
        facts = [(start, question, draw.choice(ends.split())) for start, question, ends in draw.sample(FACTS, 10)]
        _, question, end = facts[asked := draw.randrange(10)]
        texts = {f"document {place}": f"{start} {end}." for place, (start, _, end) in enumerate(facts, 1)}
        if not told:
            texts[f"document {asked + 1}"] = "It rained in the valley until the evening."
        prompt = lo.prompt(texts | {"question": f"Question: {question} Answer in one word:"})
        prompts.append(replace(answered(prompt, f" {end}"), id=f"{number}", extra={"gold": f"document {asked + 1}"}))
    return lo.Corpus.of(prompts, name=f"ten documents{'' if told else ' without the fact'}")


def paragraphs(count: int, least: int = 32, most: int = 96) -> lo.Corpus:
    """Paragraphs of Wikipedia of so many words."""
    texts = (text for text in lo.corpus("wikitext2", split="test") if least <= len(text.text.split()) <= most)
    return lo.Corpus.of(list(islice(texts, count)), name="wikitext2")


EXPLAINED = "attnlrp+ah+decompx+gradient_x_input+attention+rollout+attention_flow"

MORE = "attnlrp+ah+decompx+gradient_x_input+chefer2021+occlusion+shap+lime+attention+rollout"


CONTEXT = "context:window=16,windows=16+32,losses=shared"
SOURCES = "document *"
GATING = "gating:steps=20,seeds=0+1,batch=4,pressure=0.01"


def look(model: str | Path, texts: lo.Corpus, lens: str | lo.lens.Lens) -> Results:
    return lo.look(opened(model), texts, [lens], truncate=True)


def opened(model: str | Path) -> lo.Subject:
    return lo.load(model, allow_pickle=model == OPUS)  # opus-mt is a pickle


LENSES: dict[str, Callable[[], Results]] = {
    "weights-categories": lambda: look(MINILM, english(), "weights"),
    "frequency-spearman": lambda: look(MINILM, english(), "frequency"),
    "rollout-share": lambda: look(MINILM, english(), "rollout"),
    "geometry-state_sim": lambda: look(MINILM, english(), "geometry"),
    "convexity-used": lambda: look(MINILM, english(), "convexity"),
    "roles-roles": lambda: look(MINILM, lo.corpus(TREEBANK, limit=150), "roles"),
    "attention-probe-weight": lambda: look(MINILM, lo.corpus(TREEBANK, split="dev", limit=300), "attention-probe"),
    "coreference-accuracy": lambda: look(MINILM, lo.corpus("ud_en_gum:passages", limit=40), "coreference"),
    "probes-accuracy": lambda: Results(
        [
            probe(
                lo.load(MINILM),
                lo.corpus(TREEBANK, split="train", limit=2000),
                lo.corpus(TREEBANK, split="test", limit=1000),
                "upos",
                words=2000,
            )
        ]
    ),
    "importance-loss_change": lambda: look(sst2(), lo.corpus("sst2", split="test", limit=32), "importance"),
    "effects-beside_total": lambda: look(sst2(), lo.corpus("sst2", split="test", limit=64), "effects:ablation=zero"),
    "synthetic-excess": lambda: look(SMOLLM2, lo.Corpus.of([lo.Example("review", REVIEW)]), "synthetic"),
    "patching-effect": lambda: look(SMOLLM2, giving(), "patching"),
    "patching-effect@opus-mt": lambda: look(OPUS, un_or_une(), "patching"),
    "norms-contribution_share": lambda: look(MINILM, paragraphs(48), "norms:contribution=true,sample=0"),
    "sinks-rate": lambda: look(OPUS, lo.corpus("multi30k:en-fr", split="test", limit=64), "sinks"),
    "circuits-positive": lambda: look(MINILM, paragraphs(1), "circuits"),
    "context-shared_change": lambda: look(SMOLLM2, paragraphs(6, 60, 90), CONTEXT),
    "logitlens-agreement@opus-mt": lambda: look(OPUS, lo.corpus("multi30k:en-fr", split="val", limit=32), "logitlens"),
    "logitlens-agreement": lambda: look(SMOLLM2, paragraphs(16), "logitlens"),
    "alignment-aer": lambda: look(OPUS, lo.corpus("hansards_en_fr"), "alignment"),
    "edges-predicted": lambda: look(SMOLLM2, giving(), "edges:among=heads"),
    "composition-strongest": lambda: look(SMOLLM2, paragraphs(12), "composition:keys=words"),
    "composition-strongest@opus-mt": lambda: look(
        OPUS, lo.corpus("multi30k:en-fr", split="val", limit=32), "composition:keys=words"
    ),
    "edges-predicted@opus-mt": lambda: look(
        OPUS, lo.corpus("multi30k:en-fr", split="val", limit=32), "edges:among=heads"
    ),
    "sources-agreement": lambda: look(SMOLLM2, documents(50), lo.lens.SourceSignals(SOURCES)),
    "sources-agreement@control": lambda: look(SMOLLM2, documents(10, told=False), lo.lens.SourceSignals(SOURCES)),
    "coreference-accuracy@gap": lambda: look(MINILM, lo.corpus("gap_coreference", split="test"), "coreference"),
    "coreference-accuracy@gap-smollm2": lambda: look(
        SMOLLM2, lo.corpus("gap_coreference", split="test", limit=300), "coreference"
    ),
    "gating-gates@opus-mt": lambda: look(OPUS, lo.corpus("multi30k:en-fr", split="val", limit=64), GATING),
    "gating-gates": lambda: look(sst2(), lo.corpus("sst2", split="test", limit=300), "gating"),
    "agreement-spearman": lambda: look(sst2(), lo.corpus("sst2", split="test", limit=32), "agreement"),
    "gradients-gradient": lambda: look(sst2(), lo.corpus("sst2", split="test", limit=32), "gradients"),
    "cones-cosine": lambda: look(sst2(), lo.corpus("sst2", split="test", limit=200), "cones"),
    "rationales-score": lambda: look(
        sst2(), lo.corpus("yelphat", split="test50"), f"rationales:share=0.17,methods={EXPLAINED}"
    ),
    "rationales-score@hiding": lambda: look(
        hats(), lo.corpus("yelphat", split="test50"), f"rationales:share=0.17,methods={MORE}"
    ),
    "geometry-sim@by-step": lambda: by_step(3e-3),
    "weights-entropy_normalised@by-step": lambda: by_step(3e-3),
    "geometry-sim@by-step-gentle": lambda: by_step(1e-3),
}


def sst2() -> Path:
    """A MiniLM fine-tuned on 4,000 sentences of SST-2, trained once."""
    if not SST2.exists():
        lo.train(MINILM, "sst2", SST2, limit=4000, epochs=1, batch_size=32, learning_rate=2e-4, test_limit=500)
    return SST2


def hats() -> Path:
    """Two layers of four heads on GloVe, trained on YelpHat: small enough for explanations that take many passes."""
    if not HATS.exists():
        lo.train("tp9-residual-position-cls", "yelphat", HATS, overrides={"layers": 2, "heads": 4})
    return HATS


def by_step(rate: float) -> Results:
    """Five layers of pure attention on YelpHat, with every tenth step looked at by the command."""
    run, out = OUT / f"by-step-{rate:g}", OUT / "runs" / f"by-step-{rate:g}"
    if not (out / "geometry.json").exists():
        trained_with_checkpoints(run, rate, steps=200, every=10)
        command = [sys.executable, "-m", "lorgnette", "look", *map(str, run.glob("checkpoint-*"))]
        command += ["--corpus", "yelphat", "--split", "test50", "--lens", "weights,geometry", "--out", str(out)]
        subprocess.run(command, check=True)
    return Results.load(out)


def trained_with_checkpoints(run: Path, rate: float, *, steps: int, every: int) -> None:
    """With the Trainer itself, which keeps every checkpoint; `lorgnette train` removes its own at the end."""
    settings = TrainingSettings("pure-attention", "yelphat", run, overrides={"layers": 5}, embeddings="random")
    ready = prepare(settings)
    set_seed(settings.seed)
    saving = {"save_steps": every, "save_only_model": True, "eval_strategy": "steps", "eval_steps": every}
    arguments = TrainingArguments(
        str(run), max_steps=steps, learning_rate=rate, lr_scheduler_type="constant", weight_decay=0.0,
        per_device_train_batch_size=settings.batch_size, remove_unused_columns=False, report_to="none", **saving,
    )  # fmt: skip
    texts = {"train_dataset": ready.bucketed(settings), "eval_dataset": ready.validation}
    trainer = Trainer(ready.builder.model(), arguments, **texts, **ready.trainer_parts())
    trainer.save_model(str(run / "checkpoint-0"))
    trainer.train()


def lens_figure(name: str) -> None:
    """One figure of a lens; the numbers behind it stay in out/pictures. Behind an @ is another model."""
    results = LENSES[name]()
    results.save(OUT / "runs" / name)
    stem, _, model = name.partition("@")
    for path in figures(results, OUT / "figures" / name, "svg"):
        if path.stem == stem:
            shutil.copy(path, IMAGES / "lenses" / f"{stem}{'-' if model else ''}{model}.svg")
            return
    raise SystemExit(f"{name}: the lens has no such figure.")


@contextmanager
def window(width: int, height: int, scheme: str = "light") -> Iterator:
    from playwright.sync_api import sync_playwright

    found = os.environ.get("LORGNETTE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        browser.close()


def shot(page, name: str, height: int) -> None:
    path = IMAGES / f"{name}.png"
    page.wait_for_timeout(500)  # what is drawn after a change of state
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": page.viewport_size["width"], "height": height})


def report_screen() -> None:
    """The classifier's part of the demo's report, from its texts to its atlas."""
    made = demo(OUT / "demo")
    with window(1180, 1400) as page:
        page.goto(made.page.as_uri())
        section = page.locator("section.texts-part").last
        section.scroll_into_view_if_needed()
        section.locator("[role=tab]", has_text="Text").click()
        page.wait_for_timeout(500)
        top = section.evaluate("e => e.getBoundingClientRect().top + scrollY")
        page.evaluate("top => scrollTo(0, top - 24)", top)
        shot(page, "report", 1400)


def text_screens() -> None:
    """Pages of one text: its explanations, and its tree."""
    subject = lo.load(sst2())
    methods = ["attnlrp", "gradient_x_input", "integrated_gradients", "rollout"]
    write_page(gathered(subject, subject.example(REVIEW), methods=methods), OUT / "text.html")
    tree = next(text for text in lo.corpus("ud_en_gum", limit=500) if 12 <= len(text.words) <= 16)
    write_page(gathered(lo.load(MINILM), tree), OUT / "tree.html")
    for name, state, height in (
        ("text", {"view": "text"}, 720),
        ("tree", {"view": "tree", "layer": 3, "head": 1}, 640),
    ):
        with window(1180, height) as page:
            page.goto((OUT / f"{name}.html").as_uri())
            page.evaluate("state => window.lorgnette.set(state)", state)
            shot(page, f"views/{name}", height)


@contextmanager
def live(*models: str | Path) -> Iterator[str]:
    """The live page of these models on a free port."""
    folders = {Path(model).name: model for model in models}
    app = make_app(Models(tuple(folders), lambda name: lo.load(folders[name])))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = Server(app)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)


def live_screens() -> None:
    """The live page: head, matrix, model and compare view, and two heads switched off."""
    shots = [
        ("head", "light", 1200, 1090, {"view": "head", "layer": 3, "head": 2}, []),
        ("model", "light", 1200, 1100, {"view": "model", "layer": 3, "head": 2}, []),
        ("matrix-dark", "dark", 1200, 1180, {"view": "matrix", "layer": 3, "head": 2}, []),
        ("compare", "light", 1200, 1260, {"view": "compare", "layer": 2, "head": 3}, [3]),
        ("live", "light", 1200, 1000, {"view": "text", "layer": 2, "head": 3}, [2, 3]),
    ]
    with live(sst2(), MINILM) as address:
        for name, scheme, width, height, state, off in shots:
            with window(width, height, scheme) as page:
                page.set_default_timeout(120_000)
                page.goto(address)
                page.fill("#text", REVIEW)
                page.click("#go")
                page.locator(".lv[aria-busy=false]").first.wait_for()
                for head in off:
                    page.evaluate("head => window.lorgnette.set({ layer: 2, head })", head)
                    page.keyboard.press("x")
                    page.locator(".lv-off").wait_for()
                    page.locator("#now:not(.live-busy)").wait_for(state="attached")
                page.evaluate("state => window.lorgnette.set(state)", state)
                shot(page, f"views/{name}", height)


def recording() -> None:
    """An animated picture of the live page: a review, the head that reads its negation, and the page without it."""
    reviews = OUT / "reviews"
    if not reviews.exists():
        lo.train("tp9-residual-position", "planted", reviews, embeddings="random", layers=2, heads=4, epochs=12,
                 learning_rate=3e-3)  # fmt: skip
    frames: list[tuple[Image.Image, int]] = []
    with live(reviews) as address, window(1000, 820) as page:

        def keep(milliseconds: int) -> None:
            page.wait_for_timeout(400)
            frames.append((Image.open(BytesIO(page.screenshot())).convert("RGB"), milliseconds))

        page.set_default_timeout(120_000)
        page.goto(address)
        text = "the plot was not good"
        for end in range(4, len(text) + 1, 6):
            page.fill("#text", text[:end])
            keep(250)
        page.fill("#text", text)
        page.click("#go")
        page.locator(".lv[aria-busy=false]").first.wait_for()
        for head in range(4):  # of the first layer; the page counts from 0
            page.evaluate("head => window.lorgnette.set({ view: 'head', layer: 0, head })", head)
            keep(900)
        page.evaluate("() => window.lorgnette.set({ view: 'text' })")
        keep(2000)
        page.keyboard.press("x")
        page.locator(".lv-off").wait_for()
        page.locator("#now:not(.live-busy)").wait_for(state="attached")
        keep(3500)
    pictures, times = zip(*frames, strict=True)
    few = [picture.quantize(64, dither=Image.Dither.NONE) for picture in pictures]
    few[0].save(IMAGES / "live.gif", save_all=True, append_images=few[1:], duration=times, loop=0, optimize=True)


WIZARD = "The wizard Zorblax lived in a tower. One day the wizard Zorb"


def text_figures() -> None:
    """Of one text and SmolLM2: what layers predict, why a head looks where it looks, the paths through heads."""
    subject = lo.load(SMOLLM2)
    lo.logit_lens(subject, "The capital of France is").plot().save(IMAGES / "lenses" / "logitlens-france.svg")
    lo.why(subject, f"{WIZARD}lax", "18.5", query=-1).plot().save(IMAGES / "lenses" / "composition-why.svg")
    lo.paths(subject, WIZARD, among="heads").plot().save(IMAGES / "lenses" / "edges-paths.svg")


def streaming_figure() -> None:
    """Which key heads of SmolLM2 can forget the middle of a text, alone and together."""
    found = lo.stream(lo.load(SMOLLM2), paragraphs(16, 100, 130), window=16, draws=2)
    found.save(OUT / "runs" / "stream")
    found.page(OUT / "runs" / "stream.html")
    found.plot().save(IMAGES / "lenses" / "context-stream.svg")


def alignment_figure() -> None:
    """Error rates of heads, layers and sets of heads of opus-mt, chosen on one half of the Hansards."""
    aligner = lo.align(opened(OPUS), lo.corpus("hansards_en_fr"))
    (OUT / "runs").mkdir(parents=True, exist_ok=True)
    aligner.to_dataframe().to_csv(OUT / "runs" / "alignment.csv", index=False)
    aligner.page(OUT / "runs" / "alignment.html")
    aligner.plot().save(IMAGES / "lenses" / "alignment-rates.svg")


SCREENS = {
    "one-text": text_figures, "stream": streaming_figure, "align": alignment_figure, "report": report_screen,
    "text": text_screens, "live": live_screens, "recording": recording,
}  # fmt: skip


def main(data: str, *names: str) -> None:
    os.environ["LORGNETTE_DATA"] = data
    wanted = names or ("lenses", "screens")
    for name in LENSES:
        if name in wanted or "lenses" in wanted:
            lens_figure(name)
    for name, make in SCREENS.items():
        if name in wanted or "screens" in wanted:
            make()


if __name__ == "__main__":
    main(*sys.argv[1:])
