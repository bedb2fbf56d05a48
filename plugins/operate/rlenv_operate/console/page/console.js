"use strict";
// The operator's page. One socket to the console; every text that comes from it is shown as text, never as HTML.

function translate() {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-t]")) put(element, t(element.dataset.t));
  for (const element of document.querySelectorAll("[data-a]")) element.setAttribute("aria-label", t(element.dataset.a));
  const other = language === "en" ? "zh" : "en";
  put($("language"), other === "zh" ? "中文" : "English");
  $("language").lang = other;
  for (const [element, text] of lasting) put(element, text);
  timingRows = null;
  buildTables();
  renderEpisodes();
  renderActs();
  if (replay.shown) replay.show();
  comparison.label();
  loop.translate();
  touch.label();
  render();
}

// -- State -----------------------------------------------------------------------------------------------------

let me = null, robot = null, state = null, question = null, episodes = [], acts = [];
let taken = 0, told = 0; // states and images: the console sends a few more than it was told of
let socket = null, stateAt = 0, retryMs = 300, token = "", nextId = 1, why = "no_console";
const waiting = new Map(); // id of an act -> its name
const mayMove = () => me && (me.role === "move" || me.role === "operate");

function takeToken() {
  const fromLink = new URLSearchParams(location.hash.slice(1)).get("token");
  if (fromLink) {
    store.set("token", fromLink, sessionStorage);
    history.replaceState(null, "", location.pathname);
  }
  token = fromLink || store.get("token", sessionStorage) || "";
}

function connect() {
  if (!token) return showLogin("");
  const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
  socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  taken = told = 0;
  socket.onopen = () => socket.send(JSON.stringify({ t: "login", token }));
  socket.onmessage = (event) => (typeof event.data === "string" ? receive(JSON.parse(event.data)) : receiveImage(event.data));
  socket.onclose = (event) => {
    const mine = socket === event.target;
    if (!mine) return;
    socket = null;
    release();
    for (const name of waiting.values()) if (name === "stop") put($("notice"), () => t("not_sent"));
    waiting.clear();
    if (event.code === 4401) {
      store.set("token", "", sessionStorage);
      token = "";
      return showLogin(me ? "lost_rights" : "bad_token");
    }
    why = "no_console";
    render();
    setTimeout(connect, retryMs);
    retryMs = Math.min(retryMs * 1.6, 3000);
  };
}

function showLogin(problem) {
  me = null;
  $("login").hidden = false;
  $("main").hidden = true;
  $("stop").disabled = true;
  put($("login-error"), () => problem && t(problem));
  $("token").focus();
}

function receive(message) {
  switch (message.t) {
    case "welcome":
      me = message;
      retryMs = 300;
      $("login").hidden = true;
      $("main").hidden = false;
      $("stop").disabled = false;
      put($("notice"), "");
      for (const id of ["drive", "view", "cameras", "joints", "sensors", "timing", "episodes", "log"]) $(id).hidden = me.role === "stop";
      $("operate").hidden = !mayMove();
      $("drive").hidden = !mayMove();
      $("compare").hidden = me.role !== "operate";
      comparison.busy = false; // an answer on its way was lost with the connection
      comparison.label();
      $("take-row").hidden = me.role !== "operate";
      $("name-form").hidden = !me.asks_name;
      if (me.asks_name && store.get("person")) send({ t: "name", name: store.get("person") });
      put($("me"), () => (me ? `${me.name} (${t(`r_${me.role}`)})` : ""));
      if (robot) seeCameras();
      break;
    case "robot":
      robot = message.robot;
      buildTables();
      buildCameras();
      touch.label();
      if (!replay.shown) scene.load(robot.scene);
      break;
    case "state":
      if (armed && (message.state === "stopped" || (armed === "seen" && !EPISODE.has(message.state)))) { armed = ""; put($("outcome"), ""); put($("loop-outcome"), ""); }
      if (armed && EPISODE.has(message.state)) armed = "seen";
      taken++; state = message; stateAt = performance.now(); tell();
      if (state.live && loop.job("robot")) loop.seenLive = loop.job("robot").began_s;
      break;
    case "question": question = message.question; break;
    case "episodes": episodes = message.episodes; renderEpisodes(); break;
    case "acts": acts = message.acts; renderActs(); break;
    case "outcome": takeOutcome(message); break;
    case "replay": replay.take(message); break;
    case "loop": loop.take(message); break;
    case "results": loop.takeResults(message); break;
    case "compare": comparison.take(message); break;
  }
  schedule();
}

