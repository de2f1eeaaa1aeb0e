/**
 * The thread in which a lane is simulated: the simulator as wasm, and one lane's run in it.
 *
 * Invariant: each request gets one response, an error in words when it fails. During a run, other
 * requests are served between its slices, and a newer run ends an older one. Deliberately
 * absent: the page and the network; the page sends the compiled module.
 */

import init, { Lane, check, complete } from 'tollgate';
import { Damaged, readLog } from './log-reader.js';

/** @type {(module: WebAssembly.Module) => void} */
let begin;
/** The page sends the compiled module before the first response. */
const ready = new Promise((resolve) => {
  begin = (module) => resolve(init({ module_or_path: module }));
});

/** The approximate length of a slice of a run, in milliseconds; then other requests run. */
const SLICE = 25;
/** The interval of progress reports. */
const TELL = 100;

/** @type {Lane|null} the last finished run */
let lane = null;
let generation = 0;

const breathe = () =>
  new Promise((resolve) => {
    setTimeout(resolve, 0);
  });

const calls = {
  /** @param {string} text @param {string} surface */
  check: (text, surface) => JSON.parse(check(text, surface)),

  /** @param {string} text @param {number} offset */
  complete: (text, offset) => JSON.parse(complete(text, offset)),

  /**
   * Runs the traffic under the policy, and keeps the run for `series` and `at`.
   * @param {string} policy @param {string} traffic @param {number} seed
   * @param {(value: unknown) => void} tell
   */
  async run(policy, traffic, seed, tell) {
    generation += 1;
    const mine = generation;
    const running = new Lane(policy, traffic, BigInt(seed));
    let budget = 2_000;
    let span = 1;
    let told = performance.now();
    for (;;) {
      const began = performance.now();
      const progress = JSON.parse(running.step(budget));
      span = progress.length_ms;
      if (progress.done) break;
      const took = performance.now() - began;
      budget = Math.max(500, Math.min(200_000, Math.round((budget * SLICE) / Math.max(took, 1))));
      if (performance.now() - told > TELL) {
        tell(progress);
        told = performance.now();
      }
      await breathe();
      if (mine !== generation) {
        running.free();
        throw new Error('superseded');
      }
    }
    lane?.free();
    lane = running;
    return { table: JSON.parse(lane.table()), watched: JSON.parse(lane.watched()), span };
  },

  /**
   * Replays an access log under the policy, and reads it again where limits are suggested.
   * @param {string} policy @param {Blob} file @param {import('./log-drop.js').LogOptions} options
   * @param {(value: unknown) => void} tell
   */
  async replay(policy, file, options, tell) {
    generation += 1;
    const mine = generation;
    const { Log } = await import('./logs.js');
    // The author of a log must not be able to choose keys that collide.
    const secret = [...crypto.getRandomValues(new Uint8Array(16))]
      .map((byte) => byte.toString(16).padStart(2, '0'))
      .join('');
    const log = new Log(policy, JSON.stringify({ ...options, private_key: secret }));
    const size = options.suggest ? 2 * file.size : file.size;
    const readFrom = (/** @type {number} */ before) =>
      readLog(
        file,
        (piece) => log.push(piece),
        (read) => tell({ read: before + read, size }),
        () => mine === generation,
      ).then(
        () => '',
        (error) => {
          if (!(error instanceof Damaged)) throw error;
          return error.message;
        },
      );
    try {
      const damage = await readFrom(0);
      if (options.suggest) {
        log.again();
        await readFrom(file.size);
      }
      // As the command does: the part before is reported.
      return { summary: JSON.parse(log.finish()), damage };
    } finally {
      log.free();
    }
  },

  /** @param {string[]} names @param {number} buckets */
  series(names, buckets) {
    return Object.fromEntries(names.map((name) => [name, finished().series(name, buckets)]));
  },

  /** @param {number} at_ms @param {number|null} index a request that may be the one */
  request(at_ms, index) {
    const run = finished();
    if (index !== null) {
      const given = JSON.parse(run.at(index));
      if (given && given.at_ms === at_ms) return given;
    }
    const near = run.near(at_ms);
    return near === undefined ? null : JSON.parse(run.at(near));
  },

  /** @param {number} index */
  at: (index) => JSON.parse(finished().at(index)),
};

function finished() {
  if (!lane) throw new Error('there is no run yet');
  return lane;
}

self.addEventListener('message', async ({ data: { module, id, call, args } }) => {
  if (module) {
    begin(module);
    return;
  }
  try {
    await ready;
    const tell = (/** @type {unknown} */ progress) => self.postMessage({ id, progress });
    const asked = /** @type {Record<string, (...args: any[]) => unknown>} */ (calls)[call];
    const value = await asked(...args, tell);
    self.postMessage({ id, value });
  } catch (error) {
    // A trap leaves the module in an unusable state: the page starts another thread. A message
    // reports it, because no event reports an error thrown by an asynchronous function.
    const isBroken = error instanceof WebAssembly.RuntimeError;
    self.postMessage({ id, isBroken, error: error instanceof Error ? error.message : String(error) });
  }
});
