"use strict";
// -- Recorded episodes in the place of the live robot ---------------------------------------------------------

const replay = {
  logs: [null, null], at: 0, playing: false, since: 0, shown: false, list: [],
  ask(slot, value) {
    this.logs[slot] = null;
    if (value === "") return this.show();
    const simulated = value === "sim", episode = simulated ? this.logs[0]?.episode : Number(value);
    if (episode === undefined) return undefined;
    put($("replay-note"), "…");
    send({ t: "replay", slot, episode, simulated });
    return undefined;
  },
  take(message) {
    put($("replay-note"), () => say(message.problem));
    if (message.list) {
      this.list = message.list;
      const option = (value, text) => make("option", { value }, text), word = (value, key) => make("option", { value, "data-t": key }, t(key));
      const names = this.list.map((one) => option(one.episode, [one.episode, `${one.seconds} s`, one.task, one.operator, say(one.verdict)].filter((part) => part !== "").join(" · ")));
      $("replay-0").replaceChildren(word("", "live"), ...names);
      $("replay-1").replaceChildren(word("", "none"), word("sim", "simulation"), ...names.map((one) => one.cloneNode(true)));
    } else if (message.log) {
      this.logs[message.slot] = message.log;
      if (message.slot === 0) { this.at = 0; scene.load(message.log.scene); }
      this.show();
    }
  },
  get length() { return this.logs[0] ? this.logs[0].poses.length : 0; },
  show() {
    const first = this.logs[0], second = this.logs[1];
    this.shown = Boolean(first);
    $("view").dataset.replay = String(this.shown);
    if (!first) { if (robot) scene.load(robot.scene); return schedule(); }
    this.at = Math.max(0, Math.min(this.length - 1, this.at));
    $("replay-at").max = String(this.length - 1);
    $("replay-at").value = String(Math.floor(this.at));
    const seconds = Math.floor(this.at) / first.rate_hz;
    const other = second ? second.poses[Math.min(second.poses.length - 1, Math.round(seconds * second.rate_hz))] : [];
    scene.markers = [];
    scene.draw(first.poses[Math.floor(this.at)], other);
    put($("scene-note"), `${t("is_replay")}: ${first.episode}, ${seconds.toFixed(2)} s (${Math.floor(this.at)} / ${this.length - 1})`);
    put($("replay-play"), t(this.playing ? "pause" : "play"));
    return undefined;
  },
  step(frames) { this.playing = false; this.at = Math.floor(this.at) + frames; this.show(); },
  run(now) {
    if (this.playing && this.logs[0]) {
      this.at += ((now - this.since) / 1e3) * this.logs[0].rate_hz * Number($("replay-speed").value);
      if (this.at >= this.length - 1) { this.at = this.length - 1; this.playing = false; }
      this.show();
    }
    this.since = now;
    if (this.playing) requestAnimationFrame((time) => this.run(time));
  },
  play() {
    this.playing = !this.playing;
    if (this.playing && this.at >= this.length - 1) this.at = 0;
    this.since = performance.now();
    this.show();
    if (this.playing) requestAnimationFrame((time) => this.run(time));
  },
  open() {
    $("replay").addEventListener("toggle", () => { if ($("replay").open) send({ t: "replay" }); });
    $("replay-0").addEventListener("change", (event) => this.ask(0, event.target.value));
    $("replay-1").addEventListener("change", (event) => this.ask(1, event.target.value));
    $("replay-back").addEventListener("click", () => this.step(-1));
    $("replay-next").addEventListener("click", () => this.step(1));
    $("replay-play").addEventListener("click", () => this.play());
    $("replay-at").addEventListener("input", (event) => { this.at = Number(event.target.value); this.show(); });
    $("replay-end").addEventListener("click", () => { this.playing = false; this.logs = [null, null]; $("replay-0").value = ""; $("replay-1").value = ""; this.show(); });
  },
};

// -- Two recorded episodes, of which a person says which is better ---------------------------------------------