const EPISODE = new Set(["ready", "running"]), MOVES = new Set([...EPISODE, "arming", "resetting"]);
let armed = ""; // whether the outcome says so, and the state has shown it: it goes when that is true no more
let telling = false;
function tell() {
  if (telling || taken === told) return;
  telling = true;
  told = taken;
  send({ t: "seen", n: taken });
  setTimeout(() => { telling = false; tell(); }, 25);
}

function send(message) {
  if (!socket || socket.readyState !== WebSocket.OPEN || !me) return false;
  socket.send(JSON.stringify(message));
  return true;
}

function act(name, more = {}) {
  const id = nextId++ % 2147483647;
  const message = { t: "act", id, act: name, text: $("text").value.slice(0, 500), ...more };
  if (state && Number.isInteger(state.stop_number)) message.stop_number = state.stop_number;
  if (me && me.role === "operate" && (name === "arm" || name === "hold")) message.take = $("take").checked;
  if (!send(message)) return false;
  waiting.set(id, name);
  return true;
}

function stop() {
  release();
  const key = act("stop") ? "sending" : "not_sent";
  put($("notice"), () => t(key));
}

/** What became of an act, with its name where the message does not say it. */
function outcomeOf({ act, ok, text }) { return ok && (act === "arm" || act === text) ? say(text) : `${t(act)}${t("colon")}${say(text)}`; }
function takeOutcome(message) {
  waiting.delete(message.id);
  const line = () => outcomeOf(message);
  if (message.act === "stop") put($("notice"), line);
  const ofLoop = ["start", "end", "enter", "run"].includes(message.act);
  if (ofLoop || message.act === "arm") { put($("loop-outcome"), line); $("loop-outcome").className = message.ok ? "good" : "bad"; }
  if (ofLoop && message.act !== "run") return;
  put($("outcome"), line);
  $("outcome").className = message.ok ? "good" : "bad";
  armed = message.ok && message.act === "arm" ? "told" : "";
  if (message.ok) {
    $("text").value = "";
    if (message.act === "arm") { $("take").checked = false; put($("notice"), ""); }
  }
}

// -- What is shown ---------------------------------------------------------------------------------------------

let planned = false;
function schedule() {
  if (planned) return;
  planned = true;
  const draw = () => { if (planned) { planned = false; render(); } };
  requestAnimationFrame(draw);
  setTimeout(draw, 100); // also in a hidden tab
}

/** Why nothing is known of the robot; empty where the console and the robot's server answer. */
function lost() {
  if (!socket || !me) return t("no_console");
  if (!state) return t("old_state");
  if (!state.live) return say(state.problem);
  return performance.now() - stateAt > 1500 ? t("no_console") : "";
}
/** Why the readings are not those of now, in whatever state the robot is. */
function outdated() {
  if (!me || me.role === "stop") return "";
  if (state.readable === false && !MOVES.has(state.state)) return ""; // that is no fault: a note says so
  if (typeof state.age_s !== "number") return [t("not_read"), say(state.unread)].filter(Boolean).join(t("colon"));
  return state.age_s > 1 ? `${t("old_state")}${t("colon")}${state.age_s.toFixed(1)} s` : "";
}

let numbersAt = -1e9; // when the numbers of the robot were written last
function render() {
  const waits = loop.waits(), gone = $("login").hidden ? lost() : "", stale = waits ? "" : gone || ($("login").hidden ? outdated() : "");
  $("stale").hidden = !stale;
  put($("stale"), stale ? `${t("not_live")}${t("colon")}${stale}` : "");
  document.body.dataset.live = String(!stale);
  if (robot) { put($("robot"), robot.name); document.title = `${robot.name} – ${state ? t(`s_${state.state}`) : ""}`; }
  if (!state) return;
  const name = waits ? "" : state.state || "";
  put($("state"), name ? t(`s_${name}`) : "–");
  $("state").dataset.s = name;
  put($("why"), waits || say(state.why));
  loop.render();
  renderActsAllowed(gone);
  if (!me || me.role === "stop" || !robot) return;
  renderQuestion();
  renderPad();
  renderGoal();
  if (performance.now() - numbersAt > 200) { // nobody reads numbers faster, and the browser would draw all of them anew
    numbersAt = performance.now();
    renderJoints();
    renderSensors();
    renderTiming();
    renderCameraAges();
  }
  if (replay.shown) return;
  scene.markers = places();
  scene.draw(state.pose || [], state.goal || []);
  if (!$("scene").hidden) put($("scene-note"), state.age_s > 1 ? `${t("measured")} ${state.age_s.toFixed(1)} s` : "");
}

