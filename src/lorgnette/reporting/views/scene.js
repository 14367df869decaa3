// What was packed, unpacked: typed arrays by stack, layer and head, and the numbers that the views ask for.

const KEPT = 6; // matrices kept, the last ones asked for

async function inflated(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const floats = async (packed) => new Float32Array((await inflated(packed.data)).buffer);

/** One side of a stack: its pieces, its words (a special token is a word of its own), and which piece is of which. */
export class Side {
  constructor(packed) {
    this.pieces = packed.pieces;
    this.words = packed.words;
    this.index = packed.index; // of each word, its number in the text; −1 for a special token
    this.word = Int32Array.from(packed.word);
    this.size = new Float32Array(this.words.length);
    for (const word of this.word) this.size[word] += 1;
  }
  labels(unit) { return unit === "word" ? this.words : this.pieces; }
  count(unit) { return this.labels(unit).length; }
  special(unit, at) { return this.index[unit === "word" ? at : this.word[at]] < 0; }
  /** Values per piece as values per word: summed, or the mean. */
  toUnit(values, unit, mean = false) {
    if (unit !== "word") return values;
    const out = new Float32Array(this.words.length);
    values.forEach((value, piece) => { out[this.word[piece]] += value; });
    return mean ? out.map((value, word) => value / this.size[word]) : out;
  }
}

class Stack {
  constructor(packed, sides, { weights, norms, entropies, moved }) {
    Object.assign(this, { name: packed.name, layers: packed.layers, heads: packed.heads });
    this.gone = new Set(packed.gone.map(([layer, head]) => layer * packed.heads + head)); // heads that were removed
    this.rows = sides[packed.queries];
    this.cols = sides[packed.keys];
    this.weights = weights; // per layer, [head query key]: the root of the weight, 255 being 1
    this.norms = norms; // [layer head key], or null
    Object.assign(this, { entropies, moved }); // [layer head]
    this.kept = new Map();
    this.pooled = new Map();
  }

  isGone(layer, head) { return this.gone.has(layer * this.heads + head); }

  /** √α of one head, as bytes [query key]. */
  bytes(layer, head) {
    const size = this.rows.pieces.length * this.cols.pieces.length;
    return this.weights[layer].subarray(head * size, (head + 1) * size);
  }

  norm(layer, head) {
    const keys = this.cols.pieces.length, start = (layer * this.heads + head) * keys;
    return this.norms.subarray(start, start + keys);
  }

  /** The numbers of one head: to a word the sum over its pieces, from a word the mean. */
  matrix(layer, head, unit, measure) {
    const name = `${layer}.${head}.${unit}.${measure}`;
    if (!this.kept.has(name)) {
      this.kept.set(name, this.made(layer, head, unit, measure));
      if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
    }
    return this.kept.get(name);
  }

  made(layer, head, unit, measure) {
    const bytes = this.bytes(layer, head), norm = measure === "norm" ? this.norm(layer, head) : null;
    const rows = this.rows.count(unit), cols = this.cols.count(unit), keys = this.cols.pieces.length;
    const values = new Float32Array(rows * cols), words = unit === "word";
    for (let i = 0, at = 0; i < this.rows.pieces.length; i++) {
      const row = words ? this.rows.word[i] : i;
      const share = (words ? 1 / this.rows.size[row] : 1) / 65025; // 255²
      for (let j = 0; j < keys; j++, at++) {
        const b = bytes[at];
        if (b) values[row * cols + (words ? this.cols.word[j] : j)] += b * b * share * (norm ? norm[j] : 1);
      }
    }
    return { rows, cols, values, at: (i, j) => values[i * cols + j] };
  }

  /** Every head of a layer as a small picture: the largest value in each of at most side × side fields. */
  pool(layer, measure, side = 40) {
    const name = `${layer}.${measure}`;
    if (this.pooled.has(name)) return this.pooled.get(name);
    const n = this.rows.pieces.length, m = this.cols.pieces.length;
    const rows = Math.min(n, side), cols = Math.min(m, side), column = new Uint16Array(m);
    for (let j = 0; j < m; j++) column[j] = Math.floor((j * cols) / m);
    const values = new Float32Array(this.heads * rows * cols);
    let max = 0;
    for (let head = 0, at = 0; head < this.heads; head++) {
      const bytes = this.weights[layer], norm = measure === "norm" ? this.norm(layer, head) : null;
      for (let i = 0; i < n; i++) {
        const start = (head * rows + Math.floor((i * rows) / n)) * cols;
        for (let j = 0; j < m; j++, at++) {
          const b = bytes[at], value = norm ? b * b * norm[j] : b * b;
          if (value > values[start + column[j]]) values[start + column[j]] = value;
        }
      }
    }
    for (let k = 0; k < values.length; k++) { values[k] /= 65025; if (values[k] > max) max = values[k]; }
    const made = { rows, cols, values, max };
    this.pooled.set(name, made);
    return made;
  }

  /** The largest value of one head: where its colours end. */
  most(layer, head, unit, measure) {
    if (measure === "weight") return 1;
    const { values } = this.matrix(layer, head, unit, measure);
    return values.reduce((top, value) => Math.max(top, value), 0) || 1;
  }

  /** The largest value in the stack. */
  top(measure) {
    if (measure === "weight") return 1;
    let top = 0;
    for (let layer = 0; layer < this.layers; layer++) top = Math.max(top, this.pool(layer, measure).max);
    return top || 1;
  }

  /** How much each key is read, mean over the queries. */
  received(layer, head, unit, measure) {
    const { rows, cols, values } = this.matrix(layer, head, unit, measure);
    const out = new Float32Array(cols);
    for (let i = 0, at = 0; i < rows; i++) for (let j = 0; j < cols; j++, at++) out[j] += values[at];
    return out.map((value) => value / rows);
  }

  /** Mean entropy of a head's rows in nats, and its maximum for this number of keys. */
  entropy(layer, head) {
    return { nats: this.entropies[layer * this.heads + head], most: Math.log(this.cols.pieces.length) };
  }

  /** The head to begin with: the one that moves the largest share of its layer. */
  leading() {
    if (!this.moved) return { layer: 0, head: 0 };
    const shares = Array.from(this.moved, (_, at) => this.share(Math.floor(at / this.heads), at % this.heads));
    const first = shares.indexOf(Math.max(...shares));
    return { layer: Math.floor(first / this.heads), head: first % this.heads };
  }

  /** The share of a head in what its layer moves: the sum of its norms over all pairs, beside that of all heads. */
  share(layer, head) {
    const all = this.moved.subarray(layer * this.heads, (layer + 1) * this.heads).reduce((sum, value) => sum + value, 0);
    return this.moved[layer * this.heads + head] / (all || 1);
  }
}

/** One picture of the text, or one of its tiles: its pixels in colour and in grey, and the piece of each place. */
class Picture {
  constructor(packed, sides, image) {
    Object.assign(this, { rows: packed.rows, columns: packed.columns, tile: packed.tile, frame: packed.frame });
    this.side = sides[packed.side];
    this.pieces = packed.pieces;
    this.ratio = packed.size ? packed.size[1] / packed.size[0] : packed.rows / packed.columns;
    this.coloured = image && painted(image, "none");
    this.grey = image && painted(image, "grayscale(1)");
  }
  /** The unit at a place; −1 where there is none. */
  unit(at, unit) { return this.pieces[at] < 0 ? -1 : unit === "word" ? this.side.word[this.pieces[at]] : this.pieces[at]; }
}

function painted(image, filter) {
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext("2d");
  context.filter = filter;
  context.drawImage(image, 0, 0);
  return canvas;
}

async function pictured(packed, sides) {
  if (!packed.image) return new Picture(packed, sides, null);
  const image = new Image();
  image.src = packed.image;
  await image.decode();
  return new Picture(packed, sides, image);
}

export class Scene {
  constructor(doc, stacks, sides, explanations, induced, pictures) {
    Object.assign(this, { doc, stacks, sides, explanations, induced, pictures });
  }
  stack(name) { return this.stacks.find((stack) => stack.name === name) ?? this.stacks[0]; }
}

async function explained(packed, sides) {
  const values = await floats(packed.values);
  return { method: packed.method, side: sides[packed.side], signed: packed.signed, values };
}

export const explanationsOf = (list, scene) => Promise.all(list.map((item) => explained(item, scene.sides)));

export async function openScene(doc) {
  const sides = doc.sides.map((side) => new Side(side));
  const stacks = await Promise.all(doc.stacks.map(async (packed) => new Stack(packed, sides, {
    weights: await Promise.all(packed.weights.map(inflated)),
    norms: packed.norms && await floats(packed.norms),
    entropies: await floats(packed.entropy),
    moved: packed.moved && await floats(packed.moved),
  })));
  const explanations = await Promise.all(doc.explanations.map((item) => explained(item, sides)));
  const induced = doc.trees?.induced ? new Int16Array((await inflated(doc.trees.induced.data)).buffer) : null;
  const pictures = await Promise.all((doc.pictures ?? []).map((item) => pictured(item, sides)));
  return new Scene(doc, stacks, sides, explanations, induced, pictures);
}
