// What the model says, and what it says without the heads that are switched off.

import { element } from "./numbers.js";
import { headName, number, percent } from "./words.js";

const SHOWN = 6;

function bar(label, before, after) {
  const meter = element("span", { class: "lv-meter", "aria-hidden": "true" });
  const fill = meter.appendChild(element("span", { class: "lv-fill" }));
  fill.style.width = `${100 * before}%`;
  if (after !== undefined) meter.appendChild(element("span", { class: "lv-mark" })).style.left = `${100 * after}%`;
  const number = element("span", { class: "lv-share" }, percent(before));
  const then = after === undefined ? [] : [element("span", { class: "lv-then" }, ` → ${percent(after)}`)];
  return element("li", {}, element("span", { class: "lv-label" }, label), meter, element("span", {}, number, ...then));
}

export function showPrediction(root, doc, without) {
  root.replaceChildren();
  const said = doc.prediction, then = without?.prediction;
  if (said?.labels) {
    const order = Array.from(said.shares.keys()).sort((a, b) => said.shares[b] - said.shares[a]).slice(0, SHOWN);
    const after = (k) => (then ? then.shares[then.labels.indexOf(said.labels[k])] ?? 0 : undefined);
    root.append(element("ul", { class: "lv-classes", "aria-label": said.what }, ...order.map((k) => bar(said.labels[k], said.shares[k], after(k)))));
  }
  if (doc.explained) root.append(element("p", { class: "lv-explained" }, `Explained: ${doc.explained}`));
  if (doc.target) root.append(element("p", { class: "lv-target" }, `translation: ${doc.target}`));
  if (without) {
    const heads = without.off.map(([stack, layer, head]) => (doc.stacks.length > 1 ? `${stack} ` : "") + headName(layer, head)).join(", ");
    const moved = without.moved === null ? "" : ` The last hidden states changed by ${number(without.moved)} (1 − cosine).`;
    root.append(element("p", { class: "lv-off" }, `Without ${heads}.${moved}`));
  }
}
