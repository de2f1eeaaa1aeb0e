/**
 * One lane: a policy, its run of the common traffic in a thread of its own, and its display.
 *
 * Invariant: all shown numbers belong to one run; while the next run continues, the old numbers
 * stay and are marked as old, so the layout does not move.
 */

import { command } from './command.js';
import { onCursor } from './cursor.js';
import { fill, h, table } from './dom.js';
import { count, duration } from './format.js';
import { Engine } from './engine.js';
import { LaneSetup } from './lane-setup.js';
import { logResult } from './log-result.js';
import { Plot } from './plot.js';
import { Response, inWords } from './response.js';
import * as series from './series.js';
import { laneName, policyText } from './state.js';
import { figures, tablesOf } from './summary.js';

/** @typedef {import('./state.js').LaneState} LaneState */

export class Lane {
  engine = new Engine();
  /** @type {import('./series.js').Watched|null} */ watched = null;
  /** @type {any} the table of the last run */ result = null;
  /** @type {any} the result of the access log that it shows */ logged = null;
  /** @type {import('./response.js').Shown|null} */ shown = null;
  span = 1;
  #run = 0;
  #isAsking = false;
  /** @type {import('./cursor.js').Cursor|null} */ #wanted = null;
  /** @type {series.Values|null} */ #values = null;
  #ran = { policy: '', traffic: '', seed: 0 };
  #endCursor;

  title = h('h3', { tabindex: '-1' });
  removal = h(
    'button',
    { type: 'button', className: 'plain', 'data-testid': 'remove-lane' },
    'remove',
  );
  status = h('p', { className: 'status', 'data-testid': 'lane-status' });
  bar = h('progress', { max: 1, hidden: true });
  figures = h('dl', { className: 'figures', 'data-testid': 'figures' });
  statePlace = h('div', { className: 'state-place' });
  replayed = h('div', { className: 'log-result', 'data-testid': 'log-result' });
  tables = h('div', { className: 'tables' });
  numbers = h(
    'details',
    { 'data-testid': 'numbers' },
    h('summary', {}, 'As tables, and for the command line'),
    this.tables,
  );
  element = h('article', { className: 'lane' });

  /**
   * @param {string} letter A to D
   * @param {LaneState} state
   * @param {keyof typeof series.STATES} stateName what the third plot shows
   * @param {{changed: (state: LaneState) => void, remove: () => void, finished: () => void}} page
   */
  constructor(letter, state, stateName, page) {
    this.letter = letter;
    this.state = state;
    this.stateName = stateName;
    this.page = page;
    this.requests = new Plot(series.requestsStyle());
    this.counts = new Plot(series.countStyle());
    this.states = new Plot(series.stateStyle(stateName));
    this.response = new Response(letter);
    this.setup = new LaneSetup(letter, state, this.engine, (next) => {
      this.state = next;
      this.#name();
      page.changed(next);
    });
    this.#build();
    this.#endCursor = onCursor((cursor) => this.point(cursor));
  }

  destroy() {
    this.#endCursor();
    this.#run += 1;
    this.engine.end();
    this.setup.destroy();
    [this.requests, this.counts, this.states].forEach((plot) => plot.destroy());
    this.element.remove();
  }

  #build() {
    const { letter } = this;
    this.title.id = `lane-${letter}`;
    this.bar.setAttribute('aria-label', `progress of lane ${letter}`);
    this.removal.setAttribute('aria-label', `remove lane ${letter}`);
    this.removal.addEventListener('click', () => this.page.remove());
    this.numbers.addEventListener('toggle', () => void this.#showTables());
    this.statePlace.append(this.states.element);
    this.element.setAttribute('data-testid', `lane-${letter}`);
    this.element.setAttribute('aria-labelledby', `lane-${letter}`);
    this.element.append(
      h(
        'header',
        {},
        h('span', { className: 'letter', 'aria-hidden': 'true' }, letter),
        this.title,
        this.setup.toggle,
        this.removal,
      ),
      this.setup.element,
      this.requests.element,
      h('div', { className: 'outcome' }, this.bar, this.status, this.figures),
      this.counts.element,
      this.statePlace,
      this.response.element,
      this.numbers,
      this.replayed,
    );
    this.#name();
    fill(this.figures, figures(null, null));
  }

