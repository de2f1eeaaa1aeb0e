/**
 * The drop area for an access log, and the options for reading it.
 *
 * Invariant: the file is handed to the lanes' threads as a file; no byte of it is read on the
 * main thread, kept, or sent anywhere.
 */

import { fill, h, labelled } from './dom.js';
import { bytes, plural } from './format.js';

/** @typedef {{replay: (file: File, options: LogOptions) => void, cancel: () => void}} LogPage */
/** @typedef {{format: string, include_refused: boolean, suggest: boolean, touch: string, map: string[], assume: string[]}} LogOptions what the worker's `Log` takes */

/** The formats by the names of the command line; empty to detect it from the first lines. */
const FORMATS = ['combined', 'common', 'envoy', 'envoy-json'];

export class LogDrop {
  /** @type {File|null} */ #file = null;
  /** The note about further files that were dropped with it. */ #more = '';

  /** @param {LogPage} page */
  constructor(page) {
    this.page = page;
    const names = h(
      'datalist',
      { id: 'log-formats' },
      FORMATS.map((name) => h('option', { value: name })),
    );
    this.format = h('input', {
      'data-testid': 'log-format',
      list: 'log-formats',
      placeholder: 'detected from its first lines',
      autocomplete: 'off',
      spellcheck: 'false',
      size: 24,
    });
    this.refused = h('input', { type: 'checkbox', id: 'log-refused' });
    this.suggest = h('input', { type: 'checkbox', id: 'log-suggest', 'data-testid': 'log-suggest' });
    this.touch = h('input', {
      'data-testid': 'log-touch',
      placeholder: '3%',
      autocomplete: 'off',
      spellcheck: 'false',
      size: 6,
    });
    this.map = lines('log-map', 'client=remote_addr');
    this.assume = lines('log-assume', 'header.x-api-key=\nhost=example.com');
    this.file = h('input', {
      type: 'file',
      'data-testid': 'log-file',
      onchange: () => this.#take(this.file.files?.[0]),
    });
    this.run = h(
      'button',
      { type: 'button', 'data-testid': 'log-run', disabled: true, onclick: () => this.#start() },
      'Replay',
    );
    this.cancel = h(
      'button',
      { type: 'button', 'data-testid': 'log-cancel', hidden: true, onclick: () => page.cancel() },
      'Cancel',
    );
    this.status = h(
      'p',
      { className: 'quiet', 'data-testid': 'log-status', role: 'status' },
      'Plain or gzip. The file stays on this machine.',
    );
    this.element = h(
      'div',
      { className: 'drop', 'data-testid': 'drop' },
      labelled('Drop an access log anywhere on the page, or choose a file', this.file),
      h(
        'div',
        { className: 'row' },
        labelled('Format', this.format),
        names,
        h(
          'div',
          { className: 'check' },
          this.refused,
          h('label', { for: 'log-refused' }, 'replay refused requests (429, 503), too'),
        ),
        h(
          'div',
          { className: 'check' },
          this.suggest,
          h('label', { for: 'log-suggest' }, 'suggest limits (reads the log twice)'),
        ),
        labelled('that touch at most', this.touch),
        this.run,
        this.cancel,
      ),
      h(
        'details',
        {},
        h('summary', {}, 'When the log lacks fields that the policy reads'),
        h(
          'div',
          { className: 'row' },
          labelled('Columns by other names', this.map, 'FIELD=COLUMN, one a line'),
          labelled(
            'Assume of every request',
            this.assume,
            'FIELD=VALUE, one a line; nothing after = for a field that no request has',
          ),
        ),
      ),
      this.status,
    );
  }

  /** Takes a file that was dropped or chosen, and replays it at once. @param {File|undefined} file */
  #take(file) {
    if (!file) return;
    this.#file = file;
    this.#more = '';
    this.run.disabled = false;
    this.#start();
  }

  /** @param {File[]} files only the first is taken, and a note reports that */
  drop([file, ...others]) {
    const list = new DataTransfer();
    list.items.add(file);
    this.file.files = list.files;
    this.#take(file);
    if (others.length === 0) return;
    this.#more = ` One log at a time: ${plural(others.length, 'other file')} left out.`;
    this.running();
  }

  #start() {
    if (!this.#file) return;
    const each = (/** @type {HTMLTextAreaElement} */ area) =>
      area.value
        .split('\n')
        .map((line) => line.trim())
        .filter(Boolean);
    this.page.replay(this.#file, {
      format: this.format.value.trim(),
      include_refused: this.refused.checked,
      suggest: this.suggest.checked,
      touch: this.touch.value.trim(),
      map: each(this.map),
      assume: each(this.assume),
    });
  }

  running() {
    this.cancel.hidden = false;
    this.run.disabled = true;
    if (!this.#file) return;
    fill(this.status, `Replaying ${this.#file.name}, ${bytes(this.#file.size)}…${this.#more}`);
  }

  /** @param {string} said the outcome */
  ended(said) {
    this.cancel.hidden = true;
    this.run.disabled = false;
    fill(this.status, `${said}${this.#more}`);
  }
}

/** @param {string} testid @param {string} placeholder */
function lines(testid, placeholder) {
  return h('textarea', {
    rows: 2,
    cols: 34,
    'data-testid': testid,
    placeholder,
    spellcheck: 'false',
    autocomplete: 'off',
  });
}
