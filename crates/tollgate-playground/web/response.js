/**
 * The request under the cursor: the request, its response and the reason.
 *
 * Invariant: status, fields and body are shown as they go over the wire, as text; sentences of the
 * reason are the policy crate's own.
 */

import { fill, h } from './dom.js';
import { count, duration, instant } from './format.js';

/**
 * @typedef {object} Shown
 * @property {number} index
 * @property {number} at_ms
 * @property {string} client
 * @property {number} attempt how often its client was denied before
 * @property {string} method
 * @property {string} target
 * @property {'admitted'|'delayed'|'denied'} fate
 * @property {number} wait_ms
 * @property {number} status
 * @property {[string, string][]} fields
 * @property {string} body
 * @property {string[]} why
 */

/** A sign for each fate, so that colour is never the only difference. */
export const SIGNS = { admitted: '●', delayed: '◐', denied: '✕' };

/** A description of a request in a few words. @param {Shown} shown */
export function inWords(shown) {
  if (shown.fate === 'denied') return `denied with ${shown.status}`;
  return shown.fate === 'delayed' ? `delayed by ${duration(shown.wait_ms)}` : 'admitted';
}

export class Response {
  /** @param {string} letter of the lane */
  constructor(letter) {
    this.head = h('p', { className: 'fate', 'data-testid': 'fate' });
    this.why = h('ul', { className: 'why', 'data-testid': 'why' });
    this.wire = h('pre', {
      className: 'wire',
      'data-testid': 'response',
      tabindex: '0',
      role: 'group',
      'aria-label': `response of lane ${letter}`,
    });
    this.element = h(
      'div',
      {
        className: 'response',
        role: 'group',
        'aria-label': `the request under the cursor, in lane ${letter}`,
      },
      this.head,
      this.why,
      this.wire,
    );
    this.show(null, 0);
  }

  /** @param {Shown|null} shown @param {number} span of the run, in milliseconds */
  show(shown, span) {
    this.element.dataset.fate = shown?.fate ?? 'none';
    if (!shown) {
      fill(this.head, 'No request here.');
      fill(this.why);
      fill(this.wire, '');
      return;
    }
    fill(
      this.head,
      h('strong', { className: `is-${shown.fate}` }, `${SIGNS[shown.fate]} ${inWords(shown)}`),
      h(
        'span',
        { className: 'quiet' },
        ` request ${count(shown.index + 1)} at ${instant(shown.at_ms, span)}: ${shown.method} ${shown.target} from ${shown.client}${shown.attempt > 0 ? `, refused ${shown.attempt === 1 ? 'once' : `${shown.attempt} times`} before` : ''}`,
      ),
    );
    fill(
      this.why,
      shown.why.map((sentence) => h('li', {}, sentence)),
    );
    const fields = shown.fields.flatMap(([name, value]) => [h('b', {}, name), `: ${value}\n`]);
    fill(
      this.wire,
      h('b', {}, `HTTP ${shown.status}`),
      '\n',
      ...fields,
      shown.body ? `\n${shown.body}` : '',
    );
  }
}
