"use strict";
// The steps from a robot to a better policy. Each is a command of which the page shows the words, the progress and the end.

const STEPS = ["robot", "calibrate", "record", "train", "run", "judge", "retrain", "compare"];
const loop = {
  state: null, step: "robot", boxes: {}, seenLive: 0, results: null, problem: "", counted: -1,

  get on() { return this.state !== null; },
  job(step) { return (this.state && this.state.jobs.find((one) => one.step === step)) || null; },
  runs(step) { return this.job(step)?.state === "running"; },
  /** Why no robot is there, where that is no fault: none was chosen, it must be calibrated, or its server starts. */
  waits() {
    if (!this.on || (state && state.live)) return "";
    const job = this.job("robot");
    if (!job || job.state !== "running") return t(this.runs("calibrate") ? "calibrating" : this.state.choice ? "no_server" : "no_robot");
    return this.seenLive === job.began_s ? "" : t("server_starts");
  },
  /** Whether nobody can see what the robot does: a simulated one that can't be drawn here. */
  blind() { return this.on && Boolean(this.state.choice) && !this.state.choice.where.startsWith("/") && !scene.gl && !(robot && robot.cameras.length); },
  take(message) {
    const first = !this.on, ran = this.runs("retrain") || this.runs("train");
    this.state = message;
    $("loop").hidden = me.role === "stop";
    if (first) {
      if (message.choice) this.show(message.policies.length ? "run" : "record"); else this.show("robot");
      this.fillChoice(message.choice || {});
    }
    this.fillLists();
    if (ran && !this.runs("retrain") && !this.runs("train")) this.nameFields();
    if (first) this.nameFields();
    this.render();
  },
  takeResults(message) { [this.results, this.problem] = [message.rows, message.problem]; this.renderResults(); },

  // -- what a person does
  send(step, action, more = {}) {
    const id = nextId++ % 2147483647;
    if (!send({ t: "job", id, do: action, step, ...more })) return void put($("loop-outcome"), () => t("no_console"));
    waiting.set(id, action);
    put($("loop-outcome"), "…");
  },
  show(step) {
    if (step !== this.step) put($("loop-outcome"), ""); // it was about the other step
    this.step = step;
    for (const name of STEPS) {
      $(`step-${name}`).hidden = name !== step;
      const button = document.querySelector(`[data-step=${name}]`);
      if (name === step) button.setAttribute("aria-current", "step"); else button.removeAttribute("aria-current");
    }
    if (step === "compare") send({ t: "results" });
    this.render();
  },
  start(step) {
    const value = (id) => $(`${step}-${id}`).value, count = (id) => Math.max(0, Math.floor(Number(value(id)) || 0));
    if (step === "robot") this.send(step, "start", { robot: value("model"), where: value("where"), task: value("task") });
    else if (step === "calibrate") this.send(step, "start", { restart: $("calibrate-restart").checked });
    else if (step === "train") this.send(step, "start", { method: value("method"), name: value("name").trim(), steps: count("steps"), seed: count("seed") });
    else this.send(step, "start", { policy: value("policy"), name: value("name").trim(), steps: count("steps") });
  },
  run() {
    const more = { policy: $("run-policy").value, episodes: Math.max(1, Math.min(100, Number($("run-episodes").value) || 1)), ask: $("run-ask").checked };
    if (!request("arm", more)) return;
    put($("loop-outcome"), () => `${t("run")} …`);
  },
  arm() { if (request("arm")) { $("pad").scrollIntoView({ block: "center" }); $("pad").focus({ preventScroll: true }); } },

  // -- what is shown
  option(value, text) { return make("option", { value }, text || value); },
  fill(id, values, label = (one) => one) {
    const select = $(id), before = select.value, key = JSON.stringify([values, language]);
    if (select.dataset.key === key) return;
    select.dataset.key = key;
    select.replaceChildren(...values.map((one) => this.option(one, label(one))));
    if (values.includes(before)) select.value = before;
  },
  place(where) { return { twin: t("where_twin"), virtual: t("where_virtual") }[where] || `${t("where_port")} ${where}`; },
  offered() { return this.state.robots.find((one) => one.robot === $("robot-model").value) || this.state.robots[0]; },
  fillChoice(choice) {
    this.fill("robot-model", this.state.robots.map((one) => one.robot));
    if (choice.robot) $("robot-model").value = choice.robot;
    this.fillRobot();
    if (choice.where) $("robot-where").value = choice.where;
    if (choice.task) $("robot-task").value = choice.task;
  },
  fillRobot() {
    const offered = this.offered();
    if (!offered) return;
    this.fill("robot-where", offered.where, (one) => this.place(one));
    this.fill("robot-task", offered.tasks);
    if (offered.tasks.includes("so101-reach") && !this.state.choice) $("robot-task").value = "so101-reach";
  },
  fillLists() {
    const newest = this.state.policies[this.state.policies.length - 1], count = this.state.policies.length;
    const all = [...this.state.zoo.map((one) => one.name), ...this.state.policies];
    this.fillRobot();
    this.fill("train-method", this.state.methods, (one) => t(`m_${one}`) === `m_${one}` ? one : t(`m_${one}`));
    for (const id of ["run-policy", "retrain-policy"]) {
      const before = $(id).dataset.count;
      this.fill(id, all, (one) => one.startsWith("zoo:") ? `${one.slice(4)} (${t("ready_made")})` : one);
      if (before !== String(count) && newest) $(id).value = newest; // a new policy is the one to go on with
      $(id).dataset.count = String(count);
    }
  },
  /** Names that no policy has yet. */
  nameFields() {
    const taken = new Set(this.state.policies.map((one) => one.replace(/\.\w+$/, "")));
    let number = 1;
    while (taken.has(`policy-${number}`) || this.state.unfinished === `policy-${number}`) number++;
    for (const step of ["train", "retrain"]) $(`${step}-name`).value = `policy-${number}`;
  },
  render() {
    if (!this.on || !me) return;
    const may = mayMove(), s = this.state, live = Boolean(state && state.live), chosen = Boolean(s.choice);
    const marks = {
      robot: live && chosen, calibrate: chosen && (!s.needs_calibration || this.job("calibrate")?.state === "done" || live),
      record: Boolean(state && state.mover.recorded), train: s.policies.length > 0, run: Boolean(this.results?.some((row) => s.policies.includes(row.policy) || row.policy.startsWith("zoo:"))),
      judge: Boolean(this.results?.some((row) => row.success + row.failure)), retrain: this.job("retrain")?.state === "done", compare: Boolean(this.results?.length > 1),
    };
    const asked = Boolean(question && question.kind === "verdict");
    for (const name of STEPS) {
      const note = (name !== "robot" && this.runs(name)) || (name === "run" && state?.mover.policy) ? t("now") : name === "judge" && asked ? t("asked") : marks[name] ? "✓" : "";
      put(document.querySelector(`[data-step=${name}] small`), note);
    }
    for (const button of document.querySelectorAll("#loop [data-job-do]")) {
      const [step, action] = button.dataset.jobDo.split(" "), runs = this.runs(step);
      button.disabled = !may || (action === "start" ? (step !== "robot" && runs) || (step !== "robot" && !chosen) || (step === "retrain" && !$("retrain-policy").value) || (step === "calibrate" && !s.needs_calibration) : action === "resume" ? !s.unfinished || runs : action === "enter" ? !this.job(step)?.ask : !runs);
      if (action === "resume" || action === "enter") button.hidden = button.disabled;
      else if (step === "calibrate") button.hidden = !s.needs_calibration;
    }
    for (const button of document.querySelectorAll("#loop [data-do]")) {
      const like = document.querySelector(`[data-act=${button.dataset.do}]`);
      button.disabled = !may || !live || like.disabled;
      button.classList.toggle("asked", like.classList.contains("asked"));
    }
    $("run-start").disabled = !may || !live || !$("run-policy").value || Boolean(state?.mover.owner);
    const policy = $("run-policy").value, ready = s.zoo.find((one) => one.name === policy);
    const file = `--policy ${ready ? policy : `policies/${policy}`}`;
    for (const [step, words] of Object.entries({ ...s.commands, ...Object.fromEntries(s.jobs.map((one) => [one.step, one.command])) })) if ($(`command-${step}`)) put($(`command-${step}`), policy && ["run", "judge"].includes(step) ? words.replace(/--policy \S+/, file) : words);
    put($("run-about"), ready ? `${t("zoo_about")} ${Object.entries(ready.reached).map(([robots, count]) => `${t(`on_${robots.split(" ")[0]}`)} ${count}/${ready.episodes}`).join(", ")}` : "");
    for (const line of document.querySelectorAll("#loop .command")) line.hidden = !line.querySelector("code").textContent;
    for (const id of ["operate", "drive", "timing", "view", "cameras", "joints", "sensors"]) $(id).classList.toggle("nobody", !robot);
    $("calibrate-anew").hidden = !s.needs_calibration;
    put($("no-calibration"), t(s.needs_calibration ? "calibrate_help" : "no_calibration"));
    put($("loop-folder"), `${t("loop_folder")} ${s.folder}`);
    for (const step of ["robot", "calibrate", "train", "retrain"]) if (this.step === step) this.renderJob(step);
    const mover = state?.mover;
    put($("run-now"), mover?.policy ? `${mover.policy}: ${t("episode")} ${mover.episode} / ${mover.episodes}, ${t(mover.phase)}, ${mover.owner}` : say(mover?.last));
    put($("record-now"), mover?.recording ? t("recorded_episodes").replace("#", mover.recorded) : "");
    put($("judge-now"), [asked ? $("question-text").textContent : t("judge_none"), this.blind() ? t("blind") : ""].filter(Boolean).join(" "));
    if (mover && mover.recorded !== this.counted && !mover.owner) { this.counted = mover.recorded; send({ t: "results" }); }
  },
  renderJob(step) {
    const box = $(`job-${step}`), job = this.job(step);
    box.hidden = !job;
    if (!job) return;
    if (!this.boxes[step]) {
      const made = this.boxes[step] = { state: make("p"), bar: make("progress", { max: "1" }), curve: document.createElementNS("http://www.w3.org/2000/svg", "svg"), note: make("p", { class: "quiet" }), ask: make("p", { class: "asks" }), tail: make("pre", { tabindex: "0" }) };
      made.curve.setAttribute("viewBox", "0 0 300 90");
      made.curve.setAttribute("role", "img");
      box.replaceChildren(...Object.values(made));
    }
    const made = this.boxes[step], running = job.state === "running";
    const left = job.left_s === null ? "" : t("time_left").replace("#", duration(job.left_s));
    put(made.state, [t(`j_${job.state}`), t("by").replace("#", job.by), running && !job.ask ? say(job.remark) : "", left].filter(Boolean).join(" – "));
    made.state.className = job.state === "failed" ? "bad" : job.state === "done" ? "good" : "";
    made.bar.hidden = job.share === null || job.share === undefined;
    made.bar.value = job.share || 0;
    made.bar.setAttribute("aria-label", t("progress"));
    made.ask.hidden = !job.ask;
    put(made.ask, job.ask ? `${say(job.ask)}${job.remark !== job.ask ? ` (${say(job.remark)})` : ""}` : "");
    made.tail.hidden = !job.tail || (running && step !== "robot");
    made.tail.setAttribute("aria-label", t("output"));
    put(made.tail, job.tail);
    this.drawCurve(made, job.curve);
  },
  drawCurve(made, curve) {
    made.curve.style.display = made.note.hidden = curve.length < 2 ? "none" : "";
    made.note.hidden = curve.length < 2;
    if (curve.length < 2) return;
    const values = curve.map(([, value]) => value), low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
    const points = curve.map(([share, value]) => `${(5 + 290 * share).toFixed(1)},${(85 - (80 * (value - low)) / span).toFixed(1)}`).join(" ");
    const key = `${points}`;
    if (made.key === key) return;
    made.key = key;
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", points);
    made.curve.replaceChildren(line);
    const words = `${t("curve")}: ${digits(values[0], 2)} → ${digits(values[values.length - 1], 2)} (${t("from_to").replace("#", digits(low, 2)).replace("#", digits(high, 2))})`;
    made.curve.setAttribute("aria-label", words);
    put(made.note, words);
  },
  renderResults() {
    const rows = this.results || [];
    put($("results-note"), rows.length ? "" : say(this.problem) || t("no_results"));
    fill($("results"), ["policy", "episodes", "reached", "success", "failure", "discard", "medians"], rows.map((row) => [row.policy === "teleoperation" ? t("teleop") : row.policy || "–", row.episodes, row.reached, row.success, row.failure, row.discard, Object.entries(row.medians).map(([name, value]) => `${name} ${value}`).join(", ")]), ["policy", "medians"]);
    this.render();
  },
  translate() {
    if (!this.on) return;
    const choice = { robot: $("robot-model").value, where: $("robot-where").value, task: $("robot-task").value };
    this.fillChoice(choice);
    this.fillLists();
    for (const made of Object.values(this.boxes)) made.key = "";
    this.renderResults();
  },
  open() {
    for (const button of document.querySelectorAll("[data-step]")) button.addEventListener("click", () => this.show(button.dataset.step));
    for (const button of document.querySelectorAll("#loop [data-job-do]")) {
      const [step, action] = button.dataset.jobDo.split(" ");
      button.addEventListener("click", () => (action === "start" ? this.start(step) : action === "resume" ? this.send(step, "start", { resume: true }) : this.send(step, action)));
    }
    for (const button of document.querySelectorAll("#loop [data-do]")) button.addEventListener("click", () => (button.dataset.do === "arm" ? this.arm() : request(button.dataset.do)));
    $("robot-model").addEventListener("change", () => this.fillRobot());
    $("run-start").addEventListener("click", () => this.run());
    $("run-policy").addEventListener("change", () => this.render());
    $("results-again").addEventListener("click", () => send({ t: "results" }));
    $("to-compare").addEventListener("click", () => { $("compare").scrollIntoView(); comparison.ask(); $("compare-group").focus({ preventScroll: true }); });
  },
};
