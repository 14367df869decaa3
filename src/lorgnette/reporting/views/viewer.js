// The viewer: one text, all views, one state.

import { palette } from "./colours.js";
import { compareView } from "./compareview.js";
import { headView } from "./headview.js";
import { cue } from "./cue.js";
import { legendView } from "./legend.js";
import { matrixView } from "./matrixview.js";
import { modelView } from "./modelview.js";
import { pictureView } from "./pictureview.js";
import { element, showNumbers, spoken } from "./numbers.js";
import { showPrediction } from "./prediction.js";
import { asPng, asSvg, download } from "./save.js";
import { explanationsOf, openScene } from "./scene.js";
import { Stage } from "./stage.js";
import { chosen, explanations, textView } from "./textview.js";
import { trees, treeView } from "./treeview.js";
import { amount, headName, number, shortName, shown } from "./words.js";

const VIEWS = [headView, matrixView, modelView, textView, treeView, compareView, pictureView];
const START = { view: null, stack: null, layer: -1, head: -1, token: -1, unit: "word", measure: "weight", methods: null, off: [] };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const between = (low, value, high) => Math.max(low, Math.min(high, value));

export class Viewer {
  /** `told.state(state)` hears of every change; `told.toggle(stack, layer, head)` of a head to switch (live page only). */
  constructor(root, state = {}, told = {}) {
    Object.assign(this, { root, told, scene: null, hover: null, state: { ...START, ...state }, slowest: 0 });
    this.colours = palette(dark.matches);
    dark.addEventListener("change", () => { this.colours = palette(dark.matches); this.refresh(); });
    this.build();
    document.addEventListener("keydown", (event) => this.hears(event.target) && this.key(event));
  }

  /** Keys are for the viewer that has the focus; where nothing has it, or a button elsewhere, for the first. */
  hears(target) {
    const free = target === document.body || (target.tagName === "BUTTON" && !target.closest(".lv"));
    return this.root.contains(target) || (free && this.root === document.querySelector(".lv"));
  }

  async open(doc) {
    const blind = this.scene && !this.scene.pictures.length;
    this.scene = await openScene(doc);
    if (blind && this.scene.pictures.length) this.state.view = "picture";
    // A mean over all queries of a causal model says little of a picture: begin with what the last token reads.
    if (this.scene.pictures.length && !this.seen && this.state.token < 0) this.state.token = this.scene.stack(this.state.stack).rows.count(this.state.unit) - 1;
    this.seen ||= this.scene.pictures.length > 0;
    this.scene.live = Boolean(this.told.toggle);
    await this.without(doc.without);
    this.root.setAttribute("aria-busy", "false");
    return this;
  }

  /** What changes when heads are switched off; null when none is. */
  async without(part) {
    this.scene.without = part && { ...part, explanations: await explanationsOf(part.explanations, this.scene) };
    this.set({ off: part?.off ?? [] });
  }

  get view() { return VIEWS.find((view) => view.name === this.state.view) ?? headView; }

  set(change) {
    const next = { ...this.state, ...change };
    if (this.scene) {
      const stack = this.scene.stack(next.stack);
      if (change.unit && change.unit !== this.state.unit && next.token >= 0) next.token = this.moved(stack, next);
      next.stack = stack.name;
      if (next.layer < 0 && next.head < 0) Object.assign(next, stack.leading());
      next.layer = between(0, next.layer, stack.layers - 1);
      next.head = between(0, next.head, stack.heads - 1);
      next.token = next.token < stack.rows.count(next.unit) ? Math.max(-1, next.token) : -1;
      if (!stack.norms) next.measure = "weight";
      if (next.view === "tree" && !trees(this.scene, next)) next.view = "head";
      if (next.view === "picture" && !this.scene.pictures.length) next.view = "head";
      if (!VIEWS.some((view) => view.name === next.view)) next.view = this.scene.pictures.length ? "picture" : "head";
    }
    this.state = next;
    this.refresh();
    this.told.state?.(next);
  }

  /** The token that stays chosen when pieces become words, or words pieces. */
  moved(stack, next) {
    return next.unit === "word" ? stack.rows.word[next.token] : stack.rows.word.indexOf(next.token);
  }

  build() {
    const tab = (view, place) => {
      const made = element("button", { type: "button", role: "tab", "data-view": view.name, title: `${view.hint} (${place + 1})` }, view.title);
      made.addEventListener("click", () => this.set({ view: view.name }));
      return made;
    };
    this.tabs = element("div", { class: "lv-tabs", role: "tablist", "aria-label": "Views" }, ...VIEWS.map(tab));
    this.tools = element("div", { class: "lv-tools" });
    this.said = element("div", { class: "lv-said" });
    this.map = element("div", { class: "lv-map", tabindex: "0", role: "application", "aria-label": "Heads: arrow keys choose layer and head, Enter opens it" });
    this.numbers = element("div", { class: "lv-numbers" });
    this.hint = element("p", { class: "lv-hint" });
    this.methods = element("div", { class: "lv-methods", role: "group", "aria-label": "Explanations" });
    this.place = element("div", { class: "lv-stage", tabindex: "0", role: "application" });
    this.readout = element("p", { class: "lv-readout" });
    this.legend = element("div", { class: "lv-legend", "aria-hidden": "true" });
    this.status = element("p", { class: "lv-status", role: "status", "aria-live": "polite" });
    const side = element("div", { class: "lv-side" }, element("h3", {}, "Heads"), this.map, this.numbers);
    const main = element("div", { class: "lv-main" }, this.hint, this.methods, this.place, this.readout, this.legend);
    this.root.classList.add("lv");
    this.root.setAttribute("aria-busy", "true");
    this.root.replaceChildren(this.said, element("div", { class: "lv-bar" }, this.tabs, this.tools), element("div", { class: "lv-body" }, side, main), this.status);
    this.stages();
  }

