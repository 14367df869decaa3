// What the colours mean, drawn under a view and into every file that is saved.

import { place } from "./colours.js";
import { widthOf } from "./pen.js";
import { agreement, trees } from "./treeview.js";
import { chosen } from "./textview.js";
import { SINK, drawn, sinks } from "./pictureview.js";
import { amount, percent } from "./words.js";

const BAR = 160, STEPS = 40;

/** The keys of a view: ramps, and strokes with a name. */
export function keysOf(scene, state) {
  const stack = scene.stack(state.stack);
  if (state.view === "tree") {
    const found = trees(scene, state), both = agreement(found);
    const keys = [{ stroke: "accent", label: both ? `in both trees (${both.same} of ${both.all})` : "in both trees" }, { stroke: "other", dash: true, label: "only this head's" }, { stroke: "soft", dash: true, label: "only the gold tree's" }];
    return found ? (found.gold ? keys : [{ stroke: "accent", label: "this head's tree" }]) : [];
  }
  if (state.view === "compare") return [{ stroke: "accent", label: "for" }, { stroke: "other", label: "against" }];
  if (state.view === "text") {
    const items = chosen(scene, state), keys = [];
    if (items.some((item) => item.signed)) keys.push({ signed: true, label: "against – for; strongest word of each method = 1" });
    if (items.some((item) => !item.signed)) keys.push({ label: "strongest word of each method = 1", top: 1, linear: true });
    if (scene.doc.rationale && scene.doc.rationale.some((mark) => mark > 0)) keys.push({ stroke: "ink", label: "rationale" });
    return keys;
  }
  if (state.view === "picture") {
    const keys = [{ label: "strongest patch of each picture = 1", top: 1, linear: true }];
    if (drawn(scene, state).some((item) => item.signed)) keys.unshift({ signed: true, label: "against – for" });
    if (sinks(scene, state).some(Boolean)) keys.push({ stroke: "ink", dash: true, label: `sink: receives more than ${percent(SINK)} of this head` });
    return keys;
  }
  const unit = state.unit === "word" ? "words" : "pieces";
  const label = state.view === "model" ? `${state.measure}: the largest of each field` : `${state.measure} between ${unit}`;
  const top = state.view === "model" ? stack.top(state.measure) : stack.most(state.layer, state.head, state.unit, state.measure);
  return [{ label, top, measure: state.measure }];
}

function ramp(pen, x, y, { key, under }, colours) {
  const at = (t) => (key.signed ? colours.colour((t * 2 - 1) * 0.8) : colours.colour(key.linear ? t * 0.8 : t));
  for (let k = 0; k < STEPS; k++) pen.rect(x + (k * BAR) / STEPS, y, BAR / STEPS + 0.5, 10, { fill: at((k + 0.5) / STEPS) });
  pen.rect(x, y, BAR, 10, { stroke: colours.line });
  const look = { size: 11, fill: colours.soft, align: "center" };
  if (key.signed) ["−1", "0", "1"].forEach((text, k) => pen.text(text, x + (k * BAR) / 2, y + 20, look));
  else if (key.linear) ["0", "1"].forEach((text, k) => pen.text(text, x + k * BAR, y + 20, look));
  else [0, 1 / 16, 1 / 4, 1].forEach((share) => pen.text(amount(share * key.top, key.measure), x + BAR * place(share, 1), y + 20, look));
  pen.text(key.label, under ? x : x + BAR + 14, under ? y + 38 : y + 5, { size: 12, fill: colours.soft });
}

function stroke(pen, x, y, { key }, colours) {
  pen.path([x, y + 5, x + 26, y + 5], { stroke: colours[key.stroke], line: 3, dash: key.dash ? [5, 3] : [] });
  pen.text(key.label, x + 34, y + 5, { size: 12, fill: colours.soft });
}

/** As a drawing like the others, so that a stage can show it. */
export const legendView = {
  layout(scene, state, width) {
    let x = 10, line = 0;
    const keys = keysOf(scene, state).map((key) => {
      const w = (key.stroke ? 34 : BAR + 14) + widthOf(key.label, { size: 12 }) + 28;
      if (x > 10 && x + w > width) { x = 10; line += 1; }
      const at = { key, x, line, under: !key.stroke && x + w - 28 > width }; // too narrow: the label goes under its ramp
      x += w;
      if (at.under) line += 0.6;
      return at;
    });
    return { width: Math.min(width, Math.max(x, 10)), height: (line + 1) * 36, keys };
  },
  draw(pen, scene, state, { keys }, colours) {
    for (const at of keys) (at.key.stroke ? stroke : ramp)(pen, at.x, 4 + at.line * 36, at, colours);
  },
  hit: () => null,
  spot: () => ({ x: 0, y: 0, width: 0, height: 0 }),
};
