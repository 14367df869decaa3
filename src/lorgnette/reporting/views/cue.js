// A drawing that is wider than its place says so, and can be scrolled with the keyboard.

import { element } from "./numbers.js";

/** `inner` is what gives the drawing its width, if that changes. */
export function cue(drawing, inner = drawing) {
  const said = element("p", { class: "cue", hidden: "" }, "scroll for the rest →");
  drawing.before(said);
  const look = () => {
    const rest = drawing.scrollWidth - drawing.clientWidth;
    said.hidden = rest < 8 || drawing.scrollLeft > rest - 8;
    if (rest >= 8) drawing.tabIndex = 0;
  };
  drawing.addEventListener("scroll", look, { passive: true });
  const sizes = new ResizeObserver(look);
  for (const each of new Set([drawing, inner])) sizes.observe(each);
}
