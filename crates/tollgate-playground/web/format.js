/**
 * Numbers and times as people read them.
 *
 * Invariant: digits are grouped by commas, a length of time has the unit that keeps it short, and
 * nothing here depends on the reader's locale: two people who compare see the same text.
 */

/**
 * A whole number: `1,027`. A value that is not a number is a dash.
 * @param {number|null|undefined} n
 */
export function count(n) {
  if (typeof n !== 'number' || !Number.isFinite(n)) return '–';
  return Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ',');
}

/**
 * A part of a whole in percent: `12.3 %`. `0 %` is exactly none and `100 %` exactly all.
 * @param {number} part
 * @param {number} whole
 */
export function share(part, whole) {
  if (!(whole > 0)) return '–';
  const percent = (100 * part) / whole;
  if (part > 0 && percent < 0.1) return '< 0.1 %';
  if (part < whole && percent > 99.9) return '> 99.9 %';
  return `${percent.toFixed(percent === 0 || percent === 100 ? 0 : 1)} %`;
}

/**
 * A length of time, from milliseconds: `250 ms`, `1.5 s`, `2 m 05 s`, `3 h 20 m`, `2 d 4 h`.
 * @param {number|null|undefined} ms
 * @returns {string}
 */
export function duration(ms) {
  if (typeof ms !== 'number' || !Number.isFinite(ms)) return '–';
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1000) return `${trim(ms, 3)} ms`;
  if (ms < 60_000) return `${trim(ms / 1000, 3)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 3600) return pair(seconds, 60, 'm', 's');
  if (seconds < 86_400) return pair(Math.floor(seconds / 60), 60, 'h', 'm');
  return pair(Math.floor(seconds / 3600), 24, 'd', 'h', false);
}

/**
 * A point of a run, as the time since it began, with the precision that the run's length needs.
 * @param {number} ms
 * @param {number} spanMs
 */
export function instant(ms, spanMs) {
  if (spanMs > 600_000) return duration(1000 * Math.floor(ms / 1000));
  const digits = spanMs > 60_000 ? 1 : 3;
  return `${(ms / 1000).toFixed(digits)} s`;
}

/**
 * A size: `1.2 MB`.
 * @param {number} bytes
 */
export function bytes(bytes) {
  if (bytes < 1000) return `${count(bytes)} B`;
  if (bytes < 1_000_000) return `${trim(bytes / 1000, 1)} kB`;
  if (bytes < 1_000_000_000) return `${trim(bytes / 1_000_000, 1)} MB`;
  return `${trim(bytes / 1_000_000_000, 2)} GB`;
}

/**
 * `1 request`, `2 requests`.
 * @param {number} n
 * @param {string} noun
 */
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
}

/** The greatest length of a line of JSON that can be broken. */
const LINE = 56;

/**
 * JSON as people write it: a value that fits is in one line.
 * @param {unknown} value
 * @param {string} [indent]
 * @returns {string}
 */
export function pretty(value, indent = '') {
  const line = inLine(value);
  if (typeof value !== 'object' || value === null || indent.length + line.length <= LINE)
    return line;
  const inner = `${indent}  `;
  const entries = Array.isArray(value)
    ? value.map((item) => `${inner}${pretty(item, inner)}`)
    : Object.entries(value).map(
        ([name, item]) => `${inner}${JSON.stringify(name)}: ${pretty(item, inner)}`,
      );
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  return `${open}\n${entries.join(',\n')}\n${indent}${close}`;
}

/** JSON in one line, with spaces. @param {unknown} value @returns {string} */
function inLine(value) {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(inLine).join(', ')}]`;
  const fields = Object.entries(value).map(
    ([name, item]) => `${JSON.stringify(name)}: ${inLine(item)}`,
  );
  return fields.length ? `{ ${fields.join(', ')} }` : '{}';
}

/** @type {Record<string, number>} */
const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * A window as policies write it (`500ms`, `10s`, `1m`, `1h`, `1d`), in milliseconds; `null` when
 * the text is not a window.
 * @param {string} text
 */
export function parseWindow(text) {
  const match = /^\s*(\d{1,15})\s*(ms|s|m|h|d)\s*$/.exec(text);
  if (!match) return null;
  const ms = Number(match[1]) * (UNITS[match[2]] ?? NaN);
  return ms >= 1 && ms <= 366 * 86_400_000 ? ms : null;
}

/**
 * A number without needless zeros.
 * @param {number} n
 * @param {number} digits
 */
function trim(n, digits) {
  return Number(n.toFixed(digits)).toString();
}

/**
 * `2 m 05 s`; the smaller unit is left out when there is none of it.
 * @param {number} total
 * @param {number} base
 * @param {string} large
 * @param {string} small
 */
function pair(total, base, large, small, padded = true) {
  const rest = total % base;
  const head = `${Math.floor(total / base)} ${large}`;
  if (rest === 0) return head;
  return `${head} ${padded ? String(rest).padStart(2, '0') : rest} ${small}`;
}
