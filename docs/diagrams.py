"""Draws the diagrams of docs/concepts from numbers that it computes: `python docs/diagrams.py`.

Nothing here is drawn by eye: the weights come from a softmax, the arrows from vectors, the intervals from a simulation.
`NUMBERS` of each diagram is what its page and the tests say about it.
"""

from collections.abc import Callable
from html import escape
from pathlib import Path

import numpy as np

IMAGES = Path(__file__).resolve().parent / "images" / "concepts"
INK, GREY, PALE = "#1a1a1a", "#6b7280", "#d1d5db"
BLUE, ORANGE, GREEN = "#1d6fb8", "#c8590f", "#2b8a4b"
Vector = np.ndarray
Numbers = dict[str, float]


class Drawing:
    """An SVG on white: text, lines, arrows, rectangles and grids of coloured cells."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size, self.title = (width, height), title
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", fill: str = INK,
             bold: bool = False) -> None:  # fmt: skip
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{weight}>'
            f"{escape(words)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, *, fill: str = INK, width: float = 1.5,
             arrow: bool = False, dashes: bool = False, faint: float = 1.0) -> None:  # fmt: skip
        more = f' marker-end="url(#tip-{fill[1:]})"' if arrow else ""
        more += ' stroke-dasharray="4 3"' if dashes else ""
        more += f' stroke-opacity="{faint:.2f}"' if faint < 1 else ""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{fill}" '
            f'stroke-width="{width:.2f}"{more}/>'
        )

    def rect(self, x: float, y: float, width: float, height: float, *, fill: str, edge: str = "none") -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{edge}"/>'
        )

    def dot(self, x: float, y: float, radius: float, *, fill: str, faint: float = 1.0) -> None:
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" fill-opacity="{faint:.2f}"/>'
        )

    def grid(self, x: float, y: float, matrix: Vector, cell: float, *, printed: bool = False) -> None:
        """Weights are blue on white; anything else runs from orange (negative) over white to blue."""
        most = 1.0 if printed else float(np.abs(matrix).max())
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                left, top = x + j * cell, y + i * cell
                self.rect(left, top, cell, cell, fill=shade(value / most), edge="#ffffff")
                if printed:
                    fill = "#ffffff" if value > 0.55 else INK
                    words = f"{value:.2f}"
                    self.text(left + cell / 2, top + cell / 2 + 4, words, size=11, anchor="middle", fill=fill)
        self.frame(x, y, matrix.shape[1] * cell, matrix.shape[0] * cell, GREY)

    def frame(self, x: float, y: float, width: float, height: float, edge: str, thick: float = 1.0) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="none" stroke="{edge}" '
            f'stroke-width="{thick}"/>'
        )

    def svg(self) -> str:
        width, height = self.size
        tips = "".join(
            f'<marker id="tip-{fill[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{fill}"/></marker>'
            for fill in (INK, GREY, BLUE, ORANGE, GREEN)
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="Helvetica, Arial, sans-serif" role="img"><title>{escape(self.title)}</title><defs>{tips}'
            f'</defs><rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def shade(value: float) -> str:
    """Blue for 1, white for 0, orange for −1."""
    end = np.array([29, 111, 184]) if value >= 0 else np.array([200, 89, 15])
    red, green, blue = np.round(255 + (end - 255) * min(abs(float(value)), 1.0)).astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"


def softmax(scores: Vector) -> Vector:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention() -> tuple[Drawing, Numbers]:
    """One head on five words, from the states to its output, and the row of "good" all the way through.

    The head is planted: W_Q and W_K are solved so that the query of each word is the key of the word before it.
    """
    words = ["the", "plot", "was", "not", "good"]
    draw = np.random.default_rng(3)
    states, keys, values = draw.normal(size=(5, 6)), draw.normal(size=(5, 3)), draw.normal(size=(5, 3))
    keys *= 1.6 / np.linalg.norm(keys, axis=1, keepdims=True)
    queries = 4 * np.roll(keys, 1, axis=0)
    queries[0] = 0  # the first word has none before it, and attends to all alike
    w_q, w_k, w_v = (np.linalg.pinv(states) @ wanted for wanted in (queries, keys, values))
    w_o = draw.normal(size=(3, 6))
    q, k, v = states @ w_q, states @ w_k, states @ w_v
    alpha = softmax(q @ k.T / np.sqrt(3))
    transformed = v @ w_o
    output = alpha @ transformed
    assert np.allclose(output, (alpha @ v) @ w_o)

    page = Drawing(760, 400, "From queries, keys and values to attention weights and the output of a head")
    cell = 16.0

    def block(x: float, y: float, matrix: Vector, name: str, shape: str) -> None:
        page.grid(x, y, matrix, cell)
        page.frame(x, y + 4 * cell, matrix.shape[1] * cell, cell, INK, 1.6)
        page.text(x, y - 20, name, bold=True)
        page.text(x, y - 6, shape, size=11, fill=GREY)

    block(56, 170, states, "X", "states: words × width")
    for i, word in enumerate(words):
        page.text(50, 170 + i * cell + 12, word, anchor="end", bold=word == "good")
    for y, matrix, name, shape in ((50, q, "Q = X W_Q", "queries"), (170, k, "K = X W_K", "keys"),
                                   (290, v, "V = X W_V + b_V", "values")):  # fmt: skip
        block(226, y, matrix, name, shape)
        page.line(160, 210, 218, y + 40, fill=GREY, arrow=True)
    page.line(280, 90, 378, 112, fill=GREY, arrow=True)
    page.line(280, 210, 378, 150, fill=GREY, arrow=True)
    page.grid(386, 50, alpha, 34, printed=True)
    page.frame(386, 50 + 4 * 34, 5 * 34, 34, INK, 1.6)
    page.text(386, 30, "α = softmax(Q Kᵀ / √d)", bold=True)
    page.text(386, 44, "weights: a row for each query, its sum is 1", size=11, fill=GREY)
    for j, word in enumerate(words):
        page.text(386 + j * 34 + 17, 236, word, size=11, anchor="middle", fill=GREY)
    page.line(280, 330, 378, 330, fill=GREY, arrow=True)
    block(386, 290, transformed, "f(x) = V W_O", "what each word would contribute")
    block(640, 170, output, "α f(x)", "output of the head")
    page.line(560, 140, 632, 195, fill=GREY, arrow=True)
    page.line(486, 330, 632, 230, fill=GREY, arrow=True)
    page.text(640, 268, "+ b_O, the same", size=11, fill=GREY)
    page.text(640, 282, "for every word", size=11, fill=GREY)
    page.text(226, 390, "Blue is positive, orange negative; framed: the row of “good”.", size=11, fill=GREY)
    return page, {"good_to_not": float(alpha[4, 3]), "row": float(alpha[4].sum())}


def norms() -> tuple[Drawing, Numbers]:
    """Three tokens: the weights, the vectors that they multiply, and what arrives."""
    names, fills = ["[CLS]", "film", "slow"], [ORANGE, BLUE, GREEN]
    alpha = np.array([0.70, 0.18, 0.12])
    f = np.array([[0.10, 0.06], [1.30, 0.35], [0.55, 1.60]])
    scaled = alpha[:, None] * f
    lengths = np.linalg.norm(scaled, axis=1)
    share = lengths / lengths.sum()

    page = Drawing(760, 270, "A weight, the vector that it multiplies, and the norm of what arrives")

    def bars(x: float, title: str, under: str, numbers: Vector) -> None:
        page.text(x, 24, title, bold=True)
        page.text(x, 40, under, size=11, fill=GREY)
        for i, (name, fill, number) in enumerate(zip(names, fills, numbers, strict=True)):
            y = 70 + i * 44
            page.text(x, y, name, size=12)
            page.rect(x, y + 6, 110 * number, 14, fill=fill)
            page.text(x + 110 * number + 6, y + 18, f"{100 * number:.0f} %", size=12)

    def plane(x: float, title: str, under: str, unit: float, start: Vector, arrows: Vector) -> None:
        page.text(x, 24, title, bold=True)
        page.text(x, 40, under, size=11, fill=GREY)
        at = np.array([x + 14, 220.0])
        page.line(at[0], at[1], at[0] + 175, at[1], fill=PALE, width=1)
        page.line(at[0], at[1], at[0], at[1] - 160, fill=PALE, width=1)
        for fill, begin, arrow in zip(fills, start, arrows, strict=True):
            one, two = at + unit * begin * [1, -1], at + unit * (begin + arrow) * [1, -1]
            page.line(*one, *two, fill=fill, width=2.4, arrow=True)

    bars(20, "Weight α", "what the head attends to", alpha)
    zeros = np.zeros((3, 2))
    plane(196, "Vector f(x)", "what each token holds", 96, zeros, f)
    begins = np.vstack([zeros[:1], np.cumsum(scaled, axis=0)[:-1]])
    plane(386, "Sum Σ α f(x)", "drawn three times as large", 3 * 96, begins, scaled)
    output = scaled.sum(0)
    end = np.array([400.0, 220.0]) + 3 * 96 * output * [1, -1]
    page.line(400, 220, *end, fill=INK, width=1.6, arrow=True, dashes=True)
    page.text(end[0] + 6, end[1] + 4, "output", size=12)
    bars(590, "Norm ‖α f(x)‖", "what arrives", share)
    return page, {"weight": float(alpha[0]), "share": float(share[0])}


def relevance() -> tuple[Drawing, Numbers]:
    """A logit and its shares in two layers below: x ← x + A x, with the weights held fixed, and R = x ⊙ ∂logit/∂x."""
    words = ["the", "plot", "was", "not", "good"]
    below = np.array([[0.1, 0.0], [0.2, 0.1], [0.0, 0.1], [0.1, -0.9], [1.0, 0.2]])
    scores = np.array([[2, 1, 1, 0, 0], [1, 2, 1, 0, 1], [0, 1, 2, 1, 1], [0, 0, 1, 2, 3], [0, 1, 1, 3, 2.0]])
    first, second = softmax(scores), softmax(0.7 * scores.T)
    values = np.array([[1.0, 0.2], [-0.4, 1.2]])
    head = np.array([0.9, 1.0])
    layers = [below]
    steps = []
    for alpha in (first, second):
        # contributions [to, from, width]: the residual is a token's own, the rest comes through the head
        step = alpha[:, :, None] * (layers[-1] @ values)[None]
        step[np.arange(5), np.arange(5)] += layers[-1]
        steps.append(step)
        layers.append(step.sum(1))
    logit = float(layers[-1].mean(0) @ head)
    # Relevance of every link is its contribution times the gradient of what it flows into.
    gradients = [np.tile(head / 5, (5, 1))]
    for alpha in (second, first):
        gradients.insert(0, gradients[0] + (alpha.T @ gradients[0]) @ values.T)
    shares = [(states * gradient).sum(-1) for states, gradient in zip(layers, gradients, strict=True)]
    links = [(step * gradient[:, None]).sum(-1) for step, gradient in zip(steps, gradients[1:], strict=True)]
    for share, link_below, link_above in ((shares[1], links[0].sum(1), links[1].sum(0)),):
        assert np.allclose(share, link_below)
        assert np.allclose(share, link_above)
    assert np.allclose([share.sum() for share in shares], logit)

    page = Drawing(760, 400, "Relevance: a logit handed down to the words, layer by layer")
    across, up = [170 + 105 * i for i in range(5)], [330, 230, 130]
    thick = 26 / max(np.abs(links[0]).max(), np.abs(links[1]).max())
    for layer, link in enumerate(links):
        for i, j in np.ndindex(5, 5):
            if abs(link[i, j]) * thick > 0.25:
                fill = BLUE if link[i, j] > 0 else ORANGE
                page.line(across[j], up[layer], across[i], up[layer + 1], fill=fill, faint=0.45,
                          width=abs(link[i, j]) * thick)  # fmt: skip
    for i, part in enumerate(shares[2]):
        page.line(across[i], up[2], across[2], 44, fill=BLUE if part > 0 else ORANGE, faint=0.45,
                  width=abs(part) * thick)  # fmt: skip
    for share, y, name in zip(shares, up, ("words", "after layer 1", "after layer 2"), strict=True):
        page.text(20, y + 4, name, size=12, fill=GREY)
        for x, part in zip(across, share, strict=True):
            page.dot(x, y, 17, fill="#ffffff")
            page.dot(x, y, 17, fill=BLUE if part > 0 else ORANGE, faint=0.25)
            page.text(x, y + 4, f"{part:.2f}".replace("-", "−"), size=11, anchor="middle")
        page.text(740, y + 4, f"sum {share.sum():.2f}", size=12, anchor="end", fill=GREY)
    page.rect(across[2] - 48, 28, 96, 28, fill="#ffffff", edge=INK)
    page.text(across[2], 47, f"logit {logit:.2f}", anchor="middle", bold=True)
    for x, word in zip(across, words, strict=True):
        page.text(x, 370, word, anchor="middle", bold=word in ("not", "good"))
    page.text(20, 394, "Width: relevance that a link passes on. Blue speaks for the class, orange against it.", size=11,
              fill=GREY)  # fmt: skip
    return page, {"logit": logit, "words": float(shares[0].sum()), "layer1": float(shares[1].sum())}


def mean_cosine(vectors: Vector) -> float:
    """SIM: the mean cosine of all pairs."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    n = len(units)
    return float((np.square(units.sum(0)).sum() - n) / (n * (n - 1)))


