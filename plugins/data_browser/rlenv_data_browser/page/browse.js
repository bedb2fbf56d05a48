// The page of data sets: filters, keys, labels and selections around the grid and the viewer.

import { ask, send, takeToken } from "./api.js";
import { takeColours } from "./draw.js";
import { clearMarks, grid, layout, load, markAll, moveTo, pageRows, render, rowAt, rowsBetween, scrub, toggle } from "./grid.js";
import { isOpen, open, play, refresh, render as renderViewer, step, viewer } from "./viewer.js";
import { $, language, make, put, store, t, theme, translate } from "./words.js";

let about = null, waits = "", job = null, writing = Promise.resolve();
const form = $("filters");
const FIELDS = [...form.elements].map((field) => field.name).filter(Boolean);

// -- Filters and the address ---------------------------------------------------------------------------------------

const filters = () => Object.fromEntries(FIELDS.map((name) => [name, form.elements[name].value.trim()]).filter(([, value]) => value));

function fromAddress() {
  const query = new URLSearchParams(location.search);
  for (const name of FIELDS) {
    const field = form.elements[name], value = query.get(name) ?? "";
    if (field.tagName === "SELECT" && value && ![...field.options].some((option) => option.value === value)) field.append(make("option", { value }, value));
    field.value = value;
  }
  return query.getAll("open").slice(0, 2);
}
function toAddress(push = false) {
  const query = new URLSearchParams(filters());
  for (const pane of viewer.panes) query.append("open", pane.key);
  const address = query.size ? `${location.pathname}?${query}` : location.pathname;
  if (address !== location.pathname + location.search) history[push ? "pushState" : "replaceState"](null, "", address);
}

async function apply({ stay = false } = {}) {
  try {
    const query = filters();
    const answer = await load(query, { stay });
    if (!answer) return;
    waits = answer.waits;
    problem("");
    lastWhere = answer.where;
    lastOrder = answer.order;
    toAddress();
    status();
  } catch (error) {
    problem(error.message, error.status === 401);
  }
}
let lastWhere = null, lastOrder = null, applying = false, again = false;
form.addEventListener("input", async () => { // at once; of the keys that come before the answer, the last one counts
  again = true;
  if (applying) return;
  applying = true;
  while (again) {
    again = false;
    await apply();
  }
  applying = false;
});
form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
$("clear").addEventListener("click", () => { form.reset(); apply(); });

function problem(text, login = false) {
  if (login) return showLogin(t("bad_token"));
  $("error").hidden = !text;
  put($("error"), text);
}
grid.onProblem = (error) => problem(error.message, error.status === 401);

/** The choices of the filters, with the number of episodes of each. */
async function choices() {
  const { values } = await ask("values");
  const fill = (name, counts, first) => {
    const field = form.elements[name], now = field.value;
    field.replaceChildren(...first, ...Object.entries(counts).map(([value, count]) => make("option", { value }, `${value} (${count})`)));
    if (now && ![...field.options].some((option) => option.value === now)) field.append(make("option", { value: now }, now));
    field.value = now;
  };
  const any = () => [make("option", { value: "" }, t("any")), make("option", { value: "-" }, t("none"))];
  fill("tag", values.tags, any());
  fill("source", values.source, any());
  fill("finding", values.findings, any());
  $("ask-words").replaceChildren(...Object.keys(values.tags).map((value) => make("option", { value })));
  const order = form.elements.order, now = order.value || new URLSearchParams(location.search).get("order") || "";
  order.replaceChildren(make("option", { value: "" }, t("recorded_order")), ...about.columns.map((name) => make("option", { value: name }, name)));
  order.value = now;
  form.elements.finding.closest("label").hidden = !about.columns.includes("findings");
  put($("columns"), `${t("columns")}: ${about.columns.join(", ")}`);
}
form.elements.where.addEventListener("focus", () => { $("columns").hidden = false; });
form.elements.where.addEventListener("blur", () => { $("columns").hidden = true; });

function status() {
  if (!about) return;
  put($("count"), grid.total === null ? "" : t("count", grid.total, about.total));
  const marked = grid.everything ? grid.total : grid.marks.size;
  $("marks").hidden = !marked;
  put($("marks"), `${t(grid.everything ? "all_chosen" : "chosen", marked)} ✕`);
  for (const button of document.querySelectorAll("[data-act]")) {
    const act = button.dataset.act;
    button.disabled = act === "undo" ? !done.length : act === "split" ? !isOpen() : !about.may_write || (!grid.total && !isOpen());
  }
  $("check").hidden = !about.may_write || !checkable();
  const running = job?.running;
  $("check").disabled = Boolean(running);
  put($("check"), running ? t("computing", job.group, job.done, job.total || "?") : t("check"));
}
grid.onChange = status;
viewer.onChange = status;

