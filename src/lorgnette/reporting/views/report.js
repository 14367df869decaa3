// A report with example texts: cards open the head in the views.

import { startAtlases } from "./atlas.js";
import { startFigures } from "./figures.js";
import { element } from "./numbers.js";
import { Viewer } from "./viewer.js";

/** The views of one subject: one text at a time, chosen by a button each. */
class Texts {
  constructor(root) {
    this.root = root;
    this.documents = JSON.parse(document.getElementById(root.dataset.packed).textContent);
    this.choice = element("div", { class: "texts", role: "group", "aria-label": "Texts" });
    this.place = element("div", { id: `${root.id}-viewer` });
    this.buttons = this.documents.map((packed, number) => {
      const button = element("button", { type: "button", "aria-pressed": false }, packed.pair ? `${packed.text} ‖ ${packed.pair}` : packed.text);
      button.addEventListener("click", () => this.open(number));
      return button;
    });
    this.choice.append(...this.buttons);
    root.append(this.choice, this.place);
    this.viewer = new Viewer(this.place);
    this.shown = -1;
  }

  async open(number, change = null) {
    if (number !== this.shown) {
      this.shown = number;
      this.buttons.forEach((button, place) => button.setAttribute("aria-pressed", place === number));
      await this.viewer.open(this.documents[number]);
    }
    if (change) this.viewer.set(change);
  }
}

startFigures();
const texts = new Map();
for (const root of document.querySelectorAll("[data-packed]")) {
  const made = new Texts(root);
  texts.set(root.id, made);
  // What a subject predicts is best seen in its words.
  const said = made.documents[0].explanations.length > 0;
  made.open(0, said ? { view: "text" } : null);
}
startAtlases(async (card) => {
  const { texts: where, example, stack, layer, head } = card.dataset, place = texts.get(where);
  await place.open(Number(example), { view: "head", stack, layer: layer - 1, head: head - 1, token: card.dataset.token ? Number(card.dataset.token) : -1, unit: "word" });
  place.root.scrollIntoView({ block: "start" });
  place.place.querySelector(".lv-stage").focus({ preventScroll: true });
});
window.lorgnetteTexts = texts; // for the curious, and for tests
