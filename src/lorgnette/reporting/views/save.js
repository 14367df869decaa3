// The view as a file: PNG at three times the size of the screen, or SVG, with its title and its legend.

import { legendView } from "./legend.js";
import { CanvasPen, FONT, SvgPen } from "./pen.js";

const MARGIN = 24, TITLE = 40, GAP = 14, LARGEST = 16000;

const everything = { x0: 0, y0: 0, x1: Infinity, y1: Infinity };

function drawAll(pen, offset, { view, scene, state, colours, focus, title }, box, legend) {
  offset(MARGIN, MARGIN);
  pen.text(title, 0, 10, { size: 15, weight: 650, fill: colours.ink });
  offset(0, TITLE);
  view.draw(pen, scene, state, box, colours, { ...everything, x1: box.width, y1: box.height }, focus);
  offset(0, box.height + GAP);
  legendView.draw(pen, scene, state, legend, colours);
}

function sized(ask, width) {
  const box = ask.view.layout(ask.scene, ask.state, width), legend = legendView.layout(ask.scene, ask.state, Math.max(box.width, 420));
  return { box, legend, wide: Math.max(box.width, legend.width, 420) + 2 * MARGIN, tall: box.height + TITLE + GAP + legend.height + 2 * MARGIN };
}

/** SVG as text. */
export function asSvg(ask, width) {
  const { box, legend, wide, tall } = sized(ask, width), pen = new SvgPen(Math.ceil(wide), Math.ceil(tall), ask.colours.paper);
  const offset = (x, y) => {
    const group = document.createElementNS("http://www.w3.org/2000/svg", "g");
    group.setAttribute("transform", `translate(${x} ${y})`);
    pen.root.append(group);
    pen.root = group;
  };
  const root = pen.root;
  drawAll(pen, offset, ask, box, legend);
  pen.root = root;
  return pen.file();
}

/** PNG as a blob. */
export function asPng(ask, width) {
  const { box, legend, wide, tall } = sized(ask, width);
  const dots = Math.min(3, LARGEST / wide, LARGEST / tall);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(wide * dots);
  canvas.height = Math.ceil(tall * dots);
  const context = canvas.getContext("2d");
  context.fillStyle = ask.colours.paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(dots, dots);
  context.font = `13px ${FONT}`;
  drawAll(new CanvasPen(context), (x, y) => context.translate(x, y), ask, box, legend);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function download(blob, name) {
  const link = document.createElement("a"), address = URL.createObjectURL(blob);
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
