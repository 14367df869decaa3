// The numbers beside a view: what the head reads, and what one word reads, as text that can be read aloud and copied.

import { amount, headName, number, percent, shown } from "./words.js";

const ROWS = 6;

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("aria-") || (value !== null && value !== undefined && value !== false)) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const largest = (values, count) => Array.from(values.keys()).sort((a, b) => values[b] - values[a]).slice(0, count);

/** What the head does in this text: [what, how much]. */
export function facts(scene, state) {
  const stack = scene.stack(state.stack), { nats, most } = stack.entropy(state.layer, state.head);
  if (stack.isGone(state.layer, state.head)) return [["removed", "this head was pruned from the model"]];
  const read = stack.received(state.layer, state.head, state.unit, "weight"), [first] = largest(read, 1);
  const out = [
    ["attends to", `${shown(stack.cols.labels(state.unit)[first])} · ${percent(read[first])}`],
    ["entropy", `${nats.toFixed(2)} nats (at most ${most.toFixed(2)})`],
  ];
  if (stack.norms) out.push(["contributes", `${percent(stack.share(state.layer, state.head))} of its layer's norm`]);
  return out;
}

/** The strongest words that one word reads, or all together. */
export function reading(scene, state) {
  const stack = scene.stack(state.stack), { token, unit } = state;
  const of = (measure) => {
    if (measure === "norm" && !stack.norms) return null;
    if (token < 0) return stack.received(state.layer, state.head, unit, measure);
    const matrix = stack.matrix(state.layer, state.head, unit, measure);
    return matrix.values.subarray(token * matrix.cols, (token + 1) * matrix.cols);
  };
  const weight = of("weight"), norm = of("norm"), labels = stack.cols.labels(unit);
  const order = largest(state.measure === "norm" && norm ? norm : weight, ROWS);
  return order.map((key) => ({ label: shown(labels[key]), weight: weight[key], norm: norm?.[key] }));
}

/** In one line, for the status that is read aloud. */
export function spoken(scene, state) {
  const stack = scene.stack(state.stack), rows = reading(scene, state).slice(0, 3);
  const who = state.token < 0 ? "all words" : shown(stack.rows.labels(state.unit)[state.token]);
  const what = rows.map((row) => `${row.label} ${amount(state.measure === "norm" ? row.norm : row.weight, state.measure)}`).join(", ");
  return `Layer ${state.layer + 1}, head ${state.head + 1}. From ${who}: ${what}.`;
}

export function showNumbers(root, scene, state) {
  const stack = scene.stack(state.stack), who = state.token < 0 ? "all words, mean" : shown(stack.rows.labels(state.unit)[state.token] ?? "");
  const name = scene.stacks.length > 1 ? `Head ${headName(state.layer, state.head)} · ${stack.name}` : `Head ${headName(state.layer, state.head)}`;
  const list = element("dl", { class: "lv-facts" });
  for (const [what, much] of facts(scene, state)) list.append(element("div", {}, element("dt", {}, what), element("dd", {}, much)));
  const body = element("tbody");
  for (const row of reading(scene, state)) {
    const norm = row.norm === undefined ? [] : [element("td", {}, number(row.norm))];
    body.append(element("tr", {}, element("th", { scope: "row" }, row.label), element("td", {}, percent(row.weight)), ...norm));
  }
  const head = element("tr", {}, element("th", { scope: "col" }, "key"), element("th", { scope: "col" }, "weight"), ...(stack.norms ? [element("th", { scope: "col" }, "norm")] : []));
  const table = element("table", { class: "lv-table" }, element("caption", {}, "From ", element("b", {}, who)), element("thead", {}, head), body);
  root.replaceChildren(element("h3", { class: "lv-head" }, name), list, table);
}
