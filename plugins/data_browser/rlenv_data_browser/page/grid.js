// The grid of episodes: only the tiles that are seen exist, whatever the number of episodes.

import { ask, forgetFailures, tileOf, wantTiles, whenTile } from "./api.js";
import { drawCurves, drawPictures } from "./draw.js";
import { $, make, put, t } from "./words.js";

const PAGE = 120, GAP = 8, TALLEST = 12e6;
const root = $("grid"), space = $("space");

export const grid = {
  query: {}, total: 0, all: 0, active: 0, anchor: 0, share: 0, version: 0, cuts: new Map(),
  marks: new Set(), everything: false, // all that pass the filters
  pages: new Map(), tiles: new Map(), columns: 1, onChange: () => {}, onProblem: () => {}, asked: 0,
};

/** Ask for the episodes of other filters; `stay` keeps the place and what is chosen. */
export async function load(query, { stay = false } = {}) {
  const asked = ++grid.asked;
  const first = stay ? Math.floor(firstSeen() / PAGE) : 0;
  const answer = await ask("episodes", { ...query, offset: first * PAGE, limit: PAGE });
  if (asked !== grid.asked) return null; // another one was asked meanwhile
  grid.query = query;
  grid.total = answer.total;
  grid.version = answer.version;
  grid.pages = new Map([[first, answer.rows]]);
  if (!stay) {
    grid.marks.clear();
    grid.everything = false;
    grid.active = grid.anchor = 0;
    root.scrollTop = 0;
  }
  grid.active = Math.max(Math.min(grid.active, grid.total - 1), 0);
  forgetFailures();
  layout();
  grid.onChange();
  return answer;
}

export const rowAt = (index) => grid.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
async function page(number) {
  if (grid.pages.has(number)) return grid.pages.get(number);
  const asked = grid.asked, pages = grid.pages;
  pages.set(number, undefined);
  try {
    const answer = await ask("episodes", { ...grid.query, offset: number * PAGE, limit: PAGE, count: 0 });
    if (asked === grid.asked) pages.set(number, answer.rows);
    render();
    return answer.rows;
  } catch (error) {
    pages.delete(number);
    grid.onProblem(error);
    return [];
  }
}
/** The records of a range of indices, the last one included. */
export async function rowsBetween(first, last) {
  const rows = [];
  for (let number = Math.floor(first / PAGE); number <= Math.floor(last / PAGE); number++) {
    while (grid.pages.has(number) && grid.pages.get(number) === undefined) await new Promise((done) => setTimeout(done, 20));
    const found = await page(number);
    found.forEach((row, at) => { const index = number * PAGE + at; if (index >= first && index <= last) rows.push(row); });
  }
  return rows;
}

// -- Where tiles are -----------------------------------------------------------------------------------------------

let width = 0, tall = 0, scale = 1;
export function layout() {
  const inner = root.clientWidth - GAP;
  if (inner <= 0) return;
  grid.columns = Math.max(Math.floor(inner / (inner < 500 ? 168 : 236)), 1);
  width = Math.floor(inner / grid.columns) - GAP;
  tall = Math.round(width * 0.5) + 48 + 76;
  const height = Math.ceil(grid.total / grid.columns) * (tall + GAP) + GAP;
  scale = Math.max((height - root.clientHeight) / Math.max(TALLEST - root.clientHeight, 1), 1); // browsers bound the height
  space.style.height = `${Math.round(scale > 1 ? TALLEST : height)}px`;
  $("empty").hidden = grid.total > 0;
  put($("empty"), t(grid.all ? "empty" : "no_episodes"));
  render();
}
const top = () => root.scrollTop * scale;
const firstSeen = () => (tall ? Math.max(Math.floor((top() - GAP) / (tall + GAP)), 0) * grid.columns : 0);
const lastSeen = () => Math.min((Math.ceil((top() + root.clientHeight) / (tall + GAP)) + 1) * grid.columns, grid.total);

export function reveal(index) {
  const at = Math.floor(index / grid.columns) * (tall + GAP), low = top(), seen = root.clientHeight;
  if (at < low) root.scrollTop = at / scale;
  else if (at + tall + 2 * GAP > low + seen) root.scrollTop = (at + tall + 2 * GAP - seen) / scale;
  render();
}

let planned = false;
export function schedule() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => { planned = false; render(); });
}

export function render() {
  if (!tall || root.hidden || !root.clientHeight) return;
  const first = firstSeen(), last = lastSeen();
  const spare = [];
  for (const [index, tile] of grid.tiles) if (index < first || index >= last) { grid.tiles.delete(index); spare.push(tile); }
  for (let number = Math.floor(first / PAGE); number <= Math.floor(Math.max(last - 1, 0) / PAGE); number++) if (grid.total && !grid.pages.has(number)) page(number);
  const keys = [];
  for (let index = first; index < last; index++) {
    let tile = grid.tiles.get(index);
    if (!tile) {
      tile = spare.pop() ?? newTile();
      grid.tiles.set(index, tile);
    }
    const x = GAP + (index % grid.columns) * (width + GAP), y = GAP + Math.floor(index / grid.columns) * (tall + GAP) - top() + root.scrollTop;
    tile.element.style.transform = `translate(${x}px,${Math.round(y)}px)`;
    tile.element.style.width = `${width}px`;
    tile.element.style.height = `${tall}px`;
    const row = rowAt(index);
    show(tile, index, row);
    if (row) keys.push(row.key);
  }
  for (const tile of spare) tile.element.remove();
  root.setAttribute("aria-activedescendant", grid.tiles.has(grid.active) ? `tile-${grid.active}` : "");
  wantTiles(keys);
}
whenTile(schedule);

