// Three sleds that are pushed: an environment of T/CCF 0002-2025, written from docs/conformance.md. An episode has 20
// frames. `node sleds.cjs` is correct; with the name of a style or a fault it is the one of that name in
// frame_faults.py, seed_faults.py, refusal_faults.py, end_faults.py or good_ones.py.
"use strict";
const readline = require("readline");

const kind = process.argv[2] || "Sleds";
const is = (...names) => names.includes(kind);
const PAIR = is("Pair", "NoMapping");
const F = Math.fround;
const env_id = `sleds-${process.pid}`;

class Refusal extends Error {
  constructor(code, message) { super(message); this.code = code; }
}

// A generator of random numbers for each environment (mulberry32), and normally distributed ones by Box and Muller.
class Random {
  constructor(seed) { this.state = seed >>> 0; for (let i = 0; i < 4; i++) this.uniform(); }
  uniform() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  normal() { return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform()); }
}

const field = (name, shape, dtype, low, high, unit, meaning) => ({ name, shape, dtype, low, high, unit, meaning });
const description = {
  env_id,
  calls: ["describe", "reset", "step", "render", "close"],
  observation: { name: "sled_observation", fields: [
    field("position", [3], "float32", -50, 50, "m", "where the sleds are"),
    field("velocity", [3], "float32", -5, 5, "m/s", "how fast they are"),
    field("left", [], "int32", 0, 20, "1", "frames until the end"),
  ] },
  action: { name: "sled_action", fields: [
    field("force", [3], "float32", -1, 1, "N", "on each sled"),
    field("gear", [], "int8", 0, 2, "1", "multiplies"),
  ] },
  reward: field("reward", [], "float64", -40, 0, "m/s", "minus the speed"),
  reset_options: { seed: "whole number from 0: fixes the episode" },
};

let phase = "new", frame_no = 0, start = 0, position = [0, 0, 0], velocity = [0, 0, 0], first = null, wind = 0;
let seeded = false, spent = 0;
let random = new Random(Date.now() ^ process.pid);
const clip = (value, low, high) => Math.min(Math.max(value, low), high);

function reset(options) {
  if (phase === "closed") throw new Refusal("state", "it is closed");
  for (const name of Object.keys(options)) if (name !== "seed") throw new Refusal("option", `${name} is unknown, allowed is seed`);
  if ("seed" in options) {
    if (!Number.isInteger(options.seed) || options.seed < 0) throw new Refusal("option", "seed is a whole number from 0");
    if (!(is("SeedCountsOnce") && seeded)) random = new Random(is("AllSeedsAreOne") ? 7 : options.seed);
    seeded = true;
  }
  phase = "running";
  start = is("FramesGoOn") ? frame_no : 0;
  frame_no = start;
  position = [0, 1, 2].map(() => F(random.normal()));
  velocity = [0, 0, 0];
  first = observed();
  return { observation: table(0, 0) };
}

function observed() {
  const now = {
    position: [...position],
    velocity: is("NanLate") && frame_no === 17 ? [NaN, NaN, NaN] : [...velocity],
    left: 20 - (frame_no - start),
  };
  if (is("FieldMissingLate") && frame_no === 20) delete now.left;
  return now;
}

function table(terminated, truncated) {
  const extra_info = { heat: velocity.map(Math.abs) };
  if (PAIR && !is("NoMapping")) {
    extra_info.agents = { left: { own: "position", left: "left" }, right: { own: "velocity", left: "left" } };
  }
  const observation = is("LastFrameIsTheNextFirst") && truncated ? { ...first, left: 20 } : observed();
  return { env_id: is("EnvIdChanges") ? `${env_id}-${phase}` : env_id, frame_no, observation, extra_info, terminated, truncated };
}

const value = () => (PAIR ? { left: -Math.abs(velocity[0]), right: -Math.abs(velocity[1]) }
  : -velocity.reduce((sum, speed) => sum + Math.abs(speed), 0));
const rewarded = (reward) => ({ env_id, frame_no, reward });
const is_object = (thing) => typeof thing === "object" && thing !== null && !Array.isArray(thing);
const has_keys = (thing, ...keys) => is_object(thing) && Object.keys(thing).sort().join() === keys.sort().join();
const in_range = (number, low, high) => typeof number === "number" && number >= low && number <= high;

