/**
 * One plot over time, with uPlot: stacked bars, or steps with a level line.
 *
 * Invariant: colours come from the style sheet, sizes from the element, and the vertical extent
 * from all lanes together, so that a greater height is a greater number. A plot is an image to a
 * screen reader, with a sentence that describes it; the lane's table contains its numbers.
 */

import uPlot from 'uplot';
import { cursor, moveTo, onCursor } from './cursor.js';
import { h } from './dom.js';
import { count, duration } from './format.js';
import { colour, onTheme } from './theme.js';

/**
 * @typedef {object} SeriesStyle
 * @property {string} name
 * @property {string} label
 * @property {string} colour the name of a custom property
 * @property {'bars'|'step'} shape
 * @property {number[]} [dash]
 */

/**
 * @typedef {object} PlotStyle
 * @property {string} title
 * @property {number} height
 * @property {SeriesStyle[]} series
 * @property {boolean} stacked
 * @property {boolean} hasTime whether the axis of time is shown below
 * @property {'count'|'ms'} unit
 * @property {boolean} [decays] a time that runs down between requests
 */

const FONT = '11px system-ui, sans-serif';
/** The left axis of all plots has one width, so that the same time has the same position. */
const AXIS = 44;

const isQuiet = () => null;
/** uPlot's own pointer handling is off: the cursor is the page's. */
const UNBOUND = Object.fromEntries(
  ['mousedown', 'mouseup', 'click', 'dblclick', 'mousemove', 'mouseleave', 'mouseenter'].map(
    (name) => [name, isQuiet],
  ),
);

export class Plot {
  /** @type {uPlot|null} made when there is something to show */ #plot = null;
  /** @type {{text: string, value: number}|null} */ #level = null;
  #most = 1;
  #own = 0;
  #span = 1;
  #ends;

