// The live page: a form, and a viewer for each model that is asked.

import { read, write } from "./address.js";
import { element } from "./numbers.js";
import { Questions } from "./questions.js";
import { Viewer } from "./viewer.js";
import { shortName } from "./words.js";

const by = (id) => document.getElementById(id);
const LONGEST = 768, HEAVIEST = 400_000; // pixels of a picture that is sent, and characters
const LINKED = ["view", "layer", "head", "token", "unit", "measure"];

/** One model's place on the page. */
class Seat {
  constructor(page, name) {
    this.page = page;
    this.name = name; // which of the two
    this.off = [];
    this.title = element("h2", {});
    this.root = element("section", { "aria-label": "Views" });
    this.cut = element("p", { class: "live-cut", hidden: "" }, "The text is too long for the model and was truncated.");
    this.layers = element("p", { class: "live-layers", hidden: "" }); // which have attention, if not all
    this.part = element("article", { hidden: "" }, this.title, this.layers, this.cut, this.root);
    by("shown").append(this.part);
    this.viewer = null;
    this.version = 0; // answers that come after a newer wish are let go
    this.asking = null; // the request under way
    this.opening = Promise.resolve();
    this.classes = null; // of the model `known`
    this.sees = null; // whether the model `known` takes pictures; likewise
    this.tower = false; // whether the tower of pictures is shown in its place
    this.generates = null; // whether the model `known` continues a text; null until its first answer
  }

  get model() { return by(this.name).value; }

  /** Asks, and lets the server drop what this overtakes. */
  post(where, more) {
    this.asking?.abort();
    this.asking = new AbortController();
    return this.page.post(where, this.question(more), this.model, this.asking.signal);
  }

  question(more = {}) {
    const { text, pair, image, example, methods } = this.page.asked;
    const chosen = by("class").value; // another model may have other classes
    const generate = (this.generates && Number(by("generate").value)) || null;
    return { model: this.model, text, pair: pair || null, image: this.sees === false ? null : image, generate, example, methods, class: this.classes?.includes(chosen) ? chosen : null, ...more };
  }

  async look() {
    const mine = ++this.version;
    this.part.inert = true; // what is shown belongs to another question until the answer is there
    this.asking?.abort();
    if (!this.model) { this.part.hidden = true; return; }
    if (this.known !== this.model) { this.classes = this.generates = this.sees = null; this.known = this.model; }
    try {
      this.tower = Boolean(this.page.asked.image && by("tower").checked && this.sees !== false);
      const wish = () => (this.tower ? { off: [], tower: true } : { off: this.off.map(named) });
      let doc = await this.post("/api/look", wish());
      const asked = this.classes !== null;
      this.classes = doc.prediction?.what === "Classes" ? doc.prediction.labels : [];
      this.generates = doc.generates;
      this.sees = doc.sees;
      // Only now is it known that the model has the class of a link, or that it generates.
      const { class: chosen, generate } = this.question();
      if (!asked && mine === this.version && (chosen || generate)) doc = await this.post("/api/look", wish());
      this.opening = this.opening.catch(() => {}).then(() => mine === this.version && this.show(doc)); // one after the other
      await this.opening;
    } catch (error) {
      if (mine === this.version) this.part.hidden = true;
      throw error;
    }
    if (mine === this.version) this.part.hidden = this.part.inert = false;
  }

  async show(doc) {
    this.title.textContent = shortName(this.model);
    this.cut.hidden = !doc.cut;
    this.layers.hidden = !doc.attending;
    this.layers.textContent = doc.attending ?? "";
    this.page.offer(this.classes);
    if (!this.viewer) {
      const state = { ...this.page.start, ...this.page.shared(), off: [] };
      this.viewer = new Viewer(this.root, state, { state: (next) => this.page.moved(this, next), toggle: (...head) => this.toggle(head) });
      window.lorgnette ??= this.viewer;
    }
    this.part.hidden = false; // a view is drawn for the width that it has
    await this.viewer.open(doc);
    if (this === this.page.seats[0]) this.page.questions.show(this, doc);
  }

