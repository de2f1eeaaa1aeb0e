/**
 * Rates of each rule over the time that the page has been open.
 *
 * Invariant: a rate is the growth of a counter, divided by the seconds between its two readings; at
 * most `READINGS` are kept. An unknown rate (before the second reading, or after a failed one) is
 * null and not 0.
 */

import { growth, parse, sum } from './metrics-text.js';

/** Half an hour of readings. */
export const READINGS = 181;
/** The most rules shown; a sentence counts the others. */
export const MOST_RULES = 100;

/** The results that each kind of rate contains. */
export const KINDS = /** @type {const} */ ({
  admitted: ['allowed', 'delayed'],
  refused: ['denied', 'blocked', 'penalised'],
  would: ['shadowed', 'marked'],
  failed: ['failed', 'malformed'],
});
/** @typedef {keyof typeof KINDS} Kind */
const NAMES = /** @type {Kind[]} */ (Object.keys(KINDS));
/** Counters of the whole deployment. */
const TOTALS = /** @type {const} */ ({
  requests: ['tollgate_requests_total', {}],
  refused: ['tollgate_requests_total', { answer: 'refused' }],
  remembered: ['tollgate_remembered_denials_total', {}],
  calls: ['tollgate_object_calls_total', {}],
  failures: ['tollgate_failures_total', {}],
  undecided: ['tollgate_failed_requests_total', {}],
  origin: ['tollgate_origin_failures_total', {}],
});
/** @typedef {keyof typeof TOTALS} Total */

/**
 * @typedef {Record<Kind, number>} Counts
 * @typedef {{at: number, totals: Record<Total, number>, rules: Map<string, Counts>, version: number, isolates: number}} Reading
 */

export class Rates {
  /** @type {(Reading|null)[]} null for a reading that failed */ #readings = [];

  /** @param {string} text @param {number} at ms */
  add(text, at) {
    const { samples, unread } = parse(text);
    this.unread = unread;
    const totals = /** @type {Record<Total, number>} */ ({});
    for (const [name, [family, labels]] of Object.entries(TOTALS)) {
      totals[/** @type {Total} */ (name)] = sum(samples, family, labels);
    }
    /** @type {Map<string, Counts>} */
    const rules = new Map();
    for (const { name, labels, value } of samples) {
      if (name !== 'tollgate_decisions_total') continue;
      const kind = NAMES.find((kind) =>
        /** @type {readonly string[]} */ (KINDS[kind]).includes(labels.result),
      );
      if (!kind) continue;
      const counts = rules.get(labels.rule) ?? { admitted: 0, refused: 0, would: 0, failed: 0 };
      counts[kind] += value;
      rules.set(labels.rule, counts);
    }
    const gauge = (/** @type {string} */ name) => sum(samples, name);
    this.#push({
      at,
      totals,
      rules,
      version: gauge('tollgate_policy_version'),
      isolates: gauge('tollgate_isolates'),
    });
  }

  /** Records a failed reading. */
  miss() {
    this.#push(null);
  }

  /** @param {Reading|null} reading */
  #push(reading) {
    this.#readings.push(reading);
    if (this.#readings.length > READINGS) this.#readings.shift();
  }

  /** The last successful reading. */
  get last() {
    return this.#readings.findLast((reading) => reading !== null) ?? null;
  }

  /** In the order of their names. */
  get rules() {
    return [...(this.last?.rules.keys() ?? [])].sort();
  }

  /** Whether the rule had requests between the readings; unknown before the second reading. @param {string} rule */
  isActive(rule) {
    return NAMES.some((kind) => this.rule(rule, kind).some((rate) => rate > 0));
  }

  /** Per second now. @param {Total} name @returns {number|null} */
  total(name) {
    return this.#rate((reading) => reading.totals[name]).at(-1) ?? null;
  }

  /** Times in seconds since 1970. */
  get times() {
    return this.#pairs().map(([, reading]) => reading.at / 1_000);
  }

  /** Per second, at `times`. @param {string} rule @param {Kind} kind */
  rule(rule, kind) {
    return this.#rate((reading) => reading.rules.get(rule)?.[kind] ?? 0);
  }

  /** @param {(reading: Reading) => number} of */
  #rate(of) {
    return this.#pairs().map(([before, after]) => {
      const seconds = (after.at - before.at) / 1_000;
      return seconds > 0 ? growth(of(before), of(after)) / seconds : 0;
    });
  }

  /** Each reading with the one before. A gap is bridged: only its mean is known. @returns {[Reading, Reading][]} */
  #pairs() {
    const there = /** @type {Reading[]} */ (this.#readings.filter((reading) => reading !== null));
    return there.slice(1).map((reading, i) => [there[i], reading]);
  }
}
