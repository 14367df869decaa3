// Questions about the text that is shown: what each layer predicts, why a head attends, by which paths, from which lines.

import { element } from "./numbers.js";
import { SvgPen, fitted } from "./pen.js";
import { headName, number, percent, shown } from "./words.js";

const WRITERS = 12; // rows of the table of a score; the others are one row
const WIDE = 640, LEVEL = 58, MARGIN = 60; // the drawing of paths
const DASHES = { query: [6, 3], key: [2, 3] };
const cells = (row, name = "td", more = {}) => row.map((cell) => element(name, more, ...[cell].flat()));

/** One question: a summary that opens it, what it takes, a button, and the place of its answer. */
class Question {
  constructor(title, about, fields, ask) {
    this.title = element("summary", {}, title);
    this.go = element("button", { type: "submit", class: "live-quiet" }, "Ask");
    this.form = element("form", { class: "live-row", autocomplete: "off" }, ...fields, this.go);
    this.answer = element("div", { class: "live-answer", "aria-live": "polite" });
    this.root = element("details", {}, this.title, element("p", {}, about), this.form, this.answer);
    this.form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  }

  clear() { this.answer.replaceChildren(); }
}

export class Questions {
  /** `page.work(act)` says that something is being worked on, `page.post(where, body, model)` asks the server. */
  constructor(page, root) {
    Object.assign(this, { page, root, seat: null, place: "" });
    this.query = element("select", {});
    this.key = element("select", {});
    this.said = element("input", { type: "text", class: "live-wide", placeholder: "the model's own" });
    this.among = element("select", {}, element("option", { value: "all" }, "all parts"), element("option", { value: "heads" }, "heads alone"));
    this.against = element("input", { type: "text", class: "live-wide", placeholder: "the mean over its tokens" });
    const field = (name, made) => element("label", {}, `${name} `, made);
    this.layers = new Question("What would each layer predict?", "The final norm and the output head, applied to the residual stream after each layer (logit lens).", [], () => this.ask(this.layers, "/api/layers", {}, showLayers));
    this.why = new Question("", "The score of a query and a key, split by what wrote them to the residual stream: how much each part adds beyond the mean of the keys that the query may see.", [field("from", this.query), field("to", this.key)], () => this.askWhy());
    this.paths = new Question("By which paths does the prediction come about?", "The strongest edges that lead to the output: how much of its logit comes through each of them, to first order.", [field("among", this.among), field("compared with", this.against)], () => this.askPaths());
    this.lines = new Question("Which lines of the prompt did the answer use?", "Each line of the text is masked out in every layer, and then left as the only one; the last line asks.", [field("Answer", this.said)], () => this.askLines());
    root.append(this.layers.root, this.why.root, this.paths.root, this.lines.root);
  }

  /** A new answer of the first model: its tokens, and what it can be asked. */
  show(seat, doc) {
    this.seat = seat;
    this.root.hidden = false;
    for (const each of [this.layers, this.why, this.paths, this.lines]) each.clear();
    this.layers.root.hidden = !doc.layered;
    this.paths.root.hidden = !doc.predicts;
    this.lines.root.hidden = !doc.generates;
    this.place = "";
    this.moved(seat.viewer.state);
  }

  hide() { this.root.hidden = true; }

  /** Another head or another word: the question is about that one. */
  moved(state) {
    const scene = this.seat?.viewer?.scene;
    if (!scene) return;
    const stack = scene.stack(state.stack), place = `${stack.name}.${headName(state.layer, state.head)}`;
    const tokens = (side) => side.pieces.map((piece, at) => element("option", { value: at }, `${at + 1} ${shown(piece)}`));
    if (this.stack !== stack) {
      this.stack = stack;
      this.query.replaceChildren(...tokens(stack.rows));
      this.key.replaceChildren(element("option", { value: "" }, "the largest weight"), ...tokens(stack.cols));
      this.query.value = stack.rows.pieces.length - 1;
    }
    // The last token of a word has seen all of it.
    if (state.token >= 0) this.query.value = state.unit === "word" ? stack.rows.word.lastIndexOf(state.token) : state.token;
    if (place === this.place) return;
    this.place = place;
    this.why.clear();
    this.why.title.textContent = `Why does head ${scene.stacks.length > 1 ? place : headName(state.layer, state.head)} attend there?`;
  }

  ask(question, where, more, show) {
    const { model, text, pair, image, generate, example } = this.seat.question(), seat = this.seat, version = seat.version;
    return this.page.work(async () => {
      const body = where === "/api/sources" ? { model, text, ...more } : { model, text, pair, image, generate, example, ...more };
      const answer = await this.page.post(where, body, model);
      if (version === seat.version) question.answer.replaceChildren(...show(answer));
    });
  }

  askWhy() {
    const key = this.key.value === "" ? null : Number(this.key.value);
    return this.ask(this.why, "/api/why", { head: this.place, query: Number(this.query.value), key }, showWhy);
  }

  askPaths() {
    return this.ask(this.paths, "/api/paths", { among: this.among.value, against: this.against.value.trim() || null }, showPaths);
  }

  askLines() {
    const generate = this.seat.question().generate, more = generate ? { generate } : {};
    return this.ask(this.lines, "/api/sources", { answer: this.said.value.trim() || null, ...more }, showLines);
  }
}

function table(caption, head, rows, kind = "") {
  const made = element("table", { class: `live-table ${kind}` }, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...cells(head, "th", { scope: "col" }))), element("tbody", {}, ...rows));
  return element("div", { class: "live-scroll" }, made);
}