const mine = () => Boolean(state.mover.owner_id) && state.mover.owner_id === me.id;
function renderActsAllowed(gone) {
  if (!me) return;
  const asks = question || {}, phase = state.mover.phase;
  const allowed = {
    arm: !gone && phase !== "arming", hold: true, // of another person's episode the console says whose it is
    reset_done: asks.kind === "reset", reset_refused: asks.kind === "reset",
  };
  const verdict = asks.owner_id ? asks.owner_id === me.id : asks.kind === "verdict" || (asks.kind === "reset" && asks.verdict) || (!question && mine() && (phase === "armed" || phase === "moving"));
  for (const button of document.querySelectorAll("[data-act]")) {
    const name = button.dataset.act;
    button.disabled = !(name in allowed ? allowed[name] : verdict && (name === "discard" || !loop.blind()));
    button.classList.toggle("asked", (asks.kind === "reset" && name === "reset_done") || (asks.kind === "verdict" && ["success", "failure", "discard"].includes(name)));
  }
}

function renderQuestion() {
  $("question").hidden = !question;
  if (!question) return;
  const words = [t(question.kind === "reset" ? "asks_reset" : "asks_verdict"), question.owner_id && question.owner_id !== me.id ? `(${state.mover.owner})` : "", question.owner_id ? "" : say(question.text)];
  if (question.kind === "reset" && question.verdict) words.push(question.chosen ? `${t("chosen")}: ${t(question.chosen)}` : t("and_verdict"));
  put($("question-text"), words.filter(Boolean).join(" – "));
}

let jointRows = [], sensorRows = [];
const columnsBeside = (command) => robot.sensors.filter((sensor) => sensor.name !== command.measured_by && sensor.elements.length === command.elements.length && sensor.elements.every((name, index) => name === command.elements[index]));

function buildTables() {
  if (!robot) return;
  jointRows = [];
  sensorRows = [];
  numbersAt = -1e9;
  const joints = [], first = robot.commands[0];
  const beside = first ? columnsBeside(first) : [];
  const head = [t("name"), t("range"), t("value"), t("goal"), ...beside.map((sensor) => `${sensor.name} (${sensor.unit})`)];
  joints.push(make("thead", {}, make("tr", {}, ...head.map((text, column) => make("th", { scope: "col", class: column < 2 ? "" : "n", translate: column < 4 ? "yes" : "no" }, text)))));
  const body = make("tbody");
  for (const command of robot.commands) {
    command.elements.forEach((element, index) => {
      const mark = make("i"), goal = make("i", { class: "goal" });
      const range = make("div", { class: "range" }, mark, goal);
      const value = make("td", { class: "n" }), target = make("td", { class: "n" });
      const others = (command === first ? beside : []).map((sensor) => [sensor, make("td", { class: "n" })]);
      body.append(make("tr", { translate: "no" }, make("th", { scope: "row" }, element), make("td", {}, range), value, target, ...others.map(([, cell]) => cell)));
      jointRows.push({ command, index, element, range, mark, goal, value, target, others });
    });
  }
  joints.push(body);
  $("joint-table").replaceChildren(...joints);
  const rows = robot.sensors.map((sensor) => {
    const value = make("td"), age = make("td", { class: "n" });
    sensorRows.push({ sensor, value, age });
    return make("tr", {}, make("th", { scope: "row", translate: "no", title: sensor.meaning }, sensor.name), value, make("td", { translate: "no" }, sensor.unit), age);
  });
  const titles = [t("name"), t("value"), t("unit"), t("age")].map((text, column) => make("th", { scope: "col", class: column < 3 ? "" : "n" }, text));
  $("sensor-table").replaceChildren(make("thead", {}, make("tr", {}, ...titles)), make("tbody", {}, ...rows));
  renderEpisodes();
  renderActs();
}

