/**
 * The result of replaying an access log under a lane's policy: the tables of `tollgate replay`.
 *
 * Invariant: every number is one of the command's `--json`; clients, keys and lines are
 * untrusted and are shown as text.
 */

import { h, table } from './dom.js';
import { count, duration, plural, share } from './format.js';
import { logSuggested } from './log-suggested.js';

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {any} summary the JSON of a replay
 * @param {string} damage why the file breaks off; empty when it does not
 */
export function logResult(summary, damage) {
  const { lines, unparsable } = summary.log;
  return [
    damage
      ? h(
          'p',
          { className: 'problem', 'data-testid': 'log-damage' },
          `${damage}; the lines before it are shown.`,
        )
      : null,
    lines === 0 ? h('p', { className: 'problem' }, 'The file contains no lines.') : null,
    lines > 0 && lines === unparsable
      ? h(
          'p',
          { className: 'problem' },
          `None of ${plural(lines, 'line')} could be read: name the format.`,
        )
      : null,
    headline(summary),
    timeline(summary.timeline),
    rules(summary.rules),
    logSuggested(summary.suggestions),
    keys(summary.keys),
    waits(summary.waits),
    log(summary.log),
    summary.notes.length
      ? h(
          'ul',
          { className: 'notes quiet' },
          summary.notes.map((/** @type {string} */ note) => h('li', {}, note)),
        )
      : null,
  ];
}

/** `1995-08-01 00:00:00`: the form for a column of times. @param {string} at RFC 3339 in UTC */
const time = (at) => at.replace('T', ' ').replace(/(\.000)?Z$/, '');

/**
 * The ends of a time axis, each as short as is unambiguous.
 * @param {string} first @param {string} last RFC 3339 in UTC
 */
function ends(first, last) {
  const [from, to] = [time(first), time(last)];
  if (from.slice(0, 10) === to.slice(0, 10)) return [from.slice(0, 16), `${to.slice(11, 16)} UTC`];
  const isShort = Date.parse(last) - Date.parse(first) < 2 * 86_400_000;
  return isShort
    ? [from.slice(5, 16), `${to.slice(5, 16)} UTC`]
    : [from.slice(0, 10), `${to.slice(0, 10)} UTC`];
}

/** @param {any} summary */
function headline({ requests, clients }) {
  const one = (
    /** @type {string} */ name,
    /** @type {string} */ kind,
    /** @type {number} */ n,
    /** @type {number} */ of,
  ) =>
    h(
      'div',
      { className: `figure figure-${n > 0 ? kind : ''}` },
      h('dt', {}, name),
      h(
        'dd',
        { 'data-testid': `log-${name.replaceAll(' ', '-')}` },
        h('strong', {}, count(n)),
        ' ',
        h('span', { className: 'quiet' }, share(n, of)),
      ),
    );
  return h(
    'dl',
    { className: 'figures' },
    one('requests', 'all', requests.total, requests.total),
    one('clients', 'all', clients.total, clients.total),
    one('denied', 'denied', requests.denied, requests.total),
    one('denied clients', 'denied', clients.denied, clients.total),
    one('delayed', 'delayed', requests.delayed, requests.total),
    one('delayed clients', 'delayed', clients.delayed, clients.total),
  );
}

