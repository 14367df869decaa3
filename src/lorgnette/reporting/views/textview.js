// Text view: the words shaded by explanations, several beside each other, the rationale under them.

import { fitted, widthOf } from "./pen.js";
import { headName, shown } from "./words.js";

export const LINE = 32;
export const PAD = 4;
export const HEAD = 34;
export const SIZE = 15;
export const BELOW = 22;
const GAP = 3;

/** Everything that can shade the text now: what was packed, and what this head reads. */
export function explanations(scene, state) {
  const stack = scene.stack(state.stack), where = headName(state.layer, state.head);
  const own = (measure, method) => ({
    method, side: stack.cols, signed: false, key: measure,
    of: (unit) => stack.received(state.layer, state.head, unit, measure),
  });
  const packed = scene.explanations.flatMap((item) => beside(scene, item));
  const heads = [own("weight", `attention weight, head ${where}`)];
  if (stack.norms) heads.push(own("norm", `norm ‖αf(x)‖, head ${where}`));
  return [...packed, ...heads];
}

/** A packed explanation, and beside it the same without the heads that are switched off, on the same scale. */
function beside(scene, item) {
  const of = (values) => (unit) => item.side.toUnit(values, unit), most = (unit) => largest(of(item.values)(unit));
  const before = { ...item, key: item.method, of: of(item.values), most };
  const after = scene.without?.explanations.find((other) => other.method === item.method);
  if (!after) return [before];
  const off = scene.without.off.map(([, layer, head]) => headName(layer, head));
  const heads = off.length > 4 ? `${off.length} heads` : off.join(", ");
  return [before, { ...before, signed: item.signed || after.signed, method: `${item.method} without ${heads}`, key: `${item.method} without`, of: of(after.values) }];
}

export const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-12);

export const chosen = (scene, state) => {
  const all = explanations(scene, state);
  const some = all.filter((item) => state.methods?.includes(item.key.replace(/ without$/, "")));
  return some.length ? some : all.slice(0, 4);
};

/** Where each word stands when the text is set in lines of this width. */
export function set(labels, width) {
  let x = 0, line = 0;
  const places = labels.map((label) => {
    const text = fitted(shown(label), width - 2 * PAD, { size: SIZE }), w = widthOf(text, { size: SIZE }) + 2 * PAD;
    if (x > 0 && x + w > width) { x = 0; line += 1; }
    const at = { x, line, w, text };
    x += w + GAP;
    return at;
  });
  return { places, lines: line + 1 };
}

export const textView = {
  name: "text",
  title: "Text",
  hint: "The words, shaded by their relevance for the prediction according to each explanation. The rationale, if there is one, is underlined.",
  step: "x",

  layout(scene, state, width) {
    const items = chosen(scene, state), room = Math.max(260, width - 4);
    const columns = Math.max(1, Math.min(items.length, Math.floor((room + 40) / 380)));
    const column = Math.floor((room - 40 * (columns - 1)) / columns);
    let y = 0;
    const blocks = [];
    for (let start = 0; start < items.length; start += columns) {
      let tallest = 0;
      items.slice(start, start + columns).forEach((item, place) => {
        const made = set(item.side.labels(state.unit), column);
        blocks.push({ item, ...made, x: place * (column + 40), y, column });
        tallest = Math.max(tallest, HEAD + made.lines * LINE + BELOW);
      });
      y += tallest;
    }
    return { width: room, height: y, blocks };
  },

  draw(pen, scene, state, box, colours, { y0, y1 }, focus) {
    for (const block of box.blocks) {
      const { item, places, x, y, lines } = block;
      if (y + HEAD + lines * LINE < y0 || y > y1) continue;
      const values = item.of(state.unit), most = item.most?.(state.unit) ?? largest(values);
      pen.text(fitted(item.method, block.column, { size: 13, weight: 600 }), x, y + 14, { size: 13, weight: 600, fill: colours.soft });
      places.forEach((at, index) => {
        const top = y + HEAD + at.line * LINE;
        if (top > y1 || top + LINE < y0) return;
        const t = values[index] / most, human = this.marked(scene, item.side, state.unit, index);
        pen.rect(x + at.x, top, at.w, LINE - 8, { fill: colours.colour(t * 0.8), radius: 3 });
        const special = item.side.special(state.unit, index) && Math.abs(t) < 0.25;
        pen.text(at.text, x + at.x + PAD, top + (LINE - 8) / 2, { size: SIZE, fill: special ? colours.soft : colours.onto(t * 0.8) });
        if (human > 0) pen.rect(x + at.x, top + LINE - 7, at.w, 3, { fill: colours.ink, alpha: 0.25 + 0.75 * human });
        if (focus && focus.side !== undefined && focus.index === index) pen.rect(x + at.x - 1, top - 1, at.w + 2, LINE - 6, { stroke: colours.accent, line: 2, radius: 4 });
      });
    }
  },

  /** How much of the word is in the rationale. */
  marked(scene, side, unit, at) {
    const word = side.index[unit === "word" ? at : side.word[at]];
    return side === scene.sides[0] && word >= 0 ? scene.doc.rationale?.[word] ?? 0 : 0;
  },

  hit(scene, state, { blocks }, x, y) {
    for (const block of blocks) {
      const line = Math.floor((y - block.y - HEAD) / LINE), inner = x - block.x;
      const index = block.places.findIndex((at) => at.line === line && inner >= at.x && inner <= at.x + at.w);
      if (index >= 0 && line >= 0) return { side: "key", index, method: block.item };
    }
    return null;
  },

  spot({ blocks }, index) {
    const at = blocks[0]?.places[index];
    return { x: 0, y: at ? blocks[0].y + HEAD + at.line * LINE - HEAD : 0, width: 10, height: LINE + HEAD };
  },
};