  stages() {
    const ask = (view, focus) => () => ({ view: view(), scene: this.scene, state: this.state, colours: this.colours, focus: focus() });
    const main = { hover: (at) => this.over(at), click: (at) => this.click(at), twice: (at) => this.twice(at), painted: (ms) => { this.last = ms; this.slowest = Math.max(this.slowest, ms); } };
    this.stage = new Stage(this.place, ask(() => this.view, () => this.focus()), main);
    cue(this.place, this.stage.spacer);
    const small = { least: 12, most: 26, tallest: 480, gap: 2, label: 24 };
    const map = { hover: (at) => this.over(at), click: (at) => at && this.pick(at), twice: (at) => this.twice(at) };
    this.mapStage = new Stage(this.map, ask(() => modelView, () => this.hover), map, small);
    this.key_ = new Stage(this.legend, ask(() => legendView, () => null), {});
  }

  /** What is looked at: under the pointer, or else chosen. */
  focus() {
    if (this.hover && (this.hover.side || this.view === modelView)) return this.hover;
    return this.state.token >= 0 ? { side: "query", index: this.state.token } : null;
  }

  over(at) {
    const same = JSON.stringify([at?.side, at?.index, at?.col, at?.layer, at?.head]) === this.hovered;
    if (same) return;
    this.hovered = JSON.stringify([at?.side, at?.index, at?.col, at?.layer, at?.head]);
    this.hover = at;
    this.readout.textContent = this.read(at);
    this.stage.redraw();
    this.mapStage.redraw();
  }

  read(at) {
    if (!at || !this.scene) return "";
    const { state } = this, stack = this.scene.stack(state.stack);
    if (at.layer !== undefined) return `head ${headName(at.layer, at.head)}`;
    if (at.method) return `${shown(at.method.side.labels(state.unit)[at.index])}: ${number(at.method.of(state.unit)[at.index])} (${at.method.method})`;
    if (at.col !== undefined) {
      const value = stack.matrix(state.layer, state.head, state.unit, state.measure).at(at.index, at.col);
      return `${shown(stack.rows.labels(state.unit)[at.index])} → ${shown(stack.cols.labels(state.unit)[at.col])}: ${amount(value, state.measure)}`;
    }
    return "";
  }

  click(at) {
    this.place.focus({ preventScroll: true });
    if (!at) return this.set({ token: -1 });
    if (at.layer !== undefined) return this.pick(at);
    if (at.side) this.set({ token: this.state.token === at.index ? -1 : at.index });
  }

  pick({ layer, head }) { this.set({ layer, head }); }

  twice(at) { if (at?.layer !== undefined) this.set({ layer: at.layer, head: at.head, view: "head" }); }

  toggle() { if (!this.scene.stack(this.state.stack).isGone(this.state.layer, this.state.head)) this.told.toggle?.(this.state.stack, this.state.layer, this.state.head); }

  refresh() {
    if (!this.scene) return;
    const { state, scene } = this;
    for (const tab of this.tabs.children) {
      const on = tab.dataset.view === this.view.name;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      tab.hidden = (tab.dataset.view === "tree" && !scene.doc.trees) || (tab.dataset.view === "picture" && !scene.pictures.length);
    }
    this.showTools();
    this.showMethods();
    showPrediction(this.said, scene.doc, scene.without);
    showNumbers(this.numbers, scene, state);
    this.hint.textContent = this.view.hint;
    this.place.setAttribute("aria-label", `${this.view.title} view. ${this.view.hint} Arrow keys move.`);
    this.status.textContent = spoken(scene, state);
    for (const stage of [this.stage, this.mapStage, this.key_]) stage.changed();
    if (state.token >= 0 || this.view === modelView) requestAnimationFrame(() => this.stage.reveal(Math.max(0, state.token)));
    requestAnimationFrame(() => { const box = this.mapStage.box; if (box) this.mapStage.reveal(0); });
  }

