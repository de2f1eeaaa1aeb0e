// The module that Workers run: `main` of wrangler.toml, and the main module under plain workerd.
//
// It adds what wasm cannot express itself: the classes that the platform calls, the policy as a text module, and a
// watch over the wasm instance, because an abort (a panic, an exception of the runtime) leaves the promises that the
// instance had in flight unsettled: their requests would hang.
//
// Invariant: every call into wasm reaches an instance that works, and a request ends when its instance does. After an
// abort objects are created again and read their state from their storage. Nothing is decided here.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as wasm from "./build/index.js"; // wasm-bindgen's output with its modules in it: crates/xtask/src/build/worker.rs
import policy from "./policy.json"; // a text module: wrangler.toml [[rules]]
import compiled from "./build/policy.mjs"; // the same, compiled when this was built; as text, which every bundler takes

// Read by the wasm once per instance; a variable of the environment holds 5 KB, a policy up to 1 MiB.
globalThis.tollgatePolicy = policy;
globalThis.tollgateCompiled = compiled;

// Receives the outcomes of promises that wasm waits for. It is a function of the module and not a closure of wasm,
// which would belong to the instance that made it.
globalThis.tollgateSettled = wasm.settled;

// Receives the bytes of bodies that are scanned. Never throws: the body passes on, and its cost stays an estimate.
globalThis.tollgateScan = (number, bytes) => {
  try {
    wasm.scanBody(number, bytes);
  } catch (error) {
    failed(error);
  }
};

// Full stack traces in the log: names.mjs gives the functions their names.
Error.stackTraceLimit = 100;

/** One entry for each request that waits for the instance. */
const underWay = new Set();

// The crate `worker` increases `instanceId` whenever an instance starts: requests that wait for the previous one are
// notified.
const state = wasm.__worker_init_state();
let instanceId = state.instanceId;
Object.defineProperty(state, "instanceId", {
  get: () => instanceId,
  set(id) {
    instanceId = id;
    for (const abort of underWay) abort();
  },
});

/** Replaces the instance if it was aborted: wasm-bindgen does that on the next call, whichever that is. It must not be a
 * method of an object of the old instance, so it is always this one. */
function ensureInstance() {
  try {
    wasm.__worker_init_state();
  } catch {
    // The instance could not even report that it must be replaced.
    wasm.__wbg_reset_state();
  }
}

/** Called after any error that may have aborted the instance, so that no request waits for it. */
function failed(error) {
  const before = instanceId;
  try {
    ensureInstance();
  } catch (why) {
    console.error("tollgate: there is no wasm instance:", why?.message);
  }
  if (instanceId !== before) console.error("tollgate: wasm was aborted and started anew:", error);
}

// What happens between two calls from outside.
addEventListener("error", (event) => failed(event.error));
addEventListener("unhandledrejection", (event) => failed(event.reason));

/** The result of `step`, which calls into wasm. */
function inWasm(step) {
  try {
    ensureInstance();
    return step();
  } catch (error) {
    failed(error);
    throw error;
  }
}

const ABORTED = Symbol("aborted");

/** The result of `ask`, or, when it returns `undefined`, of its later callback; or the result of `failure` as soon as the
 * wasm instance is replaced. That is created here and not by the request that notices the abort: a response belongs to the
 * request that created it. */
async function guarded(ask, failure) {
  let settle;
  try {
    const atOnce = inWasm(() => ask((answer) => settle(answer)));
    if (atOnce !== undefined) return atOnce;
  } catch (error) {
    console.error("tollgate: a request failed:", error?.message);
    return failure();
  }
  const abort = () => settle(ABORTED);
  underWay.add(abort);
  const answer = await new Promise((resolve) => (settle = resolve));
  underWay.delete(abort);
  return answer === ABORTED ? failure() : answer;
}

const PROBLEM = '{"type":"about:blank","title":"Internal Server Error","status":500}';

function internalError() {
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store" };
  return new Response(PROBLEM, { status: 500, headers });
}

