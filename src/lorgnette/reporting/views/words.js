// In words: numbers, heads, and what the views call things.

/** A share as a percentage: two digits that count, and never more than the packed bytes know. */
export function percent(value) {
  const p = value * 100;
  if (p === 0) return "0 %";
  if (p < 0.05) return "< 0.1 %";
  return `${p < 10 ? p.toFixed(1) : Math.round(p)} %`;
}

/** Any number with three digits that count; minus is a minus. */
export function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const plain = size.toPrecision(size < 0.1 ? 2 : 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  const text = size >= 1000 || size < 0.0001 ? size.toExponential(1) : plain;
  return value < 0 ? `−${text}` : text;
}

export const amount = (value, measure) => (measure === "weight" ? percent(value) : number(value));

/** A model by the last part of its name, which is enough beside a picture. */
export const shortName = (model) => model.replace(/\/+$/, "").split("/").pop() || model;

export const headName = (layer, head) => `${layer + 1}.${head + 1}`;

/** A token or word as it is shown: nothing is endless. White space was made visible when the text was packed. */
export const shown = (label) => (label.length > 40 ? `${label.slice(0, 39)}…` : label);
