/**
 * The engine as the page calls it: promises over a worker thread.
 *
 * Invariant: no limit is computed on the main thread. A worker that traps is replaced by a new
 * one, and the calls that waited for it fail with the reason.
 */

import module from 'tollgate.wasm';

/* global WORKER_URL -- the build puts the name of the bundled worker here */

/**
 * The module, compiled once for all threads, and not on this one.
 * @returns {Promise<WebAssembly.Module>}
 */
async function compile() {
  const response = await fetch(new URL(module, import.meta.url));
  if (!response.ok) throw new Error(`the simulator could not be loaded: ${response.status}`);
  // A server that does not know the type of the file sends it with another type.
  if (response.headers.get('content-type') === 'application/wasm')
    return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}

/** @type {Promise<WebAssembly.Module>|null} */
let compiled = null;

/**
 * @typedef {object} Finding
 * @property {string} path
 * @property {number} from
 * @property {number} to
 * @property {string} message
 */

/** @param {string} trap the module's message */
const broken = (trap) =>
  `the simulator broke off (${trap}): this run may need more memory than a page gets`;

export class Engine {
  /** @type {Worker|null} */
  #worker = null;
  /** @type {Map<number, {resolve: (value: any) => void, reject: (error: Error) => void, progress?: (value: any) => void}>} */
  #waiting = new Map();
  #last = 0;
  #isOver = false;

  /**
   * Sends a request to the worker. `progress` receives its progress.
   * @param {string} call a name of `worker.js`
   * @param {unknown[]} args
   * @param {(value: any) => void} [progress]
   * @returns {Promise<any>}
   */
  ask(call, args, progress) {
    if (this.#isOver) return Promise.reject(new Error('ended'));
    const worker = (this.#worker ??= this.#start());
    this.#last += 1;
    const id = this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, progress });
      worker.postMessage({ id, call, args });
    });
  }

  /** Ends the worker; pending requests fail. A later request starts another worker. */
  stop(why = 'cancelled') {
    this.#worker?.terminate();
    this.#worker = null;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    waiting.forEach(({ reject }) => reject(new Error(why)));
  }

  /** Ends it permanently: the caller has gone, and a late request does not start a worker. */
  end() {
    this.#isOver = true;
    this.stop();
  }

  #start() {
    const worker = new Worker(new URL(WORKER_URL, import.meta.url), { type: 'module' });
    worker.addEventListener('message', ({ data }) => {
      const asked = this.#waiting.get(data.id);
      if (!asked) return;
      if (data.isBroken) {
        if (this.#worker === worker) this.stop(broken(data.error));
        return;
      }
      if ('progress' in data) {
        asked.progress?.(data.progress);
        return;
      }
      this.#waiting.delete(data.id);
      if ('error' in data) asked.reject(new Error(data.error));
      else asked.resolve(data.value);
    });
    // A module that trapped or could not be loaded ends the worker.
    worker.addEventListener('error', (event) => {
      event.preventDefault();
      if (this.#worker === worker) this.stop(event.message || 'the simulator could not be loaded');
    });
    compiled ??= compile();
    compiled.then(
      (compiledModule) => worker.postMessage({ module: compiledModule }),
      (error) => {
        compiled = null; // the next request tries again
        if (this.#worker === worker)
          this.stop(error instanceof Error ? error.message : String(error));
      },
    );
    return worker;
  }
}
