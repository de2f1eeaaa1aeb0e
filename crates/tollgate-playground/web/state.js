/**
 * The state of the page: the content of a link and the input of a run. The display depends on
 * nothing else, so the same state shows the same numbers to all users.
 *
 * Invariant: a value that `stateOf` has accepted has exactly these fields, in these bounds, for any
 * link. The compiler checks whether a policy or a traffic document is valid.
 */

import { MAX_BINS, MAX_PER_BIN } from './draw-bins.js';
import { parseWindow } from './format.js';

export const MAX_LANES = 4;
export const MAX_POLICY = 262_144;
export const MAX_TRAFFIC = 65_536;
export const MAX_CLICKS = 2_000;
/** The surface that policies are compiled for, as `tollgate simulate` does by default. */
export const SURFACE = 'envoy';
export const MAX_LIMIT = 999_999_999_999_999;

/**
 * The algorithms, in the order of the policy's reference.
 * `burst`, `strict` and `buckets` are true when its quotas have that field.
 */
export const ALGORITHMS = [
  { name: 'gcra', burst: true, strict: true, buckets: false },
  { name: 'token-bucket', burst: true, strict: true, buckets: false },
  { name: 'leaky-bucket', burst: true, strict: true, buckets: false },
  { name: 'leaky-queue', burst: true, strict: true, buckets: false },
  { name: 'fixed-window', burst: false, strict: false, buckets: false },
  { name: 'sliding-window', burst: false, strict: true, buckets: false },
  { name: 'sliding-buckets', burst: false, strict: false, buckets: true },
  { name: 'sliding-log', burst: false, strict: false, buckets: false },
];

/**
 * @typedef {object} Preset
 * @property {'preset'} kind
 * @property {string} algorithm
 * @property {number} limit
 * @property {string} window
 * @property {number|null} burst null for the limit
 * @property {boolean} strict
 * @property {number|null} buckets null for the default
 *
 * @typedef {{kind: 'policy', policy: string}} Written
 * @typedef {Preset|Written} LaneState
 *
 * @typedef {{kind: 'model', json: string}} ModelTraffic
 * @typedef {{kind: 'drawn', bin_ms: number, counts: number[]}} DrawnTraffic
 * @typedef {{kind: 'live', at: number[]}} LiveTraffic
 * @typedef {ModelTraffic|DrawnTraffic|LiveTraffic} TrafficState
 *
 * @typedef {object} State
 * @property {LaneState[]} lanes one to four
 * @property {TrafficState} traffic
 * @property {number} seed 0 to 2^53 - 1
 */

/** The error of an invalid state, in words. */
export class StateError extends Error {}

/** @param {string} message @returns {never} */
function fail(message) {
  throw new StateError(`the link holds no state of this page: ${message}`);
}

/**
 * @param {string} algorithm
 * @param {number} limit
 * @param {string} window
 * @param {{burst?: number, strict?: boolean, buckets?: number}} [more]
 * @returns {Preset}
 */
export function preset(algorithm, limit, window, more = {}) {
  return {
    kind: 'preset',
    algorithm,
    limit,
    window,
    burst: more.burst ?? null,
    strict: more.strict ?? false,
    buckets: more.buckets ?? null,
  };
}

/** The algorithm of this name. @param {string} name */
export function algorithm(name) {
  return ALGORITHMS.find((one) => one.name === name);
}

/**
 * The policy of a lane. A preset counts each client by its address.
 * @param {LaneState} lane
 */
export function policyText(lane) {
  if (lane.kind === 'policy') return lane.policy;
  const kind = algorithm(lane.algorithm);
  /** @type {Record<string, unknown>} */
  const quota = { limit: lane.limit, window: lane.window, algorithm: lane.algorithm };
  if (kind?.burst && lane.burst !== null) quota.burst = lane.burst;
  if (kind?.buckets && lane.buckets !== null) quota.buckets = lane.buckets;
  if (kind?.strict && lane.strict) quota.strict = true;
  const head =
    '{\n  "version": 1,\n  "rules": [\n    {\n      "name": "each-client",\n      "key": ["client_ip"],\n';
  const fields = Object.entries(quota).map(
    ([name, value]) => `"${name}": ${JSON.stringify(value)}`,
  );
  return `${head}      "quotas": [{ ${fields.join(', ')} }]\n    }\n  ]\n}\n`;
}

