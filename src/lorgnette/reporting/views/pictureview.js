// Picture view: numbers of patches on the picture, the words of the text below it; one picture for each measure.

import { fitted } from "./pen.js";
import { HEAD, LINE, PAD, SIZE, BELOW, chosen, largest, set } from "./textview.js";
import { headName, shown } from "./words.js";

const GAP = 40, BETWEEN = 8, MOST = 0.78, TALLEST = 460;
export const SINK = 0.3; // of the weight, mean over queries

/** What is drawn: the picture as it is, then each measure; from the chosen token, where one is chosen. */
export function drawn(scene, state) {
  const stack = scene.stack(state.stack), where = headName(state.layer, state.head);
  const items = chosen(scene, state).map((item) => {
    if ((item.key !== "weight" && item.key !== "norm") || state.token < 0) return item;
    const who = shown(stack.rows.labels(state.unit)[state.token]);
    const of = (unit) => {
      const matrix = stack.matrix(state.layer, state.head, unit, item.key);
      return matrix.values.subarray(state.token * matrix.cols, (state.token + 1) * matrix.cols);
    };
    return { ...item, method: `${item.key === "weight" ? "weight" : "norm"} from ${who}, head ${where}`, of };
  });
  return [{ method: "what the model sees", key: "picture", side: scene.pictures[0].side, plain: true }, ...items];
}

/** Which units are sinks of this head. */
export function sinks(scene, state) {
  const stack = scene.stack(state.stack);
  return stack.received(state.layer, state.head, state.unit, "weight").map((share) => (share > SINK ? 1 : 0));
}

/** The units that are words: those that no patch stands for. */
function spoken(scene, side, unit) {
  const places = new Set(scene.pictures.filter((one) => one.side === side).flatMap((one) => one.pieces.map((_, at) => one.unit(at, unit))));
  return side.labels(unit).map((_, index) => index).filter((index) => !places.has(index));
}

export const pictureView = {
  name: "picture",
  title: "Picture",
  hint: "The picture as the model sees it, with a number for each patch: what this head reads, and the relevance for the prediction. Choose a word or a patch to see what it reads.",
  step: "x",

  layout(scene, state, width) {
    const items = drawn(scene, state), room = Math.max(260, width - 4);
    const columns = Math.max(1, Math.min(items.length, Math.floor((room + GAP) / 300)));
    const column = Math.floor((room - GAP * (columns - 1)) / columns);
    let y = 0;
    const blocks = [];
    for (let start = 0; start < items.length; start += columns) {
      let tallest = 0;
      items.slice(start, start + columns).forEach((item, place) => {
        const own = scene.pictures.filter((one) => one.side === item.side);
        const across = Math.ceil(Math.sqrt(own.length)), side = (column - BETWEEN * (across - 1)) / across;
        let top = HEAD;
        const tiles = [];
        for (let at = 0; at < own.length; at += across) {
          let high = 0;
          own.slice(at, at + across).forEach((picture, k) => {
            const tall = Math.min(TALLEST, side * picture.ratio), wide = tall / picture.ratio;
            tiles.push({ picture, x: k * (side + BETWEEN), y: top, wide, tall });
            high = Math.max(high, tall);
          });
          top += high + BETWEEN;
        }
        const units = spoken(scene, item.side, state.unit), labels = item.side.labels(state.unit);
        const made = set(units.map((unit) => labels[unit]), column);
        blocks.push({ item, tiles, units, ...made, x: place * (column + GAP), y, column, below: top + 6 });
        tallest = Math.max(tallest, top + 6 + made.lines * LINE + BELOW);
      });
      y += tallest;
    }
    return { width: room, height: y, blocks };
  },

  draw(pen, scene, state, box, colours, { y0, y1 }, focus) {
    const framed = sinks(scene, state), stack = scene.stack(state.stack);
    const at = (side, index) => focus && focus.side !== undefined && focus.index === index && side === stack.rows;
    for (const { item, tiles, units, places, x, y, column, below, lines } of box.blocks) {
      if (y + below + lines * LINE < y0 || y > y1) continue;
      const values = item.plain ? null : item.of(state.unit), most = values && (item.most?.(state.unit) ?? largest(values));
      // Weights and norms of patches are small beside those of the words: each picture has a scale of its own.
      const strongest = values && Math.max(1e-12, ...tiles.flatMap(({ picture }) => picture.pieces.map((_, k) => picture.unit(k, state.unit)).filter((unit) => unit >= 0).map((unit) => Math.abs(values[unit]))));
      pen.text(fitted(item.method, column, { size: 13, weight: 600 }), x, y + 14, { size: 13, weight: 600, fill: colours.soft });
      for (const { picture, ...tile } of tiles) {
        const left = x + tile.x, top = y + tile.y, wide = tile.wide / picture.columns, tall = tile.tall / picture.rows;
        const under = values ? picture.grey : picture.coloured;
        if (under) pen.image(under, left, top, tile.wide, tile.tall, { smooth: true });
        else pen.rect(left, top, tile.wide, tile.tall, { fill: colours.tint });
        picture.pieces.forEach((_, k) => {
          const unit = picture.unit(k, state.unit);
          if (unit < 0) return;
          const cell = [left + (k % picture.columns) * wide, top + Math.floor(k / picture.columns) * tall, wide, tall];
          const t = values ? values[unit] / strongest : 0;
          if (t) pen.rect(...cell, { fill: t < 0 ? colours.other : colours.accent, alpha: MOST * Math.abs(t) });
          if (framed[unit] && item.side === stack.cols) pen.rect(cell[0] + 1, cell[1] + 1, wide - 2, tall - 2, { stroke: colours.ink, line: 2, dash: [5, 3] });
          if (at(item.side, unit)) pen.rect(cell[0], cell[1], wide, tall, { stroke: colours.accent, line: 3 });
        });
        pen.rect(left, top, tile.wide, tile.tall, { stroke: colours.line });
      }
      places.forEach((place, k) => {
        const index = units[k], line = y + below + place.line * LINE;
        if (line > y1 || line + LINE < y0) return;
        const t = values ? values[index] / most : 0;
        pen.rect(x + place.x, line, place.w, LINE - 8, { fill: colours.colour(t * 0.8), radius: 3 });
        pen.text(place.text, x + place.x + PAD, line + (LINE - 8) / 2, { size: SIZE, fill: colours.onto(t * 0.8) });
        if (at(item.side, index)) pen.rect(x + place.x - 1, line - 1, place.w + 2, LINE - 6, { stroke: colours.accent, line: 2, radius: 4 });
      });
    }
  },

  hit(scene, state, { blocks }, x, y) {
    for (const block of blocks) {
      const item = block.item.plain ? {} : { method: block.item };
      for (const { picture, ...tile } of block.tiles) {
        const column = Math.floor(((x - block.x - tile.x) / tile.wide) * picture.columns), row = Math.floor(((y - block.y - tile.y) / tile.tall) * picture.rows);
        if (column < 0 || row < 0 || column >= picture.columns || row >= picture.rows) continue;
        const unit = picture.unit(row * picture.columns + column, state.unit);
        return unit < 0 ? null : { side: "key", index: unit, ...item };
      }
      const line = Math.floor((y - block.y - block.below) / LINE), inner = x - block.x;
      const found = block.places.findIndex((at) => at.line === line && inner >= at.x && inner <= at.x + at.w);
      if (found >= 0 && line >= 0) return { side: "key", index: block.units[found], ...item };
    }
    return null;
  },

  spot({ blocks }) { return { x: 0, y: 0, width: 10, height: Math.min(40, blocks[0]?.below ?? 40) }; },
};