export default class Tollgate extends WorkerEntrypoint {
  fetch(request) {
    return guarded((answer) => wasm.fetch(request, this.env, this.ctx, answer), internalError);
  }

  /** The response of `POST /check` to `asked` with status 200, as a value; else an error with the response. */
  check(asked) {
    return this.#answered(wasm.check, asked);
  }

  /** The same for `POST /check/settle`: the settlement of the cost of the request with this id. */
  settle(id, cost) {
    return this.#answered(wasm.settle, { id, cost });
  }

  /** The same for `POST /check/renew`: the request in flight with this id still runs. */
  renew(id) {
    return this.#answered(wasm.renew, { id });
  }

  /** The same for `POST /check/done`: it has ended. */
  done(id) {
    return this.#answered(wasm.done, { id });
  }

  async #answered(call, asked) {
    const body = JSON.stringify(asked) ?? "";
    const [status, answer] = await guarded((tell) => call(body, this.env, this.ctx, tell), () => [500, PROBLEM]);
    if (status === 200) return JSON.parse(answer);
    const { title, detail, errors = [] } = JSON.parse(answer);
    const each = errors.map(({ path, detail }) => (path === "" ? detail : `${path}: ${detail}`));
    const said = [`${status} ${title}`, ...(detail === undefined ? [] : [detail]), ...each].join("; ");
    throw status < 500 ? new TypeError(said) : new Error(said);
  }
}

/** The part of a Durable Object that is in wasm: created with the object's storage at its first call, and again after an
 * abort, when it reads its state again. Every step is synchronous in wasm, so an abort there throws at the caller instead
 * of leaving it waiting. */
class Half {
  #make;
  #made;
  #madeBy; // the instance that `#made` belongs to

  constructor(make) {
    this.#make = make;
  }

  run(step) {
    return inWasm(() => {
      if (this.#madeBy !== instanceId) {
        this.#made = this.#make();
        this.#madeBy = instanceId;
      }
      return step(this.#made);
    });
  }

  /** The same as one write: all of it or, on failure, nothing. The part in wasm is created again then, because it may
   * remember data that were not written. */
  runWhole(storage, step) {
    try {
      return this.run((made) => storage.transactionSync(() => step(made)));
    } catch (error) {
      this.#madeBy = undefined;
      throw error;
    }
  }
}

/** Relaxed counts are written this long after the first unwritten one, with all later ones. */
const SAVE_AFTER_MS = 50;

/** The outcomes of `KeyShard` for a request, and the modes of a call: wasm has the same numbers. */
const REFUSED = 1;
const ASK = 2;
const WAIT = 3;
const NOTHING = 4;
const [WAITS, ASKS, IN_HAND] = [0, 1, 2];
/** The number of times that a request waits for the calls of others, before it makes its own. */
const MOST_WAITS = 3;
/** The longest wait for the key's own object. */
const REPLY_WITHIN_MS = 5_000;

/** One shard of a hot key. It pays requests from the units that it leased of the key's own object, and asks that object for
 * the others. It stores nothing. */
class Shard {
  #half = new Half(() => new wasm.KeyShard());
  #objects;
  #waiting = new Set();
  #underWay = 0; // questions
  #timer;

  constructor(env) {
    this.#objects = () => (this.#objects = inWasm(() => wasm.entryObjects(env, true)));
  }

  /** Whether the request is denied, and the reply; neither where only held units may be used and they are not enough. */
  async check(name, request, mode = WAITS) {
    for (let waits = 0; ; waits++) {
      const asks = mode === WAITS && waits === MOST_WAITS ? ASKS : mode;
      const [what, value, dueIn] = this.#half.run((shard) => shard.check(request, asks));
      if (what === NOTHING) return undefined;
      if (what === ASK) return await this.#ask(name, value);
      if (what === WAIT) {
        await this.#turn(value);
        continue;
      }
      if (name !== undefined) this.#look(name, dueIn);
      return [what === REFUSED, value];
    }
  }

