/**
 * Elements of several views: problems, times, a confirmation dialog.
 *
 * Invariant: the result of an operation is shown in one place of its view, which is a live region.
 * An operation that cannot be undone needs a confirmation, and the dialog's first focus is on the
 * button that does nothing.
 */

import { fill, h, newId } from '../../tollgate-playground/web/dom.js';

/** @typedef {import('./api.js').Answer} Answer */

/** The place where a view shows the result of an operation. */
export function outcome(/** @type {string} */ testid) {
  return h('div', { className: 'outcome', role: 'status', 'data-testid': testid });
}

/** Reports success. @param {Element} place @param {string} sentence */
export function done(place, sentence) {
  fill(place, h('p', { className: 'done' }, sentence));
}

/** Reports a failure. @param {Element} place @param {Answer} answer */
export function wrong(place, answer) {
  fill(place, ...problemParts(answer));
}

/** @param {Answer} answer */
export function problemParts({ status, problem }) {
  const { title, detail, errors } = problem ?? {
    title: `Status ${status}`,
    detail: '',
    errors: [],
  };
  const head = h('p', { className: 'problem' }, h('strong', {}, title), detail && `: ${detail}`);
  const list = errors.map((one) => h('li', {}, h('code', {}, one.path), ' ', one.detail));
  return [head, errors.length > 0 && h('ul', { className: 'mistakes' }, list)];
}

/** A view's heading, which gets the focus when the view is shown. @param {string} text */
export function heading(text) {
  return h('h2', { tabindex: '-1' }, text);
}

/** @param {number} ms since 1970, in the browser's zone, and exactly in its `datetime` */
export function when(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return h('span', {}, 'at no time');
  return h('time', { datetime: date.toISOString() }, whenText(date));
}

/** A time with its offset from UTC: `2026-11-24 22:13:01 +01:00`. @param {Date} date */
export function whenText(date) {
  const pad = (/** @type {number} */ n) => String(n).padStart(2, '0');
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  const minutes = -date.getTimezoneOffset();
  const away = Math.abs(minutes);
  const offset = `${minutes < 0 ? '−' : '+'}${pad(Math.floor(away / 60))}:${pad(away % 60)}`;
  return `${day} ${time} ${offset}`;
}

const UNITS = /** @type {const} */ ([
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
]);

/** A length of time in its two greatest units, rounded up. @param {number} ms */
export function span(ms) {
  if (!Number.isFinite(ms) || ms <= 0) return '0 s';
  if (ms < 1_000) return `${Math.ceil(ms)} ms`;
  let left = Math.ceil(ms / 1_000) * 1_000;
  const parts = [];
  for (const [unit, name] of UNITS) {
    const count = Math.floor(left / unit);
    left -= count * unit;
    if (count > 0) parts.push(`${count} ${name}`);
  }
  return parts.slice(0, 2).join(' ');
}

/**
 * Asks for a confirmation; true when the user confirms.
 * @param {string} question
 * @param {string} verb the label of the button
 * @param {...(Node|string|false|null)} more
 * @returns {Promise<boolean>}
 */
export function confirmed(question, verb, ...more) {
  const id = newId('question');
  return new Promise((resolve) => {
    const close = (/** @type {string} */ value) => () => dialog.close(value);
    const no = h('button', { type: 'button', onclick: close('no'), 'data-testid': 'no' }, 'Cancel');
    const yes = h(
      'button',
      { type: 'button', className: 'danger', onclick: close('yes'), 'data-testid': 'yes' },
      verb,
    );
    const parts = [h('h2', { id }, question), ...more, h('div', { className: 'row' }, no, yes)];
    const dialog = h(
      'dialog',
      { 'aria-labelledby': id, 'data-testid': 'dialog' },
      ...parts.filter((part) => part !== false),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}

/**
 * A form with one operation, which cannot be sent again while it runs.
 * @param {(event: SubmitEvent) => Promise<void>} work
 * @param {Record<string, unknown>} props
 * @param {...(Node|string|false|null)} children
 */
export function form(work, props, ...children) {
  const element = h('form', props, ...children);
  let isBusy = false;
  element.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    element.setAttribute('aria-busy', 'true');
    await work(event).finally(() => {
      isBusy = false;
      element.removeAttribute('aria-busy');
    });
  });
  return element;
}