  /** Switch a head off or on, and see what that changes. */
  async toggle([stack, layer, head]) {
    if (this.part.inert || this.tower) return; // heads are switched off in the language model
    const there = this.off.findIndex((other) => String(other) === String([stack, layer, head]));
    const wanted = there < 0 ? [...this.off, [stack, layer, head]] : this.off.filter((_, place) => place !== there);
    const mine = ++this.version, before = this.off;
    this.off = wanted;
    await this.page.work(async () => {
      try {
        const part = wanted.length ? await this.post("/api/without", { off: wanted.map(named) }) : null;
        if (mine === this.version) await this.viewer.without(part);
      } catch (error) {
        if (mine === this.version) this.off = before;
        throw error;
      }
    });
  }
}

const named = ([stack, layer, head]) => `${stack}.${layer + 1}.${head + 1}`;
const linked = (state) => Object.fromEntries(LINKED.map((name) => [name, state[name]]));

class Page {
  constructor() {
    this.seats = [];
    this.asked = null;
    this.example = null;
    this.image = null;
    this.turn = 0;
    this.linking = false;
  }

  async open() {
    const hash = new URLSearchParams(location.hash.slice(1)), token = hash.get("enter");
    if (token) {
      await fetch("/api/enter", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
      hash.delete("enter");
      history.replaceState(null, "", `#${hash}`);
    }
    this.can = await this.get("/api/state");
    this.questions = new Questions(this, by("questions"));
    this.start = read(String(hash));
    this.fill(hash);
    this.listen();
    this.seats = [new Seat(this, "model"), new Seat(this, "other")];
    this.seats[0].off = this.start.off ?? [];
    by("go").disabled = false;
    if (hash.get("text")) this.ask();
  }

  fill(hash) {
    const names = this.can.models.map((model) => model.name);
    const option = (name) => element("option", { value: name }, shortName(name));
    by("model").replaceChildren(...names.map(option));
    by("other").replaceChildren(element("option", { value: "" }, "none"), ...names.map(option));
    by("compare-with").hidden = names.length < 2;
    if (names.includes(hash.get("model"))) by("model").value = hash.get("model");
    if (names.includes(hash.get("other"))) by("other").value = hash.get("other");
    by("text").maxLength = by("pair").maxLength = this.can.limits.text;
    by("generate").max = this.can.limits.generate;
    // What was typed before the page was ready stays.
    for (const id of ["text", "pair"]) if (hash.get(id)) by(id).value = hash.get(id);
    this.showPair(Boolean(hash.get("pair")));
    this.example = /^\d+$/.test(hash.get("example") ?? "") ? Number(hash.get("example")) : null;
    by("from-corpus").hidden = this.can.corpus === null;
    if (hash.get("class")) {
      this.offer([hash.get("class")]);
      by("class").value = hash.get("class");
    }
    if (/^\d+$/.test(hash.get("generate") ?? "")) by("generate").value = hash.get("generate");
    const wanted = hash.get("explain")?.split(",") ?? this.can.default_methods;
    for (const [name, what] of Object.entries(this.can.methods)) {
      const box = element("input", { type: "checkbox", value: name });
      box.checked = wanted.includes(name);
      by("methods").append(element("label", {}, box, element("span", {}, name, element("small", {}, what))));
    }
  }

  listen() {
    by("ask").addEventListener("submit", (event) => { event.preventDefault(); this.renew(); });
    by("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); this.renew(); } });
    for (const id of ["text", "pair"]) by(id).addEventListener("input", () => { this.example = null; });
    by("model").addEventListener("change", () => this.renew());
    by("other").addEventListener("change", () => { this.seats[1].off = []; this.ask(); }); // the first model stays as it is
    by("methods").addEventListener("change", () => this.ask());
    by("with-pair").addEventListener("click", () => this.showPair(by("pair-field").hidden));
    by("picture").addEventListener("change", () => this.attach(by("picture").files[0] ?? null));
    by("no-picture").addEventListener("click", () => this.attach(null));
    by("tower").addEventListener("change", () => this.renew());
    this.opens("how", "methods");
    this.opens("from-corpus", "corpus", () => this.list());
    by("search").addEventListener("input", () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.list(), 250); });
    by("more").addEventListener("click", () => this.list(by("texts").children.length));
    by("link").addEventListener("click", () => this.copy());
  }

