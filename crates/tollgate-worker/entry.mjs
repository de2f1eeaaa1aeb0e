// The module that Workers run: `main` of wrangler.toml, and the main module under plain workerd.
//
// It adds what wasm cannot express itself: a Durable Object class whose methods can be called by RPC,
// the policy as a text module, and a guard, because a Rust panic aborts the wasm instance and the promises that
// instance had under way would never settle: their requests would hang.
//
// It decides nothing. After a panic worker-build's shim makes a new instance for the next call; objects
// read their state again from their storage.
import { DurableObject } from "cloudflare:workers";
import * as wasm from "./build/index.js";
import policy from "./policy.json"; // a text module: wrangler.toml [[rules]]

// Read by the wasm once per instance; a variable of the environment holds 5 KB, a policy up to 1 MiB.
globalThis.tollgatePolicy = policy;

// `worker` keeps the state of the wasm instance here (which is why its version is pinned) and sets `criticalError`
// when the instance has aborted.
const instance = globalThis.__worker_init_state;
const underWay = new Set();
let aborted = instance.criticalError;
Object.defineProperty(instance, "criticalError", {
  get: () => aborted,
  set(value) {
    aborted = value;
    if (value) for (const abort of underWay) abort();
  },
});

const ABORTED = Symbol("aborted");

/** Settles like `promise`, or with a 500 as soon as the wasm instance aborts. The 500 is made here and not by whoever
 * notices the abort: a response belongs to the request that made it. */
async function guarded(promise) {
  let abort;
  const whenAborted = new Promise((resolve) => {
    abort = () => resolve(ABORTED);
  });
  underWay.add(abort);
  try {
    const response = await Promise.race([promise, whenAborted]);
    if (response !== ABORTED) return response;
  } catch (error) {
    console.error("tollgate: a request failed:", error?.message);
  } finally {
    underWay.delete(abort);
  }
  return internalError();
}

function internalError() {
  const problem = { type: "about:blank", title: "Internal Server Error", status: 500 };
  const headers = { "content-type": "application/problem+json", "cache-control": "no-store" };
  return new Response(JSON.stringify(problem), { status: 500, headers });
}

export default class Tollgate extends wasm.default {
  fetch(request) {
    return guarded(super.fetch(request));
  }
}

/** Relaxed counts are written this long after the first that is not, with all that came meanwhile. */
const SAVE_AFTER_MS = 50;

/** One partition key: its state and the decisions on it. Every method is synchronous in wasm, so an abort there
 * throws at the caller instead of leaving it waiting. */
export class Limiter extends DurableObject {
  #limiter;
  #isSaving = false;

  constructor(ctx, env) {
    super(ctx, env);
    this.#limiter = new wasm.Limiter(ctx.storage, () => this.#saveSoon());
  }

  #saveSoon() {
    if (this.#isSaving) return;
    this.#isSaving = true;
    setTimeout(() => {
      this.#isSaving = false;
      try {
        this.#limiter.save();
      } catch (error) {
        console.error("tollgate: counts could not be saved:", error?.message);
      }
    }, SAVE_AFTER_MS);
  }

  check(request) {
    return this.#limiter.check(request);
  }

  refund(request, reply) {
    return this.#limiter.refund(request, reply);
  }

  alarm() {
    return this.#limiter.alarm();
  }
}
