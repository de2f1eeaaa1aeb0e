// The module that Workers run: `main` of wrangler.toml, and the main module under plain workerd.
//
// It adds what wasm cannot express itself: the classes that the platform calls, the policy as a text module, and
// a watch over the wasm instance, because what aborts it (a panic, an exception of the runtime) leaves the promises
// that it had under way unsettled: their requests would hang.
//
// Invariant: whoever calls into wasm calls an instance that stands, and a request ends when its instance does. After
// an abort objects are made anew and read their state from their storage. Nothing is decided here.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as wasm from "./build/index.js"; // wasm-bindgen's output with its modules in it: crates/xtask/src/build/worker.rs
import policy from "./policy.json"; // a text module: wrangler.toml [[rules]]

// Read by the wasm once per instance; a variable of the environment holds 5 KB, a policy up to 1 MiB.
globalThis.tollgatePolicy = policy;

// Names of functions all the way down to where a trap was, in the log.
Error.stackTraceLimit = 100;

/** One entry for each request that waits for the instance. */
const underWay = new Set();

// The crate `worker` counts `instanceId` up whenever an instance starts: those that wait for the one before are told.
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
    // It could not even say that it is to be replaced.
    wasm.__wbg_reset_state();
  }
}

/** After any error that may have aborted the instance, so that nobody waits for it. */
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

/** What `step`, which calls into wasm, gives. */
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

/** Settles like what `ask` gives, or with what `failure` makes as soon as the wasm instance is replaced. That is made here
 * and not by whoever notices the abort: a response belongs to the request that made it. */
async function guarded(ask, failure) {
  let abort;
  const whenAborted = new Promise((resolve) => {
    abort = () => resolve(ABORTED);
  });
  try {
    const answer = inWasm(ask);
    underWay.add(abort);
    const response = await Promise.race([answer, whenAborted]);
    if (response !== ABORTED) return response;
  } catch (error) {
    console.error("tollgate: a request failed:", error?.message);
  } finally {
    underWay.delete(abort);
  }
  return failure();
}

const PROBLEM = '{"type":"about:blank","title":"Internal Server Error","status":500}';

function internalError() {
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store" };
  return new Response(PROBLEM, { status: 500, headers });
}

export default class Tollgate extends WorkerEntrypoint {
  fetch(request) {
    return guarded(() => wasm.fetch(request, this.env, this.ctx), internalError);
  }

  /** What `POST /check` answers to `asked` with status 200, as a value; else an error that says what it answers. */
  async check(asked) {
    const body = JSON.stringify(asked) ?? "";
    const [status, answer] = await guarded(() => wasm.check(body, this.env, this.ctx), () => [500, PROBLEM]);
    if (status === 200) return JSON.parse(answer);
    const { title, detail, errors = [] } = JSON.parse(answer);
    const each = errors.map(({ path, detail }) => (path === "" ? detail : `${path}: ${detail}`));
    const said = [`${status} ${title}`, ...(detail === undefined ? [] : [detail]), ...each].join("; ");
    throw status < 500 ? new TypeError(said) : new Error(said);
  }
}

/** The half of a Durable Object that is in wasm: made with the object's storage when it is first called, and anew after an
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

  /** The same as one write: all of it or, when it fails, nothing. The half is made anew then, because it may remember what
   * was not written. */
  runWhole(storage, step) {
    try {
      return this.run((made) => storage.transactionSync(() => step(made)));
    } catch (error) {
      this.#madeBy = undefined;
      throw error;
    }
  }
}

/** Relaxed counts are written this long after the first that is not, with all that came meanwhile. */
const SAVE_AFTER_MS = 50;

/** One partition key: its state and the decisions on it. */
export class Limiter extends DurableObject {
  #half = new Half(() => new wasm.Limiter(this.ctx.storage, () => this.#saveSoon()));
  #isSaving = false;

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

  alarm() {
    return this.#half.run((limiter) => limiter.alarm());
  }
}

/** One object for the whole deployment: the policy that was set at run time, those before it, and who changed what. */
export class Policies extends DurableObject {
  #half = new Half(() => new wasm.Policies(this.ctx.storage, this.env));

  call(request) {
    return this.#half.run((policies) => policies.call(request));
  }
}

/** The list hands on so many entries at once, and the others by its alarm. */
const MOST_AT_ONCE = 100;
const AGAIN_AFTER_MS = 10_000;

/** One tenant's entry, or the list of them all, which hands each on to its tenant's object. */
export class Tenants extends DurableObject {
  #half = new Half(() => new wasm.Tenants(this.ctx.storage));

  async call(request) {
    const reply = this.#half.runWhole(this.ctx.storage, (tenants) => tenants.call(request));
    if (this.#half.run((tenants) => tenants.has_written())) await this.#handOn();
    return reply;
  }

  async #handOn() {
    const objects = this.#half.run(() => wasm.tenantObjects(this.env));
    for (let i = 0; i < MOST_AT_ONCE; i++) {
      const due = this.#half.run((tenants) => tenants.due());
      if (due.length === 0) return;
      const name = new TextDecoder().decode(due.subarray(0, NAME_LENGTH));
      await objects.getByName(name).call(due.subarray(NAME_LENGTH));
      this.#half.run((tenants) => tenants.delivered(due));
    }
    throw new Error("too much is to be handed on at once");
  }

  async alarm() {
    try {
      await this.#handOn();
    } catch (error) {
      console.error("tollgate: entries of tenants are not in force yet:", error?.message);
      await this.ctx.storage.setAlarm(Date.now() + AGAIN_AFTER_MS);
    }
  }
}

/** Letters of an object's name. */
const NAME_LENGTH = 64;

/** What isolates counted is written this long after the first that is not, with all that came meanwhile. */
const SAVE_METRICS_AFTER_MS = 1000;

/** What the isolates counted. */
export class Metrics extends DurableObject {
  #half = new Half(() => new wasm.Metrics(this.ctx.storage));
  #saving; // the write that is to come

  /** Adds what an isolate counted. It is durable when this has an answer. */
  async add(delta) {
    const added = this.#half.run((metrics) => {
      metrics.add(delta);
      return metrics;
    });
    await (this.#saving ??= this.#saveSoon());
    // What an aborted instance had in memory was not written by the one after it.
    if (this.#half.run((metrics) => metrics) !== added) throw new Error("the object was started anew");
  }

  async #saveSoon() {
    await new Promise((resolve) => setTimeout(resolve, SAVE_METRICS_AFTER_MS));
    this.#saving = undefined;
    this.#half.runWhole(this.ctx.storage, (metrics) => metrics.save());
  }

  /** The sums as text: of OpenMetrics, or else of Prometheus. */
  text(isOpen) {
    return this.#half.runWhole(this.ctx.storage, (metrics) => metrics.text(isOpen));
  }
}
