// A page of its own, or a notebook's cell: read what was packed, show it, keep the state in the address.

import { Viewer } from "./viewer.js";
import { read, write } from "./address.js";

async function start() {
  const root = document.getElementById("viewer"), doc = JSON.parse(document.getElementById("packed").textContent);
  const keep = !document.body.classList.contains("lv-notebook");
  const viewer = new Viewer(root, keep ? read(location.hash.slice(1)) : {}, keep ? { state: (state) => write(state, "#") } : {});
  window.lorgnette = viewer; // for the curious, and for tests
  await viewer.open(doc);
}

start().catch((error) => {
  document.getElementById("viewer").textContent = `This page cannot be shown: ${error.message}`;
  throw error;
});
