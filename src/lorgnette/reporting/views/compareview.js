// Compare view: the same words, four readings: weight, norm, relevance, and what changes without the head.

import { fitted, widthOf } from "./pen.js";
import { amount, headName, number, shown } from "./words.js";

const ROW = 26, TOP = 48;

/** The relevance that is compared: the chosen method, or the first that was packed. */
export function compared(scene, state) {
  return scene.explanations.find((item) => item.method === state.methods?.[0]) ?? scene.explanations[0] ?? null;
}

/** The same method after the heads were switched off, less before. */
function change(scene, state, item) {
  const after = scene.without?.explanations.find((other) => other.method === item?.method);
  if (!after) return null;
  const was = item.side.toUnit(item.values, state.unit), is = item.side.toUnit(after.values, state.unit);
  return is.map((value, index) => value - was[index]);
}

export function columns(scene, state) {
  const stack = scene.stack(state.stack), one = state.token >= 0 && state.token < stack.rows.count(state.unit);
  const head = headName(state.layer, state.head), item = compared(scene, state);
  const read = (measure) => {
    if (!one) return stack.received(state.layer, state.head, state.unit, measure);
    const matrix = stack.matrix(state.layer, state.head, state.unit, measure);
    return matrix.values.slice(state.token * matrix.cols, (state.token + 1) * matrix.cols);
  };
  const from = one ? `from ${shown(stack.rows.labels(state.unit)[state.token])}` : "mean over words";
  const here = item && item.side === stack.cols;
  const off = scene.without ? `without ${scene.without.off.map(([, l, h]) => headName(l, h)).join(", ")}` : `without ${head}`;
  return [
    { title: "Weight", under: from, values: read("weight"), measure: "weight" },
    { title: "Norm", under: from, values: stack.norms ? read("norm") : null, measure: "norm", why: "norms were not measured" },
    { title: "Relevance", under: item?.method ?? "", values: here ? item.side.toUnit(item.values, state.unit) : null, signed: true, why: scene.doc.prediction ? "no explanation was asked for" : "no prediction to explain" },
    { title: "Change", under: off, values: here ? change(scene, state, item) : null, signed: true, why: scene.live ? "switch a head off (x)" : "no head was switched off" },
  ];
}

export const compareView = {
  name: "compare",
  title: "Compare",
  hint: "Word by word: attention weight, norm, relevance for the prediction, and the change when the head is off.",
  step: "y",

  layout(scene, state, width) {
    const stack = scene.stack(state.stack), labels = stack.cols.labels(state.unit);
    const left = Math.min(120, Math.max(50, ...labels.map((label) => widthOf(shown(label), { size: 14 })))) + 14;
    const room = Math.max(130, Math.min(230, (width - left - 10) / 4));
    return { width: left + 4 * room, height: TOP + ROW * labels.length + 8, labels, left, room };
  },

  draw(pen, scene, state, box, colours, { y0, y1, x0, x1 }, focus) {
    const { labels, left, room } = box, stack = scene.stack(state.stack), bar = room - 74;
    const list = columns(scene, state), tops = list.map(({ values }) => (values ? Math.max(...values.map(Math.abs), 1e-9) : 1));
    const scale = Math.max(tops[2], tops[3]);  // relevance and its change share a scale
    labels.forEach((label, index) => {
      const y = TOP + ROW * index + ROW / 2;
      if (y < y0 - ROW || y > y1 + ROW) return;
      if (focus?.index === index) pen.rect(0, y - ROW / 2, box.width, ROW, { fill: colours.tint });
      const fill = stack.cols.special(state.unit, index) ? colours.soft : colours.ink;
      pen.text(fitted(shown(label), 120, { size: 14 }), left - 12, y, { size: 14, fill, align: "right" });
      list.forEach(({ values, signed, measure }, place) => {
        if (!values) return;
        const x = left + place * room, value = values[index], most = signed && scene.without ? scale : tops[place];
        const zero = signed ? x + bar / 2 : x, long = (value / most) * (signed ? bar / 2 : bar);
        pen.rect(Math.min(zero, zero + long), y - 6, Math.max(Math.abs(long), 0.75), 12, { fill: value < 0 ? colours.other : colours.accent, radius: 1 });
        const text = measure === "weight" ? amount(value, measure) : number(value);
        pen.text(text, x + bar + 8, y, { size: 11, fill: colours.soft });
      });
    });
    pen.rect(x0, Math.max(0, y0), x1 - x0, TOP - 6, { fill: colours.paper });
    list.forEach(({ title, under, values, why, signed }, place) => {
      const x = left + place * room, y = Math.max(0, y0);
      pen.text(title, x, y + 12, { size: 13, weight: 650, fill: colours.ink });
      pen.text(fitted(under, room - 12, { size: 11 }), x, y + 29, { size: 11, fill: colours.soft });
      if (!values) pen.text(why, x, y + TOP + 12, { size: 12, fill: colours.soft });
      if (values && signed) pen.path([x + bar / 2, TOP, x + bar / 2, box.height - 6], { stroke: colours.line });
    });
  },

  hit(scene, state, { labels, width }, x, y) {
    const index = Math.floor((y - TOP) / ROW);
    return index >= 0 && index < labels.length && x < width ? { side: "key", index } : null;
  },

  spot(box, index) { return { x: 0, y: ROW * index, width: 10, height: ROW + TOP }; },
};
