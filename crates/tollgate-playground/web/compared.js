/**
 * The figures of all lanes in one table: for screens that show the lanes below each other.
 *
 * Invariant: the numbers are those of the lanes.
 */

import { table } from './dom.js';
import { count } from './format.js';

/** @typedef {[string, (result: any) => number][]} Figures */

/** @type {Figures} of a run */
const RUN = [
  ['Admitted', (run) => run.admitted],
  ['Denied', (run) => run.denied],
  ['Delayed', (run) => run.delayed],
  ['Most in any window', (run) => run.most_admitted],
  ['False allow', (run) => run.false_allow],
  ['False deny', (run) => run.false_deny],
];

/** @type {Figures} of an access log */
const LOG = [
  ['Requests', (log) => log.requests.total],
  ['Denied', (log) => log.requests.denied],
  ['Denied clients', (log) => log.clients.denied],
  ['Delayed', (log) => log.requests.delayed],
  ['Delayed clients', (log) => log.clients.delayed],
];

/** @param {import('./lane.js').Lane[]} lanes @param {boolean} isLog what the lanes show */
export function compared(lanes, isLog) {
  const rows = (isLog ? LOG : RUN).map(([name, of]) => [
    name,
    ...lanes.map(({ result, logged }) => {
      const found = isLog ? logged : result;
      return found ? count(of(found)) : '–';
    }),
  ]);
  return table('The lanes compared', ['', ...lanes.map(({ letter }) => letter)], rows, 'compared');
}