function renderJoints() {
  $("joints-note").hidden = state.readable !== false || MOVES.has(state.state);
  for (const { command, index, element, range, mark, goal, value, target, others } of jointRows) {
    const low = command.low[index], high = command.high[index];
    const at = state.sensors?.[command.measured_by]?.[index], aim = state.applied?.[command.name]?.[index];
    const share = (number) => (number === null || number === undefined || low === null || high === null || high <= low ? null : Math.min(1, Math.max(0, (number - low) / (high - low))));
    const here = share(at), there = share(aim);
    mark.hidden = here === null;
    goal.hidden = there === null;
    if (here !== null) mark.style.left = `${here * 100}%`;
    const meter = here === null ? {} : { role: "meter", "aria-label": element, "aria-valuemin": low, "aria-valuemax": high, "aria-valuenow": at };
    for (const name of ["role", "aria-label", "aria-valuemin", "aria-valuemax", "aria-valuenow"]) {
      if (name in meter) range.setAttribute(name, meter[name]); else range.removeAttribute(name);
    }
    if (there !== null) goal.style.left = `${there * 100}%`;
    value.classList.toggle("edge", here !== null && (here < 0.02 || here > 0.98));
    put(value, digits(at));
    put(target, digits(aim));
    for (const [sensor, cell] of others) {
      const number = state.sensors?.[sensor.name]?.[index], most = robot.efforts[sensor.name];
      const limit = most ? most[most.length > 1 ? index : 0] : null;
      cell.classList.toggle("near", limit !== null && limit !== undefined && Math.abs(number) > 0.8 * limit);
      put(cell, limit ? `${digits(number, 2)} / ${limit}` : digits(number));
    }
  }
}

function renderSensors() {
  for (const { sensor, value, age } of sensorRows) {
    const numbers = state.sensors?.[sensor.name] || [], seconds = state.ages_s?.[sensor.name];
    put(value, numbers.slice(0, 12).map((number) => digits(number)).join("  ") + (numbers.length > 12 ? " …" : ""));
    const most = robot.max_age_s[sensor.name];
    age.classList.toggle("near", most !== undefined && seconds > most);
    put(age, most !== undefined && seconds > most ? `${millis(seconds)} ${t("old")}` : millis(seconds));
  }
}

/** The goal of the episode in numbers; a place in metres is drawn as well. */
function renderGoal() {
  const goal = Object.entries(state.mover.goal || {});
  $("goal").hidden = !goal.length;
  put($("goal"), goal.length ? `${t("goal_of_task")}${t("colon")}${goal.map(([name, { values, unit }]) => `${name} = ${[values].flat().map((one) => (typeof one === "number" ? digits(one) : one)).join(", ")}${unit === "1" ? "" : ` ${unit}`}`).join("; ")}` : "");
}
const places = () => Object.values(state.mover.goal || {}).filter(({ values, unit }) => unit === "m" && values.length === 3).map(({ values }) => values);

let timingRows = null;
function renderTiming() {
  const loop = state.loop || {}, mover = state.mover;
  const rows = {
    holder: mover.owner ? `${mover.owner} (${t("here")})` : say(state.holder) || t("nobody"),
    mover: [t(mover.phase), mover.owner, mover.recording ? `${mover.recorded} ${t("recorded")}` : t("not_recorded"), mover.task].filter(Boolean).join(", "),
    reading: millis(state.age_s), period: `${digits(loop.period_ms, 2)} ms`, longest: `${digits(loop.longest_ms, 2)} ms`,
    overruns: `${loop.overruns ?? "–"} / ${loop.periods ?? "–"} ${t("periods")}`, late: String(state.late_commands ?? "–"),
    real_time: state.real_time || "–", held_back: state.guard ? [state.guard.held_back, state.guard.last && `(${state.guard.last})`].filter((part) => part || part === 0).join(" ") : "–",
    recording: state.recording ? [state.recording.on ? state.recording.run : say(state.recording.why) || t("not_recorded"), state.recording.dropped ? `${t("dropped")} ${state.recording.dropped}` : ""].filter(Boolean).join(", ") : t("not_recorded"),
    faults: (state.faults || []).map(say).join("; ") || "–",
  };
  if (!timingRows) {
    timingRows = {};
    const list = Object.keys(rows).flatMap((key) => {
      timingRows[key] = make("dd", key === "real_time" ? { translate: "no" } : {});
      return [make("dt", { "data-t": key }, t(key)), timingRows[key]];
    });
    $("timing-list").replaceChildren(...list);
  }
  for (const [key, text] of Object.entries(rows)) put(timingRows[key], text);
  timingRows.faults.className = state.faults?.length ? "bad" : "";
}

const clockTime = (seconds) => new Date(seconds * 1e3).toLocaleTimeString(language === "zh" ? "zh-CN" : "en-GB");
/** Fill a table; ``names`` are the columns of names and figures that no language changes. */
function fill(table, titles, rows, names = []) {
  const head = make("tr", {}, ...titles.map((key) => make("th", { scope: "col" }, t(key))));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((text, column) => make("td", names.includes(titles[column]) ? { translate: "no" } : {}, String(text)))));
  table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
}
function renderEpisodes() {
  fill($("episode-table"), ["number", "began", "seconds", "who", "ended"], episodes.slice(0, 50).map((episode) => [episode.number, clockTime(episode.began_wall_s), episode.seconds.toFixed(1), say(episode.holder), episode.state === "holding" ? say(episode.why) : `${t(`s_${episode.state}`)}${t("colon")}${say(episode.why)}`]));
}
function renderActs() {
  fill($("act-table"), ["time", "who", "act", "outcome"], acts.map((one) => [clockTime(one.wall_s), `${one.name} (${t(`r_${one.role}`)})`, [t(one.act), say(one.text)].filter(Boolean).join(t("colon")), say(one.outcome)]));
}

