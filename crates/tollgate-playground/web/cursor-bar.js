/**
 * The bar above the lanes: which request is shown, and what the third plot shows.
 *
 * Invariant: the slider counts the requests of the first lane that has any; the time of the
 * selected one is the cursor of all.
 */

import { moveTo } from './cursor.js';
import { fill, h, labelled } from './dom.js';
import { count, instant } from './format.js';
import { STATES } from './series.js';

export class CursorBar {
  #offered = 0;

  /**
   * @param {{requestAt: (index: number) => Promise<{at_ms: number}|null>, state: (name: keyof typeof STATES) => void}} page
   */
  constructor(page) {
    this.page = page;
    this.range = h('input', {
      type: 'range',
      min: 0,
      max: 0,
      step: 1,
      value: 0,
      'data-testid': 'cursor',
      disabled: true,
      'aria-label': 'request under the cursor',
      oninput: () => void this.#move(Number(this.range.value)),
    });
    this.said = h(
      'output',
      { className: 'cursor-said', 'data-testid': 'cursor-said' },
      'no requests',
    );
    const step = (
      /** @type {number} */ by,
      /** @type {string} */ name,
      /** @type {string} */ sign,
    ) =>
      h(
        'button',
        {
          type: 'button',
          'aria-label': `${name} request`,
          'data-testid': `cursor-${name}`,
          onclick: () => void this.#move(Number(this.range.value) + by),
        },
        sign,
      );
    this.state = h(
      'select',
      {
        'data-testid': 'state-name',
        onchange: () => page.state(/** @type {keyof typeof STATES} */ (this.state.value)),
      },
      Object.entries(STATES).map(([value, { title }]) =>
        h('option', { value }, title.toLowerCase()),
      ),
    );
    this.element = h(
      'div',
      { className: 'cursor-bar' },
      h('div', { className: 'cursor-step' }, step(-1, 'previous', '‹'), step(1, 'next', '›')),
      this.range,
      this.said,
      labelled('State as', this.state),
    );
  }

  /** @param {number} offered requests of that lane */
  extend(offered) {
    this.#offered = offered;
    this.range.max = String(Math.max(0, offered - 1));
    this.range.disabled = offered === 0;
    // Finding a request late in a long run takes a while.
    if (offered === 0) fill(this.said, 'no requests');
    else if (this.said.textContent === 'no requests') fill(this.said);
  }

  /** @param {number} index */
  async #move(index) {
    const within = Math.max(0, Math.min(this.#offered - 1, index));
    this.range.value = String(within);
    const request = await this.page.requestAt(within);
    if (request) moveTo(request.at_ms, within);
  }

  /** Shows the position of the cursor. @param {{index: number, at_ms: number}} request @param {number} span @param {string} answers */
  show(request, span, answers) {
    if (document.activeElement !== this.range) this.range.value = String(request.index);
    const where = `request ${count(request.index + 1)} of ${count(this.#offered)} at ${instant(request.at_ms, span)}`;
    fill(this.said, where);
    this.range.setAttribute('aria-valuetext', `${where}: ${answers}`);
  }
}