def geometry() -> tuple[Drawing, Numbers]:
    """Values of a head, and the same values less a constant that the bias takes over: one output, two cones."""
    draw = np.random.default_rng(1)
    values = np.array([1.9, 1.1]) + draw.normal(scale=0.42, size=(9, 2))
    alpha = softmax(draw.normal(size=9))
    constant = values.mean(0)
    page = Drawing(760, 330, "Two heads with the same output: values in a cone, and the same values less a constant")
    found = {}

    def panel(x: float, title: str, under: str, vectors: Vector, bias: Vector) -> None:
        page.text(x, 24, title, bold=True)
        page.text(x, 41, under, size=11, fill=GREY)
        at, unit = np.array([x + 90.0, 250.0]), 78.0
        page.line(x, at[1], x + 330, at[1], fill=PALE, width=1)
        page.line(at[0], 60, at[0], 310, fill=PALE, width=1)
        if bias.any():
            page.line(*at, *(at + unit * bias * [1, -1]), fill=GREY, width=1.4, arrow=True, dashes=True)
            page.text(at[0] + unit * bias[0] * 0.5 + 4, at[1] - unit * bias[1] * 0.5 + 16, "c", size=12, fill=GREY)
        for vector in vectors:
            page.line(*at, *(at + unit * vector * [1, -1]), fill=BLUE, width=1.6, arrow=True, faint=0.75)
        output = at + unit * (alpha @ vectors + bias) * [1, -1]
        page.dot(*output, 6, fill=ORANGE)
        page.text(output[0] + 10, output[1] - 8, "output", size=12, fill=ORANGE)
        page.text(x, 322, f"SIM = {mean_cosine(vectors):.2f}".replace("-", "−"), bold=True)

    panel(20, "Values as the model has them", "a narrow cone", values, np.zeros(2))
    panel(400, "Values less c, and c in the bias b_O", "no cone, and the same output", values - constant, constant)
    found["sim"], found["sim_moved"] = mean_cosine(values), mean_cosine(values - constant)
    found["moved"] = float(np.abs(alpha @ values - (alpha @ (values - constant) + constant)).max())
    return page, found