// -- Cameras ---------------------------------------------------------------------------------------------------

const cameraViews = new Map();
function buildCameras() {
  for (const view of cameraViews.values()) URL.revokeObjectURL(view.image.src);
  cameraViews.clear();
  const figures = robot.cameras.map((name) => {
    const image = make("img", { alt: name }), age = make("span");
    cameraViews.set(name, { image, age, stamp: 0, busy: false });
    return make("figure", {}, image, make("figcaption", {}, make("span", { translate: "no" }, name), age));
  });
  $("camera-list").replaceChildren(...figures);
  document.body.dataset.cameras = String(figures.length);
  seeCameras();
}
function seeCameras() { send({ t: "see", cameras: document.hidden ? [] : robot.cameras }); }

function receiveImage(buffer) {
  taken++;
  tell();
  const bytes = new DataView(buffer), length = bytes.getUint8(0);
  const name = new TextDecoder().decode(new Uint8Array(buffer, 1, length));
  const view = cameraViews.get(name);
  if (!view) return;
  view.stamp = Number(bytes.getBigInt64(1 + length));
  if (view.busy) return; // the next image will do
  view.busy = true;
  const url = URL.createObjectURL(new Blob([new Uint8Array(buffer, 9 + length)], { type: "image/jpeg" })), before = view.image.src;
  view.image.onload = view.image.onerror = () => { view.busy = false; if (before) URL.revokeObjectURL(before); };
  view.image.src = url;
}
function renderCameraAges() {
  for (const view of cameraViews.values()) {
    const seconds = view.stamp && state.sent_ns ? Math.max(0, (state.sent_ns - view.stamp) / 1e9) : null;
    put(view.age, millis(seconds));
    view.age.classList.toggle("near", seconds !== null && seconds > 1);
  }
}

// -- Begin -----------------------------------------------------------------------------------------------------

let pointerStopped = 0;
$("stop").addEventListener("pointerdown", (event) => { if (event.button === 0) { pointerStopped = performance.now(); stop(); } });
$("stop").addEventListener("click", () => { if (performance.now() - pointerStopped > 1000) stop(); }); // by keyboard or screen reader
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.repeat) { event.preventDefault(); stop(); }
}, true);
/** Send an act of a button, if nothing is missing for it; return whether it was sent. */
function request(name, more = {}) {
  if (name === "arm" && state && state.state === "stopped" && !$("text").value.trim()) {
    for (const id of ["outcome", "loop-outcome"]) put($(id), () => t("need_reason"));
    $("outcome").className = $("loop-outcome").className = "bad";
    $("text").focus();
    return false;
  }
  const sent = act(name, more);
  put($("outcome"), () => (sent ? `${t(name)} …` : t("no_console")));
  $("outcome").className = "";
  return sent;
}
for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => request(button.dataset.act));
$("name-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("person").value.trim();
  if (!name) return;
  store.set("person", name);
  send({ t: "name", name });
});
$("pad").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab" || event.key === "Escape") return;
  event.preventDefault();
  pressed.add(event.code);
});
$("pad").addEventListener("keyup", (event) => pressed.delete(event.code));
$("pad").addEventListener("pointerdown", () => $("pad").focus());
$("pad").addEventListener("blur", release);
addEventListener("blur", release);
addEventListener("pagehide", release);
document.addEventListener("visibilitychange", () => { if (document.hidden) release(); if (robot) seeCameras(); });
$("login").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  store.set("token", token, sessionStorage);
  connect();
});
$("language").addEventListener("click", () => { language = language === "en" ? "zh" : "en"; store.set("language", language); translate(); });
$("theme").addEventListener("click", () => {
  const dark = (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  store.set("theme", document.documentElement.dataset.theme);
  scene.again();
});
if (store.get("theme")) document.documentElement.dataset.theme = store.get("theme");
addEventListener("resize", () => { scene.again(); comparison.show(); });
setInterval(tick, 33);
setInterval(schedule, 250);
scene.open();
replay.open();
comparison.start();
touch.open();
xr.open();
loop.open();
translate();
takeToken();
connect();
