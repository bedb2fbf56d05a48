// A client of the wire for Node, written from docs/wire.md alone. It uses zeromq 6 and @msgpack/msgpack 3.
//
// node node_client.cjs ADDRESS STEPS [SERVER_KEY PUBLIC_KEY SECRET_KEY]
//
// STEPS is a JSON list of commands, each a map of field to values. Prints a JSON line for each answer, then stops the robot.
const { Dealer } = require("zeromq");
const { encode, decode } = require("@msgpack/msgpack");

const KIND = { HELLO: 1, RESET: 2, STEP: 3, STOP: 4, RELEASE: 5, STATUS: 7 };
const NAME = { 16: "WELCOME", 17: "READING", 18: "EVENT", 19: "ERROR", 20: "DONE", 21: "MISMATCH" };
const MSGPACK = { useBigInt64: true };

// -- rows: fields by falling element size, each little-endian, without padding

const SIZE = (field) => Number(field.dtype.match(/\d+$/)[0]) / 8;
const COUNT = (field) => field.shape.reduce((product, number) => product * Number(number), 1);

function accessor(field, verb) {
  const kind = { f: "Float", i: "Int", u: "Uint" }[field.dtype[0]];
  return verb + (SIZE(field) === 8 && kind !== "Float" ? "Big" : "") + kind + 8 * SIZE(field);
}

function layout(fields, offset = 0) {
  const places = [...fields].sort((a, b) => SIZE(b) - SIZE(a)); // stable
  return places.map((field) => {
    const place = { field, offset };
    offset += SIZE(field) * COUNT(field);
    return place;
  });
}

const rowSize = (fields) => fields.reduce((sum, field) => sum + SIZE(field) * COUNT(field), 0);

function pack(fields, values) {
  const view = new DataView(new ArrayBuffer(rowSize(fields)));
  for (const { field, offset } of layout(fields)) {
    const big = accessor(field, "set").includes("Big");
    [values[field.name]].flat(Infinity).forEach((value, index) => {
      view[accessor(field, "set")](offset + index * SIZE(field), big ? BigInt(value) : value, true);
    });
  }
  return new Uint8Array(view.buffer);
}

function unpack(fields, row, start) {
  const view = new DataView(row.buffer, row.byteOffset, row.byteLength), values = {};
  for (const { field, offset } of layout(fields, start)) {
    const read = (index) => Number(view[accessor(field, "get")](offset + index * SIZE(field), true));
    values[field.name] = Array.from({ length: COUNT(field) }, (_, index) => read(index));
  }
  return values;
}

// -- messages: [version, kind, session, sequence, times, detail, first]

const now = () => process.hrtime.bigint();

class Client {
  constructor(address, keys) {
    this.socket = new Dealer({ linger: 0, receiveTimeout: 20000, ...keys });
    this.socket.connect(address);
    this.session = 0n;
    this.sequence = 0;
    this.shift = null; // the server's clock minus ours, nanoseconds
  }

  async ask(kind, detail, row = null) {
    this.sequence += 1;
    const asked = now();
    const times = kind === KIND.STEP ? asked + this.shift : null;
    await this.socket.send(encode([4, kind, this.session, this.sequence, times, detail, row], MSGPACK));
    for (;;) {
      const frames = await this.socket.receive();
      const [version, answer, session, sequence, spans, told, first] = decode(frames[0], MSGPACK);
      if (version !== 4) throw new Error(`the server speaks version ${version}`);
      if (Number(sequence) !== this.sequence || NAME[answer] === "EVENT") continue;
      if (NAME[answer] === "ERROR") throw new Error(`${told[0]}: ${told[2]}`);
      this.shift = BigInt(spans[1]) - (asked + now()) / 2n;
      return { kind: NAME[answer], session, detail: told, raw: first ?? frames[1] };
    }
  }

  async hello() {
    const detail = { digest: "", name: "node", move: true, replaces: 0, take: "no", resume: false };
    const { kind, session, raw } = await this.ask(KIND.HELLO, detail);
    if (kind !== "WELCOME") throw new Error(kind);
    this.session = BigInt(session);
    this.spec = decode(raw); // a map of plain values
  }

  state({ kind, raw }) {
    const { sensors, commands } = this.spec;
    const applied = unpack(commands.fields, raw, rowSize(sensors.fields));
    return { kind, sensors: unpack(sensors.fields, raw, 0), applied };
  }

  reset = async () => this.state(await this.ask(KIND.RESET, { options: { seed: 7 }, deadline_s: 30 }));
  step = async (command) => this.state(await this.ask(KIND.STEP, null, pack(this.spec.commands.fields, command)));
  stop = async (reason) => await this.ask(KIND.STOP, { reason, orderly: false });
}

async function main([address, steps, server, own, secret]) {
  const bytes = (text) => z85(Buffer.from(text, "hex"));
  const keys = server ? { curveServerKey: bytes(server), curvePublicKey: bytes(own), curveSecretKey: bytes(secret) } : {};
  const client = new Client(address, keys);
  await client.hello();
  console.log(JSON.stringify({ kind: "WELCOME", name: client.spec.name, rate_hz: client.spec.rate_hz }));
  console.log(JSON.stringify(await client.reset()));
  for (const command of JSON.parse(steps)) console.log(JSON.stringify(await client.step(command)));
  console.log(JSON.stringify({ kind: (await client.stop("a hand from Node")).kind }));
  client.socket.close();
}

// -- keys: 32 bytes as the 40 characters of Z85 (ZeroMQ RFC 32)

function z85(bytes) {
  const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
  let text = "";
  for (let at = 0; at < bytes.length; at += 4) {
    let value = bytes.readUInt32BE(at);
    const five = [];
    for (let k = 0; k < 5; k += 1, value = Math.floor(value / 85)) five.unshift(digits[value % 85]);
    text += five.join("");
  }
  return text;
}

main(process.argv.slice(2)).then(() => process.exit(0), (error) => {
  console.error(String(error));
  process.exit(1);
});