  #name() {
    fill(
      this.title,
      h('span', { className: 'visually-hidden' }, `Lane ${this.letter}: `),
      laneName(this.state),
    );
  }

  /**
   * Runs the traffic. Never fails: the lane shows the error.
   * @param {string} traffic
   * @param {number} seed
   */
  async run(traffic, seed) {
    this.#run += 1;
    const mine = this.#run;
    this.element.dataset.state = 'running';
    const policy = policyText(this.state);
    try {
      const done = await this.engine.ask(
        'run',
        [policy, traffic, seed],
        (progress) => {
          if (mine === this.#run) this.#tell(progress);
        },
      );
      const values = await this.engine.ask('series', [
        series.SERIES,
        series.buckets(this.requests.width),
      ]);
      if (mine !== this.#run) return;
      Object.assign(this, { watched: done.watched, result: done.table, span: done.span });
      this.#values = values;
      this.#ran = { policy, traffic, seed };
      this.#finish();
    } catch (error) {
      if (mine !== this.#run) return;
      this.#fail(error instanceof Error ? error.message : String(error));
    }
  }

  /**
   * Replays an access log. Never fails: the lane shows the error.
   * @param {File} file
   * @param {import('./log-drop.js').LogOptions} options
   * @returns {Promise<boolean>} whether it reached its end
   */
  async replay(file, options) {
    this.#run += 1;
    const mine = this.#run;
    this.element.dataset.state = 'running';
    fill(this.status);
    fill(this.replayed);
    this.logged = null;
    try {
      const { summary, damage } = await this.engine.ask(
        'replay',
        [policyText(this.state), file, options],
        ({ read, size }) => {
          this.bar.hidden = false;
          this.bar.value = size ? read / size : 1;
        },
      );
      if (mine !== this.#run) return false;
      this.logged = summary;
      fill(this.replayed, ...logResult(summary, damage));
      this.bar.hidden = true;
      this.element.dataset.state = 'done';
      return true;
    } catch (error) {
      if (mine === this.#run) this.#fail(error instanceof Error ? error.message : String(error));
      return false;
    }
  }

  /** Ends a run or a replay that takes too long. */
  cancel() {
    this.engine.stop();
  }

  /** @param {{offered: number, at_ms: number, length_ms: number}} progress */
  #tell(progress) {
    this.bar.hidden = false;
    this.bar.value = Math.min(1, progress.at_ms / progress.length_ms);
  }

  #finish() {
    this.bar.hidden = true;
    this.element.dataset.state = 'done';
    fill(this.status);
    fill(this.figures, figures(this.result, this.watched));
    this.draw();
    this.page.finished();
    void this.#showTables();
  }

  /** @param {string} why */
  #fail(why) {
    this.bar.hidden = true;
    this.element.dataset.state = 'failed';
    fill(this.status, h('span', { className: 'problem' }, why));
    this.page.finished();
  }

  /** Shows the run in the plots. */
  draw() {
    const values = this.#values;
    if (!values) return;
    const { span, watched } = this;
    this.requests.show(
      [values.admitted, values.delayed, values.denied],
      span,
      null,
      series.sayRequests(values, span),
    );
    fill(
      this.counts.title,
      watched ? `Last ${duration(watched.window_ms)} of ${watched.client}` : 'In the last window',
    );
    const limit = watched && { text: `limit ${watched.limit}`, value: watched.limit };
    this.counts.show(
      [values.true_count, values.estimate],
      span,
      limit,
      series.sayCount(values, span, watched),
    );
    this.states.show(
      [values[this.stateName]],
      span,
      null,
      series.sayState(values, span, this.stateName),
    );
  }

  /** Shows another name of the state in the third plot. @param {keyof typeof series.STATES} name */
  showState(name) {
    if (name === this.stateName) return;
    this.stateName = name;
    this.states.destroy();
    this.states = new Plot(series.stateStyle(name));
    fill(this.statePlace, this.states.element);
    this.draw();
  }

  /**
   * Shows the request under the cursor; of many moves only the last sends a request.
   * @param {import('./cursor.js').Cursor} cursor
   */
  async point(cursor) {
    this.#wanted = cursor;
    if (this.#isAsking || !this.#values) return;
    this.#isAsking = true;
    while (this.#wanted) {
      const { at_ms, index } = this.#wanted;
      this.#wanted = null;
      // A request late in a long run is found by running up to it.
      const slow = setTimeout(() => {
        this.response.element.dataset.pending = '';
      }, 200);
      try {
        this.shown = await this.engine.ask('request', [at_ms, index]);
      } catch {
        this.shown = null;
      }
      clearTimeout(slow);
      delete this.response.element.dataset.pending;
      this.response.show(this.shown, this.span);
    }
    this.#isAsking = false;
  }

  /** Shows that no request has come yet: a response of another run is not valid in this one. */
  showNobody() {
    this.shown = null;
    this.response.show(null, this.span);
  }

  /** Ends the current run, and stops showing a log. */
  setAside() {
    if (this.element.dataset.state === 'running') {
      this.engine.stop();
      delete this.element.dataset.state;
    }
    this.#run += 1;
    this.bar.hidden = true;
    fill(this.status);
    fill(this.replayed);
    this.logged = null;
  }

  /** Records whether it is the only lane, which cannot be removed. @param {boolean} isOnly */
  only(isOnly) {
    this.removal.disabled = isOnly;
  }

  /** The result of the run, in a sentence. */
  summary() {
    const t = this.result;
    if (!t || this.element.dataset.state !== 'done') return '';
    return `${this.letter}, ${laneName(this.state)}: ${count(t.admitted)} of ${count(t.offered)} admitted, ${count(t.delayed)} delayed, ${count(t.denied)} denied.`;
  }

  /** The approximate time of the first denial, in milliseconds; `null` when none was. */
  firstDenied() {
    const denied = this.#values?.denied;
    const at = denied?.findIndex((n) => n > 0) ?? -1;
    return denied && at >= 0 ? ((at + 1) * this.span) / denied.length : null;
  }

  /** The decision of this lane in a few words, for the live region. */
  answer() {
    return this.shown ? `${this.letter} ${inWords(this.shown)}` : '';
  }

  /** Lines for a shell that print the same numbers. */
  #command() {
    const lines = command(this.#ran.policy, this.#ran.traffic, this.#ran.seed);
    if (!lines) return null;
    const said = h('span', { className: 'quiet' });
    const copy = h(
      'button',
      {
        type: 'button',
        'data-testid': 'copy-command',
        onclick: async () => {
          try {
            // A page that came without encryption has no clipboard.
            await navigator.clipboard.writeText(lines);
            fill(said, 'copied');
          } catch {
            fill(said, 'the browser does not allow it');
          }
        },
      },
      'Copy the command',
    );
    return h('p', {}, copy, ' ', said);
  }

  async #showTables() {
    if (!this.numbers.open || !this.#values) return;
    // None when the run was ended meanwhile: then nothing is shown.
    const values = await this.engine
      .ask('series', [series.SERIES, series.ROWS])
      .catch(() => null);
    if (!values) {
      fill(this.tables);
      return;
    }
    const rows = series.tableRows(values, this.span);
    const name = `${this.letter}, ${laneName(this.state)}`;
    fill(
      this.tables,
      this.#command(),
      table(`${name}: over time`, series.TABLE_HEADS, rows, 'series-table'),
      ...tablesOf(this.result, name),
    );
  }
}
