// The head atlas: find, filter and sort the cards; a card opens its head in the views.

import { element } from "./numbers.js";

const FIRST = matchMedia("(max-width: 46rem)").matches ? 4 : 12; // cards that are shown until all are asked for; few on a phone

class Atlas {
  constructor(root, open) {
    this.root = root;
    this.list = root.querySelector(".cards");
    this.cards = [...this.list.children];
    this.tools = root.querySelector(".atlas-tools");
    this.tools.hidden = false;
    [this.find, this.family, this.sort] = ["find", "family", "sort"].map((name) => this.tools.querySelector(`[name="${name}"]`));
    this.count = this.tools.querySelector("output");
    this.more = element("button", { type: "button", class: "more" });
    this.more.addEventListener("click", () => { this.all = !this.all; this.show(); });
    this.list.after(this.more);
    this.all = false;
    this.find.addEventListener("input", () => this.show());
    for (const choice of [this.family, this.sort]) choice.addEventListener("change", () => this.show());
    if (open) this.list.addEventListener("click", (event) => {
      const button = event.target.closest(".open");
      if (button) open(button.closest(".card"));
    });
    this.show();
  }

  matches(card) {
    const wanted = this.find.value.trim().toLowerCase();
    return (!this.family.value || card.dataset.family === this.family.value) && (!wanted || card.textContent.toLowerCase().includes(wanted) || card.dataset.name === wanted);
  }

  ordered() {
    const by = this.sort.value, place = (card) => this.cards.indexOf(card);
    if (!by) return [...this.cards];
    const value = (card) => (card.dataset[by] === undefined ? -Infinity : Number(card.dataset[by]));
    return [...this.cards].sort((a, b) => value(b) - value(a) || place(a) - place(b));
  }

  show() {
    const there = this.ordered(), fit = there.filter((card) => this.matches(card)), kept = new Set(this.all ? fit : fit.slice(0, FIRST));
    this.list.append(...there);
    for (const card of this.cards) card.hidden = !kept.has(card);
    this.count.textContent = fit.length === this.cards.length ? `${this.cards.length} heads` : `${fit.length} of ${this.cards.length} heads`;
    this.more.hidden = fit.length <= FIRST;
    this.more.textContent = this.all ? "Show fewer" : `Show all ${fit.length}`;
  }
}

export function startAtlases(open = null) {
  for (const root of document.querySelectorAll(".atlas")) new Atlas(root, open);
}
