/**
 * The time series of a lane: its plots, a sentence for each, and the table of all.
 *
 * Invariant: every number that a plot shows is a number of the table, in fewer and longer buckets.
 */

import { count, duration, instant, plural } from './format.js';

/** Rows of a table. */
export const ROWS = 24;

/** Buckets for a plot's width in pixels: divisors of minutes and seconds, wide enough to see. @param {number} width */
export const buckets = (width) => (width < 320 ? 60 : width < 640 ? 120 : 240);

/** @typedef {import('./plot.js').PlotStyle} PlotStyle */
/** @typedef {{rule: string, quota: string, algorithm: string, limit: number, window_ms: number, burst: number, client: string}} Watched */
/** @typedef {Record<string, Float64Array>} Values */

export const SERIES = [
  'offered',
  'admitted',
  'delayed',
  'denied',
  'true_count',
  'estimate',
  'remaining',
  'whole_after',
  'wait',
];

/** The choices for the third plot: the state under each of its names, the most useful first. */
export const STATES = {
  whole_after: {
    title: 'Until whole',
    label: 'time until nothing is used (TAT − now)',
    unit: 'ms',
    colour: 'left',
  },
  remaining: {
    title: 'Left',
    label: 'quota units left, as reported to each request',
    unit: 'count',
    colour: 'left',
  },
  wait: { title: 'Waits', label: 'longest wait of a request', unit: 'ms', colour: 'delayed' },
};

/** @returns {PlotStyle} */
export const requestsStyle = () => ({
  title: 'Requests',
  height: 110,
  stacked: true,
  hasTime: false,
  unit: 'count',
  series: [
    { name: 'admitted', label: 'admitted', colour: 'admitted', shape: 'bars' },
    { name: 'delayed', label: 'delayed', colour: 'delayed', shape: 'bars' },
    { name: 'denied', label: 'denied', colour: 'denied', shape: 'bars' },
  ],
});

/** @returns {PlotStyle} */
export const countStyle = () => ({
  title: 'In the last window',
  height: 120,
  stacked: false,
  hasTime: false,
  unit: 'count',
  series: [
    { name: 'true_count', label: 'true count', colour: 'text', shape: 'step' },
    {
      name: 'estimate',
      label: 'count of the algorithm',
      colour: 'estimate',
      shape: 'step',
      dash: [5, 3],
    },
  ],
});

/** @param {keyof typeof STATES} name @returns {PlotStyle} */
export const stateStyle = (name) => ({
  title: STATES[name].title,
  height: 110,
  stacked: false,
  hasTime: true,
  unit: /** @type {'count'|'ms'} */ (STATES[name].unit),
  decays: name === 'whole_after',
  series: [{ name, label: STATES[name].label, colour: STATES[name].colour, shape: 'step' }],
});

/** The greatest number, and the bucket where it is first. @param {Float64Array} values */
export function peak(values) {
  let at = -1;
  values.forEach((value, i) => {
    if (!Number.isNaN(value) && (at < 0 || value > values[at])) at = i;
  });
  return at < 0 ? null : { value: values[at], at };
}

const sum = (/** @type {Float64Array} */ values) => values.reduce((total, n) => total + n, 0);

/** @param {Values} v @param {number} span */
export function sayRequests(v, span) {
  const offered = sum(v.offered);
  if (offered === 0) return 'No requests.';
  const said =
    `${plural(offered, 'request')} in ${duration(span)}: ${count(sum(v.admitted))} admitted at once, ` +
    `${count(sum(v.delayed))} delayed, ${count(sum(v.denied))} denied.`;
  const first = v.denied.findIndex((n) => n > 0);
  return first < 0
    ? said
    : `${said} The first is denied at about ${instant((first * span) / v.denied.length, span)}.`;
}

/** @param {Values} v @param {number} span @param {Watched|null} watched */
export function sayCount(v, span, watched) {
  const most = peak(v.true_count);
  if (!most || !watched) return 'No request is counted by a quota.';
  const where = instant((most.at * span) / v.true_count.length, span);
  const over =
    most.value > watched.limit ? `, ${count(most.value - watched.limit)} more than the limit` : '';
  return `At most ${count(most.value)} of ${count(watched.limit)} admitted in any ${duration(watched.window_ms)}${over}, at about ${where}.`;
}

/** @param {Values} v @param {number} span @param {keyof typeof STATES} name */
export function sayState(v, span, name) {
  const values = v[name].filter((n) => !Number.isNaN(n));
  if (values.length === 0) return 'No request was decided.';
  const value = STATES[name].unit === 'ms' ? duration : count;
  const least = values.reduce((a, b) => Math.min(a, b));
  const most = values.reduce((a, b) => Math.max(a, b));
  return `${STATES[name].label}: from ${value(least)} to ${value(most)} over ${duration(span)}.`;
}

export const TABLE_HEADS = [
  'from',
  'offered',
  'admitted',
  'delayed',
  'denied',
  'true count',
  'own count',
  'left',
  'until whole',
  'wait',
];

/** The rows of the table. @param {Values} v @param {number} span @returns {string[][]} */
export function tableRows(v, span) {
  return [...v.offered].map((_, i) => [
    instant((i * span) / v.offered.length, span),
    ...['offered', 'admitted', 'delayed', 'denied', 'true_count', 'estimate', 'remaining'].map(
      (name) => count(v[name][i]),
    ),
    ...['whole_after', 'wait'].map((name) => duration(v[name][i])),
  ]);
}