  async refund(name, request, reply) {
    return this.#half.run((shard) => shard.refund(request, reply)) ?? (await this.#keyObject(name).refund(request, reply));
  }

  /** Returns the held units. */
  async close(name) {
    this.#half.run((shard) => shard.close());
    const due = this.#half.run((shard) => shard.due());
    if (due !== undefined) await this.#ask(name, due);
  }

  #keyObject(name) {
    const objects = typeof this.#objects === "function" ? this.#objects() : this.#objects;
    return objects.getByName(name);
  }

  async #ask(name, question) {
    let reply;
    this.#underWay++;
    try {
      reply = await within(REPLY_WITHIN_MS, this.#keyObject(name).check(question));
    } finally {
      this.#underWay--;
      const [what, value, dueIn] = this.#half.run((shard) => shard.applyReply(question, reply));
      for (const wake of this.#waiting) wake();
      this.#look(name, dueIn);
      reply &&= [what === REFUSED, value];
    }
    return reply;
  }

  /** Leases more units, or returns the remaining ones, when due. One request at a time: a waiting client asks, too. */
  #look(name, dueIn) {
    if (dueIn === undefined || this.#underWay > 0) return;
    if (dueIn > 0) {
      // The state that it was set for may have changed by then, and later work may be due later.
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.#look(name, this.#half.run((shard) => shard.due_in()));
      }, dueIn);
      return;
    }
    this.#askAhead(name);
  }

  #askAhead(name) {
    const due = this.#half.run((shard) => shard.due());
    // After a failure the next request asks again; else the lease of the held units ends.
    if (due !== undefined) this.#ask(name, due).catch((error) => console.warn("tollgate: a shard asked in vain:", error?.message));
  }

  /** Until a reply arrived, or for at most this long. */
  async #turn(milliseconds) {
    let wake;
    let timer;
    await new Promise((resolve) => {
      this.#waiting.add((wake = resolve));
      timer = setTimeout(resolve, milliseconds);
    });
    this.#waiting.delete(wake);
    clearTimeout(timer);
  }
}

/** One partition key: its state and the decisions on it. Or a shard of one, which has no state. */
export class Limiter extends DurableObject {
  #half = new Half(() => new wasm.Limiter(this.ctx.storage, () => this.#saveSoon()));
  #isSaving = false;
  #shard;

