// One way to draw, two papers: a canvas on the screen, an SVG file to keep.

export const FONT = 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, "Liberation Sans", sans-serif';

const font = ({ size = 13, weight = 400 }) => `${weight} ${size}px ${FONT}`;

export class CanvasPen {
  constructor(context) { this.context = context; }

  rect(x, y, width, height, { fill, stroke, line = 1, alpha = 1, radius = 0, dash = [] } = {}) {
    const c = this.context;
    c.globalAlpha = alpha;
    c.beginPath();
    if (radius) c.roundRect(x, y, width, height, radius);
    else c.rect(x, y, width, height);
    if (fill) { c.fillStyle = fill; c.fill(); }
    if (stroke) { c.strokeStyle = stroke; c.lineWidth = line; c.setLineDash(dash); c.stroke(); c.setLineDash([]); }
    c.globalAlpha = 1;
  }

  path(points, { stroke, line = 1, alpha = 1, dash = [] } = {}) {
    const c = this.context;
    c.globalAlpha = alpha;
    c.strokeStyle = stroke;
    c.lineWidth = line;
    c.setLineDash(dash);
    c.beginPath();
    c.moveTo(points[0], points[1]);
    if (points.length === 4) c.lineTo(points[2], points[3]);
    else c.bezierCurveTo(...points.slice(2));
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 1;
  }

  text(string, x, y, { size, weight, fill, align = "left", alpha = 1, turn = 0 } = {}) {
    const c = this.context;
    c.save();
    c.globalAlpha = alpha;
    c.font = font({ size, weight });
    c.fillStyle = fill;
    c.textAlign = align;
    c.textBaseline = "middle";
    c.translate(x, y);
    if (turn) c.rotate((turn * Math.PI) / 180);
    c.fillText(string, 0, 0);
    c.restore();
  }

  image(canvas, x, y, width, height, { smooth = false } = {}) {
    this.context.imageSmoothingEnabled = smooth;
    this.context.drawImage(canvas, x, y, width, height);
  }
}

const NAMESPACE = "http://www.w3.org/2000/svg";

export class SvgPen {
  constructor(width, height, paper) {
    this.root = document.createElementNS(NAMESPACE, "svg");
    this.set(this.root, { xmlns: NAMESPACE, width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT });
    this.rect(0, 0, width, height, { fill: paper });
  }

  set(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== null) element.setAttribute(name, value);
    }
    return element;
  }

  add(name, attributes) {
    const rounded = Object.entries(attributes).map(([k, v]) => [k, typeof v === "number" ? +v.toFixed(2) : v]);
    return this.root.appendChild(this.set(document.createElementNS(NAMESPACE, name), Object.fromEntries(rounded)));
  }

  rect(x, y, width, height, { fill = "none", stroke, line = 1, alpha, radius, dash } = {}) {
    const edge = { stroke, "stroke-width": stroke && line, "stroke-dasharray": dash?.join(" ") };
    this.add("rect", { x, y, width, height, fill, ...edge, opacity: alpha, rx: radius });
  }

  path(points, { stroke, line = 1, alpha, dash } = {}) {
    const [x, y, ...rest] = points.map((p) => +p.toFixed(2));
    const d = `M${x} ${y}${rest.length === 2 ? "L" : "C"}${rest.join(" ")}`;
    const stroked = { stroke, "stroke-width": line, opacity: alpha, "stroke-dasharray": dash?.join(" ") };
    this.add("path", { d, fill: "none", ...stroked });
  }

  text(string, x, y, { size = 13, weight, fill, align = "left", alpha, turn = 0 } = {}) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const turned = turn ? `rotate(${turn} ${x} ${y})` : null;
    const look = { fill, opacity: alpha, "font-size": size, "font-weight": weight, "text-anchor": anchor };
    this.add("text", { x, y, ...look, "dominant-baseline": "central", transform: turned }).textContent = string;
  }

  image(canvas, x, y, width, height, { smooth = false } = {}) {
    const look = smooth ? null : "image-rendering: pixelated";
    this.add("image", { x, y, width, height, href: canvas.toDataURL(), preserveAspectRatio: "none", style: look });
  }

  file() { return new XMLSerializer().serializeToString(this.root); }
}

const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

/** Width of a string in pixels. */
export function widthOf(string, look = {}) {
  const name = font(look), key = name + string;
  if (!widths.has(key)) {
    ruler.font = name;
    if (widths.size > 20000) widths.clear();
    widths.set(key, ruler.measureText(string).width);
  }
  return widths.get(key);
}

/** The string, cut with an ellipsis where it is wider than the room. */
export function fitted(string, room, look = {}) {
  if (widthOf(string, look) <= room) return string;
  let end = string.length;
  while (end > 1 && widthOf(`${string.slice(0, end)}…`, look) > room) end--;
  return `${string.slice(0, end)}…`;
}