// -- Labels --------------------------------------------------------------------------------------------------------

const done = []; // what can be undone, the newest last: labels of the server, and cuts of this page
const say = (text, bad = false) => { put($("said"), text); $("said").className = bad ? "bad" : ""; };

/** The episodes that a label is for: the chosen ones, else the present one. */
function chosen() {
  if (isOpen()) return { keys: [viewer.panes[viewer.active].key] };
  if (grid.everything) return { query: grid.query };
  if (grid.marks.size) return { keys: [...grid.marks] };
  const row = rowAt(grid.active);
  return row ? { keys: [row.key] } : null;
}
function label(values, what) {
  const body = chosen();
  if (!body) return;
  if (!about.may_write) return say(t("read_only"), true);
  writing = writing.then(async () => { // one after the other, so that undo takes back the last one
    try {
      const answer = await send("label", { ...body, label: values });
      done.push({ undo: answer.undo });
      say(t("said_label", answer.done, what));
      await changed();
    } catch (error) {
      say(error.message, true);
    }
  });
}
function undo() {
  writing = writing.then(async () => {
    const entry = done.pop();
    if (!entry) return say(t("nothing_undo"));
    if (entry.key) {
      setCuts(entry.key, entry.cuts);
      say(t("said_undo", 1));
    } else {
      try {
        const answer = await send("undo", { undo: entry.undo });
        say(t("said_undo", answer.done));
      } catch (error) {
        say(error.message, true);
      }
    }
    await changed();
  });
}
async function changed() {
  await apply({ stay: true });
  if (isOpen()) await refresh();
  choices().catch(() => {});
}

const cutsName = () => `cuts ${about.paths.join(" ")}`; // a page of a selection begins with the cuts of the selection
function setCuts(key, cuts) {
  if (cuts.length) grid.cuts.set(key, cuts); else grid.cuts.delete(key);
  store.set(cutsName(), JSON.stringify([...grid.cuts]), sessionStorage);
  render();
  renderViewer();
}
function split() {
  if (!isOpen()) return say(t("split_first"));
  const { key, frame, curves } = viewer.panes[viewer.active], cuts = grid.cuts.get(key) ?? [];
  if (!curves || frame < 1 || frame > curves.frames - 2) return say(t("split_first"));
  done.push({ key, cuts });
  const without = cuts.filter((cut) => cut !== frame);
  setCuts(key, without.length < cuts.length ? without : [...cuts, frame].sort((one, other) => one - other));
  say(without.length < cuts.length ? t("unsplit") : t("split_at", frame));
  status();
}

// -- Dialogs -------------------------------------------------------------------------------------------------------

function prompt(heading, text, note, value, words) {
  const dialog = $("ask");
  put($("ask-title"), heading);
  put($("ask-label"), text);
  put($("ask-note"), note);
  $("ask-text").value = value;
  if (words) $("ask-text").setAttribute("list", "ask-words"); else $("ask-text").removeAttribute("list");
  dialog.returnValue = "";
  dialog.showModal();
  $("ask-text").select();
  return new Promise((then) => dialog.addEventListener("close", () => then(dialog.returnValue === "ok" ? $("ask-text").value.trim() : null), { once: true }));
}
$("ask-cancel").addEventListener("click", () => $("ask").close(""));

async function askTag() {
  const text = await prompt(t("tag"), t("ask_tag"), "", "", true);
  const words = (text ?? "").split(",").map((word) => word.trim()).filter(Boolean);
  const tag = words.filter((word) => !word.startsWith("-")), untag = words.filter((word) => word.startsWith("-")).map((word) => word.slice(1).trim()).filter(Boolean);
  if (tag.length || untag.length) label({ ...(tag.length && { tag }), ...(untag.length && { untag }) }, words.join(", "));
}
async function askNote() {
  const row = isOpen() ? viewer.panes[viewer.active].row : rowAt(grid.active);
  const text = await prompt(t("note"), t("ask_note"), "", row?.note ?? "", false);
  if (text !== null) label({ note: text }, t("note"));
}
async function askSave() {
  const marked = grid.everything || !grid.marks.size ? null : [...grid.marks], count = marked ? marked.length : grid.total;
  if (!count) return say(t("empty"), true);
  const within = new Map([...grid.cuts].filter(([key]) => !marked || grid.marks.has(key)));
  const name = await prompt(t("save"), t("ask_save"), t("ask_save_note", count, within.size), "", false);
  if (!name) return;
  try {
    const answer = await send("select", { name, cuts: Object.fromEntries(within), ...(marked ? { keys: marked } : { query: grid.query }) });
    say(t("saved", answer.path, answer.episodes));
  } catch (error) {
    say(error.message, true);
  }
}

