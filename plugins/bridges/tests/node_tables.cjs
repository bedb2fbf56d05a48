// An agent in another language, written from an environment's protocol page alone: it acts by the schema, and prints
// what it is answered. node node_tables.cjs ENDPOINT SEED STEPS
"use strict";
const { Request } = require("zeromq");

const [endpoint, seed, steps] = process.argv.slice(2);

// A number inside the range of a schema, nearest to zero, or a share of the way to its upper end.
function number(schema, share) {
  const { minimum, maximum } = schema;
  const open = maximum > 1e30 || minimum < -1e30;
  const near = Math.min(Math.max(0, minimum), maximum);
  const value = open ? near : near + share * (maximum - near);
  return schema.type === "integer" ? Math.round(value) : Math.fround(value);
}

function value(schema, share) {
  if (schema.type === "object") {
    return Object.fromEntries(Object.entries(schema.properties).map(([key, part]) => [key, value(part, share)]));
  }
  if (schema.type !== "array") return number(schema, share);
  return Array.from({ length: schema.minItems }, (_, i) =>
    value(schema.prefixItems ? schema.prefixItems[i] : schema.items, share));
}

// What is wrong with a value by its schema; empty if nothing is.
function wrong(schema, given, where, root) {
  if (schema.$ref) return wrong(root.$defs[schema.$ref.split("/").pop()], given, where, root);
  if (schema.enum) return schema.enum.includes(given) ? "" : `${where} is ${given}`;
  if (schema.type === "object") {
    if (typeof given !== "object" || given === null) return `${where} is no object`;
    for (const key of schema.required || []) if (!(key in given)) return `${where} lacks ${key}`;
    for (const [key, part] of Object.entries(given)) {
      const inner = schema.properties[key];
      if (!inner && schema.additionalProperties === false) return `${where} has the unknown key ${key}`;
      const problem = inner && inner.type ? wrong(inner, part, `${where}.${key}`, root) : "";
      if (problem) return problem;
    }
    return "";
  }
  if (schema.type === "array") {
    if (!Array.isArray(given) || given.length !== schema.minItems) return `${where} has the wrong length`;
    for (let i = 0; i < given.length; i++) {
      const problem = wrong(schema.prefixItems ? schema.prefixItems[i] : schema.items, given[i], `${where}[${i}]`, root);
      if (problem) return problem;
    }
    return "";
  }
  if (schema.type === "string") return typeof given === "string" && given.length ? "" : `${where} is no text`;
  if (schema.type === "integer" && !Number.isInteger(given)) return `${where} is no whole number`;
  return given >= schema.minimum && given <= schema.maximum ? "" : `${where} is ${given}, out of range`;
}

async function main() {
  const socket = new Request({ receiveTimeout: 20000, linger: 0 });
  socket.connect(endpoint);
  const ask = async (request) => {
    await socket.send(JSON.stringify(request));
    const [answer] = await socket.receive();
    return JSON.parse(answer.toString());
  };
  const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
  const { env_id, schema } = await ask({ call: "describe" });
  const tables = schema.$defs;
  const early = await ask({ call: "step", action: { env_id, frame_no: 0, action: value(tables.table_2.properties.action, 0) } });
  say({ early: early.error.code });
  let { observation } = await ask({ call: "reset", options: { seed: Number(seed) } });
  say({ frame_no: observation.frame_no, wrong: wrong(tables.table_1, observation, "table 1", schema), seen: observation.observation });
  for (let step = 1; step <= Number(steps) && !observation.terminated && !observation.truncated; step++) {
    const action = value(tables.table_2.properties.action, (step % 5) / 10);
    const request = { env_id, frame_no: observation.frame_no, action };
    const stale = await ask({ call: "step", action: { ...request, frame_no: observation.frame_no + 1 } });
    const answer = await ask({ call: "step", action: request });
    observation = answer.observation;
    say({
      frame_no: observation.frame_no, seen: observation.observation, reward: answer.reward.reward, action,
      stale: stale.observation.extra_info.error.code,
      error: observation.extra_info && observation.extra_info.error,
      wrong: wrong(tables.table_1, observation, "table 1", schema) || wrong(tables.table_3, answer.reward, "table 3", schema),
    });
  }
  if (!observation.terminated && !observation.truncated) {
    const ended = (await ask({ call: "end", reason: "the agent has seen enough" })).observation;
    say({ ended: ended.truncated, by: ended.extra_info.truncated_by });
  }
  say(await ask({ call: "close" }));
  socket.close();
}

main().catch((error) => { console.error(error); process.exit(1); });