  /** Classes that can be explained instead of the predicted one. */
  offer(classes) {
    const select = by("class"), known = new Set([...select.options].map((option) => option.value));
    for (const name of classes) if (!known.has(name)) select.append(element("option", { value: name }, name));
    by("class-field").hidden = select.options.length < 2;
  }

  /** A picture and the number of tokens to generate are asked for unless no model that is shown is known to take them. */
  offerFields() {
    for (const [id, can] of [["generate", "generates"], ["picture", "sees"]]) {
      const hidden = this.seats.every((seat) => !seat.model || seat[can] === false);
      by(`${id}-field`).hidden = by(id).disabled = hidden;
    }
  }

  /** A picture that the text is about, as large as models look at it; null: none. */
  async attach(file) {
    this.image = null;
    this.example = null;
    by("no-picture").hidden = by("tower-field").hidden = !file;
    if (!file) by("picture").value = "";
    else await this.work(async (current) => {
      const sent = await reduced(file).catch(() => { throw new Error(`${file.name} is not a picture that this browser reads: choose a PNG or JPEG file.`); });
      if (current()) this.image = sent;
    });
  }

  /** A new question: heads that were switched off for the last one are on again. */
  renew() {
    for (const seat of this.seats) seat.off = [];
    return this.ask();
  }

  opens(button, part, then = () => {}) {
    by(button).addEventListener("click", () => {
      by(part).hidden = !by(part).hidden;
      by(button).setAttribute("aria-expanded", !by(part).hidden);
      if (!by(part).hidden) then();
    });
  }

  showPair(on) {
    by("pair-field").hidden = !on;
    by("with-pair").setAttribute("aria-pressed", on);
    if (!on) by("pair").value = "";
  }

  async list(start = 0) {
    const query = new URLSearchParams({ start, search: by("search").value });
    await this.work(async () => {
      const page = await this.get(`/api/corpus?${query}`);
      const items = page.texts.map((item) => {
        const made = element("button", { type: "button" }, item.pair ? `${item.text} ‖ ${item.pair}` : item.text, ...(item.label ? [element("small", {}, item.label)] : []));
        made.addEventListener("click", () => this.take(item));
        return element("li", {}, made);
      });
      if (start === 0) by("texts").replaceChildren();
      by("texts").append(...items);
      by("more").hidden = start + page.texts.length >= page.total;
    });
  }

  take(item) {
    by("text").value = item.text;
    this.showPair(Boolean(item.pair));
    by("pair").value = item.pair ?? "";
    this.image = null;
    by("picture").value = "";
    by("no-picture").hidden = by("tower-field").hidden = true;
    this.example = item.number;
    this.renew();
  }