function newTile() {
  const parts = { pictures: make("canvas", { class: "pictures" }), curves: make("canvas", { class: "curves" }), problem: make("div", { class: "problem" }), title: make("p", { class: "name" }), facts: make("p", { class: "facts" }), chips: make("p", { class: "chips" }) };
  parts.element = make("div", { class: "tile", role: "option" }, parts.pictures, parts.curves, parts.problem, parts.title, parts.facts, parts.chips);
  root.append(parts.element);
  return parts;
}

export const isMarked = (row) => grid.everything || grid.marks.has(row.key);
function show(tile, index, row) {
  const { element } = tile;
  element.id = `tile-${index}`;
  element.dataset.index = index;
  element.dataset.active = String(index === grid.active);
  element.setAttribute("aria-posinset", index + 1);
  element.setAttribute("aria-setsize", grid.total);
  element.setAttribute("aria-selected", String(Boolean(row && isMarked(row))));
  element.dataset.verdict = row?.verdict ?? "";
  const drawn = row && tileOf(row.key);
  put(tile.title, row ? title(row) : "…");
  put(tile.facts, row ? facts(row) : "");
  const chips = row ? chipsOf(row) : [], text = JSON.stringify(chips);
  if (tile.chips.dataset.text !== text) {
    tile.chips.dataset.text = text;
    tile.chips.replaceChildren(...chips.map(([word, kind]) => make("span", { class: `chip ${kind}` }, word)));
  }
  element.title = row ? [title(row), row.note, row.path].filter(Boolean).join("\n") : "";
  const problems = drawn?.error ? [drawn.error] : (drawn?.head?.strips ?? []).filter((strip) => strip[2]).map((strip) => `${strip[0]}: ${strip[2]}`);
  tile.problem.hidden = !problems.length;
  put(tile.problem, problems.join("\n"));
  const blind = Boolean(drawn?.head && !drawn.head.strips.length);
  tile.pictures.hidden = blind;
  tile.curves.style.flex = blind ? "1" : "";
  if (!blind) drawPictures(tile.pictures, drawn, grid.share);
  drawCurves(tile.curves, drawn?.head, grid.share);
}

const short = (value) => Number(Number(value).toPrecision(3));
export const title = (row) => `${row.episode} · ${row.task_text ?? row.task ?? row.run ?? ""}`;
export function facts(row) {
  const words = [row.seconds === null ? `${row.steps ?? "?"} steps` : `${short(row.seconds)} s`];
  if (row.return !== null && row.return !== undefined) words.push(`Σ ${short(row.return)}`);
  if (row.score !== null && row.score !== undefined) words.push(`${t("score")} ${short(row.score)}`);
  words.push(row.run ?? "", row.source ?? "");
  return words.filter(Boolean).join(" · ");
}
export const listed = (value) => (Array.isArray(value) ? value : String(value ?? "").split(/[,\s]+/)).filter(Boolean);
export function chipsOf(row) {
  const chips = [];
  if (row.verdict === "discard") chips.push([`✕ ${t("discarded_now")}`, "bad"]);
  else if (row.success === 1) chips.push(["✓", "good"]);
  else if (row.success === 0) chips.push(["✗", "bad"]);
  if (grid.cuts.has(row.key)) chips.push([`✂ ${grid.cuts.get(row.key).length + 1}`, "warn"]);
  for (const word of listed(row.findings)) chips.push([word, "warn"]);
  for (const word of listed(row.tags)) chips.push([word, ""]);
  if (row.note) chips.push(["✎", ""]);
  return chips;
}

// -- Choosing ------------------------------------------------------------------------------------------------------

export async function moveTo(index, extend = false) {
  if (!grid.total) return;
  grid.active = Math.max(0, Math.min(index, grid.total - 1));
  if (extend) {
    const [first, last] = [Math.min(grid.anchor, grid.active), Math.max(grid.anchor, grid.active)];
    const rows = await rowsBetween(first, last);
    grid.everything = false;
    grid.marks = new Set(rows.map((row) => row.key));
  } else {
    grid.anchor = grid.active;
  }
  reveal(grid.active);
  grid.onChange();
}
export function toggle(index) {
  const row = rowAt(index);
  if (!row) return;
  if (grid.everything) return clearMarks();
  if (!grid.marks.delete(row.key)) grid.marks.add(row.key);
  grid.anchor = index;
  render();
  grid.onChange();
}
export function clearMarks() {
  grid.marks.clear();
  grid.everything = false;
  render();
  grid.onChange();
}
export function markAll() {
  grid.everything = grid.total > 0;
  render();
  grid.onChange();
}
export function scrub(share) {
  grid.share = Math.max(0, Math.min(share, 1));
  schedule();
}
export const pageRows = () => Math.max(Math.floor(root.clientHeight / (tall + GAP)), 1) * grid.columns;

root.addEventListener("scroll", schedule, { passive: true });
root.addEventListener("pointermove", (event) => {
  const tile = event.target.closest(".tile");
  if (tile) scrub((event.clientX - tile.getBoundingClientRect().left) / (width - 1));
});
new ResizeObserver(layout).observe(root);