/** Bars of all requests, and of the denied ones before them. @param {any} timeline */
function timeline({ bin_seconds, bins }) {
  if (bins.length === 0) return null;
  const rows = bins.map((/** @type {any} */ bin) => [
    time(bin.at),
    ...['total', 'denied', 'delayed', 'over'].map((name) => count(bin[name])),
  ]);
  const most = bins.reduce(
    (/** @type {number} */ a, /** @type {any} */ bin) => Math.max(a, bin.total),
    1,
  );
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${bins.length} 100`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  const worst = bins.reduce((/** @type {any} */ a, /** @type {any} */ bin) =>
    bin.denied > a.denied ? bin : a,
  );
  svg.setAttribute(
    'aria-label',
    `Requests over time, at most ${count(most)} in ${duration(bin_seconds * 1000)}; ` +
      (worst.denied
        ? `most denied, ${count(worst.denied)}, from ${time(worst.at)}.`
        : 'none denied.'),
  );
  bins.forEach((/** @type {any} */ bin, /** @type {number} */ i) => {
    svg.append(bar(i, bin.total, most, 'log-total'), bar(i, bin.denied, most, 'log-denied'));
  });
  const caption = `Requests per ${duration(bin_seconds * 1000)}, at most ${count(most)}`;
  return h(
    'figure',
    { className: 'log-time' },
    h(
      'figcaption',
      {},
      h('span', { className: 'plot-title' }, caption),
      h(
        'span',
        { className: 'legend' },
        h('span', { className: 'key', 'data-colour': 'quiet' }, 'all'),
        h('span', { className: 'key', 'data-colour': 'denied' }, 'denied'),
      ),
    ),
    svg,
    h(
      'p',
      { className: 'ends quiet' },
      ends(bins[0].at, bins.at(-1).at).map((text) => h('span', {}, text)),
    ),
    h(
      'details',
      {},
      h('summary', {}, 'Over time, as a table'),
      table(
        'Over time',
        ['from', 'requests', 'denied', 'delayed', 'over a limit, passed'],
        rows,
        'log-timeline',
      ),
    ),
  );
}

/** @param {number} x @param {number} n @param {number} most @param {string} className */
function bar(x, n, most, className) {
  const rect = document.createElementNS(SVG, 'rect');
  // One request is visible, however many there are in other bins.
  const height = n === 0 ? 0 : Math.max(1.5, (n / most) * 100);
  for (const [name, value] of Object.entries({
    x,
    y: 100 - height,
    width: 0.85,
    height,
    class: className,
  })) {
    rect.setAttribute(name, String(value));
  }
  return rect;
}

/** @param {any[]} rules */
function rules(rules) {
  const rows = rules.map(
    ({ name, allowed, denied, delayed, limited_keys, limited_keys_are_exact, first }) => [
      name,
      count(allowed),
      count(denied),
      count(delayed),
      `${limited_keys_are_exact ? '' : 'at least '}${count(limited_keys)}`,
      first ? time(first.at) : '–',
    ],
  );
  const quotas = rules.flatMap(({ name, quotas }) =>
    quotas.map((/** @type {any} */ quota) => [
      name,
      quota.name,
      `${count(quota.limit)} per ${duration(quota.window_ms)}`,
      quota.algorithm,
      count(quota.limited),
    ]),
  );
  return [
    table(
      'Rules',
      ['rule', 'allowed', 'denied', 'delayed', 'limited keys', 'first limited'],
      rows,
      'log-rules',
    ),
    table(
      'Quotas that had no room',
      ['rule', 'quota', 'limit', 'algorithm', 'limited'],
      quotas,
      'log-quotas',
    ),
  ];
}

/** @param {any} keys */
function keys({ top, error }) {
  if (top.length === 0) return h('p', { className: 'quiet' }, 'No key was limited.');
  const rows = top.map((/** @type {any} */ one) => [
    one.key,
    count(one.denied),
    count(one.delayed),
    one.rule,
    time(one.first),
    time(one.last),
  ]);
  const note = error > 0 ? `, counts at most ${count(error)} too low` : '';
  return table(
    `The most limited keys${note}`,
    ['key', 'denied', 'delayed', 'rule', 'first', 'last'],
    rows,
    'log-keys',
  );
}

/** @param {any} waits */
function waits(waits) {
  if (!waits) return null;
  return h(
    'p',
    {},
    `${plural(waits.waited, 'request')} waited: half of them at most ${duration(waits.p50_ms)}, 99 % at most ${duration(waits.p99_ms)}, all at most ${duration(waits.max_ms)}.`,
  );
}

/** @param {any} log */
function log(log) {
  const rows = [
    ['lines', log.lines],
    ['unparsable', log.unparsable],
    ['already refused', log.already_refused],
    ['out of order, sorted', log.out_of_order],
    ['too late, left out', log.late],
    ['too far ahead, left out', log.ahead],
  ]
    .filter(([name, n]) => n > 0 || name === 'lines')
    .map(([name, n]) => [String(name), count(Number(n))]);
  const samples = log.causes.flatMap(
    (/** @type {{cause: string, samples: any[]}} */ { cause, samples }) =>
      samples.map((/** @type {any} */ { line, text }) => [`line ${count(line)}`, cause, text]),
  );
  return [
    table('The log', ['of these', 'lines'], rows, 'log-lines'),
    samples.length
      ? table(
          'Lines that could not be read, some of them',
          ['line', 'cause', 'it begins'],
          samples,
          'log-samples',
        )
      : null,
  ];
}
