/**
 * The limits that an access log suggests: the tables of `tollgate replay --suggest`.
 *
 * Invariant: every number is one of the command's `--json`; keys are untrusted and are shown
 * as text.
 */

import { h, table } from './dom.js';
import { count, duration, plural, share } from './format.js';

/** @param {any[]|null} suggestions the replay's suggestions, if they were requested */
export function logSuggested(suggestions) {
  if (!suggestions) return null;
  return h(
    'section',
    { 'data-testid': 'log-suggested' },
    h('h3', {}, 'Suggested limits'),
    greatest(suggestions),
    curve(suggestions),
    suggestions.flatMap((one) => [...gap(one), ...notes(one)]),
    heaviest(suggestions),
    limits(suggestions),
  );
}

/** `rule`, or `rule, tier gold`. @param {any} suggestion */
const named = ({ rule, tier }) => (tier ? `${rule}, tier ${tier}` : rule);

/**
 * A table of the rows of all suggestions; with several suggestions the last columns name the quota.
 * @param {any[]} suggestions @param {string} caption @param {string[]} heads
 * @param {(suggestion: any) => string[][]} rowsOf @param {string} testid
 */
function tableOf(suggestions, caption, heads, rowsOf, testid) {
  const isOne = suggestions.length === 1;
  const rows = suggestions.flatMap((one) =>
    rowsOf(one).map((row) => (isOne ? row : [...row, named(one), one.quota])),
  );
  if (rows.length === 0) return null;
  return table(caption, isOne ? heads : [...heads, 'rule', 'quota'], rows, testid);
}

/** @param {number|null|undefined} n */
const known = (n) => (n === null || n === undefined ? '–' : count(n));

/** @param {any[]} suggestions */
function greatest(suggestions) {
  return tableOf(
    suggestions,
    'The most units of a client in any one window',
    ['limit now', 'clients', 'half at most', '99 % at most', '99.9 % at most', 'greatest'],
    (one) => [
      [
        `${count(one.limit_now)} per ${duration(one.window_ms)}`,
        count(one.clients),
        ...['p50', 'p99', 'p99_9', 'max'].map((name) => count(one.greatest[name])),
      ],
    ],
    'log-greatest',
  );
}

/** The effect of each limit. @param {any[]} suggestions */
function curve(suggestions) {
  return tableOf(
    suggestions,
    'The effect of each limit alone',
    [
      'limit',
      'clients denied',
      'of clients',
      'requests denied',
      'of requests',
      'clients over it',
    ],
    (one) =>
      one.curve.map((/** @type {any} */ { limit, exceed, replayed }) => [
        count(limit),
        known(replayed?.clients),
        replayed ? share(replayed.clients, one.sample?.keys ?? one.clients) : '–',
        known(replayed?.requests),
        replayed ? share(replayed.requests, one.requests) : '–',
        count(exceed),
      ]),
    'log-curve',
  );
}

/** The range in which the choice of a limit hardly matters. @param {any} suggestion */
function gap(suggestion) {
  if (!suggestion.per_client) {
    return [
      h('p', {}, `${named(suggestion)}: one count for all requests, so no limit is suggested.`),
    ];
  }
  if (!suggestion.gap) {
    const said = `no wide gap between the clients' counts; every limit is a choice of which clients it affects.`;
    return [h('p', {}, `${named(suggestion)}: ${said}`)];
  }
  const { from, to, clients, is_replayed, line } = suggestion.gap;
  const same = `the same ${plural(clients, 'client')}`;
  const any = is_replayed ? `any limit here denies ${same}` : `any limit here is exceeded by ${same}`;
  return [
    h('p', {}, `${named(suggestion)}: between ${count(from)} and ${count(to)}, ${any}.`),
    ...(line ? [h('p', {}, 'The quota in the middle of the gap:'), h('pre', {}, line)] : []),
  ];
}

/** Notes that are needed to interpret the figures. @param {any} suggestion */
function notes({ sample, in_parts, strangers, greatest }) {
  const said = [
    sample
      ? `Too many clients to count each: one of ${count(sample.one_in)} was counted, ${count(sample.keys)} in all, and the shares are theirs. The greatest of those is ${count(sample.max)}; no client used more than ${count(greatest.max)}.`
      : '',
    in_parts
      ? `${plural(in_parts.keys, 'client')} had more than 4,096 requests in one window; theirs are counts of a slightly longer window, never below the true ones.`
      : '',
    strangers > 0 ? 'The log changed while it was read.' : '',
  ];
  return said.filter(Boolean).map((text) => h('p', { className: 'quiet' }, text));
}

/** The heaviest clients, limited or not. @param {any[]} suggestions */
function heaviest(suggestions) {
  return tableOf(
    suggestions,
    'The heaviest clients, limited or not',
    ['client', 'most in a window', 'requests', 'limited now'],
    (one) =>
      one.heaviest.map((/** @type {any} */ client) => [
        client.key,
        count(client.greatest),
        known(client.requests),
        known(client.limited),
      ]),
    'log-heaviest',
  );
}

/** Limits that affect at most this many clients. @param {any[]} suggestions */
function limits(suggestions) {
  return tableOf(
    suggestions,
    'Limits that affect at most this many clients',
    ['affects at most', 'limit', 'affected', 'of clients', 'by counts', 'to be put into the policy'],
    (one) =>
      one.limits.map((/** @type {any} */ { wished_percent, counted, limit, replayed, line }) => [
        `${wished_percent} %`,
        known(limit),
        known(replayed?.touched),
        replayed ? share(replayed.touched, replayed.of) : '–',
        count(counted),
        replayed && !replayed.as_wished ? `${line} (touches more than wished)` : line,
      ]),
    'log-limits',
  );
}
