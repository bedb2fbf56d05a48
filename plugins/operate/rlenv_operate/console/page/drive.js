"use strict";
// -- Teleoperation ---------------------------------------------------------------------------------------------

const UP = ["KeyQ", "KeyW", "KeyE", "KeyR", "KeyT", "KeyY", "KeyU", "KeyI", "KeyO", "KeyP"];
const DOWN = ["KeyA", "KeyS", "KeyD", "KeyF", "KeyG", "KeyH", "KeyJ", "KeyK", "KeyL", "Semicolon"];
const pressed = new Set();
let engaged = false, device = "keyboard";

/** The keys of each joint, as far as there are keys: "Q/A shoulder_pan". */
const jointKeys = () => (robot ? robot.commands.flatMap((command) => command.elements) : []).slice(0, UP.length).map((name, index) => `${[UP, DOWN].map((keys) => keys[index].replace("Key", "").replace("Semicolon", ";")).join("/")}\u00a0${name}`).join(", ");
const size = () => (robot ? robot.commands.reduce((sum, command) => sum + command.elements.length, 0) : 0);
const mineToMove = () => mayMove() && state && mine() && !state.mover.policy && (state.mover.phase === "armed" || state.mover.phase === "moving");

function keyAxes() {
  const slow = pressed.has("ShiftLeft") || pressed.has("ShiftRight") ? 0.3 : 1;
  return Array.from({ length: Math.min(size(), 64) }, (_, index) => slow * (Number(pressed.has(UP[index])) - Number(pressed.has(DOWN[index]))));
}
const dead = (value) => (Math.abs(value) < 0.12 ? 0 : Math.max(-1, Math.min(1, value)));
function gamepadAxes() {
  const pad = (navigator.getGamepads ? [...navigator.getGamepads()] : []).find((one) => one && one.connected);
  if (!pad) return null;
  const button = (index) => pad.buttons[index]?.value || 0;
  const axes = [dead(-(pad.axes[0] || 0)), dead(-(pad.axes[1] || 0)), dead(pad.axes[3] || 0), dead(button(12) - button(13)), dead(button(15) - button(14)), dead(button(7) - button(6))];
  return { clutch: button(4) > 0.5 || button(5) > 0.5, axes: axes.slice(0, size()), any: true };
}

// Two thumb sticks for a phone. A finger on a stick is the closed clutch.
const touch = {
  group: 0, sticks: [[0, 0], [0, 0]], fingers: [null, null],
  get held() { return this.fingers.some((finger) => finger !== null); },
  get groups() { return Math.max(1, Math.ceil(size() / 4)); },
  axes() {
    const axes = Array(Math.min(size(), 64)).fill(0), values = [...this.sticks[0], ...this.sticks[1]];
    values.forEach((value, index) => { if (4 * this.group + index < axes.length) axes[4 * this.group + index] = dead(value); });
    return axes;
  },
  move(number, event) {
    const box = $(`stick-${number}`).getBoundingClientRect(), radius = box.width / 2;
    const bound = (value) => Math.max(-1, Math.min(1, value / radius));
    this.sticks[number] = [bound(event.clientX - box.left - radius), bound(box.top + box.height / 2 - event.clientY)];
    this.show(number);
  },
  lift(number) { this.fingers[number] = null; this.sticks[number] = [0, 0]; this.show(number); },
  release() { this.lift(0); this.lift(1); },
  show(number) { $(`stick-${number}`).firstElementChild.style.translate = `${this.sticks[number][0] * 2}rem ${-this.sticks[number][1] * 2}rem`; },
  label() {
    const names = robot ? robot.commands.flatMap((command) => command.elements).slice(4 * this.group, 4 * this.group + 4) : [];
    put($("touch-group"), names.join(", "));
    $("touch-group").setAttribute("aria-label", `${t("touch_group")} ${names.join(", ")}`); // with the words that one sees
  },
  open() {
    for (const number of [0, 1]) {
      const stick = $(`stick-${number}`);
      stick.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        if (this.fingers[number] !== null) return;
        try { stick.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
        this.fingers[number] = event.pointerId;
        this.move(number, event);
      });
      stick.addEventListener("pointermove", (event) => { if (this.fingers[number] === event.pointerId) this.move(number, event); });
      for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) stick.addEventListener(end, (event) => { if (this.fingers[number] === event.pointerId) this.lift(number); });
      stick.addEventListener("contextmenu", (event) => event.preventDefault());
    }
    $("touch-group").addEventListener("click", () => { this.release(); this.group = (this.group + 1) % this.groups; this.label(); });
  },
};

