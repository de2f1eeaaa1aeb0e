// The shipped Worker in Node, under a clock and a platform of the test: `node worker_clock.mjs <folder>`.
//
// It loads the same entry.mjs and the same wasm that are deployed; this file replaces the runtime:
// Date.now, the module cloudflare:workers, and Durable Objects over SQLite, with alarms that ring when
// they are due and eviction from memory on the test's request. The Worker itself has no way to set
// its clock.
//
// First line in: the policy. Then one line each, {"at_ms","evict","check"}, answered by the body of POST /check.
// After the last line: how many alarms rang, and how often an object's storage was deleted.
import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const policy = (await lines.next()).value;

// The Worker's log goes to stderr: stdout has responses only.
const say = console.log.bind(console);
console.log = console.error;

const platform = `
  export class DurableObject { constructor(ctx, env) { this.ctx = ctx; this.env = env; } }
  export class WorkerEntrypoint { constructor(ctx, env) { this.ctx = ctx; this.env = env; } }`;
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "cloudflare:workers" ? { url: specifier, shortCircuit: true } : next(specifier, context),
  load(url, context, next) {
    const module = (source) => ({ format: "module", source, shortCircuit: true });
    if (url === "cloudflare:workers") return module(platform);
    if (url.endsWith("/policy.json")) return module(`export default ${JSON.stringify(policy)};`);
    if (url.endsWith("/build/policy.mjs")) return module(`export default "";`);
    if (!url.endsWith(".wasm")) return next(url, context);
    const path = JSON.stringify(new URL(url).pathname);
    return module(`import { readFileSync } from "node:fs";
      export default new WebAssembly.Module(readFileSync(${path}));`);
  },
});
globalThis.addEventListener = () => {};

let now = 0;
Date.now = () => now;
const count = { alarms: 0, deletions: 0 };

/** ctx.storage of one object: the state that remains after its memory is lost. */
class Storage {
  alarm = null;
  #database = new DatabaseSync(":memory:");

  sql = {
    exec: (query, ...bindings) => {
      const rows = this.#database.prepare(query).all(...bindings);
      // As the platform does: values by column, blobs as ArrayBuffer.
      const value = (v) => (v instanceof Uint8Array ? v.slice().buffer : v);
      return { raw: () => rows.map((row) => Object.values(row).map(value))[Symbol.iterator]() };
    },
  };

  async setAlarm(date) {
    // At least a day, which is too long for a test: only the time is replaced, not the object's alarm.
    this.alarm = Math.min(date.getTime(), now + 10_000);
  }

  async deleteAll() {
    count.deletions += 1;
    this.alarm = null;
    this.#database.close();
    this.#database = new DatabaseSync(":memory:");
  }
}

const { default: Tollgate, Limiter } = await import(pathToFileURL(`${process.argv[2]}/entry.mjs`));

const storages = new Map();
const inMemory = new Map();

function object(name) {
  if (!storages.has(name)) storages.set(name, new Storage());
  if (!inMemory.has(name)) inMemory.set(name, new Limiter({ storage: storages.get(name) }, {}));
  return inMemory.get(name);
}

async function ringAlarms(until) {
  for (const [name, storage] of storages) {
    while (storage.alarm !== null && storage.alarm <= until) {
      now = storage.alarm;
      storage.alarm = null;
      count.alarms += 1;
      await object(name).alarm();
    }
  }
}

const env = {
  LIMITER: {
    getByName: (name) => ({
      check: async (request) => object(name).check(structuredClone(request)),
      refund: async (request, reply) => object(name).refund(structuredClone(request), structuredClone(reply)),
    }),
  },
};

for await (const line of lines) {
  const { at_ms, evict, check } = JSON.parse(line);
  await ringAlarms(at_ms);
  now = at_ms;
  if (evict) inMemory.clear();
  const request = new Request("https://tollgate.example/check", { method: "POST", body: JSON.stringify(check) });
  const response = await new Tollgate({}, env).fetch(request);
  say(await response.text());
}
say(JSON.stringify({ ...count, objects: storages.size }));
