// In front of the shipped Worker, for `worker_cases.rs`: the test's clock, and an origin.
//
// It changes the runtime, never the Worker: Date.now is the time in the request (`x-at`), a request that would
// sleep wakes at once with the clock that much later, and the origin repeats the mark that it received.
// Where the clock never goes back (`x-alarms`), an alarm rings before the next call of its object, which
// proves that the deleted state is idle.
//
// One request at a time: the clock is one for all. A request with a number (`x-event`) runs on until another one ends it
// (`x-ends`), which has its response when the Worker has done what the end requires, or until a time of a request that
// waits (`x-ends-meanwhile`).
import Tollgate, { Limiter as Shipped } from "./entry.mjs";

/** An alarm is set for at least a day later: rung ten seconds after that, it finds counts in every state. */
const EARLY_MS = 86_400_000 - 10_000;

/** A timer of an hour or more is of a request that runs on, and none rings. */
const ENDLESS_MS = 3_600_000;

let now = 0;
let ringsAlarms = false;
let waits = [];
let rang = 0;
let calls = 0;
let asked = 0; // objects that have not replied yet
let slept = false; // since the last call of an object
let meanwhile = []; // times, and the requests that end then

Date.now = () => now;

const realSetTimeout = globalThis.setTimeout;
globalThis.setTimeout = (callback, milliseconds, ...rest) => {
  // A time limit during a call of an object is the platform's and never ends.
  if (asked > 0 || milliseconds >= ENDLESS_MS) return realSetTimeout(callback, milliseconds, ...rest);
  now += milliseconds;
  // A long wait sleeps in pieces without a decision between them: its client sees one wait.
  if (slept) waits[waits.length - 1] += milliseconds;
  else waits.push(milliseconds);
  slept = true;
  const ends = [];
  while (meanwhile.length > 0 && meanwhile[0][0] <= now) ends.push(...meanwhile.shift()[1]);
  if (ends.length > 0) end(ends).then(() => callback(...rest));
  else queueMicrotask(() => callback(...rest)); // a timer takes a millisecond, and long waits have hundreds of pieces
  return 0;
};

const MARK = "x-over-limit";

globalThis.fetch = async (request) => {
  const headers = { "x-origin": "yes", "content-type": "text/plain" };
  const mark = request.headers.get(MARK);
  if (mark !== null) headers[MARK] = mark;
  const actual = request.headers.get("x-show-actual");
  if (actual !== null) headers["x-actual"] = actual;
  for (const [name, shown] of SHOWN) {
    const value = request.headers.get(name);
    if (value !== null) headers[shown] = value;
  }
  const event = request.headers.get("x-event");
  const atOnce = event === null ? "origin\n" : until(() => mayEnd.has(event), request.headers.get("x-pieces"));
  const body = request.method === "HEAD" ? null : atOnce;
  return new Response(body, { status: Number(request.headers.get("x-status")), headers, encodeBody: "manual" });
};

/** Headers of a request, and those of its response that repeat them. */
const SHOWN = [
  ["accept-encoding", "x-accepts"],
  ["x-body-type", "content-type"],
  ["x-body-encoding", "content-encoding"],
];

/** Requests whose responses may end, and those whose ends are settled. */
const mayEnd = new Set();
const ended = new Set();

const moment = () => new Promise((resolve) => realSetTimeout(resolve, 1));

/** Ends requests, one after the other. */
async function end(events) {
  for (const event of events) {
    mayEnd.add(event);
    while (!ended.has(event)) await moment();
  }
}

/** A body of these pieces (Base64, with commas), whose last one comes when `isTime`. */
function until(isTime, pieces) {
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const all = pieces === "" ? [] : pieces.split(",").map(bytes);
  // A stream of bytes, as every body from the network is: the Worker reads it into its own buffers.
  return new ReadableStream({
    type: "bytes",
    async pull(controller) {
      while (all.length < 2 && !isTime()) await moment();
      if (all.length > 0) controller.enqueue(all.shift());
      if (all.length > 0) return;
      controller.close();
      controller.byobRequest?.respond(0);
    },
  });
}

/** Resolves when all of these have, with those that are added meanwhile. */
async function settled(promises) {
  for (let i = 0; i < promises.length; i += 1) await Promise.allSettled([promises[i]]);
}

async function counted(call) {
  asked += 1;
  calls += 1;
  slept = false;
  try {
    return await call();
  } finally {
    asked -= 1;
  }
}

const counting = (objects) => ({
  getByName: (name) => {
    const object = objects.getByName(name);
    return {
      check: (request) => counted(() => object.check(request)),
      refund: (request, reply) => counted(() => object.refund(request, reply)),
    };
  },
});

export default class extends Tollgate {
  constructor(ctx, env) {
    super(ctx, { ...env, LIMITER: counting(env.LIMITER) });
  }

  async fetch(request) {
    now = Number(request.headers.get("x-at"));
    const ends = request.headers.get("x-ends");
    if (ends !== null) {
      await end(ends.split(","));
      return new Response("ended");
    }
    ringsAlarms = request.headers.get("x-alarms") === "yes";
    waits = [];
    calls = 0;
    slept = false;
    rang = 0;
    meanwhile = JSON.parse(request.headers.get("x-ends-meanwhile") ?? "[]");
    const response = await this.#run(request);
    response.headers.set("x-waits", JSON.stringify(waits));
    response.headers.set("x-rang", String(rang));
    response.headers.set("x-calls", String(calls));
    return response;
  }

  /** The response, after which the request may run on. */
  async #run(request) {
    const event = request.headers.get("x-event");
    if (event === null) return super.fetch(request);
    const { ctx } = this;
    const lasting = [];
    const waitUntil = ctx.waitUntil.bind(ctx);
    ctx.waitUntil = (promise) => {
      lasting.push(promise);
      waitUntil(promise);
    };
    const response = await super.fetch(request);
    waitUntil(settled(lasting).then(() => ended.add(event)));
    return response;
  }
}

export class Limiter extends Shipped {
  async check(request) {
    const storage = this.ctx.storage;
    const alarm = ringsAlarms ? await storage.getAlarm() : null;
    if (alarm !== null && alarm - EARLY_MS <= now) {
      rang += 1;
      await storage.deleteAlarm();
      await this.alarm();
    }
    return super.check(request);
  }
}
