/**
 * The view of rates: for each rule the rates of allowed and denied requests and, in shadow mode, of
 * those that it would deny.
 *
 * Invariant: the metrics are fetched every ten seconds while the page is visible, and at once when
 * it becomes visible again; a failed reading is reported and leaves a gap. A table below each plot
 * contains its numbers. Test ids: rates, figure-NAME, rule-rates, now-KIND, rates-said,
 * rates-table, idle.
 */

import { fill, h, table } from '../../tollgate-playground/web/dom.js';
import { ask } from './api.js';
import { heading, problemParts, when } from './parts.js';
import { MOST_RULES, Rates } from './rate-model.js';
import { RatePlot, perSecond } from './rate-plot.js';

const EVERY_MS = 10_000;
/** Rows of a rule's table, the newest first. */
const ROWS = 12;

/** @typedef {import('./rate-model.js').Total} Total */
/** @type {[Total, string, string][]} */
const FIGURES = [
  ['requests', 'Requests', '/s'],
  ['refused', 'Refused', '/s'],
  ['remembered', 'Refused from memory', '/s'],
  ['calls', 'Object calls', '/s'],
  ['failures', 'Object failures', '/s'],
  ['undecided', 'Decided by on_failure', '/s'],
];
const STYLES = [
  { kind: /** @type {const} */ ('admitted'), label: 'admitted', colour: 'admitted' },
  { kind: /** @type {const} */ ('refused'), label: 'refused', colour: 'denied' },
  {
    kind: /** @type {const} */ ('would'),
    label: 'would be refused',
    colour: 'estimate',
    dash: [6, 4],
  },
  { kind: /** @type {const} */ ('failed'), label: 'failed', colour: 'left', dash: [2, 3] },
];

export class RatesView {
  #rates = new Rates();
  /** @type {Map<string, {card: HTMLElement, plot: RatePlot, figures: HTMLElement, rows: HTMLElement}>} */ #cards =
    new Map();
  #said = h('p', { className: 'quiet', 'data-testid': 'rates-said' }, 'Reading the metrics…');
  #problem = h('div', { role: 'status' });
  #figures = h('dl', { className: 'figures' });
  #all = h('div', { className: 'cards' });
  #idle = h('div', { 'data-testid': 'idle' });
  /** @type {number|undefined} */ #timer;
  #isEnded = false;