  ask() {
    const text = by("text").value.trim();
    if (!text) {
      this.refuse("There is no text: type one, or choose one from the corpus.");
      return by("text").focus();
    }
    const methods = [...by("methods").querySelectorAll("input:checked")].map((box) => box.value);
    const same = String(methods) === String(this.can.default_methods);
    this.asked = { text: this.example === null ? text : by("text").value, pair: by("pair").value.trim(), image: this.image, example: this.example, methods: same ? null : methods };
    return this.work(async (current) => {
      let failed = null;
      by("shown").hidden = false; // views are drawn for the width that they have; a seat without an answer hides itself
      for (const seat of this.seats) {
        await seat.look().catch((error) => { failed ??= error; }); // the other model may still have an answer
        if (!current()) return;
      }
      by("shown").hidden = this.seats.every((seat) => seat.part.hidden);
      if (this.seats[0].part.hidden) this.questions.hide();
      this.offerFields();
      by("shown").classList.toggle("live-two", this.seats.every((seat) => !seat.part.hidden));
      if (!failed && !this.seats.some((seat) => seat.classes?.includes(by("class").value))) by("class").value = "";
      if (this.seats[0].viewer) this.keep(this.seats[0].viewer.state);
      if (failed) throw failed;
    });
  }

  /** Say that something is being worked on; what is overtaken by a newer wish is let go. */
  async work(act) {
    const mine = ++this.turn;
    by("problem").hidden = true;
    this.say("Looking …", true);
    try {
      await act(() => mine === this.turn);
      if (mine === this.turn) this.say("");
    } catch (error) {
      if (mine !== this.turn) return;
      this.say("");
      by("problem").textContent = error.message;
      by("problem").hidden = false;
    }
  }

  /** A question that cannot be asked: what stood there answered another one. */
  refuse(why) {
    this.turn++;
    for (const seat of this.seats) {
      seat.version++;
      seat.part.hidden = true;
    }
    this.say("");
    this.questions.hide();
    by("shown").hidden = true;
    by("problem").textContent = why;
    by("problem").hidden = false;
  }

  say(what, busy = false) {
    by("now").textContent = what;
    by("now").classList.toggle("live-busy", busy);
  }

  moved(seat, state) {
    if (!this.linking) {
      this.linking = true;
      for (const other of this.seats) if (other !== seat && other.viewer?.scene && !other.part.hidden) other.viewer.set(linked(state));
      this.linking = false;
    }
    if (seat !== this.seats[0]) return;
    this.keep(state);
    this.questions.moved(state);
  }

  /** What a second viewer begins with: what the first one shows. */
  shared() {
    const first = this.seats.find((seat) => seat.viewer?.scene);
    return first ? linked(first.viewer.state) : {};
  }

  keep(state) {
    if (!this.asked) return;
    const { text, pair, example, methods } = this.asked;
    const asked = { text, pair, example: example === null ? "" : String(example), explain: methods?.join(",") };
    const chosen = { class: by("class").value, generate: this.seats.some((seat) => seat.model && seat.question().generate) ? by("generate").value : "" };
    write(state, "#", { model: this.seats[0].model, other: this.seats[1].model, ...asked, ...chosen });
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(location.href);
      this.say("Link copied.");
    } catch {
      this.say("Copy the address of this page: it holds everything.");
    }
  }

  async get(where) { return answered(await fetch(where)); }

  async post(where, body, model, signal) {
    const slow = setTimeout(() => this.say(`Loading ${shortName(model)} …`, true), 1500);
    try {
      return await answered(await fetch(where, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal }));
    } finally {
      clearTimeout(slow);
    }
  }
}

/** A picture as a data URL that is small enough to be sent. */
async function reduced(file) {
  const image = await createImageBitmap(file);
  for (let longest = LONGEST; ; longest /= 1.5) {
    const scale = Math.min(1, longest / Math.max(image.width, image.height)), canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(image.width * scale));
    canvas.height = Math.max(1, Math.round(image.height * scale));
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff"; // under what is transparent
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const address = canvas.toDataURL("image/jpeg", 0.9);
    if (address.length <= HEAVIEST) return address;
  }
}

async function answered(response) {
  const body = await response.json().catch(() => ({ detail: `The page answered with ${response.status}.` }));
  if (!response.ok) throw new Error(body.detail);
  return body;
}

const page = new Page();
page.open().catch((error) => {
  by("problem").textContent = error.message;
  by("problem").hidden = false;
});