const KEYS = [
  ["← ↑ ↓ → Home End PgUp PgDn", "key_move"], ["Shift + ← ↑ ↓ →", "key_range"], ["Space", "key_mark"], ["Ctrl + A", "key_all"], ["Enter", "key_open"], ["b", "key_beside"],
  ["s / f / d", () => [t("mark_success"), t("mark_failure"), t("discard")].join(" / ")], ["t / n", () => [t("tag"), t("note")].join(" / ")], ["x", "split"], ["u", "undo"], ["w", "save"],
  [", / .", () => `${t("key_scrub")}; ${t("viewer")}: ${t("key_step")}`], ["p", () => [t("play"), t("pause")].join(" / ")], ["[ / ]", "key_episode"], ["/", "key_filter"], ["?", "key_help"], ["Esc", "key_close"],
];
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
function help() {
  $("key-list").replaceChildren(...KEYS.flatMap(([keys, what]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, typeof what === "string" ? t(what) : what())]));
  const sets = about.paths.map(quoted).join(" "), where = lastWhere ? ` --where ${quoted(lastWhere)}` : "", order = lastOrder ? ` --order ${quoted(lastOrder)}` : "";
  put($("command"), `rlenv-robot data select ${sets}${where}${order} --out good.selection.json`);
  $("keys").showModal();
}

// -- Keys and buttons ----------------------------------------------------------------------------------------------

const present = () => rowAt(grid.active)?.key;
function show(keys) {
  if (!keys.length) {
    open([]);
    $("grid").hidden = false;
    layout();
    $("grid").focus();
  } else {
    $("grid").hidden = true;
    open(keys);
    $("play").focus({ preventScroll: true });
  }
  $("main").dataset.view = String(isOpen());
  toAddress(true);
  status();
}
async function beside() {
  const now = isOpen() ? viewer.panes[0].key : present();
  let other = [...grid.marks].find((key) => key !== now);
  if (!other && isOpen()) {
    const [row] = await rowsBetween(Math.min(grid.active + 1, grid.total - 1), Math.min(grid.active + 1, grid.total - 1));
    other = row?.key !== now ? row?.key : undefined;
  }
  if (now && other) show([now, other]); else say(t("beside"));
}
async function another(way) {
  await moveTo(grid.active + way);
  const [row] = await rowsBetween(grid.active, grid.active);
  if (isOpen() && row) show(viewer.panes.map((pane, at) => (at === viewer.active ? row.key : pane.key)));
}

const ACTS = {
  success: () => label({ verdict: "success" }, t("mark_success")), failure: () => label({ verdict: "failure" }, t("mark_failure")),
  discard: () => label({ verdict: "discard" }, t("discard")), tag: askTag, note: askNote, split, undo,
};
for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => ACTS[button.dataset.act]());

const LETTERS = { s: ACTS.success, f: ACTS.failure, d: ACTS.discard, t: askTag, n: askNote, x: split, u: undo, w: askSave, b: beside, "?": help, "[": () => another(-1), "]": () => another(1), "/": () => { $("filter-box").open = true; form.elements.text.focus(); } };
const MOVES = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: () => -grid.columns, ArrowDown: () => grid.columns, PageUp: () => -pageRows(), PageDown: pageRows, Home: () => -grid.active, End: () => grid.total };

document.addEventListener("keydown", (event) => {
  if (!about || document.querySelector("dialog[open]") || event.altKey) return;
  const target = event.target, inField = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) && target.id !== "time";
  if (inField) {
    if (event.key === "Escape") $("grid").hidden ? $("play").focus() : $("grid").focus();
    return;
  }
  const act = pressed(event, target);
  if (act) {
    event.preventDefault();
    act();
  }
});
function pressed(event, target) {
  const { key } = event, onButton = target.tagName === "BUTTON" || target.tagName === "SUMMARY";
  if (event.ctrlKey || event.metaKey) return key === "a" && !isOpen() ? markAll : null;
  if (LETTERS[key]) return LETTERS[key];
  if (isOpen()) {
    if (key === "Escape") return () => show([]);
    if (key === "p" || (key === " " && !onButton)) return () => play();
    if (target.id === "time") return null;
    if (key === "ArrowLeft" || key === ",") return () => step(event.shiftKey ? -10 : -1);
    if (key === "ArrowRight" || key === ".") return () => step(event.shiftKey ? 10 : 1);
    return key === "o" ? () => { viewer.active = (viewer.active + 1) % viewer.panes.length; renderViewer(); status(); } : null;
  }
  if (key === "Escape") return clearMarks;
  if (key === "," || key === ".") return () => scrub(grid.share + (key === "." ? 1 : -1) / 11);
  if (onButton) return null;
  if (key === "Enter") return () => present() && show([present()]);
  if (key === " ") return () => toggle(grid.active);
  return MOVES[key] ? () => moveTo(grid.active + MOVES[key](), event.shiftKey) : null;
}