  /** @param {PlotStyle} style */
  constructor(style) {
    this.style = style;
    this.image = h('div', { className: 'plot', role: 'img', 'aria-label': 'nothing to see yet' });
    this.image.style.height = `${style.height}px`;
    this.legend = h('span', { className: 'legend' });
    this.title = h('span', { className: 'plot-title' }, style.title);
    this.caption = h('figcaption', {}, this.title, this.legend);
    this.element = h('figure', {}, this.caption, this.image);
    this.#showLegend(style.series);
    const resized = new ResizeObserver(() => this.#fit());
    resized.observe(this.image);
    const ends = [onTheme(() => this.#plot?.redraw(false)), onCursor(() => this.#point())];
    this.#ends = () => {
      ends.forEach((end) => end());
      resized.disconnect();
      this.#plot?.destroy();
    };
  }

  /** The greatest visible value. */
  get own() {
    return Math.max(this.#own, this.#level?.value ?? 0);
  }

  /** The size of the plotted area in pixels. */
  get width() {
    return this.image.clientWidth - AXIS;
  }

  destroy() {
    this.#ends();
  }

  /**
   * Shows buckets of `span` milliseconds in all.
   * @param {Float64Array[]} values one for each series, in their order
   * @param {number} span
   * @param {{text: string, value: number}|null} level
   * @param {string} summary a sentence that describes the plot
   */
  show(values, span, level, summary) {
    this.#level = level;
    this.#span = span;
    const buckets = values[0].length;
    // The last point closes the last bucket.
    const x = Array.from({ length: buckets + 1 }, (_, i) => (i * span) / buckets / 1000);
    const shown = this.style.stacked
      ? stacked(values)
      : values.map((ys) => (this.style.decays ? decaying(ys, span) : held(ys)));
    this.#own = shown
      .flat()
      .reduce((/** @type {number} */ most, y) => (y !== null && y > most ? y : most), 0);
    this.image.setAttribute('aria-label', summary);
    const data = /** @type {uPlot.AlignedData} */ ([x, ...shown]);
    if (this.#plot) this.#plot.setData(data, true);
    else this.#begin(data);
    this.#point();
  }

  /** @param {uPlot.AlignedData} data */
  #begin(data) {
    this.#plot = new uPlot(this.#options(), data, this.image);
    this.#listen(this.#plot);
  }

  /** Makes the extent that of all lanes. @param {number} most */
  extend(most) {
    if (most === this.#most) return;
    this.#most = most;
    this.#plot?.setData(this.#plot.data, true);
    this.#point();
  }

  /** @param {SeriesStyle[]} series */
  #showLegend(series) {
    this.legend.replaceChildren(
      ...series.map(({ label, colour: name, shape, dash }) =>
        h(
          'span',
          {
            className: `key key-${shape}${dash ? ' key-dash' : ''}`,
            style: null,
            'data-colour': name,
          },
          label,
        ),
      ),
    );
  }

  /** @returns {uPlot.Options} */
  #options() {
    const { style } = this;
    const quiet = () => colour('quiet');
    const grid = { stroke: () => colour('hair'), width: 1 };
    const ticks = { stroke: () => colour('hair'), width: 1, size: 4 };
    const value = style.unit === 'ms' ? duration : count;
    return {
      width: Math.max(60, Math.floor(this.image.clientWidth)),
      height: style.height,
      padding: [10, 16, style.hasTime ? 0 : 6, 0],
      legend: { show: false },
      cursor: {
        show: true,
        y: false,
        points: { show: false },
        drag: { x: false, y: false, setScale: false },
        bind: UNBOUND,
      },
      scales: {
        x: { time: false, range: () => [0, this.#span / 1000] },
        y: { range: () => [0, Math.max(this.#most, this.own) * 1.06 || 1] },
      },
      axes: [
        {
          show: style.hasTime,
          stroke: quiet,
          grid: { show: false },
          ticks,
          font: FONT,
          size: 22,
          gap: 2,
          values: (_, splits) =>
            splits.map((s) => (s === 0 ? '0' : s < 120 && s >= 1 ? `${s} s` : duration(s * 1000))),
          space: 50,
          incrs: MS_STEPS.map((ms) => ms / 1000),
        },
        {
          stroke: quiet,
          grid,
          ticks,
          font: FONT,
          size: AXIS,
          gap: 3,
          space: 26,
          incrs: style.unit === 'ms' ? MS_STEPS : COUNT_STEPS,
          values: (_, splits) => splits.map((s) => (s === 0 ? '0' : value(s))),
        },
      ],
      series: [{}, ...this.#series()],
      hooks: { draw: [(u) => this.#drawLevel(u)] },
    };
  }

  /** @returns {uPlot.Series[]} */
  #series() {
    const bars = /** @type {Function} */ (uPlot.paths.bars)({
      size: [1, Infinity],
      align: 1,
      gap: 0,
    });
    const steps = /** @type {Function} */ (uPlot.paths.stepped)({ align: 1 });
    // The top series is drawn first, down to the axis, and the others over it.
    const order = this.style.stacked ? this.style.series.toReversed() : this.style.series;
    return order.map((one) => ({
      stroke: one.shape === 'bars' ? undefined : () => colour(one.colour),
      fill: one.shape === 'bars' ? () => colour(one.colour) : undefined,
      width: one.shape === 'bars' ? 0 : 1.75,
      dash: one.dash,
      paths: one.shape === 'bars' ? bars : steps,
      points: { show: false },
      spanGaps: true,
    }));
  }

  /** The level line (a limit), with its name on it. @param {uPlot} u */
  #drawLevel(u) {
    const level = this.#level;
    if (!level) return;
    const { ctx, bbox } = u;
    const y = Math.round(u.valToPos(level.value, 'y', true)) + 0.5;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = colour('text');
    ctx.lineWidth = ratio;
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = 'right';
    ctx.textBaseline = 'bottom';
    // An outline in the background colour, so that text on a line of data is readable.
    ctx.lineWidth = 3 * ratio;
    ctx.strokeStyle = colour('ground');
    ctx.fillStyle = colour('text');
    const at = /** @type {const} */ ([bbox.left + bbox.width - 2 * ratio, y - ratio]);
    ctx.strokeText(level.text, ...at);
    ctx.fillText(level.text, ...at);
    ctx.restore();
  }

  /** @param {uPlot} plot */
  #listen(plot) {
    const { over } = plot;
    const move = (/** @type {PointerEvent} */ event) => {
      const left = event.clientX - over.getBoundingClientRect().left;
      moveTo(Math.min(plot.posToVal(left, 'x') * 1000, this.#span));
    };
    over.addEventListener('pointermove', (event) => {
      if (event.pointerType === 'mouse' || event.buttons > 0) move(event);
    });
    over.addEventListener('pointerdown', move);
  }

  #point() {
    if (!this.#plot) return;
    const left = this.#plot.valToPos(cursor().at_ms / 1000, 'x');
    this.#plot.setCursor({ left: Number.isFinite(left) ? left : -10, top: 0 }, false);
  }

  #fit() {
    const width = Math.floor(this.image.clientWidth);
    if (this.#plot && width > 40 && width !== this.#plot.width) {
      this.#plot.setSize({ width, height: this.style.height });
      this.#point();
    }
  }
}

/** Steps of the axes: whole numbers only, and lengths of time that people count in. */
const COUNT_STEPS = [
  1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7, 1e8,
  1e9, 1e12,
];
const MS_STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5,
  36e5, 72e5, 216e5, 432e5, 864e5, 864e6,
];

/** Each series with those below it, the highest first; zeros are not drawn. @param {Float64Array[]} values */
function stacked(values) {
  const sum = new Float64Array(values[0].length);
  const layers = values.map((ys) => {
    const layer = [...ys].map((y, i) => {
      sum[i] += y;
      return sum[i] > 0 ? sum[i] : null;
    });
    layer.push(null);
    return layer;
  });
  return layers.toReversed();
}

/** Each bucket's value until the next one that has one. @param {Float64Array} ys */
function held(ys) {
  /** @type {(number|null)[]} */
  const values = [...ys].map((y) => (Number.isNaN(y) ? null : y));
  values.push(values.findLast((y) => y !== null) ?? null);
  return values;
}

/**
 * A time that was reported in a bucket and runs down until the next report.
 * @param {Float64Array} ys milliseconds
 * @param {number} span of all buckets
 */
function decaying(ys, span) {
  const bucket = span / ys.length;
  /** @type {(number|null)[]} */
  const values = [];
  let left = 0;
  for (const y of ys) {
    left = Number.isNaN(y) ? Math.max(0, left - bucket) : y;
    values.push(left);
  }
  values.push(Math.max(0, left - bucket));
  return values;
}
