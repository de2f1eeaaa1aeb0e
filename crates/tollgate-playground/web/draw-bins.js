/**
 * Traffic drawn by hand: a time line in bins, each with a number of requests.
 *
 * Invariant: a drawing is plain numbers within the limits below. The simulator spreads the requests
 * of a bin evenly in it. Deliberately absent: the page; this file is arithmetic.
 */

export const MAX_BINS = 240;
export const MAX_PER_BIN = 200;

/**
 * @typedef {object} Drawing
 * @property {number} bin_ms how long a bin is, 1 to 3,600,000
 * @property {number[]} counts requests in each bin
 */

/**
 * A drawing without requests.
 * @param {number} bins
 * @param {number} bin_ms
 * @returns {Drawing}
 */
export function blank(bins, bin_ms) {
  return { bin_ms, counts: new Array(Math.min(bins, MAX_BINS)).fill(0) };
}

/** @param {number} n */
const within = (n) => Math.max(0, Math.min(MAX_PER_BIN, Math.round(n)));

/**
 * The drawing with `n` requests in bin `i`; a bin that does not exist changes nothing.
 * @param {Drawing} drawing
 * @param {number} i
 * @param {number} n
 * @returns {Drawing}
 */
export function withCount(drawing, i, n) {
  if (!(i >= 0 && i < drawing.counts.length) || Number.isNaN(n)) return drawing;
  const counts = drawing.counts.slice();
  counts[Math.floor(i)] = within(n);
  return { ...drawing, counts };
}

/**
 * The drawing after a stroke from one point to another: every bin between has the height of the
 * line there, so a fast pointer leaves no holes.
 * @param {Drawing} drawing
 * @param {{bin: number, n: number}} from
 * @param {{bin: number, n: number}} to
 */
export function stroke(drawing, from, to) {
  const counts = drawing.counts.slice();
  const step = to.bin >= from.bin ? 1 : -1;
  const length = Math.abs(to.bin - from.bin);
  for (let i = 0; i <= length; i += 1) {
    const bin = from.bin + i * step;
    if (bin < 0 || bin >= counts.length) continue;
    const part = length === 0 ? 1 : i / length;
    counts[bin] = within(from.n + (to.n - from.n) * part);
  }
  return { ...drawing, counts };
}

/** @param {Drawing} drawing */
export function total(drawing) {
  return drawing.counts.reduce((sum, n) => sum + n, 0);
}

/** How long the drawing is, in milliseconds. @param {Drawing} drawing */
export function spanMs(drawing) {
  return drawing.counts.length * drawing.bin_ms;
}

/**
 * The new count of a bin after a key press: arrows up and down change it by one, with Shift (or as
 * Page Up and Page Down) by ten, Delete empties it. `null` for keys that change no count.
 * @param {string} key
 * @param {boolean} shift
 * @param {number} n
 */
export function keyed(key, shift, n) {
  const by = shift ? 10 : 1;
  switch (key) {
    case 'ArrowUp':
      return within(n + by);
    case 'ArrowDown':
      return within(n - by);
    case 'PageUp':
      return within(n + 10);
    case 'PageDown':
      return within(n - 10);
    case 'Delete':
    case 'Backspace':
      return 0;
    default:
      return null;
  }
}
