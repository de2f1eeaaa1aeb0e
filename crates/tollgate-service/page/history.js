/**
 * The view of versions: the author, time and text of each change, and roll-back; below them the
 * operations on keys.
 *
 * Invariant: a roll-back needs a confirmation that shows its changes and its effect on counts. It
 * is done only if the version in force is still the one shown there. Test ids: history, versions,
 * show-N, back-N, older, give-back, history-said, version-text.
 */

import { fill, h, table } from '../../tollgate-playground/web/dom.js';
import { ask } from './api.js';
import { changesOf } from './changes.js';
import { KeyHistory } from './key-history.js';
import { confirmed, done, heading, outcome, when, wrong } from './parts.js';

export class HistoryView {
  #rows = h('div', {});
  #text = h('div', {});
  #keys = new KeyHistory();
  #said = outcome('history-said');
  /** @type {any[]} */ #versions = [];
  /** @type {number|null} */ #before = null;

  /** @param {boolean} canWrite */
  constructor(canWrite) {
    this.canWrite = canWrite;
    this.element = h(
      'section',
      { 'data-testid': 'history', 'aria-labelledby': 'history-head' },
      Object.assign(heading('History'), { id: 'history-head' }),
      this.#said,
      this.#rows,
      this.#text,
      this.#keys.element,
    );
  }

  async shown() {
    this.#versions = [];
    this.#before = null;
    await this.#more();
    await this.#keys.shown();
  }

  async #more() {
    const page = this.#before === null ? '' : `?before=${this.#before}`;
    const answer = await ask('GET', `admin/policy/history${page}`);
    if (!answer.ok) return wrong(this.#said, answer);
    this.#versions.push(...(answer.json?.versions ?? []));
    this.#before = answer.json?.next_before ?? null;
    this.#show();
  }

  #show() {
    const newest = this.#versions[0]?.version;
    const rows = this.#versions.map((row) => {
      const isNow = row.version === newest;
      const show = h(
        'button',
        {
          type: 'button',
          'data-testid': `show-${row.version}`,
          disabled: !row.is_kept,
          'aria-label': `Show version ${row.version}`,
          onclick: () => this.#open(row.version),
        },
        'Show',
      );
      const back = h(
        'button',
        {
          type: 'button',
          'data-testid': `back-${row.version}`,
          disabled: isNow || !row.is_kept,
          'aria-label': `Roll back to version ${row.version}`,
          onclick: () => this.#back(row.version),
        },
        'Roll back',
      );
      const kind = row.kind === 'rollback' ? `rollback to ${row.to}` : row.kind;
      return [
        `${row.version}${isNow ? ', in force' : ''}`,
        when(row.at_ms),
        kind,
        h('span', { className: 'who' }, row.who ?? '–'),
        h('span', { className: 'what' }, summary(row.summary)),
        h(
          'div',
          { className: 'row tight' },
          row.is_kept ? show : h('span', { className: 'quiet' }, 'no longer kept'),
          row.is_kept && this.canWrite && back,
        ),
      ];
    });
    const older = h(
      'button',
      { type: 'button', 'data-testid': 'older', onclick: () => this.#more() },
      'Older versions',
    );
    const isWritten = this.#versions[0]?.source === 'written';
    const giveBack = h(
      'button',
      {
        type: 'button',
        className: 'danger',
        'data-testid': 'give-back',
        onclick: () => this.#giveBack(),
      },
      'Drop the written policy, use the deployed file',
    );
    fill(
      this.#rows,
      table(
        'Versions, the newest first',
        ['version', 'at', 'done', 'who', 'what', 'its text'],
        rows,
        'versions',
      ),
      h(
        'div',
        { className: 'row' },
        this.#before !== null && older,
        this.canWrite && isWritten && giveBack,
      ),
    );
  }

  /** @param {number} version */
  async #open(version) {
    const answer = await ask('GET', `admin/policy/versions/${version}`);
    if (!answer.ok) return wrong(this.#said, answer);
    const head = h('h3', { tabindex: '-1' }, `Version ${version}`);
    fill(
      this.#text,
      head,
      h(
        'pre',
        {
          className: 'wire',
          tabindex: '0',
          role: 'region',
          'aria-label': `Document of version ${version}`,
          'data-testid': 'version-text',
        },
        answer.text,
      ),
    );
    head.focus();
  }

  /** @param {number} version */
  async #back(version) {
    const body = JSON.stringify({ to: version });
    await this.#change(
      `Roll back to version ${version}?`,
      'Roll back',
      'POST',
      'admin/policy/rollback',
      body,
    );
  }

  async #giveBack() {
    await this.#change(
      'Take the written policy out of force and use the deployed file again?',
      'Use the deployed file',
      'DELETE',
      'admin/policy',
    );
  }

  /** @param {string} question @param {string} verb @param {string} method @param {string} path @param {string} [body] */
  async #change(question, verb, method, path, body) {
    const now = await ask('GET', 'admin/policy/history?limit=1');
    const inForce = await ask('GET', 'admin/policy');
    const plan = await ask(method, `${path}?dry_run`, { body, match: inForce.etag });
    if (!plan.ok) return wrong(this.#said, plan);
    const from = now.json?.versions?.[0]?.version ?? '?';
    const isSure = await confirmed(
      question,
      verb,
      h(
        'p',
        { className: 'quiet' },
        `Version ${from} is in force. It becomes a new version; nothing is lost.`,
      ),
      ...changesOf(plan.json).flatMap((part) => (part ? [part] : [])),
    );
    if (!isSure) return;
    const answer = await ask(method, path, { body, match: inForce.etag });
    if (!answer.ok) {
      await this.shown();
      return wrong(this.#said, answer);
    }
    fill(this.#text);
    await this.shown();
    done(this.#said, `Version ${answer.json?.version} is in force. Isolates follow within 5 s.`);
  }
}

/** @param {any} given */
function summary(given) {
  const part = (/** @type {string} */ sign, /** @type {unknown} */ names) =>
    Array.isArray(names) && names.length > 0 ? [`${sign} ${names.join(', ')}`] : [];
  const parts = [
    ...part('+', given?.added),
    ...part('−', given?.removed),
    ...part('changed', given?.changed),
    ...part('settings', given?.settings),
  ];
  if (given?.more > 0) parts.push(`${given.more} more`);
  return parts.join('; ') || '–';
}
