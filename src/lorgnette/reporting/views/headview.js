// Head view: lines between the words of one head, from the one that asks to those it reads.

import { place } from "./colours.js";
import { fitted, widthOf } from "./pen.js";
import { shown } from "./words.js";

const ROW = 24, TOP = 34, WIDEST = 150, MOST = 2500;

/** The strongest links, at most MOST, weakest first; of one word only, if one is looked at. */
function links(matrix, top, focus) {
  const { rows, cols, values } = matrix, least = focus ? 0.0005 : 0.004;
  const counts = new Uint32Array(257), wanted = (i, j) => !focus || (focus.side === "query" ? i : j) === focus.index;
  const bin = (value) => Math.min(256, Math.floor(256 * place(value, top)));
  for (let i = 0, at = 0; i < rows; i++) {
    for (let j = 0; j < cols; j++, at++) if (values[at] >= least * top && wanted(i, j)) counts[bin(values[at])]++;
  }
  let floor = 256, sum = 0;
  while (floor > 0 && sum + counts[floor] <= MOST) sum += counts[floor--];
  const out = [];
  for (let i = 0, at = 0; i < rows; i++) {
    for (let j = 0; j < cols; j++, at++) {
      if (values[at] >= least * top && bin(values[at]) > floor && wanted(i, j)) out.push([i, j, values[at]]);
    }
  }
  return out.sort((a, b) => a[2] - b[2]);
}

const widest = (labels) => Math.min(WIDEST, Math.max(40, ...labels.map((label) => widthOf(shown(label), { size: 14 }))));

export const headView = {
  name: "head",
  title: "Head",
  hint: "Lines connect each query (left) with the keys it attends to (right).",
  step: "y",

  layout(scene, state, width) {
    const stack = scene.stack(state.stack);
    const left = stack.rows.labels(state.unit), right = stack.cols.labels(state.unit);
    const wl = widest(left), wr = widest(right);
    const room = Math.min(width, 780);
    const x1 = wl + 12, x2 = Math.max(x1 + 80, room - wr - 12);
    return { width: x2 + wr + 12, height: TOP + ROW * Math.max(left.length, right.length) + 10, left, right, x1, x2, wl, wr };
  },

  draw(pen, scene, state, box, colours, { y0, y1 }, focus) {
    const stack = scene.stack(state.stack), { x1, x2 } = box;
    const matrix = stack.matrix(state.layer, state.head, state.unit, state.measure), top = stack.most(state.layer, state.head, state.unit, state.measure);
    const y = (index) => TOP + ROW * index + ROW / 2, seen = (index) => y(index) > y0 - ROW && y(index) < y1 + ROW;
    pen.text("query", x1 - 8, 14, { size: 12, fill: colours.soft, align: "right" });
    pen.text("key", x2 + 8, 14, { size: 12, fill: colours.soft });
    if (focus) {
      const shades = focus.side === "query" ? box.right : box.left, x = focus.side === "query" ? x2 : x1 - box.wl - 12;
      shades.forEach((_, index) => {
        const value = focus.side === "query" ? matrix.at(focus.index, index) : matrix.at(index, focus.index);
        if (seen(index)) pen.rect(x, y(index) - ROW / 2 + 1, (focus.side === "query" ? box.wr : box.wl) + 12, ROW - 2, { fill: colours.colour(0.66 * place(value, top)), radius: 4 });
      });
      const mine = focus.side === "query" ? [x1 - box.wl - 12, box.wl + 12] : [x2, box.wr + 12];
      pen.rect(mine[0] + 0.75, y(focus.index) - ROW / 2 + 1.75, mine[1] - 1.5, ROW - 3.5, { stroke: colours.accent, line: 1.5, radius: 4 });
    }
    for (const [i, j, value] of links(matrix, top, focus)) {
      if (Math.max(y(i), y(j)) < y0 || Math.min(y(i), y(j)) > y1) continue;
      const t = place(value, top), bend = (x2 - x1) * 0.42;
      const look = { stroke: colours.accent, line: 0.6 + 2.6 * t, alpha: Math.min(1, focus ? 0.1 + t * 1.1 : 0.03 + t * t * 0.75 + t * 0.2) };
      pen.path([x1, y(i), x1 + bend, y(i), x2 - bend, y(j), x2, y(j)], look);
    }
    const words = (side, labels, x, align) => labels.forEach((label, index) => {
      if (!seen(index)) return;
      const fill = side.special(state.unit, index) ? colours.soft : colours.ink;
      pen.text(fitted(shown(label), WIDEST, { size: 14 }), x, y(index), { size: 14, fill, align });
    });
    words(stack.rows, box.left, x1 - 8, "right");
    words(stack.cols, box.right, x2 + 8, "left");
  },

  hit(scene, state, box, x, y) {
    const index = Math.floor((y - TOP) / ROW), middle = (box.x1 + box.x2) / 2;
    const side = x < middle ? "query" : "key", count = (side === "query" ? box.left : box.right).length;
    return index >= 0 && index < count && x < box.width ? { side, index } : null;
  },

  spot(box, index) { return { x: 0, y: TOP + ROW * index, width: 10, height: ROW }; },
};
