// Every figure of a report can be saved as a drawing and as a picture, black on white, whatever the screen shows.

import { cue } from "./cue.js";
import { element } from "./numbers.js";
import { download } from "./save.js";

const DOTS = 3;

function standalone(drawing) {
  const copy = drawing.cloneNode(true), { width, height } = drawing.viewBox.baseVal;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.setAttribute("color", "black");
  const paper = document.createElementNS(drawing.namespaceURI, "rect");
  paper.setAttribute("width", width);
  paper.setAttribute("height", height);
  paper.setAttribute("fill", "white");
  copy.prepend(paper);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

const asBlob = (text) => new Blob([text], { type: "image/svg+xml" });

async function asPicture({ text, width, height }) {
  const image = new Image(), address = URL.createObjectURL(asBlob(text));
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * DOTS);
  canvas.height = Math.ceil(height * DOTS);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function startFigures() {
  for (const figure of document.querySelectorAll("figure[data-name]")) {
    const drawing = figure.querySelector(".drawing svg"), place = figure.querySelector(".saves");
    const button = (kind, make) => {
      const made = element("button", { type: "button", title: `Save this figure as ${kind.toUpperCase()}` }, kind.toUpperCase());
      made.addEventListener("click", async () => download(await make(standalone(drawing)), `${figure.dataset.name}.${kind}`));
      return made;
    };
    cue(figure.querySelector(".drawing"));
    place.append(button("svg", async ({ text }) => asBlob(text)), button("png", asPicture));
  }
}
