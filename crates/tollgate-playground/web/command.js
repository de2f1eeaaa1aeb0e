/**
 * The same run on the command line, as lines for a shell.
 *
 * Invariant: an attacker may have written the link, and these lines are pasted into a shell. So
 * only JSON is put in, as this page writes it: in one line, without control characters, between
 * quotes in which nothing is special but the quote itself, and that is written as JSON's escape.
 */

/**
 * JSON in single quotes; the text it is made of must be JSON.
 * @param {string} json
 */
function quoted(json) {
  const plain = JSON.stringify(JSON.parse(json));
  // JSON.stringify has escaped U+0000 to U+001F; these, too, would be acted on by a terminal.
  const escape = (/** @type {string} */ char) =>
    `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return `'${plain.replace(/['\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, escape)}'`;
}

/**
 * Lines that print what a lane shows, or `null` when something is not JSON.
 * @param {string} policy
 * @param {string} traffic
 * @param {number} seed
 */
export function command(policy, traffic, seed) {
  try {
    return [
      `printf '%s' ${quoted(policy)} > policy.json`,
      `printf '%s' ${quoted(traffic)} > traffic.json`,
      `tollgate simulate --policy policy.json --traffic traffic.json --seed ${Math.trunc(seed)}`,
    ].join('\n');
  } catch {
    return null;
  }
}
