// Model view: all heads, small; layers down, heads across.

import { place } from "./colours.js";
import { widthOf } from "./pen.js";
import { headName } from "./words.js";

/** All heads of a stack in one canvas, each at its place in the grid, without gaps. */
function atlas(stack, measure, colours) {
  const name = `${measure}.${colours.dark}`;
  stack.atlases ??= new Map();
  if (stack.atlases.has(name)) return stack.atlases.get(name);
  const top = stack.top(measure), { rows, cols } = stack.pool(0, measure);
  const canvas = document.createElement("canvas");
  canvas.width = cols * stack.heads;
  canvas.height = rows * stack.layers;
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let layer = 0; layer < stack.layers; layer++) {
    const { values } = stack.pool(layer, measure);
    for (let head = 0, at = 0; head < stack.heads; head++) {
      for (let i = 0; i < rows; i++) {
        const start = (layer * rows + i) * canvas.width + head * cols;
        for (let j = 0; j < cols; j++, at++) pixels[start + j] = colours.pixel(place(values[at], top));
      }
    }
  }
  context.putImageData(image, 0, 0);
  const made = { canvas, rows, cols };
  stack.atlases.set(name, made);
  return made;
}

const BESIDE = 10; // pixels between the number of a layer and its heads
const tiles = new WeakMap();

/** One head cut out of the atlas, for papers that cannot cut. */
function tile({ canvas, rows, cols }, layer, head) {
  if (!tiles.has(canvas)) tiles.set(canvas, new Map());
  const kept = tiles.get(canvas), name = headName(layer, head);
  if (!kept.has(name)) {
    const cut = document.createElement("canvas");
    cut.width = cols;
    cut.height = rows;
    cut.getContext("2d").drawImage(canvas, head * cols, layer * rows, cols, rows, 0, 0, cols, rows);
    kept.set(name, cut);
  }
  return kept.get(name);
}

export const modelView = {
  name: "model",
  title: "Model",
  hint: "All heads of the stack, one small matrix each. Press Enter or double-click to open a head.",
  step: "grid",

  layout(scene, state, width, { least = 20, most = 92, tallest = Infinity, gap = 6, label: narrowest = 34 } = {}) {
    const stack = scene.stack(state.stack);
    const label = Math.max(narrowest, Math.ceil(widthOf(`${stack.layers}`, { size: 12, weight: 650 })) + BESIDE + 2);
    const cell = Math.max(least, Math.min(most, Math.floor((width - label) / stack.heads) - gap, Math.floor(tallest / stack.layers) - gap));
    const ratio = Math.max(0.4, Math.min(1.6, stack.rows.pieces.length / stack.cols.pieces.length));
    const tall = Math.round(cell * ratio), top = 22;
    return { width: label + stack.heads * (cell + gap), height: top + stack.layers * (tall + gap), cell, tall, gap, label, top };
  },

  draw(pen, scene, state, box, colours, { y0, y1 }, focus) {
    const stack = scene.stack(state.stack), drawn = atlas(stack, state.measure, colours);
    const { cell, tall, gap, label, top } = box, size = cell > 24 ? 12 : 10;
    const off = new Set((state.off ?? []).filter(([name]) => name === stack.name).map(([, layer, head]) => headName(layer, head)));
    const every = cell + gap < 15 ? 2 : 1;
    for (let head = 0; head < stack.heads; head += every) {
      const mine = head === state.head, look = { size, weight: mine ? 650 : 400, fill: mine ? colours.accent : colours.soft };
      pen.text(`${head + 1}`, label + head * (cell + gap) + cell / 2, top - 11, { ...look, align: "center" });
    }
    for (let layer = 0; layer < stack.layers; layer++) {
      const y = top + layer * (tall + gap), mine = layer === state.layer;
      if (y + tall < y0 || y > y1) continue;
      pen.text(`${layer + 1}`, label - BESIDE, y + tall / 2, { size, weight: mine ? 650 : 400, fill: mine ? colours.accent : colours.soft, align: "right" });
      for (let head = 0; head < stack.heads; head++) {
        const x = label + head * (cell + gap), chosen = mine && head === state.head;
        pen.image(tile(drawn, layer, head), x, y, cell, tall);
        if (stack.isGone(layer, head)) pen.path([x + cell * 0.3, y + tall / 2, x + cell * 0.7, y + tall / 2], { stroke: colours.soft, line: 1.5 });
        if (off.has(headName(layer, head))) this.cross(pen, x, y, cell, tall, colours);
        const hovered = focus?.layer === layer && focus?.head === head;
        const frame = chosen ? { stroke: colours.accent, line: 2 } : { stroke: hovered ? colours.accent : colours.line, line: 1 };
        const out = chosen ? 1.5 : 0.5;
        pen.rect(x - out, y - out, cell + 2 * out, tall + 2 * out, { ...frame, radius: 2 });
      }
    }
  },

  cross(pen, x, y, cell, tall, colours) {
    pen.rect(x, y, cell, tall, { fill: colours.paper, alpha: 0.72 });
    const look = { stroke: colours.other, line: 2 }, inset = Math.min(cell, tall) * 0.25;
    pen.path([x + inset, y + inset, x + cell - inset, y + tall - inset], look);
    pen.path([x + cell - inset, y + inset, x + inset, y + tall - inset], look);
  },

  hit(scene, state, { cell, tall, gap, label, top }, x, y) {
    const stack = scene.stack(state.stack);
    const layer = Math.floor((y - top) / (tall + gap)), head = Math.floor((x - label) / (cell + gap));
    return layer >= 0 && layer < stack.layers && head >= 0 && head < stack.heads ? { layer, head } : null;
  },

  spot({ cell, tall, gap, label, top }, index, state) {
    return { x: state.head * (cell + gap), y: state.layer * (tall + gap), width: label + cell + 2, height: tall + top };
  },
};
