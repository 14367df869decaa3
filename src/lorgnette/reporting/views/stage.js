// The stage: a canvas that shows the visible part of a drawing of any size, and tells what lies under the pointer.

import { CanvasPen } from "./pen.js";

const FULL = 1200; // a drawing up to this height is shown whole, so that the page scrolls and nothing in it

const most = (low, value, high) => Math.max(low, Math.min(high, value));

export class Stage {
  /** `ask` gives { view, scene, state, colours, focus } at any time; `told` hears of pointers. */
  constructor(root, ask, told, options = {}) {
    Object.assign(this, { root, ask, told, options });
    this.canvas = document.createElement("canvas");
    this.spacer = document.createElement("div");
    this.canvas.className = "lv-canvas";
    this.spacer.className = "lv-spacer";
    root.append(this.canvas, this.spacer);
    root.addEventListener("scroll", () => this.redraw());
    root.addEventListener("pointermove", (event) => this.told.hover?.(this.under(event), event));
    root.addEventListener("pointerleave", () => this.told.hover?.(null));
    root.addEventListener("click", (event) => this.told.click?.(this.under(event), event));
    root.addEventListener("dblclick", (event) => this.told.twice?.(this.under(event), event));
    new ResizeObserver(() => this.changed()).observe(root);
  }

  /** Something that may move what is drawn. */
  changed() {
    this.box = null;
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }

  paint() {
    const { view, scene, state, colours, focus } = this.ask();
    const wide = this.root.clientWidth;
    if (!scene || wide === 0) return;
    const start = performance.now();
    if (!this.box) {
      this.box = view.layout(scene, state, wide, this.options);
      this.spacer.style.width = `${this.box.width}px`;
      this.spacer.style.height = `${this.box.height}px`;
      const tall = this.box.height <= FULL ? this.box.height : Math.max(420, window.innerHeight * 0.8);
      this.root.style.height = `${Math.ceil(tall) + (this.box.width > wide ? 14 : 0)}px`;
    }
    const width = this.root.clientWidth, height = this.root.clientHeight, dots = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * dots) || this.canvas.height !== Math.round(height * dots)) {
      this.canvas.width = Math.round(width * dots);
      this.canvas.height = Math.round(height * dots);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const x0 = this.root.scrollLeft, y0 = this.root.scrollTop, context = this.canvas.getContext("2d");
    context.setTransform(dots, 0, 0, dots, 0, 0);
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    context.translate(-x0, -y0);
    view.draw(new CanvasPen(context), scene, state, this.box, colours, { x0, y0, x1: x0 + width, y1: y0 + height }, focus);
    this.told.painted?.(performance.now() - start);
  }

  under(event) {
    const { view, scene, state } = this.ask();
    if (!this.box) this.paint(); // a change has not been drawn yet
    if (!scene || !this.box) return null;
    const place = this.root.getBoundingClientRect();
    const x = event.clientX - place.left - this.root.clientLeft + this.root.scrollLeft;
    const y = event.clientY - place.top - this.root.clientTop + this.root.scrollTop;
    return view.hit(scene, state, this.box, x, y);
  }

  /** Scroll so that a token (or the head of the model view) can be seen. */
  reveal(index) {
    const { view, scene, state } = this.ask();
    if (!scene || !this.box || index < 0) return;
    const { x, y, width, height } = view.spot(this.box, index, state, scene), root = this.root;
    root.scrollTop = most(y + height - root.clientHeight + 4, root.scrollTop, y);
    root.scrollLeft = most(x + width - root.clientWidth, root.scrollLeft, Math.max(0, x));
  }
}
