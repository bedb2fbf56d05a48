// Read every topic of a live view by Foxglove's own client for Node, call /stop, and print all as JSON.
"use strict";

const { FoxgloveClient } = require("@foxglove/ws-protocol");
const protobuf = require("protobufjs");
const { FileDescriptorSet } = require("protobufjs/ext/descriptor");
const WebSocket = require("ws");

const client = new FoxgloveClient({ ws: new WebSocket(process.argv[2], ["foxglove.sdk.v1"]) });
const seen = { info: null, services: {}, messages: {}, stop: null };
const channels = new Map();
const wanted = ["/lifecycle", "/telemetry", "/joint_states", "/tf", "/scene", "/log", "/camera/top"];
let asked = false;

const bytes = (view) => Buffer.from(view.buffer, view.byteOffset, view.byteLength);

function decoded(channel, data) {
  if (channel.encoding === "json") return JSON.parse(data.toString());
  if (channel.encoding !== "protobuf") return { data: [...data] };
  const root = protobuf.Root.fromDescriptor(FileDescriptorSet.decode(Buffer.from(channel.schema, "base64")));
  const type = root.lookupType(channel.schemaName);
  return type.toObject(type.decode(data), { longs: Number, defaults: true });
}

function end(code, problem) {
  if (problem) console.error(problem);
  else console.log(JSON.stringify(seen));
  process.exit(code);
}

client.on("error", (error) => end(1, String(error)));
client.on("serverInfo", (info) => { seen.info = info; });
client.on("advertise", (list) => {
  for (const channel of list) channels.set(client.subscribe(channel.id), channel);
});
client.on("advertiseServices", (list) => {
  for (const service of list) seen.services[service.name] = service;
});
client.on("message", ({ subscriptionId, data }) => {
  const channel = channels.get(subscriptionId);
  seen.messages[channel.topic] = decoded(channel, bytes(data));
  if (!asked && wanted.every((topic) => topic in seen.messages) && seen.services["/stop"]) {
    asked = true;
    const data = new TextEncoder().encode(JSON.stringify({ reason: "a stranger" }));
    client.sendServiceCallRequest({
      serviceId: seen.services["/stop"].id, callId: 1, encoding: "json", data: new DataView(data.buffer),
    });
  }
  if (seen.stop && seen.messages["/lifecycle"].state === "stopped") end(0);
});
client.on("serviceCallResponse", ({ data }) => { seen.stop = JSON.parse(bytes(data).toString()); });
client.on("serviceCallFailure", (failure) => end(1, JSON.stringify(failure)));
setTimeout(() => end(1, `timeout; got ${Object.keys(seen.messages)}`), 30000);