  /** The result of a shard of the key whose object has the name `name`: whether it denies, and its reply. */
  spend(name, request) {
    return (this.#shard ??= new Shard(this.env)).check(name, request);
  }

  /** The same where only held units may be used: the reply, or nothing. */
  async spendInHand(request) {
    const said = await this.#shard?.check(undefined, request, IN_HAND);
    return said?.[1];
  }

  putBack(name, request, reply) {
    return (this.#shard ??= new Shard(this.env)).refund(name, request, reply);
  }

  /** Makes a shard return its held units. */
  async close(name) {
    await this.#shard?.close(name);
  }

  #saveSoon() {
    if (this.#isSaving) return;
    this.#isSaving = true;
    setTimeout(() => {
      this.#isSaving = false;
      try {
        this.#half.run((limiter) => limiter.save());
      } catch (error) {
        console.error("tollgate: counts could not be saved:", error?.message);
      }
    }, SAVE_AFTER_MS);
  }

  check(request) {
    return this.#half.run((limiter) => limiter.check(request));
  }

  refund(request, reply) {
    return this.#half.run((limiter) => limiter.refund(request, reply));
  }

  operate(request) {
    return this.#half.run((limiter) => limiter.operate(request));
  }

  /** Keeps the entry of the tenant that the key is. */
  take(entry) {
    return this.#half.run((limiter) => limiter.take(entry));
  }

  alarm() {
    return this.#half.run((limiter) => limiter.alarm());
  }
}

/** One object for the whole deployment: the policy that was set at run time, the earlier ones, and the history of changes. */
export class Policies extends DurableObject {
  #half = new Half(() => new wasm.Policies(this.ctx.storage, this.env));

  call(request) {
    return this.#half.run((policies) => policies.call(request));
  }
}

/** The list's alarm sends this many entries at once. Each is in nine objects at most, and an invocation calls a thousand. */
const MOST_AT_ONCE = 100;
const AGAIN_AFTER_MS = 10_000;
/** An object that does not reply for this long has not taken the entry: an alarm that never ends would be the last one. A
 * late write does no harm, because an object takes no entry older than its own. */
const HAND_ON_WITHIN_MS = 5_000;

/** The result of `promise`, if it arrives within this time. */
function within(milliseconds, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("an object does not respond in time")), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** One tenant's entry, or the list of them all, which sends each entry to its tenant's object, and to those that count the
 * tenant alone. An object that does not take its entry does not block the entries of other tenants: a writer waits for its
 * own entry, and the alarm goes through all the others. */
export class Tenants extends DurableObject {
  #half = new Half(() => new wasm.Tenants(this.ctx.storage));
  #below = Infinity; // the alarm goes on with revisions below this one

  async call(request) {
    const reply = this.#half.runWhole(this.ctx.storage, (tenants) => tenants.call(request));
    // At once, so that the last write is the one of this call.
    if (this.#half.run((tenants) => tenants.has_written())) await this.#handOn(this.#due(Infinity));
    return reply;
  }

  #due(below) {
    return this.#half.run((list) => list.due(below));
  }

  async #handOn([revision, ...deliveries]) {
    if (revision === undefined) return; // the alarm was quicker
    const [tenants, counts] = [false, true].map((count) => this.#half.run(() => wasm.entryObjects(this.env, count)));
    const handOn = ([count, name, entry]) => (count ? counts.getByName(name).take(entry) : tenants.getByName(name).call(entry));
    await within(HAND_ON_WITHIN_MS, Promise.all(deliveries.map(handOn)));
    this.#half.run((list) => list.delivered(revision));
  }

  async alarm() {
    let isDone = false;
    try {
      this.#half.run((list) => list.alarmFired());
      isDone = await this.#handOnAll();
    } catch (error) {
      console.error("tollgate: entries of tenants are not in force yet:", error?.message);
    }
    if (!isDone) await this.ctx.storage.setAlarm(Date.now() + AGAIN_AFTER_MS);
  }

  /** Sends the due entries, as many as an invocation may; true when no entry is due any more. */
  async #handOnAll() {
    const all = [];
    const isFirst = this.#below === Infinity;
    for (let due; all.length < MOST_AT_ONCE; all.push(due)) {
      due = this.#due(this.#below);
      this.#below = due[0] ?? Infinity;
      if (this.#below === Infinity) break;
    }
    const isLast = this.#below === Infinity;
    const each = await Promise.allSettled(all.map((due) => this.#handOn(due)));
    const failed = each.find(({ status }) => status === "rejected");
    if (failed) throw failed.reason;
    return isFirst && isLast;
  }
}

/** Counts of isolates are written this long after the first unwritten one, with all later ones. */
const SAVE_METRICS_AFTER_MS = 1000;

/** The counts of all isolates. */
export class Metrics extends DurableObject {
  #half = new Half(() => new wasm.Metrics(this.ctx.storage));
  #saving; // the write that is to come

  /** Adds an isolate's counts. They are durable when this returns. */
  async add(delta) {
    const added = this.#half.run((metrics) => {
      metrics.add(delta);
      return metrics;
    });
    await (this.#saving ??= this.#saveSoon());
    // The memory of an aborted instance was not written by the next one.
    if (this.#half.run((metrics) => metrics) !== added) throw new Error("the object was started anew");
  }

  async #saveSoon() {
    await new Promise((resolve) => setTimeout(resolve, SAVE_METRICS_AFTER_MS));
    this.#saving = undefined;
    this.#half.runWhole(this.ctx.storage, (metrics) => metrics.save());
  }

  /** The sums as text, in the format of OpenMetrics or of Prometheus. */
  text(isOpen) {
    return this.#half.runWhole(this.ctx.storage, (metrics) => metrics.text(isOpen));
  }
}
