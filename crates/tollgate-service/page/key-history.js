/**
 * The operations on keys: time, operator, rule, and the key's usage before and after.
 *
 * Invariant: a key is known here by its hash only, as everywhere. Test ids: key-history,
 * key-history-said, older-keys.
 */

import { fill, h, table } from '../../tollgate-playground/web/dom.js';
import { ask } from './api.js';
import { outcome, when, whenText, wrong } from './parts.js';

export class KeyHistory {
  #rows = h('div', {});
  #said = outcome('key-history-said');
  /** @type {any[]} */ #changes = [];
  /** @type {number|null} */ #before = null;

  constructor() {
    this.element = h('div', { 'data-testid': 'key-history' }, this.#said, this.#rows);
  }

  async shown() {
    this.#changes = [];
    this.#before = null;
    await this.#more();
  }

  async #more() {
    const page = this.#before === null ? '' : `?before=${this.#before}`;
    const answer = await ask('GET', `admin/keys/history${page}`);
    if (!answer.ok) return wrong(this.#said, answer);
    this.#changes.push(...(answer.json?.changes ?? []));
    this.#before = answer.json?.next_before ?? null;
    this.#show();
  }

  #show() {
    const rows = this.#changes.map((row) => [
      when(row.at_ms),
      row.act,
      h('span', { className: 'who' }, row.who ?? '–'),
      row.tenant === null ? row.rule : `${row.rule}, tenant ${row.tenant}`,
      row.pk,
      h('span', { className: 'what' }, then(row.before, row.at_ms)),
      h('span', { className: 'what' }, then(row.after, row.at_ms)),
    ]);
    const older = h(
      'button',
      { type: 'button', 'data-testid': 'older-keys', onclick: () => this.#more() },
      'Older changes',
    );
    fill(
      this.#rows,
      table(
        'What was done to keys, the newest first',
        ['at', 'done', 'who', 'rule', 'key (hash)', 'before', 'after'],
        rows,
        'key-changes',
      ),
      h('div', { className: 'row' }, this.#before !== null && older),
    );
  }
}

/** The words of an earlier state: a remaining block is shown as the time of its end. @param {unknown} words @param {number} ms */
function then(words, ms) {
  const until = (/** @type {string} */ _, /** @type {string} */ seconds) =>
    `blocked until ${whenText(new Date(ms + Number(seconds) * 1_000))}`;
  return String(words ?? '').replace(/^blocked for another (\d+) s/, until);
}