/**
 * The name of a lane: its algorithm, or the first rule of its policy and the rule's algorithm.
 * @param {LaneState} lane
 */
export function laneName(lane) {
  if (lane.kind === 'preset') return lane.algorithm;
  try {
    const { rules } = JSON.parse(lane.policy);
    const [
      {
        name,
        quotas: [{ algorithm: by = 'gcra' }],
      },
    ] = rules;
    const more = rules.length > 1 ? ` and ${rules.length - 1} more` : '';
    return `${name}, ${by}${more}`.slice(0, 80);
  } catch {
    return 'your policy';
  }
}

/**
 * The state in a link.
 * @param {unknown} value
 * @returns {State}
 */
export function stateOf(value) {
  const { lanes, traffic, seed } = fields(value, 'it is not an object');
  if (!Array.isArray(lanes) || lanes.length < 1 || lanes.length > MAX_LANES) {
    fail(`it has no lanes, or more than ${MAX_LANES}`);
  }
  return {
    lanes: lanes.map(laneOf),
    traffic: trafficOf(traffic),
    seed: whole(seed, 0, Number.MAX_SAFE_INTEGER, 'the seed'),
  };
}

/** @param {unknown} value @returns {LaneState} */
function laneOf(value) {
  const lane = fields(value, 'a lane is not an object');
  if (lane.kind === 'policy') {
    return { kind: 'policy', policy: string(lane.policy, MAX_POLICY, 'a policy') };
  }
  if (lane.kind !== 'preset') fail('a lane is of no kind that is known');
  const name = string(lane.algorithm, 40, 'an algorithm');
  if (!algorithm(name)) fail('a lane has an algorithm that there is not');
  const window = string(lane.window, 20, 'a window');
  if (parseWindow(window) === null) fail('a window is not a length of time');
  const most = MAX_LIMIT;
  return {
    kind: 'preset',
    algorithm: name,
    limit: whole(lane.limit, 1, most, 'a limit'),
    window,
    burst: lane.burst === null ? null : whole(lane.burst, 1, most, 'a burst'),
    strict: lane.strict === true,
    buckets: lane.buckets === null ? null : whole(lane.buckets, 2, 360, 'the buckets'),
  };
}

/** @param {unknown} value @returns {TrafficState} */
function trafficOf(value) {
  const traffic = fields(value, 'there is no traffic');
  switch (traffic.kind) {
    case 'model':
      return { kind: 'model', json: string(traffic.json, MAX_TRAFFIC, 'the traffic') };
    case 'drawn': {
      const counts = numbers(traffic.counts, MAX_BINS, MAX_PER_BIN, 'the drawing');
      if (counts.length === 0) fail('the drawing is empty');
      return { kind: 'drawn', bin_ms: whole(traffic.bin_ms, 1, 3_600_000, 'a bin'), counts };
    }
    case 'live': {
      const at = numbers(traffic.at, MAX_CLICKS, 86_400_000, 'the clicks');
      if (at.some((ms, i) => i > 0 && ms < at[i - 1])) fail('the clicks are not in order');
      return { kind: 'live', at };
    }
    default:
      return fail('the traffic is of no kind that is known');
  }
}

/** @param {unknown} value @param {string} message @returns {Record<string, unknown>} */
function fields(value, message) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) fail(message);
  return /** @type {Record<string, unknown>} */ (value);
}

/** @param {unknown} value @param {number} most @param {string} what */
function string(value, most, what) {
  if (typeof value !== 'string') return fail(`${what} is no text`);
  if (value.length > most) fail(`${what} is longer than ${most} characters`);
  return value;
}

/** @param {unknown} value @param {number} least @param {number} most @param {string} what */
function whole(value, least, most, what) {
  if (!Number.isSafeInteger(value)) return fail(`${what} is no whole number`);
  const n = /** @type {number} */ (value);
  if (n < least || n > most) fail(`${what} is not from ${least} to ${most}`);
  return n;
}

/** @param {unknown} value @param {number} length @param {number} most @param {string} what */
function numbers(value, length, most, what) {
  if (!Array.isArray(value)) return fail(`${what} is no list`);
  if (value.length > length) fail(`${what} has more than ${length} numbers`);
  return value.map((n) => whole(n, 0, most, what));
}
