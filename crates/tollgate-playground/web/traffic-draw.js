/**
 * Traffic drawn by hand: a time line of bars that a pointer or the arrow keys pull up and down.
 *
 * Invariant: the drawing shows the list of counts and nothing else. The time line is a slider to a
 * keyboard and a screen reader: left and right choose a bin, up and down change its count.
 */

import { fill, h, labelled } from './dom.js';
import { keyed, spanMs, stroke, total, withCount } from './draw-bins.js';
import { duration, parseWindow, plural } from './format.js';

/** @typedef {import('./draw-bins.js').Drawing} Drawing */

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 120;
const BIN_SIZES = ['100ms', '250ms', '500ms', '1s', '5s', '1m'];

export class TrafficDraw {
  #bin = 0;
  /** @type {{bin: number, n: number}|null} where the pointer was */ #last = null;

  /**
   * @param {Drawing} drawing
   * @param {(drawing: Drawing) => void} changed
   */
  constructor(drawing, changed) {
    this.drawing = drawing;
    this.changed = changed;
    this.svg = document.createElementNS(SVG, 'svg');
    this.svg.setAttribute('preserveAspectRatio', 'none');
    this.svg.setAttribute('aria-hidden', 'true');
    this.area = h('div', {
      className: 'draw',
      tabindex: '0',
      role: 'slider',
      'aria-orientation': 'vertical',
      'data-testid': 'draw',
      'aria-label': 'requests in a bin; left and right choose the bin',
      'aria-valuemin': '0',
    });
    this.area.append(this.svg);
    this.said = h('p', { className: 'quiet', 'data-testid': 'draw-said' });
    this.size = h(
      'select',
      { 'data-testid': 'bin-size', onchange: () => this.#resize() },
      BIN_SIZES.map((size) =>
        h('option', { selected: parseWindow(size) === drawing.bin_ms }, size),
      ),
    );
    const clear = h(
      'button',
      {
        type: 'button',
        onclick: () => this.#change({ ...this.drawing, counts: this.drawing.counts.map(() => 0) }),
      },
      'Clear',
    );
    this.element = h(
      'div',
      {},
      this.area,
      h('div', { className: 'row' }, labelled('A bin lasts', this.size), clear, this.said),
      h(
        'p',
        { className: 'quiet' },
        'Draw with a pointer, or focus the time line: ← → choose a bin, ↑ ↓ change its count (Shift: by 10), Delete empties it.',
      ),
    );
    this.#listen();
    this.render();
  }

  /** @param {Drawing} drawing */
  #change(drawing) {
    this.drawing = drawing;
    this.render();
    this.changed(drawing);
  }

  #resize() {
    this.#change({ ...this.drawing, bin_ms: parseWindow(this.size.value) ?? 500 });
  }

  /** The top of the time line: it grows with the highest bar, in steps. */
  get #top() {
    const most = Math.max(...this.drawing.counts);
    return [10, 20, 50, 100, 200].find((top) => top >= most * 1.1) ?? 200;
  }

  #listen() {
    const { area } = this;
    area.addEventListener('pointerdown', (event) => {
      area.setPointerCapture(event.pointerId);
      this.#last = this.#at(event);
      this.#pull(this.#last);
    });
    area.addEventListener('pointermove', (event) => {
      if (this.#last && event.buttons > 0) this.#pull(this.#at(event));
    });
    for (const name of ['pointerup', 'pointercancel']) {
      area.addEventListener(name, () => {
        this.#last = null;
      });
    }
    area.addEventListener('keydown', (event) => this.#key(event));
  }

  /** @param {PointerEvent} event */
  #at(event) {
    const box = this.area.getBoundingClientRect();
    const bins = this.drawing.counts.length;
    const bin = Math.max(
      0,
      Math.min(bins - 1, Math.floor(((event.clientX - box.left) / box.width) * bins)),
    );
    return { bin, n: Math.round((1 - (event.clientY - box.top) / box.height) * this.#stable) };
  }

  /** The top stays fixed during a stroke; otherwise the bars would move away from the pointer. */
  #stable = 10;

  /** @param {{bin: number, n: number}} to */
  #pull(to) {
    const from = this.#last ?? to;
    this.#last = to;
    this.#bin = to.bin;
    this.#change(stroke(this.drawing, from, to));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const last = this.drawing.counts.length - 1;
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: this.#bin - 1, ArrowRight: this.#bin + 1, Home: 0, End: last };
    if (event.key in moves) {
      this.#bin = Math.max(0, Math.min(last, moves[event.key]));
      this.render();
    } else {
      const n = keyed(event.key, event.shiftKey, this.drawing.counts[this.#bin]);
      if (n === null) return;
      this.#change(withCount(this.drawing, this.#bin, n));
    }
    event.preventDefault();
  }

  render() {
    const { counts, bin_ms } = this.drawing;
    if (!this.#last) this.#stable = this.#top;
    this.svg.setAttribute('viewBox', `0 0 ${counts.length} ${HEIGHT}`);
    fill(this.svg, ...counts.map((n, i) => this.#bar(n, i)));
    const [from, to] = [this.#bin * bin_ms, (this.#bin + 1) * bin_ms];
    const here = counts[this.#bin];
    this.area.setAttribute('aria-valuemax', '200');
    this.area.setAttribute('aria-valuenow', String(here));
    const where = `bin ${this.#bin + 1} of ${counts.length}, from ${duration(from)} to ${duration(to)}`;
    this.area.setAttribute('aria-valuetext', `${plural(here, 'request')} in ${where}`);
    fill(
      this.said,
      `${plural(total(this.drawing), 'request')} in ${duration(spanMs(this.drawing))}; ${plural(here, 'request')} in ${where}. Top of the time line: ${this.#stable}.`,
    );
  }

  /** @param {number} n @param {number} i */
  #bar(n, i) {
    const bar = document.createElementNS(SVG, 'rect');
    const height = Math.max(n > 0 ? 2 : 1, Math.min(1, n / this.#stable) * HEIGHT);
    const shape = {
      x: i + 0.08,
      width: 0.84,
      y: HEIGHT - height,
      height,
      class: `bar${i === this.#bin ? ' is-chosen' : ''}${n ? '' : ' is-empty'}`,
    };
    for (const [name, value] of Object.entries(shape)) bar.setAttribute(name, String(value));
    return bar;
  }
}