/** A cell with a bar behind its number, whose length is its share of `most`. */
function bar(value, most, text = number(value)) {
  const made = element("td", { class: "live-bar" }, element("span", {}, text));
  made.style.setProperty("--share", `${Math.min(1, Math.abs(value) / (most || 1)) * 100}%`);
  made.classList.toggle("live-minus", value < 0);
  return made;
}

function showLayers({ tokens, predictions, probabilities, settled }) {
  const rows = predictions.map((row, state) => {
    const made = row.map((piece, at) => {
      const cell = element("td", { title: `${piece}: ${percent(probabilities[state][at])}` }, shown(piece));
      cell.style.setProperty("--share", probabilities[state][at]);
      cell.classList.toggle("live-settled", state >= settled[at]);
      return cell;
    });
    return element("tr", {}, element("th", { scope: "row" }, state ? `layer ${state}` : "embeddings"), ...made);
  });
  const caption = "The most likely token after each token of the text, the last layer on top: the darker, the more likely. Bold: what the model itself predicts, here and in all later layers.";
  return [table(caption, ["", ...tokens.map(shown)], rows.reverse(), "live-layers")];
}

function showWhy({ head, query, key, score, beyond, weight, parts }) {
  const first = parts.slice(0, WRITERS), rest = parts.slice(WRITERS);
  if (rest.length) first.push({ writer: `${rest.length} others`, query: sum(rest, "query"), key: sum(rest, "key") });
  const most = Math.max(...first.flatMap((part) => [Math.abs(part.query), Math.abs(part.key)]));
  const rows = first.map((part) => element("tr", {}, element("th", { scope: "row" }, part.writer), bar(part.query, most), bar(part.key, most)));
  rows.push(element("tr", { class: "live-sum" }, element("th", { scope: "row" }, "together"), ...cells([number(beyond), number(beyond)])));
  const caption = `${head} from ${shown(query)} to ${shown(key)}: weight ${percent(weight)}, score ${number(score)}, ${number(beyond)} beyond the mean of the row.`;
  return [table(caption, ["written by", "into the query", "into the key"], rows)];
}

/** Parts by level, the output on top; edges into queries are dashed, those into keys dotted. */
function showPaths({ explained, logit, parts, edges }) {
  const colour = (name) => `var(--${name})`; // of the page, light or dark
  const top = Math.max(...parts.map((part) => part.y)), most = Math.max(...edges.map((edge) => Math.abs(edge.attribution)));
  const at = (x, y) => [MARGIN + x * (WIDE - 2 * MARGIN), 20 + (top - y) * LEVEL];
  const pen = new SvgPen(WIDE, 40 + top * LEVEL, colour("paper"));
  for (const edge of edges) {
    const share = Math.abs(edge.attribution) / most;
    pen.path([...at(edge.x, edge.y), ...at(edge.x2, edge.y2)], { stroke: colour(edge.attribution < 0 ? "other" : "accent"), line: 0.6 + 4.4 * share, alpha: 0.75, dash: DASHES[edge.way] });
    const title = document.createElementNS(pen.root.namespaceURI, "title");
    title.textContent = edge.label;
    pen.root.lastChild.append(title);
  }
  for (const part of parts) {
    const [x, y] = at(part.x, part.y), name = fitted(shown(part.name), 2 * MARGIN, { size: 11 });
    pen.rect(x - name.length * 3.2 - 3, y - 8, name.length * 6.4 + 6, 16, { fill: colour("paper"), radius: 3 });
    pen.text(name, x, y, { size: 11, fill: colour("ink"), align: "center" });
  }
  pen.set(pen.root, { role: "img", "aria-label": `The strongest paths to ${explained}` });
  const rows = edges.map((edge) => element("tr", {}, element("th", { scope: "row" }, edge.label.slice(0, edge.label.lastIndexOf(": "))), bar(edge.attribution, most)));
  const caption = `${shown(explained)}: logit ${number(logit)}. Line widths and bars: how much of it each edge gives.`;
  const about = "First order: where a softmax is saturated, taking the edge away does something else. Dashed lines lead into queries, dotted ones into keys.";
  return [element("div", { class: "live-scroll" }, pen.root), table(caption, ["edge", "attribution"], rows), element("p", { class: "live-note" }, about)];
}

const sum = (parts, name) => parts.reduce((all, part) => all + part[name], 0);

function showLines({ answer, log_probability, without_any, first, parts, notes }) {
  const most = Math.max(...parts.flatMap((part) => [Math.abs(part.drop), Math.abs(part.alone ?? 0)]));
  const rows = parts.map((part) => {
    const alone = part.alone === null ? element("td", {}, "–") : bar(part.alone, most);
    const name = element("th", { scope: "row", title: part.part }, part.text);
    return element("tr", { class: part.part === first ? "live-first" : "" }, name, bar(part.drop, most), alone, ...cells([percent(part.attention), percent(part.norm), number(part.relevance)]));
  });
  const caption = `The answer “${answer.trim()}” has log-probability ${number(log_probability)} nats, ${number(without_any)} without any of the lines before the last.`;
  const about = "drop: nats that it loses when the line is masked out; alone: nats that it gains when this is the only one. A small drop does not mean that a line was not read: another may say the same.";
  return [table(caption, ["line", "drop", "alone", "attention", "norm", "relevance"], rows, "live-lines"), ...[about, ...notes].map((note) => element("p", { class: "live-note" }, note))];
}
