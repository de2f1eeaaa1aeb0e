/**
 * The figures of a run: a few in the lane, and all of them in a table.
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
  const isOver = watched !== null && t.most_admitted > t.limit;
  return [
    figure('Admitted', count(t.admitted), of(t.admitted), 'admitted'),
    figure('Denied', count(t.denied), of(t.denied), 'denied'),
    figure(
      'Delayed',
      count(t.delayed),
      t.delayed > 0 ? `at most ${duration(t.waits.max_us / 1000)}` : of(t.delayed),
      'delayed',
    ),
    figure(
      'Most in any window',
      count(t.most_admitted),
      watched ? `of ${count(t.limit)}${isOver ? ', over' : ''}` : '',
      isOver ? 'over' : 'most',
    ),
    figure('False allow', count(t.false_allow), of(t.false_allow), 'false-allow'),
    figure('False deny', count(t.false_deny), of(t.false_deny), 'false-deny'),
  ];
}

/** @param {string} name @param {string} value @param {string} note @param {string} kind */
function figure(name, value, note, kind) {
  return h(
    'div',
    { className: `figure figure-${kind}` },
    h('dt', {}, name),
    h(
      'dd',
      { 'data-testid': `figure-${kind === 'over' ? 'most' : kind}` },
      h('strong', {}, value),
      ' ',
      h('span', { className: 'quiet' }, note),
    ),
  );
}

/**
 * All values of the JSON, by their names: the figures, then a table for each list.
 * @param {any} result
 * @param {string} name of the lane
 */
export function tablesOf(result, name) {
  const lists = Object.entries(result).filter(
    ([, value]) => Array.isArray(value) && value.length > 0,
  );
  const figures = Object.entries(result).filter(([, value]) => !Array.isArray(value));
  return [
    table(
      `${name}: all figures`,
      ['figure', 'value'],
      rowsOf(Object.fromEntries(figures), ''),
      'figures-table',
    ),
    ...lists.map(([list, rows]) => listTable(`${name}: ${list}`, list, rows)),
  ];
}

/** @param {string} caption @param {string} list @param {Record<string, unknown>[]} rows */
function listTable(caption, list, rows) {
  // An empty column has no information.
  const columns = Object.keys(rows[0]).filter((column) =>
    rows.some((row) => row[column] !== null && row[column] !== 0),
  );
  return table(
    caption,
    columns.map((column) => heading(column)),
    rows.map((row) => columns.map((column) => words(column, row[column]))),
    `${list}-table`,
  );
}

/** @param {string} name */
const heading = (name) => name.replace(/_(us|ms)$/, '').replaceAll('_', ' ');

/** @param {Record<string, unknown>} value @param {string} path @returns {string[][]} */
function rowsOf(value, path) {
  return Object.entries(value).flatMap(([name, inner]) => {
    const here = path ? `${path} ${name}` : name;
    if (inner !== null && typeof inner === 'object')
      return rowsOf(/** @type {Record<string, unknown>} */ (inner), here);
    return [[heading(here), words(name, inner)]];
  });
}

/** @param {string} name @param {unknown} value */
function words(name, value) {
  if (value === null || value === undefined || value === '') return '–';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value !== 'number') return String(value);
  if (name.endsWith('_us')) return duration(value / 1000);
  if (name.endsWith('_ms')) return duration(value);
  return Number.isInteger(value) ? count(value) : String(value);
}