  showTools() {
    const { state, scene } = this, stack = scene.stack(state.stack), held = this.tools.contains(document.activeElement) && document.activeElement.dataset.tool;
    const choice = (name, label, options) => element("div", { class: "lv-choice", role: "group", "aria-label": label }, ...options.map(([value, text]) => {
      const made = element("button", { type: "button", "aria-pressed": state[name] === value, "data-tool": `${name}-${value}` }, text);
      made.addEventListener("click", () => this.set({ [name]: value }));
      return made;
    }));
    const button = (name, text, title, act, more = {}) => {
      const made = element("button", { type: "button", class: "lv-button", title, "data-tool": name, ...more }, text);
      made.addEventListener("click", act);
      return made;
    };
    const tools = [];
    if (scene.stacks.length > 1) tools.push(choice("stack", "Stack", scene.stacks.map(({ name }) => [name, name])));
    tools.push(choice("unit", "Words or tokens", [["word", "Words"], ["piece", "Tokens"]]));
    if (stack.norms) tools.push(choice("measure", "Measure", [["weight", "Weight"], ["norm", "Norm"]]));
    if (this.told.toggle && !stack.isGone(state.layer, state.head)) {
      const off = state.off.some(([s, l, h]) => s === stack.name && l === state.layer && h === state.head), name = headName(state.layer, state.head);
      tools.push(button("off", off ? `Switch ${name} on` : `Switch ${name} off`, "x", () => this.toggle(), { "aria-pressed": off }));
    }
    tools.push(button("png", "PNG", "Save this view as a picture", () => this.save("png")), button("svg", "SVG", "Save this view as a drawing", () => this.save("svg")));
    this.tools.replaceChildren(...tools);
    if (held) this.tools.querySelector(`[data-tool="${CSS.escape(held)}"]`)?.focus();
  }

  showMethods() {
    const { state, scene } = this, on = new Set(chosen(scene, state).map((item) => item.key.replace(/ without$/, ""))), many = this.view === textView || this.view === pictureView;
    const some = many ? explanations(scene, state) : this.view === compareView ? scene.explanations.map((item) => ({ ...item, key: item.method })) : [];
    this.methods.hidden = some.length < 2;
    this.methods.replaceChildren(...some.map((item, place) => {
      if (item.key.endsWith(" without")) return ""; // goes with its method
      const pressed = many ? on.has(item.key) : (state.methods?.[0] ?? scene.explanations[0].method) === item.key || (place === 0 && !scene.explanations.some((other) => other.method === state.methods?.[0]));
      const made = element("button", { type: "button", class: "lv-chip", "aria-pressed": pressed }, item.method);
      made.addEventListener("click", () => {
        if (this.view === compareView) return this.set({ methods: [item.key] });
        if (!on.delete(item.key)) on.add(item.key);
        this.set({ methods: [...on] });
      });
      return made;
    }));
  }

  key(event) {
    if (!this.scene || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const act = this.action(event);
    if (act) { event.preventDefault(); act(); }
  }

  action({ key, shiftKey, target }) {
    const { state } = this, arrows = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[key];
    if (arrows && !shiftKey && this.tabs.contains(target)) return () => this.turn(arrows[0] || arrows[1]);
    if (arrows && (shiftKey || this.map.contains(target) || (this.place.contains(target) && this.view === modelView))) {
      return () => this.set({ head: state.head + arrows[0], layer: state.layer + arrows[1] });
    }
    if (arrows && this.place.contains(target)) {
      const [token, head] = this.view.step === "x" ? arrows : [arrows[1], arrows[0]];
      const count = this.scene.stack(state.stack).rows.count(state.unit);
      return () => this.set({ token: token ? between(0, state.token + token, count - 1) : state.token, head: state.head + head });
    }
    if (key === "Enter" && (this.map.contains(target) || (this.place.contains(target) && this.view === modelView))) return () => this.set({ view: "head" });
    if (key === "Escape") return () => this.set({ token: -1 });
    if (key === "w") return () => this.set({ unit: state.unit === "word" ? "piece" : "word" });
    if (key === "n") return () => this.set({ measure: state.measure === "norm" ? "weight" : "norm" });
    if (key === "x" && this.told.toggle) return () => this.toggle();
    const view = VIEWS[Number(key) - 1];
    return view ? () => this.set({ view: view.name }) : null;
  }

  turn(step) {
    const there = [...this.tabs.children].filter((tab) => !tab.hidden), now = there.findIndex((tab) => tab.dataset.view === this.view.name);
    this.set({ view: there[(now + step + there.length) % there.length].dataset.view });
    this.tabs.querySelector('[aria-selected="true"]').focus();
  }

  async save(kind) {
    const ask = { view: this.view, scene: this.scene, state: this.state, colours: this.colours, focus: this.state.token >= 0 ? { side: "query", index: this.state.token } : null };
    ask.title = `${shortName(this.scene.doc.model ?? this.scene.stacks[0].name)} · ${this.scene.stacks.length > 1 ? `${this.state.stack} ` : ""}head ${headName(this.state.layer, this.state.head)}`;
    const width = Math.max(this.place.clientWidth, 480), name = `lorgnette-${this.view.name}-${headName(this.state.layer, this.state.head)}.${kind}`;
    const blob = kind === "svg" ? new Blob([asSvg(ask, width)], { type: "image/svg+xml" }) : await asPng(ask, width);
    download(blob, name);
  }
}
