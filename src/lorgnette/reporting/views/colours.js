// Colours that mean numbers. Each ramp is monotone in lightness, so that it can be read with any kind of colour vision.

const LIGHT = {
  paper: "#ffffff", ink: "#1c2024", soft: "#5b646d", line: "#dfe3e7", accent: "#0072b2", tint: "#f4f7fa", other: "#c04d00",
  ramp: ["#ffffff", "#cfe3f1", "#7db5db", "#0072b2", "#00304f"],
  below: ["#ffffff", "#f6dcc6", "#e8a56e", "#c04d00", "#5c2400"],
};
const DARK = {
  paper: "#14171a", ink: "#e4e7ea", soft: "#9aa4ad", line: "#2d3338", accent: "#56b4e9", tint: "#1c2125", other: "#f0924c",
  ramp: ["#14171a", "#16344a", "#1c6799", "#56b4e9", "#e3f3fd"],
  below: ["#14171a", "#43260f", "#934a14", "#f0924c", "#fdebdd"],
};
const STEPS = 256;

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function table(stops) {
  const parts = stops.map(channels), out = [];
  for (let step = 0; step < STEPS; step++) {
    const place = (step / (STEPS - 1)) * (parts.length - 1), low = Math.min(Math.floor(place), parts.length - 2);
    out.push(parts[low].map((from, c) => Math.round(from + (parts[low + 1][c] - from) * (place - low))));
  }
  return out;
}

const step = (t) => Math.max(0, Math.min(STEPS - 1, Math.round(t * (STEPS - 1))));
const css = ([r, g, b]) => `rgb(${r},${g},${b})`;
const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;

/** The colours of a page, light or dark. */
export function palette(dark) {
  const base = dark ? DARK : LIGHT;
  const above = table(base.ramp), below = table(base.below);
  const packed = Uint32Array.from(above, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
  const triple = (t) => (t < 0 ? below[step(-t)] : above[step(t)]);
  return {
    ...base,
    dark,
    /** A share from 0 to 1 (or −1 to 1) as a colour. */
    colour: (t) => css(triple(t)),
    /** The same as a pixel. */
    pixel: (t) => packed[step(t)],
    /** What can be read on it. */
    onto: (t) => (light(triple(t)) > 128 ? "#111417" : "#ffffff"),
  };
}

/** Position of a value on a ramp: small weights are the many, so the root is shown, not the value. */
export const place = (value, top) => Math.sqrt(Math.max(0, value) / top);
