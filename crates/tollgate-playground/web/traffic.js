/**
 * The traffic of the lanes: from the models, drawn, clicked live, or from an access log.
 *
 * Invariant: each kind keeps its traffic while another one is shown. Every kind gives a run its
 * traffic document, except an access log, which is not the traffic of a run and never in a link.
 */

import { answer } from './announce.js';
import { h, newId } from './dom.js';
import { LogDrop } from './log-drop.js';
import { model } from './recipes.js';
import { TrafficDraw } from './traffic-draw.js';
import { TrafficLive } from './traffic-live.js';
import { TrafficModel } from './traffic-model.js';

/** @typedef {import('./state.js').TrafficState} TrafficState */

const KINDS = {
  model: 'From models',
  drawn: 'Drawn by hand',
  live: 'Clicked live',
  log: 'Access log',
};

/** A time line to draw on, when none came by a link: two bursts. */
const FIRST_COUNTS = Array.from({ length: 60 }, (_, i) =>
  i === 8 || i === 9 ? 8 : i > 24 && i < 34 ? 3 : i > 50 ? 1 : 0,
);

/**
 * The traffic document of a state.
 * @param {TrafficState} traffic
 * @returns {string}
 */
export function trafficDocument(traffic) {
  switch (traffic.kind) {
    case 'model':
      return traffic.json;
    case 'drawn': {
      const { bin_ms, counts } = traffic;
      return JSON.stringify({
        length: `${bin_ms * counts.length}ms`,
        sources: [{ name: 'drawn', arrivals: { counts: { bin: `${bin_ms}ms`, counts } } }],
      });
    }
    case 'live': {
      // Whole steps, so that the time axis does not move between two clicks.
      const last = traffic.at.at(-1) ?? 0;
      const length =
        [10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000].find((ms) => last < ms) ?? last + 1;
      return JSON.stringify({
        length: `${length}ms`,
        sources: [
          { name: 'clicked', arrivals: { instants: { at: traffic.at.map((ms) => `${ms}ms`) } } },
        ],
      });
    }
  }
}

export class TrafficPanel {
  /**
   * @param {HTMLElement} place
   * @param {TrafficState} traffic
   * @param {{changed: (traffic: TrafficState) => void, kind: (kind: string) => void, log: import('./log-drop.js').LogPage}} page
   */
  constructor(place, traffic, page) {
    this.page = page;
    this.kind = /** @type {string} */ (traffic.kind);
    const given = (/** @type {string} */ kind) => (traffic.kind === kind ? traffic : null);
    const drawn = /** @type {import('./state.js').DrawnTraffic|null} */ (given('drawn'));
    const live = /** @type {import('./state.js').LiveTraffic|null} */ (given('live'));
    const modelled = /** @type {import('./state.js').ModelTraffic|null} */ (given('model'));
    const first =
      modelled?.json ??
      model({
        length: '60s',
        sources: [{ name: 'clients', arrivals: { poisson: { rate: '2/s' } } }],
      }).json;
    this.model = new TrafficModel(first, () => this.#changed());
    this.drawing = new TrafficDraw(drawn ?? { bin_ms: 500, counts: FIRST_COUNTS }, () =>
      this.#changed(),
    );
    this.live = new TrafficLive(live?.at ?? [], () => this.#changed());
    this.log = new LogDrop(page.log);
    this.panels = {
      model: this.model.element,
      drawn: this.drawing.element,
      live: this.live.element,
      log: this.log.element,
    };
    this.element = h(
      'div',
      { className: 'traffic' },
      this.#choice(),
      ...Object.values(this.panels),
    );
    place.append(this.element);
    this.#show();
  }

  /** @returns {TrafficState|null} null for an access log */
  state() {
    switch (this.kind) {
      case 'model':
        return { kind: 'model', json: this.model.json };
      case 'drawn':
        return {
          kind: 'drawn',
          bin_ms: this.drawing.drawing.bin_ms,
          counts: this.drawing.drawing.counts,
        };
      case 'live':
        return { kind: 'live', at: this.live.at };
      default:
        return null;
    }
  }

  #choice() {
    const name = newId('traffic');
    const options = Object.entries(KINDS).map(([kind, label]) => {
      const radio = h('input', {
        type: 'radio',
        name,
        value: kind,
        id: newId('kind'),
        checked: kind === this.kind,
        'data-testid': `traffic-${kind}`,
        onchange: () => this.choose(kind),
      });
      return h('span', { className: 'segment' }, radio, h('label', { for: radio.id }, label));
    });
    return h(
      'fieldset',
      { className: 'segments' },
      h('legend', { className: 'visually-hidden' }, 'Kind of traffic'),
      options,
    );
  }

  /** @param {string} kind */
  choose(kind) {
    this.kind = kind;
    const radio = this.element.querySelector(`input[type=radio][value=${kind}]`);
    if (radio instanceof HTMLInputElement) radio.checked = true;
    this.#show();
    this.page.kind(kind);
    if (kind !== 'log') this.#changed();
    else answer('Drop an access log, or choose a file.');
  }

  #show() {
    for (const [kind, panel] of Object.entries(this.panels)) panel.hidden = kind !== this.kind;
  }

  #changed() {
    const state = this.state();
    if (state) this.page.changed(state);
  }
}
