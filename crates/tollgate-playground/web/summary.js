/**
 * The figures of a run: the few that stand in the lane, and all of them as a table.
 *
 * Invariant: the numbers are those of `tollgate simulate --json`; nothing is added up here.
 */

import { h, table } from './dom.js';
import { count, duration, share } from './format.js';

/**
 * The few that a reader compares first.
 * @param {any} result the table of the run; null for a lane that has none yet
 * @param {import('./series.js').Watched|null} watched
 */
export function figures(result, watched) {
  const t = result ?? {};
  const of = (/** @type {number} */ n) => (result ? share(n, t.offered) : '');
  const most = t.most_in_window;
  const isOver = watched && most > watched.limit;
  return [
    figure('Admitted', count(t.admitted), of(t.admitted), 'admitted'),
    figure('of these delayed', count(t.delayed), t.delayed > 0 ? `p99 ${duration(t.wait_p99_ms)}` : '', 'delayed'),
    figure('Denied', count(t.denied), of(t.denied), 'denied'),
    figure(watched ? `Most in any ${duration(watched.window_ms)}` : 'Most in a window', count(most),
      watched ? `limit ${count(watched.limit)}${isOver ? ', over' : ''}` : '', isOver ? 'over' : 'most'),
    figure('False allow', count(t.false_allow), of(t.false_allow), 'false-allow'),
    figure('False deny', count(t.false_deny), of(t.false_deny), 'false-deny'),
  ];
}

/** @param {string} name @param {string} value @param {string} note @param {string} kind */
function figure(name, value, note, kind) {
  return h('div', { className: `figure figure-${kind}` }, h('dt', {}, name),
    h('dd', { 'data-testid': `figure-${kind === 'over' ? 'most' : kind}` }, h('strong', {}, value), ' ', h('span', { className: 'quiet' }, note)));
}

/** All figures, by the names of the JSON. @param {any} result @param {string} caption */
export function tableOf(result, caption) {
  return table(caption, ['figure', 'value'], rowsOf(result, ''), 'figures-table');
}

/** @param {any} value @param {string} path @returns {string[][]} */
function rowsOf(value, path) {
  if (value === null || typeof value !== 'object') return [[path, words(path, value)]];
  return Object.entries(value).flatMap(([name, inner]) => rowsOf(inner, path ? `${path}.${name}` : name));
}

/** @param {string} path @param {unknown} value */
function words(path, value) {
  if (typeof value !== 'number') return value === null ? '–' : String(value);
  if (path.endsWith('_ms')) return duration(value);
  return Number.isInteger(value) ? count(value) : String(value);
}
