/**
 * The Prometheus text format, as far as the metrics of Tollgate use it (docs/metrics.md), and the
 * growth of counters between two readings.
 *
 * Invariant: a line that cannot be read is left out and counted; no name of a rule can change the
 * series of a sample.
 */

/** @typedef {{name: string, labels: Record<string, string>, value: number}} Sample */

/**
 * @param {string} text
 * @returns {{samples: Sample[], unread: number}}
 */
export function parse(text) {
  /** @type {Sample[]} */
  const samples = [];
  let unread = 0;
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const sample = read(line);
    if (sample) samples.push(sample);
    else unread += 1;
  }
  return { samples, unread };
}

const NAME = /[A-Za-z_:][A-Za-z0-9_:]*/y;
const LABEL = /([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"(,?)/y;
const ESCAPED = /** @type {Record<string, string>} */ ({ n: '\n', '"': '"', '\\': '\\' });

/** @param {string} line @returns {Sample|null} */
function read(line) {
  NAME.lastIndex = 0;
  const name = NAME.exec(line)?.[0];
  if (!name) return null;
  let at = name.length;
  /** @type {Record<string, string>} */
  const labels = Object.create(null);
  if (line[at] === '{') {
    at += 1;
    while (line[at] !== '}') {
      LABEL.lastIndex = at;
      const label = LABEL.exec(line);
      if (!label) return null;
      labels[label[1]] = label[2].replace(/\\(.)/g, (_, c) => ESCAPED[c] ?? c);
      at = LABEL.lastIndex;
    }
    at += 1;
  }
  const [value] = line.slice(at).trim().split(' ');
  const number = Number(value);
  return value === '' || Number.isNaN(number) ? null : { name, labels, value: number };
}

/** The sum of a family's samples that have these labels. @param {Sample[]} samples @param {string} name @param {Record<string, string>} [labels] */
export function sum(samples, name, labels = {}) {
  const wanted = Object.entries(labels);
  return samples
    .filter(
      (one) => one.name === name && wanted.every(([label, value]) => one.labels[label] === value),
    )
    .reduce((total, { value }) => total + value, 0);
}

/**
 * The growth of a counter. A counter that is lower than before has restarted at 0.
 * @param {number} before
 * @param {number} after
 */
export function growth(before, after) {
  return after >= before ? after - before : after;
}
