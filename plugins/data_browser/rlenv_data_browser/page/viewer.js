// One episode, or two side by side with linked time: images, curves with a cursor, playback.

import { ask, bytes, images } from "./api.js";
import { LEFT, RIGHT, drawStrips } from "./draw.js";
import { chipsOf, facts, grid, title } from "./grid.js";
import { $, make, put, t } from "./words.js";

const CHUNK = 24, MOST_IMAGES = 2400;
export const viewer = { panes: [], active: 0, at: 0, playing: false, onChange: () => {} };
export const isOpen = () => viewer.panes.length > 0;
const longest = () => Math.max(...viewer.panes.map((pane) => pane.curves?.seconds ?? 0), 1e-9);

class Pane {
  constructor(key) {
    this.key = key;
    this.row = null;
    this.curves = null;
    this.frames = new Map(); // camera -> frame -> Blob, null without an image, undefined while it is on its way
    this.shown = new Map();
    this.busy = new Set();
    this.pace = 0; // milliseconds for an image
    this.problem = "";
    this.head = make("header");
    this.facts = make("p", { class: "facts" });
    this.cameras = make("div", { class: "cameras" });
    this.legend = make("div", { class: "legend" });
    this.strips = make("canvas", { class: "strips", role: "img" });
    this.element = make("section", { class: "pane" }, this.head, this.facts, this.cameras, this.legend, this.strips);
    this.element.addEventListener("pointerdown", () => { viewer.active = viewer.panes.indexOf(this); render(); viewer.onChange(); });
    const seek = (event) => {
      if (event.buttons === 0 && event.type !== "click") return;
      const box = this.strips.getBoundingClientRect();
      go(((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * (this.curves?.seconds ?? 0));
    };
    for (const kind of ["pointerdown", "pointermove"]) this.strips.addEventListener(kind, seek);
  }

  async load() {
    try {
      const [{ record }, curves] = await Promise.all([ask("episode", { key: this.key }), ask("curves", { key: this.key })]);
      this.row = record;
      this.curves = curves;
      this.cameras.replaceChildren(...curves.cameras.map((name) => make("figure", { "data-camera": name }, make("canvas", { role: "img", "aria-label": name }), make("figcaption", {}, name))));
      for (const name of curves.cameras) this.frames.set(name, new Map());
    } catch (error) {
      this.problem = error.message;
    }
    render();
  }
  async refresh() {
    try { this.row = (await ask("episode", { key: this.key })).record; } catch { /* it has gone; what was shown stays */ }
  }

  get frame() {
    if (!this.curves || this.curves.frames < 2) return 0;
    return Math.max(0, Math.min(Math.round((viewer.at / Math.max(this.curves.seconds, 1e-9)) * (this.curves.frames - 1)), this.curves.frames - 1));
  }
  get share() { return this.curves && this.curves.frames > 1 ? this.frame / (this.curves.frames - 1) : 0; }

  show() {
    put(this.facts, this.problem || (this.row ? [facts(this.row), this.row.policy, this.row.end_reason, this.row.began, this.row.note && `✎ ${this.row.note}`, this.row.path].filter(Boolean).join(" · ") : "…"));
    this.facts.classList.toggle("bad", Boolean(this.problem));
    this.element.dataset.active = String(viewer.panes.length > 1 && viewer.panes[viewer.active] === this);
    if (!this.row) return;
    const words = [title(this.row), ...chipsOf(this.row).map((chip) => chip.join("/"))].join("|");
    if (this.head.dataset.words !== words) {
      this.head.dataset.words = words;
      this.head.replaceChildren(make("h2", {}, title(this.row)), ...chipsOf(this.row).map(([word, kind]) => make("span", { class: `chip ${kind}` }, word)));
      this.element.setAttribute("aria-label", title(this.row));
    }
    const frame = this.frame;
    for (const figure of this.cameras.children) this.showImage(figure, frame);
    if (this.legend.dataset.words !== t("measured")) {
      this.legend.dataset.words = t("measured");
      this.legend.replaceChildren(make("span", {}, make("i"), t("measured")), make("span", {}, make("i", { class: "goal" }), t("goal")));
    }
    this.legend.hidden = !this.curves.lines.length;
    drawStrips(this.strips, this.curves, this.share, grid.cuts.get(this.key) ?? [], { reward: t("reward") });
    this.strips.setAttribute("aria-label", `${this.curves.lines.map((line) => line.name).join(", ")}; ${t("frame")} ${frame}`);
  }

  showImage(figure, frame) {
    const camera = figure.dataset.camera, known = this.frames.get(camera);
    this.fetch(camera, frame);
    let blob = known.get(frame);
    for (let back = 1; !blob && viewer.playing && back <= CHUNK; back++) blob = known.get(frame - back); // the newest that has come
    if (!(blob instanceof Blob) || this.shown.get(camera) === blob) return;
    this.shown.set(camera, blob);
    createImageBitmap(blob).then((image) => {
      if (this.shown.get(camera) !== blob) return image.close(); // a newer one is on its way
      const canvas = figure.firstChild;
      if (canvas.width !== image.width || canvas.height !== image.height) [canvas.width, canvas.height] = [image.width, image.height];
      canvas.getContext("2d").drawImage(image, 0, 0);
      image.close();
      figure.dataset.frame = frame;
    });
  }

  /** Frames from one image to the next that the server can deliver in time. */
  stride() {
    const period = (this.curves.seconds * 1e3) / Math.max(this.curves.frames - 1, 1) / Number($("speed").value);
    return Math.max(1, Math.min(Math.ceil(this.pace / Math.max(period, 1)), 10));
  }

  /** Load the images around a frame, and those ahead, which playback needs next. */
  async fetch(camera, frame) {
    const known = this.frames.get(camera), last = this.curves.frames - 1;
    if (this.busy.has(camera)) return;
    const step = viewer.playing ? this.stride() : 1, ahead = viewer.playing ? CHUNK * step : 4;
    let first = frame;
    while (first <= last && first - frame < ahead && known.has(first)) first += step;
    if (first > last || first - frame >= ahead) return;
    const count = Math.min(viewer.playing ? CHUNK / 2 : 6, Math.floor((last - first) / step) + 1), begun = performance.now();
    for (let at = 0; at < count; at++) if (!known.has(first + at * step)) known.set(first + at * step, undefined);
    this.busy.add(camera);
    const caption = this.element.querySelector(`[data-camera="${CSS.escape(camera)}"] figcaption`);
    try {
      const width = viewer.panes.length > 1 || this.curves.cameras.length > 1 ? 480 : 720;
      images(await bytes("frames", { key: this.key, camera, first, count, step, width })).forEach((blob, at) => known.set(first + at * step, blob));
      this.pace = (performance.now() - begun) / count;
      put(caption, camera);
    } catch (error) {
      put(caption, `${camera}: ${error.message}`);
      for (let at = 0; at < count; at++) known.set(first + at * step, null);
    }
    for (const old of known.keys()) { if (known.size <= MOST_IMAGES / viewer.panes.length) break; known.delete(old); }
    this.busy.delete(camera);
    schedule();
  }
}

// -- Time ----------------------------------------------------------------------------------------------------------

export function go(seconds) {
  viewer.at = Math.max(0, Math.min(seconds, longest()));
  schedule();
}
export function step(frames) {
  play(false);
  const pane = viewer.panes[viewer.active];
  if (pane?.curves && pane.curves.frames > 1) go(((pane.frame + frames) / (pane.curves.frames - 1)) * pane.curves.seconds);
}
let last = 0;
export function play(on = !viewer.playing) {
  if (on && viewer.at >= longest() - 1e-6) viewer.at = 0;
  viewer.playing = on;
  last = performance.now();
  schedule();
}
let planned = false;
function schedule() {
  if (planned || !isOpen()) return;
  planned = true;
  requestAnimationFrame((now) => {
    planned = false;
    if (viewer.playing) {
      viewer.at = Math.min(viewer.at + (Math.max(now - last, 0) / 1e3) * Number($("speed").value), longest());
      last = now;
      if (viewer.at >= longest()) viewer.playing = false;
      schedule();
    }
    render();
  });
}

export function render() {
  if (!isOpen()) return;
  for (const pane of viewer.panes) pane.show();
  const pane = viewer.panes[viewer.active];
  put($("play").firstElementChild, t(viewer.playing ? "pause" : "play"));
  if (document.activeElement !== $("time") || viewer.playing) $("time").value = Math.round((viewer.at / longest()) * 1000);
  const frame = pane?.curves ? ` · ${t("frame")} ${pane.frame}/${pane.curves.frames - 1}` : "";
  put($("clock"), `${viewer.at.toFixed(2)} / ${longest().toFixed(2)} s${frame}`);
  $("time").setAttribute("aria-valuetext", $("clock").textContent);
}

/** Show one episode or two; none closes the viewer. */
export function open(keys) {
  const old = new Map(viewer.panes.map((pane) => [pane.key, pane]));
  viewer.panes = keys.map((key) => old.get(key) ?? new Pane(key));
  viewer.active = Math.min(viewer.active, Math.max(keys.length - 1, 0));
  $("panes").replaceChildren(...viewer.panes.map((pane) => pane.element));
  $("panes").dataset.count = keys.length;
  $("viewer").hidden = !keys.length;
  if (!keys.length) { viewer.playing = false; viewer.at = 0; viewer.active = 0; }
  for (const pane of viewer.panes) if (!pane.row && !pane.problem) pane.load();
  render();
}
export async function refresh() {
  await Promise.all(viewer.panes.map((pane) => pane.refresh()));
  render();
}

$("play").addEventListener("click", () => play());
$("back").addEventListener("click", () => step(-1));
$("forth").addEventListener("click", () => step(1));
$("time").addEventListener("input", () => go((Number($("time").value) / 1000) * longest()));
new ResizeObserver(schedule).observe($("panes"));
