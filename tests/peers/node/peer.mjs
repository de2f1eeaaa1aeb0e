// One limiter of Node, driven like those of src/main.rs: `trace NAME LIMIT WINDOW_S`, `cost NAME N`
// and `memory NAME KEYS`. Their clocks and timers are faked for a trace; for the others they are
// those of the machine.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The packages are in the cache, not next to this file.
const load = createRequire(process.env.PEERS_MODULES + "/");

function limiter(name, limit, window) {
  if (name === "rate-limiter-flexible") {
    const { RateLimiterMemory } = load("rate-limiter-flexible");
    const limiter = new RateLimiterMemory({ points: limit, duration: window });
    return (key) => limiter.consume(key).then(() => true, () => false);
  }
  const { MemoryStore } = load("express-rate-limit");
  const store = new MemoryStore();
  store.init({ windowMs: window * 1000 });
  return async (key) => (await store.increment(key)).totalHits <= limit;
}

async function trace(name, limit, window) {
  const { install } = load("@sinonjs/fake-timers");
  const clock = install({ now: 1_000_000_000_000 });
  const start = clock.now;
  const admits = limiter(name, limit, window);
  let decided = "";
  for (const line of readFileSync(0, "utf8").trimEnd().split("\n")) {
    const [nanos, key] = line.split(" ");
    clock.tick(start + Math.floor(nanos / 1_000_000) - clock.now);
    decided += (await admits(key)) ? "1" : "0";
  }
  end(decided);
}

async function cost(name, count) {
  const admits = limiter(name, 1000, 60);
  for (let i = 0; i < count; i += 1) {
    if (!(await admits(`client-${i % 1000}`))) {
      throw new Error("no request is denied");
    }
  }
  const { userCPUTime, systemCPUTime } = process.resourceUsage();
  end((userCPUTime + systemCPUTime) * 1000);
}

async function memory(name, keys) {
  const admits = limiter(name, 1000, 60);
  for (let i = 0; i < keys; i += 1) {
    await admits(`client-${i}`);
  }
  globalThis.gc();
  end(process.memoryUsage().heapUsed);
}

// Writes the result and ends, whatever timers the limiter has left.
function end(result) {
  process.stdout.write(`${result}\n`, () => process.exit());
}

const [kind, name, ...numbers] = process.argv.slice(2);
await { trace, cost, memory }[kind](name, ...numbers.map(Number));
