/**
 * The view of the policy: a text with its mistakes as it is typed, what would change, and the
 * button that puts it in force.
 *
 * Invariant: only the exact text that passed a dry run, against the exact version that it names,
 * can be put in force; after a concurrent change both texts are shown and nothing is overwritten.
 * Test ids: policy, editor, mistakes, review, diff, counts, put, policy-said, newer, keep-mine,
 * take-theirs.
 */

import { answer as say } from '../../tollgate-playground/web/announce.js';
import { fill, h } from '../../tollgate-playground/web/dom.js';
import { ask } from './api.js';
import { changesOf, diffOf } from './changes.js';
import { confirmed, done, heading, outcome, when, wrong } from './parts.js';
import { lineOf, placeOf } from './places.js';

/** The longest document that the API accepts. */
const MOST = 1_048_576;
/** The most mistakes shown at once. */
const MOST_MISTAKES = 100;

/** @typedef {import('./api.js').Answer} Answer */
/** @typedef {{text: string, etag: string|null, version: string, source: string}} InForce */

export class PolicyView {
  /** @type {InForce|null} */ #inForce = null;
  #text = '';
  /** Counts requests, so that a late response about an older text is ignored. */ #asked = 0;
  /** @type {AbortController|null} */ #running = null;
  /** @type {any} */ #editor = null;
  /** @type {any} */ #passed = null;
  #about = h('p', { className: 'quiet' }, 'Reading the policy…');
  #place = h('div', { className: 'editor', 'data-testid': 'editor' });
  #mistakes = h('div', { className: 'verdict', role: 'status', 'data-testid': 'mistakes' });
  #newer = h('div', { 'data-testid': 'newer' });
  #review = h('div', { className: 'review', 'data-testid': 'review' });
  #said = outcome('policy-said');

  /** @param {boolean} canWrite */
  constructor(canWrite) {
    this.canWrite = canWrite;
    this.element = h(
      'section',
      { 'data-testid': 'policy', 'aria-labelledby': 'policy-head' },
      Object.assign(heading('Policy'), { id: 'policy-head' }),
      this.#about,
      this.#newer,
      h(
        'div',
        { className: 'two' },
        h('div', {}, this.#place, this.#mistakes),
        h('div', {}, this.#said, this.#review),
      ),
    );
  }

  async shown() {
    if (this.#inForce && this.#text !== this.#inForce.text) return this.#check(this.#text);
    await this.load();
  }

  /** True when leaving loses no typed text. */
  get isClean() {
    return this.#inForce === null || this.#text === this.#inForce.text;
  }

  async load() {
    const answer = await ask('GET', 'admin/policy');
    if (!answer.ok) return wrong(this.#said, answer);
    this.#use(answer, answer.text);
  }

  /** @param {Answer} answer what is in force @param {string} text what the editor shows */
  #use(answer, text) {
    const field = (/** @type {string} */ name) => answer.header(`tollgate-policy-${name}`) ?? '?';
    this.#inForce = {
      text: answer.text,
      etag: answer.etag,
      version: field('version'),
      source: field('source'),
    };
    fill(
      this.#about,
      `In force: version ${this.#inForce.version}, ${this.#inForce.source === 'deployed' ? 'the deployed file' : 'put over the API'}.`,
      this.canWrite
        ? ' Keys of tokens are masked and kept by name. F8 goes to the next mistake, Escape and then Tab leaves the editor.'
        : ' This token reads only.',
    );
    fill(this.#newer);
    return this.#edit(text);
  }

  /** @param {string} text */
  async #edit(text) {
    this.#text = text;
    const { PolicyEditor } = await import('../../tollgate-playground/web/editor.js');
    this.#editor?.destroy();
    const engine = {
      ask: (/** @type {string} */ what, /** @type {any[]} */ [asked]) =>
        what === 'check' ? this.#check(asked) : Promise.resolve([]),
    };
    this.#editor = new PolicyEditor(
      this.#place,
      text,
      /** @type {any} */ (engine),
      (/** @type {string} */ changed) => this.#changed(changed),
      () => {},
      MOST,
    );
    this.#changed(text);
  }

  /** The text that passed is no longer the text in the editor. @param {string} text */
  #changed(text) {
    this.#text = text;
    this.#passed = null;
    this.#running?.abort();
    fill(
      this.#review,
      this.isClean
        ? h(
            'p',
            { className: 'quiet' },
            this.canWrite ? 'Change the text to see here what it would do.' : '',
          )
        : h('p', { className: 'quiet' }, 'Checking…'),
    );
  }

