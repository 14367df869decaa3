// Tree view: the tree that one head draws, above the words; the one that people drew, below.

import { widthOf } from "./pen.js";
import { shown } from "./words.js";

const SPACE = 20, SIZE = 14, PER = 15, LEAST = 26;

/** Heads of one tree as arcs [dependent, head], numbered from 0; the root has none. */
const arcsOf = (heads) => Array.from(heads, (head, word) => [word, head - 1]).filter(([, head]) => head >= 0);

/** How high each arc must go so that shorter ones fit beneath it. */
function heights(arcs) {
  const order = [...arcs].sort((a, b) => Math.abs(a[0] - a[1]) - Math.abs(b[0] - b[1])), out = new Map();
  for (const arc of order) {
    const [low, high] = [Math.min(...arc), Math.max(...arc)];
    let under = 0;
    for (const [other, level] of out) if (Math.min(...other) >= low && Math.max(...other) <= high) under = Math.max(under, level);
    out.set(arc, under + 1);
  }
  return out;
}

export function trees(scene, state) {
  const packed = scene.doc.trees;
  if (!packed) return null;
  const stack = scene.stack(state.stack), words = packed.words.length;
  const start = (state.layer * stack.heads + state.head) * words;
  const fits = scene.induced && stack.name === packed.stack && !stack.isGone(state.layer, state.head);
  return { words: packed.words, gold: packed.gold, relations: packed.relations, induced: fits ? scene.induced.subarray(start, start + words) : null };
}

/** Of the words that have a head in the gold tree, how many have the same in the head's tree. */
export function agreement(found) {
  if (!found?.gold || !found.induced) return null;
  const arcs = arcsOf(found.gold);
  return { same: arcs.filter(([word, head]) => found.induced[word] - 1 === head).length, all: arcs.length };
}

/** Trees are between words; what is chosen may be a piece, or a special token, which has no place in a tree. */
function wordOf(scene, state, token) {
  const side = scene.stack(state.stack).rows;
  return side.index[state.unit === "word" ? token : side.word[token]];
}

function tokenOf(scene, state, word) {
  const side = scene.stack(state.stack).rows, span = side.index.indexOf(word);
  return state.unit === "word" ? span : side.word.indexOf(span);
}

export const treeView = {
  name: "tree",
  title: "Tree",
  hint: "Above the words: the maximum spanning tree of this head's attention, with arrows from head to dependent. Below: the gold tree, if there is one.",
  step: "x",

  layout(scene, state, width) {
    const found = trees(scene, state);
    if (!found) return { width, height: 90, found };
    let x = 6;
    const places = found.words.map((word) => {
      const w = Math.max(18, widthOf(shown(word), { size: SIZE })), at = { x, w, middle: x + w / 2 };
      x += w + SPACE;
      return at;
    });
    const above = found.induced ? heights(arcsOf(found.induced)) : new Map();
    const below = found.gold ? heights(arcsOf(found.gold)) : new Map();
    const most = (levels) => LEAST + PER * Math.max(1, ...levels.values());
    const base = most(above) + 30;
    return { width: x, height: base + 34 + (found.gold ? most(below) + 26 : 10), found, places, above, below, base };
  },

  draw(pen, scene, state, box, colours, visible, at) {
    const { found, places, base } = box, word = at && wordOf(scene, state, at.index), focus = at && word >= 0 ? { index: word } : null;
    if (!found) return pen.text("There is no tree here: this page was packed without one.", 4, 30, { size: 14, fill: colours.soft });
    const same = (other) => ([word, head]) => !found.gold || (other && other[word] - 1 === head);
    this.side(pen, box.above, places, base - 16, -1, same(found.gold), colours, focus);
    if (found.gold) this.side(pen, box.below, places, base + 16, 1, same(found.induced), colours, focus, found.relations);
    if (!found.induced) pen.text("there is no tree of this head", 4, base - 40, { size: 13, fill: colours.soft });
    found.words.forEach((word, index) => {
      const mine = focus?.index === index, root = found.gold?.[index] === 0;
      pen.text(shown(word), places[index].middle, base, { size: SIZE, weight: mine || root ? 650 : 400, fill: mine ? colours.accent : colours.ink, align: "center" });
    });
  },

  side(pen, levels, places, y, way, agreed, colours, focus, relations) {
    for (const [arc, level] of levels) {
      const [word, head] = arc, from = places[head].middle + (word > head ? 3 : -3), to = places[word].middle - (word > head ? 3 : -3);
      const high = y + way * (LEAST + PER * (level - 1)) * 1.25, both = agreed(arc);
      const dim = focus && focus.index !== word && focus.index !== head;
      const look = { stroke: both ? colours.accent : way > 0 ? colours.soft : colours.other, line: both ? 2 : 1.4, dash: both ? [] : [4, 3], alpha: dim ? 0.25 : 1 };
      pen.path([from, y, from, high, to, high, to, y], look);
      pen.path([to - 3, y + way * 5, to, y], { ...look, dash: [] });
      pen.path([to + 3, y + way * 5, to, y], { ...look, dash: [] });
    }
    if (relations) for (const [arc, level] of levels) this.relation(pen, relations[arc[0]], places, arc, y + way * ((LEAST + PER * (level - 1)) * 0.94), colours, focus);
  },

  /** The name of a relation, in the middle of its arc, on a ground of its own. */
  relation(pen, name, places, [word, head], y, colours, focus) {
    if (focus && focus.index !== word && focus.index !== head) return;
    const x = (places[word].middle + places[head].middle) / 2, width = widthOf(name, { size: 10 });
    pen.rect(x - width / 2 - 2, y - 6, width + 4, 12, { fill: colours.paper });
    pen.text(name, x, y, { size: 10, fill: colours.soft, align: "center" });
  },

  hit(scene, state, { found, places, base }, x, y) {
    if (!found || Math.abs(y - base) > 18) return null;
    const index = places.findIndex((at) => x >= at.x - SPACE / 2 && x <= at.x + at.w + SPACE / 2);
    return index >= 0 ? { side: "query", index: tokenOf(scene, state, index) } : null;
  },

  spot({ places }, token, state, scene) {
    const index = wordOf(scene, state, token);
    return { x: (places?.[index]?.x ?? 0) - 60, y: 0, width: 160, height: 10 };
  },
};
