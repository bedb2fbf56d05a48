// Four recorded walks on a line: source data of T/CCF 0002-2025, written from docs/conformance.md. `node records.cjs` is
// correct; with the name of a fault it is the one of that name in source_faults.py.
"use strict";
const readline = require("readline");

const kind = process.argv[2] || "Records";
const is = (name) => kind === name;
const F = Math.fround;
const LENGTHS = [3, 6, 4, 5];

class Refusal extends Error {
  constructor(code, message) { super(message); this.code = code; }
}

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
  env_id: "walks",
  calls: ["describe", "init", "sample_steps", "sample_trajectories", "get_all_actions", "statistics", "close"],
  observation: { name: "walk_observation", fields: [
    field("place", [], "int32", 0, 100, "1", "where the walker is"), field("speed", [2], "float32", null, null, "m/s", "of the walker"),
  ] },
  action: { name: "walk_action", fields: [field("push", [2], "float32", null, null, "N", "on the walker")] },
};

const fixed = new Random(7);
const pair = () => [F(fixed.normal()), F(fixed.normal())];
const walks = LENGTHS.map((length, number) => ({
  place: Array.from({ length: length + 1 }, (_, i) => i + (number < 2 ? 0 : 10 * number)),
  speed: Array.from({ length: length + 1 }, (_, i) => (i ? pair() : [0, 0])),
  push: Array.from({ length }, pair),
  reward: Array.from({ length }, () => fixed.normal() + number),
}));
const index = LENGTHS.flatMap((length, number) => Array.from({ length }, (_, step) => [number, step]));
const total = (number) => walks[number].reward.reduce((sum, reward) => sum + reward, 0);
const name = (number) => `walk-${Math.floor(number / 2)}`;
let random = new Random(Date.now());

function allow(options, ...names) {
  for (const key of Object.keys(options || {})) {
    if (!names.includes(key)) throw new Refusal("option", `${key} is unknown, allowed are ${names.join(", ")}`);
  }
  return options || {};
}

function checked(size, options) {
  if (!Number.isInteger(size) || size < 1) throw new Refusal("option", `the size is ${size}, it is a whole number from 1`);
  return allow(options, "min_return", "priority", "beta", "replace");
}

const passes = (number, { min_return = -Infinity }) =>
  (is("ThresholdIsUpsideDown") && min_return !== -Infinity ? total(number) <= min_return : total(number) >= min_return);

// The chances of rows that are of these walks, before they add up to 1.
function chances(numbers, options) {
  const least = Math.min(...LENGTHS.map((_, number) => total(number)));
  return numbers.map((number) => (passes(number, options) ? (options.priority === "return" ? total(number) - least + 0.2 : 1) : 0));
}

function pick(size, weights, { replace = true, beta = 0 }) {
  const left = [...weights], possible = weights.filter((weight) => weight > 0);
  if (!possible.length || (!replace && possible.length < size)) throw new Refusal("option", "too few rows are left");
  const least = Math.min(...possible), drawn = [];
  for (let i = 0; i < size; i++) {
    let place = random.uniform() * left.reduce((sum, weight) => sum + weight, 0), row = 0;
    while (row < left.length - 1 && (place >= left[row] || left[row] === 0)) place -= left[row++];
    while (left[row] === 0) row--;
    drawn.push(row);
    if (!replace) left[row] = 0;
  }
  return [drawn, drawn.map((row) => (weights[row] / least) ** -beta)];
}

function table(rows) {
  const column = (key, later = 0) => rows.map(([number, step]) => walks[number][key][step + later]);
  return {
    env_id: rows.map(([number]) => name(number)), frame_no: rows.map(([, step]) => step),
    observation: { place: column("place"), speed: column("speed") }, action: { push: column("push") },
    reward: column("reward"), next_observation: { place: column("place", 1), speed: column("speed", 1) },
    done: rows.map(([number, step]) => (step + 1 === LENGTHS[number] ? (is("DoneIsTwo") ? 2 : 1) : 0)),
  };
}

function trajectory(number) {
  const rows = Array.from({ length: LENGTHS[number] }, (_, step) => [number, step]);
  if (is("Backwards")) rows.reverse();
  const extra_info = { return: total(number), length: LENGTHS[number], terminated: 1, truncated: 0 };
  return { env_id: name(number), trajectory_id: number, steps_set: table(rows), extra_info };
}

const calls = {
  describe: () => description,
  init({ options }) {
    allow(options, "seed");
    random = new Random(options && "seed" in options && !is("SeedIsForgotten") ? options.seed : process.hrtime()[1]);
    return { initialised: true };
  },
  sample_steps({ batch_size, extra_info }) {
    const options = checked(batch_size, extra_info);
    const [drawn, weights] = pick(batch_size, chances(index.map(([number]) => number), options), options);
    return { steps: { ...table(drawn.map((row) => index[row])), extra_info: { index: drawn, weights } } };
  },
  sample_trajectories({ trajectory_size, extra_info }) {
    const options = checked(trajectory_size, extra_info);
    return { trajectories: pick(trajectory_size, chances([0, 1, 2, 3], options), options)[0].map(trajectory) };
  },
  get_all_actions({ extra_info }) {
    checked(1, extra_info);
    const push = [walks[0].push[0], walks[1].push[0]];
    return { actions: { env_id: name(0), frame_no: 0, action: { push: is("ActionsOfOneWalk") ? push.slice(0, 1) : push } } };
  },
  statistics({ extra_info }) {
    const options = checked(1, extra_info);
    const chosen = [0, 1, 2, 3].filter((number) => passes(number, options)), returns = chosen.map(total);
    const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
    const steps = chosen.reduce((sum, number) => sum + LENGTHS[number], 0);
    const places = chosen.flatMap((number) => walks[number].place.slice(0, -1)), middle = mean(returns);
    return { statistics: {
      trajectories: chosen.length, steps: is("CountsAreOff") ? steps + chosen.length : steps,
      return: { mean: middle, std: Math.sqrt(mean(returns.map((one) => (one - middle) ** 2))), max: Math.max(...returns) },
      fields: { "observation.place": { mean: mean(places), min: Math.min(...places) } },
    } };
  },
  close: () => ({ closed: true }),
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  let id, answer;
  try {
    const request = JSON.parse(line);
    id = request.id;
    if (!Object.hasOwn(calls, request.call)) throw new Refusal("request", "the call is unknown");
    answer = calls[request.call](request);
  } catch (error) {
    const code = error instanceof SyntaxError ? "request" : error.code || "fault";
    answer = { error: { code, message: error.message } };
  }
  process.stdout.write(JSON.stringify({ id, ...answer }) + "\n");
});