const comparison = {
  pair: 0, kind: "", logs: [], scenes: null, at: 0, playing: false, since: 0, busy: false, problem: "", outcome: "", begun: false,
  ask(choice) {
    if (this.busy || (choice && !this.allows(choice))) return;
    const question = choice ? { t: "compare", pair: this.pair, choice } : { t: "compare" };
    this.busy = send(question);
    this.begun = true;
    this.label();
  },
  get drawn() { return this.kind !== "motion" || Boolean(this.scenes && this.scenes.every((one) => one.gl)); },
  allows(choice) { return this.pair > 0 && !this.busy && (choice === "skip" || (!this.problem && this.drawn)); },
  take(message) {
    Object.assign(this, { busy: false, pair: message.pair, kind: message.kind || "", problem: message.problem, outcome: message.outcome, logs: [] });
    $("compare-motion").hidden = this.kind !== "motion";
    $("compare-chat").hidden = this.kind !== "chat";
    if (this.kind === "chat") [message.left, message.right].forEach((one, side) => $(`chat-${side}`).replaceChildren(...one.messages.flatMap(({ role, content }) => [make("dt", { "data-t": role }, t(role)), make("dd", {}, content)])));
    if (this.kind === "motion") this.open([message.left, message.right]);
    this.label();
  },
  label() {
    for (const button of document.querySelectorAll("[data-choice]")) button.disabled = !this.allows(button.dataset.choice);
    $("compare-begin").hidden = this.begun && (this.pair > 0 || this.busy);
    $("compare-play").disabled = this.kind !== "motion";
    put($("compare-play"), t(this.playing ? "pause" : "play"));
    put($("compare-note"), this.busy ? "…" : [say(this.outcome), say(this.problem) || (this.begun && !this.pair ? t("no_pair") : this.drawn ? "" : t("not_drawn"))].filter(Boolean).join(". "));
    $("compare-note").className = this.problem || !this.drawn ? "bad" : "quiet";
  },
  open(logs) {
    if (!this.scenes) {
      this.scenes = [0, 1].map((side) => drawing(`compare-${side}`, `compare-note-${side}`));
      [this.scenes[0].beside, this.scenes[1].beside] = [this.scenes[1], this.scenes[0]];
      for (const one of this.scenes) one.open();
    }
    this.logs = logs;
    logs.forEach((log, side) => this.scenes[side].load(log.scene));
    this.at = 0;
    $("compare-at").max = String(this.seconds);
    this.show();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!still && !this.playing) this.play();
  },
  get seconds() { return Math.max(...this.logs.map((log) => (log.poses.length - 1) / log.rate_hz)); },
  show() {
    if (!this.logs.length) return;
    this.logs.forEach((log, side) => this.scenes[side].draw(log.poses[Math.min(log.poses.length - 1, Math.round(this.at * log.rate_hz))], []));
    $("compare-at").value = String(this.at);
  },
  play() {
    this.playing = !this.playing;
    if (this.playing && this.logs.length && this.at >= this.seconds) this.at = 0;
    this.since = performance.now();
    this.label();
    if (this.playing) requestAnimationFrame((time) => this.run(time));
  },
  run(now) {
    if (!this.playing) return;
    if (this.logs.length) {
      this.at += (now - this.since) / 1e3;
      if (this.at > this.seconds + 0.5) this.at = 0; // again, after a moment at the end
      this.show();
    }
    this.since = now;
    requestAnimationFrame((time) => this.run(time));
  },
  start() {
    $("compare-begin").addEventListener("click", () => { this.ask(); $("compare-group").focus(); });
    for (const button of document.querySelectorAll("[data-choice]")) button.addEventListener("click", () => this.ask(button.dataset.choice));
    $("compare-play").addEventListener("click", () => this.play());
    $("compare-at").addEventListener("input", (event) => { this.playing = false; this.at = Number(event.target.value); this.show(); this.label(); });
    $("compare-group").addEventListener("keydown", (event) => {
      const choice = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "equal", ArrowDown: "skip" }[event.key];
      if (!choice || event.target !== $("compare-group") || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      event.preventDefault();
      if (!event.repeat) this.ask(choice);
    });
  },
};