// A headset's controller, or a phone that knows where it is (WebXR): the hand's place, from which the console makes goals.
const xr = {
  mode: "", session: null, space: null, gl: null, hand: null, button: false, held: false, spent: false, heading: null, stopped: false,
  async look() {
    for (const mode of ["immersive-ar", "immersive-vr"]) {
      try { if (!this.mode && navigator.xr && (await navigator.xr.isSessionSupported(mode))) this.mode = mode; } catch { /* a policy forbids it */ }
    }
    $("xr-start").hidden = !this.mode;
    $("touch").hidden = Boolean(this.mode) || !matchMedia("(pointer: coarse)").matches;
  },
  async start() {
    if (this.session) return void this.session.end();
    try {
      const session = await navigator.xr.requestSession(this.mode, { optionalFeatures: ["local-floor", "dom-overlay"], domOverlay: { root: document.body } });
      this.gl = document.createElement("canvas").getContext("webgl", { xrCompatible: true });
      session.updateRenderState({ baseLayer: new XRWebGLLayer(session, this.gl) });
      this.space = await session.requestReferenceSpace("local-floor").catch(() => session.requestReferenceSpace("local"));
      Object.assign(this, { session, hand: null, held: false, spent: true });
      session.addEventListener("end", () => this.over());
      session.addEventListener("visibilitychange", () => { if (session.visibilityState !== "visible") release(); });
      session.requestAnimationFrame((_, frame) => this.frame(frame));
      $("xr-clutch").hidden = false;
      $("xr-start").dataset.t = "xr_end";
      this.note("xr_on");
    } catch (error) { this.session = null; put($("xr-note"), () => `${t("xr_failed")}: ${error.message}`); }
    translate();
  },
  over() {
    release();
    Object.assign(this, { session: null, space: null, hand: null, held: false });
    $("xr-clutch").hidden = true;
    $("xr-start").dataset.t = "xr_start";
    this.note("");
    translate();
  },
  note(key) { put($("xr-note"), () => key && t(key)); },
  get live() { return Boolean(this.session && this.session.visibilityState === "visible"); },
  get wants() {
    if (!this.held) this.spent = false;
    return this.live && this.held && !this.spent && this.hand !== null;
  },
  release() { this.spent = true; this.button = false; }, // until the clutch was let go of, and is closed anew
  frame(frame) {
    const session = this.session;
    if (!session) return;
    session.requestAnimationFrame((_, next) => this.frame(next));
    this.gl.bindFramebuffer(this.gl.FRAMEBUFFER, session.renderState.baseLayer ? session.renderState.baseLayer.framebuffer : null);
    this.gl.clearColor(0, 0, 0, 0);
    this.gl.clear(this.gl.COLOR_BUFFER_BIT);
    const source = [...session.inputSources].find((one) => one.gripSpace && one.gamepad);
    const viewer = frame.getViewerPose(this.space);
    const pose = source ? frame.getPose(source.gripSpace, this.space) : viewer;
    const pressedAt = (index) => (source && source.gamepad.buttons[index] ? source.gamepad.buttons[index].value : 0);
    if (pressedAt(5) > 0.5) { if (!this.stopped) stop(); this.stopped = true; } else this.stopped = false;
    const held = this.button || pressedAt(1) > 0.5;
    if (held && !this.held && viewer && !engaged) this.heading = heading(viewer.transform.orientation);
    this.held = held;
    if (pose && this.heading !== null) this.hand = place(pose.transform, this.heading, pressedAt(0)); else if (!pose) this.hand = null;
    if (session.visibilityState === "visible") this.note(pose && !pose.emulatedPosition ? "xr_on" : "xr_lost");
    if (pose && pose.emulatedPosition) this.hand = null; // its place is guessed
    if (this.hand === null && engaged) release();
  },
  open() {
    $("xr-start").addEventListener("click", () => this.start());
    const button = $("xr-clutch");
    button.addEventListener("pointerdown", (event) => { event.preventDefault(); this.button = true; });
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) button.addEventListener(end, () => { this.button = false; });
    button.addEventListener("beforexrselect", (event) => event.preventDefault());
    this.look();
  },
};
/** Angle about the vertical by which the person looks away from the reference space's forward, rad. */
function heading({ x, y, z, w }) { return Math.atan2(2 * (w * y + x * z), 1 - 2 * (x * x + y * y)); }
/** A hand as the console takes it: forward, left, up (m) as the person faced; tipped down, turned clockwise (rad); closed (0 to 1). */
function place({ position: p, orientation: q }, turned, closed) {
  const c = Math.cos(turned), s = Math.sin(turned);
  const ahead = -p.z * c - p.x * s, right = p.x * c - p.z * s;
  // The hand's forward axis and its right-hand axis, turned into the person's frame, give its tip and its roll.
  const forward = [-2 * (q.x * q.z + q.w * q.y), -2 * (q.y * q.z - q.w * q.x), -(1 - 2 * (q.x * q.x + q.y * q.y))];
  const side = 2 * (q.x * q.y + q.w * q.z), up = 1 - 2 * (q.x * q.x + q.z * q.z);
  return [ahead, -right, p.y, -Math.asin(Math.max(-1, Math.min(1, forward[1]))), -Math.atan2(side, up), closed];
}

function release() {
  pressed.clear();
  touch.release();
  xr.release();
  if (!engaged) return;
  engaged = false;
  send({ t: "drive", engaged: false, axes: [], device });
}

function tick() {
  const pad = document.hasFocus() && !document.hidden ? gamepadAxes() : null;
  put($("gamepad"), t(pad ? "gamepad" : "no_gamepad"));
  const byKeys = pressed.has("Space") && document.activeElement === $("pad");
  const byHand = xr.wants, byTouch = touch.held && !document.hidden;
  const wants = mineToMove() && (byHand || byTouch || (document.hasFocus() && !document.hidden && (byKeys || Boolean(pad && pad.clutch))));
  if (!wants) {
    if (engaged) { engaged = false; send({ t: "drive", engaged: false, axes: [], device }); schedule(); }
    return;
  }
  device = byHand ? "xr" : byTouch ? "touch" : byKeys ? "keyboard" : "gamepad";
  if (!engaged) { engaged = true; schedule(); }
  if (byHand) send({ t: "drive", engaged: true, axes: [], device, hand: xr.hand });
  else send({ t: "drive", engaged: true, axes: byTouch ? touch.axes() : byKeys ? keyAxes() : pad.axes, device });
}

function renderPad() {
  const pad = $("pad");
  pad.dataset.engaged = String(engaged);
  const owner = state.mover.owner;
  const text = state.mover.policy ? t("policy_moves") : engaged ? t("engaged") : mineToMove() ? t("released") : owner && !mine() ? `${owner} ${t("others")}` : t("not_armed");
  put($("clutch"), text);
  put($("pad-help"), t("pad_help").replace("#", jointKeys()));
}

