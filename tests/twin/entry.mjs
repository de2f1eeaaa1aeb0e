// The main module of the Worker's twins: the classes that the platform calls, and nothing else.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as wasm from "./build/index.js";

export default class Twin extends WorkerEntrypoint {
  fetch(request) {
    return wasm.fetch(request, this.env, this.ctx);
  }
}

export class Limiter extends DurableObject {
  #made = new wasm.Limiter(this.ctx.storage);

  count(request) {
    return this.#made.count(request);
  }

  upsert(request) {
    return this.#made.upsert(request);
  }
}
