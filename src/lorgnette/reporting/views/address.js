// The state of a viewer as part of an address, so that a link shows what its sender saw.

const NUMBERS = ["layer", "head", "token"]; // from 1 in the address, from 0 inside

export function encoded(state) {
  const out = new URLSearchParams();
  for (const name of ["view", "stack", "unit", "measure"]) if (state[name]) out.set(name, state[name]);
  for (const name of NUMBERS) if (state[name] >= 0) out.set(name, state[name] + 1);
  if (state.methods) out.set("methods", state.methods.join(","));
  if (state.off?.length) out.set("off", state.off.map(([stack, layer, head]) => `${stack}.${layer + 1}.${head + 1}`).join(","));
  return out;
}

/** What an address says; what it says wrongly is left out. */
export function read(query) {
  const from = new URLSearchParams(query), out = {};
  const among = { view: /^[a-z]+$/, stack: /^[a-z]+$/, unit: /^(word|piece)$/, measure: /^(weight|norm)$/ };
  for (const [name, right] of Object.entries(among)) if (right.test(from.get(name) ?? "")) out[name] = from.get(name);
  for (const name of NUMBERS) if (/^[1-9]\d{0,4}$/.test(from.get(name) ?? "")) out[name] = Number(from.get(name)) - 1;
  if (from.get("methods")) out.methods = from.get("methods").split(",");
  const heads = (from.get("off") ?? "").split(",").map((name) => /^([a-z]+)\.([1-9]\d*)\.([1-9]\d*)$/.exec(name));
  out.off = heads.filter(Boolean).map(([, stack, layer, head]) => [stack, layer - 1, head - 1]);
  return out;
}

let waiting = null;

/** Replace the address, not too often: browsers allow a hundred changes in half a minute. */
export function write(state, mark, more = {}) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const query = encoded(state);
    for (const [name, value] of Object.entries(more)) if (value) query.set(name, value);
    history.replaceState(null, "", `${mark}${query}`);
  }, 250);
}
