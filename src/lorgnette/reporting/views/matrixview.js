// Matrix view: all weights of one head, rows ask, columns are read.

import { place } from "./colours.js";
import { fitted, widthOf } from "./pen.js";
import { shown } from "./words.js";

const pictures = new WeakMap();

/** The matrix as a canvas of one pixel per number. */
function picture(matrix, top, colours) {
  const kept = pictures.get(matrix);
  if (kept && kept.dark === colours.dark && kept.top === top) return kept.canvas;
  const canvas = document.createElement("canvas");
  canvas.width = matrix.cols;
  canvas.height = matrix.rows;
  const image = canvas.getContext("2d").createImageData(matrix.cols, matrix.rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let k = 0; k < pixels.length; k++) pixels[k] = colours.pixel(place(matrix.values[k], top));
  canvas.getContext("2d").putImageData(image, 0, 0);
  pictures.set(matrix, { canvas, dark: colours.dark, top });
  return canvas;
}

export const matrixView = {
  name: "matrix",
  title: "Matrix",
  hint: "Rows are queries, columns are keys.",
  step: "y",

  layout(scene, state, width) {
    const stack = scene.stack(state.stack);
    const rows = stack.rows.labels(state.unit), cols = stack.cols.labels(state.unit), look = { size: 12 };
    const widest = (labels) => Math.min(110, Math.max(...labels.map((label) => widthOf(shown(label), look))));
    const left = widest(rows) + 12, top = widest(cols) * 0.87 + 18;
    const cell = Math.max(2, Math.min(34, (width - left - 60) / cols.length));
    const whole = cell > 4 ? Math.floor(cell) : cell;
    return { width: left + whole * cols.length + 60, height: top + whole * rows.length + 8, rows, cols, left, top, cell: whole };
  },

  draw(pen, scene, state, box, colours, { x0, y0, x1, y1 }, focus) {
    const stack = scene.stack(state.stack), { left, top, cell } = box;
    const matrix = stack.matrix(state.layer, state.head, state.unit, state.measure), most = stack.most(state.layer, state.head, state.unit, state.measure);
    pen.image(picture(matrix, most, colours), left, top, cell * matrix.cols, cell * matrix.rows);
    if (!colours.dark || cell > 6) pen.rect(left, top, cell * matrix.cols, cell * matrix.rows, { stroke: colours.line });
    if (cell >= 26) this.numbers(pen, matrix, most, box, colours, state.measure);
    const outline = { stroke: colours.accent, line: cell < 6 ? 1 : 1.5 };
    const row = focus ? (focus.side === "query" ? focus.index : focus.row) : undefined;
    const col = focus ? (focus.side === "key" ? focus.index : focus.col) : undefined;
    if (row !== undefined) pen.rect(left, top + row * cell, cell * matrix.cols, cell, outline);
    if (col !== undefined) pen.rect(left + col * cell, top, cell, cell * matrix.rows, outline);
    // The labels stay where they can be read when the matrix is scrolled.
    const pinnedX = Math.max(0, x0), pinnedY = Math.max(0, y0), every = Math.ceil(15 / cell);
    const chosen = (index, at) => index === at || (index % every === 0 && (at === undefined || every === 1 || Math.abs(index - at) * cell > 15));
    if (x0 > 0) pen.rect(pinnedX, y0, left - 4, y1 - y0, { fill: colours.paper, alpha: 0.92 });
    box.rows.forEach((label, index) => {
      const y = top + (index + 0.5) * cell, mine = index === row;
      if (y < y0 - 20 || y > y1 + 20 || !chosen(index, row)) return;
      const fill = mine ? colours.accent : stack.rows.special(state.unit, index) ? colours.soft : colours.ink;
      pen.text(fitted(shown(label), 110, { size: 12 }), pinnedX + left - 8, y, { size: 12, weight: mine ? 600 : 400, fill, align: "right" });
    });
    if (y0 > 0) pen.rect(x0, pinnedY, x1 - x0, top - 4, { fill: colours.paper, alpha: 0.92 });
    box.cols.forEach((label, index) => {
      const x = left + (index + 0.5) * cell, mine = index === col;
      if (x < x0 - 20 || x > x1 + 20 || !chosen(index, col)) return;
      const fill = mine ? colours.accent : stack.cols.special(state.unit, index) ? colours.soft : colours.ink;
      pen.text(fitted(shown(label), 110, { size: 12 }), x, pinnedY + top - 8, { size: 12, weight: mine ? 600 : 400, fill, turn: -60 });
    });
  },

  numbers(pen, matrix, most, { left, top, cell }, colours, measure) {
    for (let i = 0; i < matrix.rows; i++) {
      for (let j = 0; j < matrix.cols; j++) {
        const value = matrix.at(i, j), t = place(value, most);
        if (t < 0.2) continue;
        const text = measure === "weight" ? `${Math.round(value * 100)}` : value.toPrecision(2).replace(/e.*/, "");
        pen.text(text, left + (j + 0.5) * cell, top + (i + 0.5) * cell, { size: 11, fill: colours.onto(t), align: "center" });
      }
    }
  },

  hit(scene, state, { left, top, cell, rows, cols }, x, y) {
    const row = Math.floor((y - top) / cell), col = Math.floor((x - left) / cell);
    if (row < 0 || row >= rows.length || col >= cols.length) return null;
    return { side: "query", index: row, col: col >= 0 ? col : undefined };
  },

  spot({ top, left, cell }, index) { return { x: 0, y: top + cell * index - top, width: left, height: cell + top }; },
};