def standard_errors() -> tuple[Drawing, Numbers]:
    """Texts whose tokens are alike: intervals over tokens are too short, those over texts are right."""
    truth, texts, tokens = 0.0, 10, 30
    t_quantile = 2.262157  # of Student's t with 9 degrees of freedom, at .975; 1.96 for the 300 tokens

    def corpus(draw: np.random.Generator) -> Vector:
        return truth + draw.normal(scale=1.0, size=(texts, 1)) + draw.normal(scale=1.0, size=(texts, tokens))

    draw = np.random.default_rng(0)
    shown = corpus(draw)
    held: dict[str, list[tuple[float, float]]] = {"tokens": [], "texts": []}
    for _ in range(4000):
        sample = corpus(draw)
        means = sample.mean(1)
        held["texts"].append((means.mean(), t_quantile * means.std(ddof=1) / np.sqrt(texts)))
        held["tokens"].append((sample.mean(), 1.96 * sample.std(ddof=1) / np.sqrt(sample.size)))
    cover = {over: float(np.mean([abs(mean - truth) <= half for mean, half in pairs])) for over, pairs in held.items()}

    page = Drawing(760, 330, "Standard errors over tokens and over texts")
    page.text(20, 24, "One corpus: ten texts of thirty tokens", bold=True)
    page.text(20, 41, "a dot is a token, a bar the mean of its text", size=11, fill=GREY)

    def height(value: float) -> float:
        return 170 - 25 * value

    page.line(20, height(0), 350, height(0), fill=INK, width=1, dashes=True)
    page.text(352, height(0) + 4, "truth", size=11)
    spread = np.random.default_rng(5).uniform(-9, 9, size=shown.shape)
    for number, (row, beside) in enumerate(zip(shown, spread, strict=True)):
        x = 40 + number * 32
        for value, offset in zip(row, beside, strict=True):
            page.dot(x + offset, height(value), 2, fill=GREY, faint=0.55)
        page.line(x - 11, height(row.mean()), x + 11, height(row.mean()), fill=BLUE, width=3)
    for column, (over, words) in enumerate((("tokens", "over 300 tokens"), ("texts", "over 10 texts"))):
        x = 415 + column * 180
        page.text(x, 24, f"Intervals {words}", bold=True)
        page.text(x, 41, f"{100 * cover[over]:.0f} % of them hold the truth", size=11, fill=GREY)
        page.line(x + 75, 55, x + 75, 312, fill=INK, width=1, dashes=True)
        for row, (mean, half) in enumerate(held[over][:40]):
            y = 60 + row * 6.3
            fill = BLUE if abs(mean - truth) <= half else ORANGE
            page.line(x + 75 + 62 * (mean - half), y, x + 75 + 62 * (mean + half), y, fill=fill, width=1.8)
            page.dot(x + 75 + 62 * mean, y, 1.8, fill=fill)
    page.text(20, 322, "Right: 40 of 4,000 such corpora; orange intervals miss the truth.", size=11, fill=GREY)
    return page, cover


DIAGRAMS: dict[str, Callable[[], tuple[Drawing, Numbers]]] = {
    "attention": attention,
    "norms": norms,
    "relevance": relevance,
    "geometry": geometry,
    "standard-errors": standard_errors,
}


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, draw in DIAGRAMS.items():
        page, numbers = draw()
        (IMAGES / f"{name}.svg").write_text(page.svg(), encoding="utf-8")
        print(name, {key: round(value, 3) for key, value in numbers.items()})


if __name__ == "__main__":
    main()