  constructor() {
    this.element = h(
      'section',
      { 'data-testid': 'rates', 'aria-labelledby': 'rates-head' },
      Object.assign(heading('Rates'), { id: 'rates-head' }),
      this.#said,
      this.#problem,
      this.#figures,
      this.#all,
      this.#idle,
    );
    document.addEventListener('visibilitychange', this.#seen);
    this.#poll();
  }

  /** The plots have a size now. */
  shown() {
    this.#show();
  }

  end() {
    this.#isEnded = true;
    clearTimeout(this.#timer);
    document.removeEventListener('visibilitychange', this.#seen);
  }

  #seen = () => {
    clearTimeout(this.#timer);
    if (!document.hidden) this.#poll();
  };

  async #poll() {
    const answer = await ask('GET', 'metrics');
    if (this.#isEnded) return;
    if (answer.ok) {
      this.#rates.add(answer.text, Date.now());
      fill(this.#problem);
      this.#show();
    } else {
      this.#rates.miss();
      fill(this.#problem, ...problemParts(answer));
    }
    clearTimeout(this.#timer);
    if (!document.hidden) this.#timer = window.setTimeout(() => this.#poll(), EVERY_MS);
  }

  #show() {
    const { last, rules } = this.#rates;
    if (!last) return;
    fill(
      this.#said,
      'Read at ',
      when(last.at),
      this.#rates.times.length === 0
        ? '; rates follow with the next reading, in 10 s.'
        : ', every 10 s.',
      ` Policy version ${last.version}, ${last.isolates} isolate${last.isolates === 1 ? '' : 's'}.`,
      this.#rates.unread ? ` ${this.#rates.unread} lines could not be read.` : '',
    );
    fill(
      this.#figures,
      FIGURES.map(([name, label, unit]) =>
        h(
          'div',
          { className: `figure figure-${name}` },
          h('dt', {}, label),
          h(
            'dd',
            { 'data-testid': `figure-${name}` },
            this.#now(name, unit, whole(last.totals[name])),
          ),
        ),
      ),
    );
    const active = rules.filter((rule) => this.#rates.isActive(rule)).slice(0, MOST_RULES);
    for (const [rule, { card, plot }] of this.#cards) {
      if (active.includes(rule)) continue;
      plot.end();
      card.remove();
      this.#cards.delete(rule);
    }
    active.forEach((rule, i) => this.#showRule(rule, last.rules.get(rule), i));
    this.#showIdle(
      rules.filter((rule) => !active.includes(rule)),
      last,
    );
  }

  /**
   * The rate with the total below it; before there is a rate the total.
   * @param {Total} name @param {string} unit @param {string} total
   */
  #now(name, unit, total) {
    const rate = this.#rates.total(name);
    if (rate === null) return [h('strong', {}, total), h('span', { className: 'quiet' }, ' in all')];
    return [
      h('strong', {}, perSecond(rate)),
      h('span', { className: 'quiet' }, ` ${unit}`),
      h('span', { className: 'quiet total' }, `${total} in all`),
    ];
  }

  /** @param {string[]} rules @param {import('./rate-model.js').Reading} last */
  #showIdle(rules, last) {
    if (last.rules.size === 0)
      return fill(this.#idle, h('p', { className: 'quiet' }, 'No rule has decided anything yet.'));
    if (rules.length === 0) return fill(this.#idle);
    const cells = rules
      .slice(0, MOST_RULES)
      .map((rule) => [rule, ...STYLES.map(({ kind }) => whole(last.rules.get(rule)?.[kind] ?? 0))]);
    const left = rules.length - cells.length;
    fill(
      this.#idle,
      table(
        this.#rates.times.length === 0
          ? 'Requests in all, by rule'
          : 'Not asked since this page was opened: requests in all',
        ['rule', ...STYLES.map(({ label }) => label)],
        cells,
        'idle-rules',
      ),
      left > 0 && h('p', { className: 'quiet' }, `${left} more rules are not shown.`),
    );
  }

  /** @param {string} rule @param {import('./rate-model.js').Counts|undefined} counts @param {number} place */
  #showRule(rule, counts, place) {
    const { card, plot, figures, rows } = this.#cards.get(rule) ?? this.#make(rule);
    const there = this.#all.children[place] ?? null;
    if (there !== card) this.#all.insertBefore(card, there);
    const times = this.#rates.times;
    const rates = STYLES.map(({ kind }) => this.#rates.rule(rule, kind));
    const now = STYLES.map(({ label }, i) => `${label} ${perSecond(rates[i].at(-1) ?? null)}`);
    plot.show(times, rates, `Rule ${rule}, requests a second now: ${now.join(', ')}`);
    fill(
      figures,
      STYLES.map(({ kind, label, colour }, i) =>
        h(
          'div',
          { className: `figure colour-${colour}` },
          h('dt', {}, label),
          h(
            'dd',
            { 'data-testid': `now-${kind}` },
            h('strong', {}, perSecond(rates[i].at(-1) ?? null)),
            h('span', { className: 'quiet' }, ' /s'),
            h('span', { className: 'quiet total' }, `${whole(counts?.[kind] ?? 0)} in all`),
          ),
        ),
      ),
    );
    const newest = times
      .map((_, i) => i)
      .reverse()
      .slice(0, ROWS);
    const cells = newest.map((i) => [
      when(times[i] * 1_000),
      ...rates.map((one) => perSecond(one[i])),
    ]);
    fill(
      rows,
      table(
        `Requests a second of rule ${rule}`,
        ['at', ...STYLES.map(({ label }) => label)],
        cells,
        'rates-table',
      ),
    );
  }

  /** @param {string} rule */
  #make(rule) {
    const plot = new RatePlot(`Rule ${rule}`, STYLES);
    const figures = h('dl', { className: 'figures small' });
    const rows = h('div', {});
    const card = h(
      'article',
      { className: 'card', 'data-testid': 'rule-rates' },
      h('h3', {}, rule),
      figures,
      plot.element,
      h('details', {}, h('summary', {}, 'As a table'), rows),
    );
    const made = { card, plot, figures, rows };
    this.#cards.set(rule, made);
    return made;
  }
}

/** @param {number} n */
const whole = (n) =>
  Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ',');