  /**
   * Sends the text to a dry run, for the editor's underlines.
   * @param {string} text
   */
  async #check(text) {
    const nothing = { problems: [], warnings: [] };
    if (!this.canWrite || !this.#inForce) return nothing;
    this.#running?.abort();
    const running = new AbortController();
    this.#running = running;
    const asked = (this.#asked += 1);
    const answer = await ask('PUT', 'admin/policy?dry_run', {
      body: text,
      match: this.#inForce.etag,
      signal: running.signal,
    });
    if (asked !== this.#asked || running.signal.aborted || text !== this.#text) return nothing;
    if (answer.status === 412) {
      await this.#outrun();
      return nothing;
    }
    if (!answer.ok) return this.#showMistakes(text, answer);
    fill(
      this.#mistakes,
      h('p', { className: 'quiet' }, this.isClean ? 'As it is in force.' : 'No mistakes.'),
    );
    if (!this.isClean) this.#showReview(text, answer.json);
    return nothing;
  }

  /** @param {string} text @param {Answer} answer */
  #showMistakes(text, answer) {
    const errors = answer.problem?.errors ?? [];
    const found =
      errors.length > 0
        ? errors
            .slice(0, MOST_MISTAKES)
            .map(({ path, detail }) => ({ path, detail, ...placeOf(text, path) }))
        : [unread(text, answer)];
    found.sort((one, other) => one.from - other.from);
    const total = Math.max(errors.length, found.length);
    const count = `${total} mistake${total === 1 ? '' : 's'}`;
    const rows = found.map(({ path, detail, from }) =>
      h(
        'li',
        {},
        h('span', { className: 'at' }, `line ${lineOf(text, from)}`),
        ' ',
        h('span', {}, path && h('code', {}, path), path && ' ', detail),
      ),
    );
    fill(
      this.#mistakes,
      h('p', { className: 'problem' }, h('strong', {}, count), ', so nothing can be put in force'),
      h('ul', { className: 'mistakes' }, rows),
      total > rows.length && h('p', {}, `${total - rows.length} more`),
    );
    fill(this.#review);
    return {
      problems: found.map(({ from, to, path, detail }) => ({
        from,
        to,
        message: path ? `${path}: ${detail}` : detail,
      })),
      warnings: [],
    };
  }

  /** @param {string} text @param {any} report */
  #showReview(text, report) {
    this.#passed = { text, etag: this.#inForce?.etag };
    fill(this.#said);
    const put = h(
      'button',
      { type: 'button', className: 'strong', 'data-testid': 'put', onclick: () => this.#put() },
      'Put in force',
    );
    const back = h(
      'button',
      { type: 'button', 'data-testid': 'discard', onclick: () => this.#discard() },
      'Discard',
    );
    fill(
      this.#review,
      h('h3', {}, 'What would change'),
      ...changesOf(report),
      ...diffOf(this.#inForce?.text ?? '', text, 'Lines that change'),
      h('div', { className: 'row' }, put, back),
    );
  }

  async #discard() {
    const isSure = await confirmed('Discard what you have typed?', 'Discard');
    if (isSure) await this.load();
  }

  async #put() {
    const passed = this.#passed;
    if (!passed || passed.text !== this.#text) return;
    this.#passed = null;
    const answer = await ask('PUT', 'admin/policy', { body: passed.text, match: passed.etag });
    if (answer.status === 412 || answer.status === 409) return this.#outrun();
    if (!answer.ok) return wrong(this.#said, answer);
    await this.load();
    done(this.#said, `Version ${answer.json?.version} is in force. Isolates follow within 5 s.`);
    this.#said.scrollIntoView({ block: 'nearest' });
  }

  /** Another operator changed the policy first: shows that version and the choice of texts. */
  async #outrun() {
    const [theirs, history] = await Promise.all([
      ask('GET', 'admin/policy'),
      ask('GET', 'admin/policy/history?limit=1'),
    ]);
    if (!theirs.ok) return wrong(this.#said, theirs);
    const row = history.json?.versions?.[0];
    const before = this.#inForce?.text ?? '';
    const mine = this.#text;
    this.#passed = null;
    fill(this.#review);
    const keep = async () => {
      await this.#use(theirs, mine);
      say('Your text is compared with theirs now');
    };
    const take = async () => {
      await this.#use(theirs, theirs.text);
      say('Their policy is loaded');
    };
    fill(
      this.#newer,
      h(
        'div',
        { className: 'notice', role: 'alert' },
        h(
          'p',
          { className: 'problem' },
          h('strong', {}, 'The policy was changed meanwhile'),
          row
            ? [
                `: version ${row.version} (${row.kind}) by `,
                h('code', {}, row.who ?? 'no name'),
                ', ',
                when(row.at_ms),
              ].map((part) => part)
            : '',
          '. Nothing of yours was put in force.',
        ),
        ...diffOf(before, theirs.text, 'Changes by another operator'),
        h(
          'div',
          { className: 'row' },
          h(
            'button',
            { type: 'button', 'data-testid': 'keep-mine', onclick: keep },
            'Keep my text, compare it with theirs',
          ),
          h(
            'button',
            { type: 'button', 'data-testid': 'take-theirs', onclick: take },
            'Drop my text, load theirs',
          ),
        ),
      ),
    );
    this.#newer.scrollIntoView({ block: 'nearest' });
  }
}

/** A text that is not JSON, or a refusal without places. @param {string} text @param {Answer} answer */
function unread(text, answer) {
  const detail = [answer.problem?.title, answer.problem?.detail].filter(Boolean).join(': ');
  const [, line] = /line (\d+)/.exec(detail) ?? [];
  const from = line ? startOf(text, Number(line)) : 0;
  const end = text.indexOf('\n', from);
  return { path: '', detail, from, to: Math.max(from, end === -1 ? text.length : end) };
}

/** @param {string} text @param {number} line */
function startOf(text, line) {
  let at = 0;
  for (let n = 1; n < line; n += 1) {
    const next = text.indexOf('\n', at);
    if (next === -1) return at;
    at = next + 1;
  }
  return at;
}
