/**
 * A plot of rates by the clock, with uPlot.
 *
 * Invariant: colours come from the style sheet and the size from the element. To a screen reader it
 * is an image with a sentence; the table below contains its numbers.
 */

import uPlot from 'uplot';
import { h } from '../../tollgate-playground/web/dom.js';
import { colour, onTheme } from '../../tollgate-playground/web/theme.js';

/** @typedef {{label: string, colour: string, dash?: number[]}} Style */

const HEIGHT = 132;
const FONT = '11px system-ui, sans-serif';

/** A rate as people read it. @param {number|null} rate per second */
export function perSecond(rate) {
  if (rate === null) return '–';
  if (rate === 0) return '0';
  if (rate < 0.01) return '< 0.01';
  return rate < 10
    ? rate.toFixed(2)
    : Math.round(rate)
        .toString()
        .replace(/\B(?=(\d{3})+$)/g, ',');
}

export class RatePlot {
  /** @type {uPlot|null} */ #plot = null;

  /** @param {string} title @param {Style[]} styles */
  constructor(title, styles) {
    this.styles = styles;
    this.image = h('div', {
      className: 'plot',
      role: 'img',
      'aria-label': `${title}: nothing to see yet`,
    });
    const keys = styles.map((style) =>
      h(
        'span',
        { className: `key key-step${style.dash ? ' key-dash' : ''}`, 'data-colour': style.colour },
        style.label,
      ),
    );
    this.element = h(
      'figure',
      {},
      this.image,
      h('figcaption', {}, h('span', { className: 'legend' }, keys)),
    );
    const resized = new ResizeObserver(() => this.#fit());
    resized.observe(this.image);
    const endTheme = onTheme(() => this.#plot?.redraw(false));
    this.end = () => {
      resized.disconnect();
      endTheme();
      this.#plot?.destroy();
    };
  }

  /** @param {number[]} times seconds since 1970 @param {number[][]} rates one list for each style @param {string} summary */
  show(times, rates, summary) {
    this.image.setAttribute('aria-label', summary);
    // A rate is valid from the previous reading on: the first one, too.
    const before = times.length > 1 ? 2 * times[0] - times[1] : (times[0] ?? 0) - 10;
    const data = /** @type {uPlot.AlignedData} */ ([
      [before, ...times],
      ...rates.map((one) => [one[0] ?? 0, ...one]),
    ]);
    if (this.#plot) this.#plot.setData(data);
    else if (this.image.clientWidth > 40) this.#plot = new uPlot(this.#options(), data, this.image);
  }

  #fit() {
    const width = Math.floor(this.image.clientWidth);
    if (this.#plot && width > 40 && width !== this.#plot.width)
      this.#plot.setSize({ width, height: HEIGHT });
  }

  /** @returns {uPlot.Options} */
  #options() {
    const quiet = () => colour('quiet');
    const hair = { stroke: () => colour('hair'), width: 1 };
    const axis = { stroke: quiet, ticks: { ...hair, size: 4 }, font: FONT };
    const steps = /** @type {Function} */ (uPlot.paths.stepped)({ align: -1 });
    const line = (/** @type {Style} */ style) => ({
      stroke: () => colour(style.colour),
      width: 1.75,
      dash: style.dash,
      paths: steps,
      points: { show: false },
    });
    return {
      width: Math.floor(this.image.clientWidth),
      height: HEIGHT,
      padding: [8, 26, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: true, range: (_, min, max) => [Math.min(min, max - 60), max] },
        y: { range: (_, __, max) => [0, Math.max(max * 1.08, 0.1)] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 24,
          gap: 3,
          space: 64,
          values: (_, splits) => splits.map(clock),
        },
        {
          ...axis,
          grid: hair,
          size: 48,
          gap: 4,
          space: 26,
          values: (_, splits) => splits.map(tick),
        },
      ],
      series: [{}, ...this.styles.map(line)],
    };
  }
}

/** @param {number} seconds */
function clock(seconds) {
  const date = new Date(seconds * 1_000);
  const pad = (/** @type {number} */ n) => String(n).padStart(2, '0');
  const minutes = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  return date.getSeconds() === 0 ? minutes : `${minutes}:${pad(date.getSeconds())}`;
}

/** @param {number} rate */
function tick(rate) {
  if (rate >= 1e6) return `${Number((rate / 1e6).toPrecision(3))}M`;
  if (rate >= 1e3) return `${Number((rate / 1e3).toPrecision(3))}k`;
  return String(Number(rate.toPrecision(3)));
}