$("grid").addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile) return;
  const index = Number(tile.dataset.index);
  $("grid").focus({ preventScroll: true });
  if (event.shiftKey) return moveTo(index, true);
  if (event.ctrlKey || event.metaKey) { moveTo(index); return toggle(index); }
  const again = index === grid.active && event.detail >= 2;
  moveTo(index).then(() => { if (again && present()) show([present()]); });
});
$("marks").addEventListener("click", clearMarks);
$("save").addEventListener("click", askSave);
$("help").addEventListener("click", help);
$("close").addEventListener("click", () => show([]));
$("language").addEventListener("click", () => { translate(language === "en" ? "zh" : "en"); choices().catch(() => {}); status(); layout(); renderViewer(); });
$("theme").addEventListener("click", () => { theme(); takeColours(); render(); renderViewer(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { takeColours(); render(); renderViewer(); });
window.addEventListener("popstate", () => { const keys = fromAddress(); apply(); $("grid").hidden = keys.length > 0; $("main").dataset.view = String(keys.length > 0); open(keys); if (!keys.length) layout(); });

// -- Checking quality ----------------------------------------------------------------------------------------------

const checkable = () => about.groups.find((group) => group === "quality") ?? about.groups.find((group) => group !== "rows");
$("check").addEventListener("click", async () => {
  try {
    await send("compute", { group: checkable() });
    await look();
  } catch (error) {
    say(error.message, true);
  }
});

/** Look whether labels or columns have changed, here or in another page. */
async function look() {
  const state = await ask("state");
  const ended = job?.running && state.job && !state.job.running;
  job = state.job;
  if (ended) say(job.error || t("computed", job.group), Boolean(job.error));
  if (ended) about = { ...about, ...(await ask("about")) };
  if (state.version !== grid.version) await changed();
  else status();
}
let lost = false;
async function watch() {
  if (about && !document.hidden) {
    try {
      await look();
      if (lost) { lost = false; problem(""); }
    } catch (error) {
      lost = true;
      problem(error.status ? error.message : t("lost"), error.status === 401);
    }
  }
  setTimeout(watch, 1000);
}

// -- Begin ---------------------------------------------------------------------------------------------------------

function showLogin(text) {
  about = null;
  $("login").hidden = false;
  $("main").hidden = true;
  put($("login-error"), text);
  $("token").focus();
}
$("login").querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); takeToken($("token").value.trim()); begin(); });

async function begin() {
  const keys = fromAddress();
  try {
    [about] = await Promise.all([ask("about"), load(filters()).then((answer) => { if (answer) ({ waits, where: lastWhere, order: lastOrder } = answer); }, (error) => { if (error.status === 401) throw error; problem(error.message); })]);
  } catch (error) {
    return showLogin(error.status === 401 ? t("bad_token") : error.message);
  }
  grid.all = about.total;
  $("login").hidden = true;
  $("main").hidden = false;
  document.title = `${about.paths.map((path) => path.split("/").at(-1)).join(", ")} – rlenv-robot`;
  put($("title"), about.paths.join(", "));
  $("problems").hidden = !about.notes.length;
  $("problems").replaceChildren(...about.notes.map((note) => make("li", {}, note)));
  try { grid.cuts = new Map(JSON.parse(store.get(cutsName(), sessionStorage) ?? JSON.stringify(Object.entries(about.cuts)))); } catch { /* none */ }
  $("grid").hidden = keys.length > 0;
  $("main").dataset.view = String(keys.length > 0);
  if (keys.length) open(keys); else { layout(); $("grid").focus({ preventScroll: true }); }
  status();
  choices().catch(() => {});
}

if (matchMedia("(max-width: 46rem)").matches) $("filter-box").open = false;
translate();
takeColours();
if (takeToken()) begin(); else showLogin("");
watch();
