/**
 * Traffic clicked live: each press of the button is a request, at the time of the page.
 *
 * Invariant: the first press is time 0, and the presses are the traffic; a lane that runs them
 * again, here or from a link, gives the same result.
 */

import { fill, h } from './dom.js';
import { duration, plural } from './format.js';
import { MAX_CLICKS } from './state.js';

export class TrafficLive {
  /** @type {number|null} the page's time of the first press */ #began = null;

  /**
   * @param {number[]} at presses, in milliseconds
   * @param {(at: number[]) => void} changed
   */
  constructor(at, changed) {
    this.at = at;
    this.changed = changed;
    this.button = h(
      'button',
      { type: 'button', className: 'send', 'data-testid': 'send', onclick: () => this.#send() },
      'Send request',
    );
    this.answers = h('p', { className: 'answers', 'data-testid': 'live-answers' });
    this.said = h('p', { className: 'quiet', 'data-testid': 'live-said' });
    const again = h(
      'button',
      { type: 'button', 'data-testid': 'live-reset', onclick: () => this.#reset() },
      'Start over',
    );
    this.element = h(
      'div',
      { className: 'live' },
      h('div', { className: 'row' }, this.button, again, this.answers),
      this.said,
    );
    this.#say();
  }

  #send() {
    const now = performance.now();
    // Presses that came by a link are before this one, however long ago.
    this.#began ??= now - (this.at.at(-1) ?? -1000) - 1000;
    if (this.at.length >= MAX_CLICKS) return;
    this.at = [...this.at, Math.round(now - this.#began)];
    this.#say();
    this.changed(this.at);
  }

  #reset() {
    this.at = [];
    this.#began = null;
    fill(this.answers);
    this.#say();
    this.changed(this.at);
  }

  /** Shows the decision of each lane about the last press. @param {{letter: string, words: string, fate: string}[]} answers */
  answer(answers) {
    fill(
      this.answers,
      answers.map(({ letter, words, fate }) =>
        h('span', { className: `answer is-${fate}` }, h('b', {}, letter), ` ${words}`),
      ),
    );
  }

  #say() {
    const last = this.at.at(-1);
    const sofar =
      last === undefined
        ? 'Nothing sent yet.'
        : `${plural(this.at.length, 'request')} in ${duration(last)}.`;
    const full =
      this.at.length >= MAX_CLICKS ? ` That is as many as a link holds; start over for more.` : '';
    fill(
      this.said,
      `${sofar}${full} Space or Enter sends, too, while the button has the focus. The clock is the page’s; the first request is at 0.`,
    );
  }
}
