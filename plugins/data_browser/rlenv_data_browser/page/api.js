// Questions to the server, with the token of this page.

import { store } from "./words.js";

let token = "";
export function takeToken(given) {
  const hash = new URLSearchParams(location.hash.slice(1));
  const fromLink = given || hash.get("token");
  if (fromLink) store.set("token", fromLink, sessionStorage);
  if (hash.has("token")) history.replaceState(history.state, "", location.pathname + location.search);
  token = fromLink || store.get("token", sessionStorage) || "";
  return token;
}

export class Refused extends Error {}

async function answer(path, options) {
  const response = await fetch(path, { ...options, headers: { authorization: `Bearer ${token}`, ...options.headers }, cache: "no-store" });
  if (response.ok) return response;
  let text = `${response.status}`;
  try { text = (await response.json()).error; } catch { /* not of our server */ }
  throw Object.assign(new Refused(text), { status: response.status });
}
const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== undefined && value !== null)).toString();
export const ask = async (path, values = {}, options = {}) => (await answer(`/api/${path}?${query(values)}`, options)).json();
export const send = async (path, body) => (await answer(`/api/${path}`, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } })).json();
export const bytes = async (path, values, options = {}) => (await answer(`/api/${path}?${query(values)}`, options)).arrayBuffer();

/** Images of an answer, each behind its size in 4 bytes. */
export function images(buffer) {
  const view = new DataView(buffer), found = [];
  for (let at = 0; at + 4 <= buffer.byteLength;) {
    const size = view.getUint32(at);
    found.push(size ? new Blob([new Uint8Array(buffer, at + 4, size)]) : null);
    at += 4 + size;
  }
  return found;
}

const MOST_TILES = 600, AT_ONCE = 3;
const tiles = new Map(); // key -> { head, sheet, error }, the newest last
let wanted = [], running = 0, arrived = () => {};
export const whenTile = (then) => { arrived = then; };
export const tileOf = (key) => tiles.get(key);
/** Load the tiles that are missing, in this order; those that were asked for before and not begun are forgotten. */
export function wantTiles(keys) {
  wanted = keys.filter((key) => !tiles.has(key));
  pump();
}
export const forgetFailures = () => { for (const [key, tile] of tiles) if (tile.error || tile.partial) tiles.delete(key); };
function pump() {
  while (running < AT_ONCE && wanted.length) {
    const key = wanted.shift();
    running++;
    tiles.set(key, {});
    load(key).then((tile) => {
      running--;
      tiles.delete(key);
      tiles.set(key, tile);
      for (const old of tiles.keys()) { if (tiles.size <= MOST_TILES) break; tiles.get(old).sheet?.close(); tiles.delete(old); }
      arrived(key);
      pump();
    });
  }
}
async function load(key) {
  try {
    const buffer = new Uint8Array(await bytes("tile", { key })), end = buffer.indexOf(10);
    const head = JSON.parse(new TextDecoder().decode(buffer.subarray(0, end)));
    const sheet = end + 1 < buffer.length ? await createImageBitmap(new Blob([buffer.subarray(end + 1)], { type: "image/jpeg" })) : null;
    return { head, sheet, partial: head.strips.some((strip) => strip[2]) };
  } catch (error) {
    return { error: error.message };
  }
}