// What is wrong with a Table 2: the code, the field and the index; null if nothing is.
function wrong(action) {
  const problem = (code, name, index = []) => ({ code, field: name, index, message: `${name || "the table"}: ${code}` });
  if (!is_object(action)) return problem("dtype", "");
  if (!has_keys(action, "env_id", "frame_no", "action")) return problem("missing", "");
  if (action.env_id !== env_id && !is("EnvIdChanges")) return problem("env_id", "env_id");
  if (action.frame_no !== frame_no) return problem("frame_no", "frame_no");
  const values = action.action;
  if (!has_keys(values, "force", "gear")) return problem("missing", "action");
  const { force, gear } = values;
  if (!Array.isArray(force) || force.length !== 3) return problem("shape", "action.force");
  if (is("LateActionsAreNotChecked") && frame_no > 9) return null;
  for (let i = 0; i < 3; i++) {
    if (is("MiddleElementIsNotChecked") && i === 1 && typeof force[1] === "number") continue;
    if (!in_range(force[i], -1, 1) || (is("UpperBorderIsRefused") && force[i] >= 1)) return problem("range", "action.force", [i]);
  }
  if (!Number.isInteger(gear) || !in_range(gear, 0, 2)) return problem("range", "action.gear");
  return null;
}

function refusal(error) {
  if (is("IllegalActionsDraw") && frame_no > 4) random.normal();
  const answer = table(0, phase === "ended" ? 1 : 0);
  answer.extra_info.error = is("UpperBorderIsRefused") ? error.message : error;
  return { observation: answer, reward: rewarded(PAIR ? { left: 0, right: 0 } : 0) };
}

function step(action) {
  if (phase === "ended" && is("AnswersAfterTheEnd")) return refusal({ code: "over", field: "", index: [], message: "it is over" });
  if (phase === "ended" && is("StepsOnAfterTheEnd")) phase = "running";
  if (phase !== "running") throw new Refusal("state", `the episode is ${phase}`);
  const error = wrong(action);
  if (error) return refusal(error);
  const number = (one) => (typeof one === "number" ? one : 0);
  const force = is("IgnoresActions") ? [0, 0, 0] : action.action.force.map(number);
  const gear = is("IgnoresActions") ? 0 : number(action.action.gear);
  velocity = velocity.map((speed, i) => F(clip(speed + 0.1 * F(force[i]) * (gear + 1) + 0.01 * random.normal(), -5, 5)));
  if (is("HiddenStateSurvivesTheReset")) {
    wind += 0.01;
    velocity = velocity.map((speed) => F(clip(speed + wind * 0.01, -5, 5)));
  }
  position = position.map((place, i) => F(clip(place + 0.1 * velocity[i], -50, 50)));
  frame_no += 1;
  const truncated = frame_no - start >= 20 ? 1 : 0;
  if (truncated) phase = "ended";
  return { observation: table(0, truncated), reward: rewarded(value()) };
}

function render() {
  if (phase === "closed") throw new Refusal("state", "it is closed");
  if (is("RenderingMoves")) position = position.map((place) => F(place + 0.01));
  return { frame: { env_id, frame_no, frame_data: position.map((place) => place.toFixed(2)).join(" ") } };
}

function close() {
  if (phase === "closed" && is("SecondCloseFails")) throw new Refusal("fault", "closed");
  phase = "closed";
  return { closed: true };
}

function answer(line) {
  let request;
  try { request = JSON.parse(line); } catch (error) { return { error: { code: "request", message: error.message } }; }
  const calls = {
    describe: () => description, reset: () => reset(request.options || {}), step: () => step(request.action), render, close,
  };
  const id = is_object(request) ? request.id : undefined;
  try {
    if (!is_object(request) || !(request.call in calls)) throw new Refusal("request", "the call is unknown");
    return { id, ...calls[request.call]() };
  } catch (error) {
    return { id, error: { code: error.code || "fault", message: error.message } };
  }
}

// JSON.stringify writes null for a number that is not finite, as the messages ask.
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  process.stdout.write(JSON.stringify(answer(line)) + "\n");
});
