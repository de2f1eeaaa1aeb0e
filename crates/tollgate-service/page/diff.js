/**
 * The line differences between two texts.
 *
 * Invariant: the lines that are kept and removed are the old text, those that are kept and added
 * the new one, in their order. The fewest changes are found when they are at most `MOST_CHANGES`;
 * of more, all between the first and the last changed line is one change, so that no document makes
 * the page hang.
 */

/** @typedef {{kind: 'kept'|'removed'|'added'|'skipped', text: string, old: number, new: number}} Line */

const MOST_CHANGES = 600;
const CONTEXT = 3;

/** @param {string} before @param {string} after @returns {Line[]} */
export function diff(before, after) {
  const [old, now] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  const most = Math.min(old.length, now.length) - start;
  while (end < most && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  const [a, b] = [old.slice(start, old.length - end), now.slice(start, now.length - end)];
  const pairs = [
    ...Array.from({ length: start }, (_, i) => [i, i]),
    ...matched(a, b).map(([x, y]) => [x + start, y + start]),
    ...Array.from({ length: end }, (_, i) => [old.length - end + i, now.length - end + i]),
  ];
  /** @type {Line[]} */
  const lines = [];
  let [x, y] = [0, 0];
  for (const [keptOld, keptNew] of [...pairs, [old.length, now.length]]) {
    for (; x < keptOld; x += 1) lines.push({ kind: 'removed', text: old[x], old: x + 1, new: 0 });
    for (; y < keptNew; y += 1) lines.push({ kind: 'added', text: now[y], old: 0, new: y + 1 });
    if (x < old.length && y < now.length)
      lines.push({ kind: 'kept', text: old[x], old: x + 1, new: y + 1 });
    x += 1;
    y += 1;
  }
  return lines;
}

/** The lines around changes; the other lines only as a number. @param {Line[]} lines @returns {Line[]} */
export function around(lines) {
  const near = new Uint8Array(lines.length);
  lines.forEach(({ kind }, i) => {
    if (kind !== 'kept') near.fill(1, Math.max(0, i - CONTEXT), i + CONTEXT + 1);
  });
  /** @type {Line[]} */
  const shown = [];
  let skipped = 0;
  lines.forEach((line, i) => {
    if (near[i] && skipped > 0)
      shown.push({ kind: 'skipped', text: String(skipped), old: 0, new: 0 });
    if (near[i]) shown.push(line);
    skipped = near[i] ? 0 : skipped + 1;
  });
  if (skipped > 0 && shown.length > 0)
    shown.push({ kind: 'skipped', text: String(skipped), old: 0, new: 0 });
  return shown;
}

/**
 * Pairs of lines that stay: the greedy algorithm of Myers (1986), with each round's ends kept.
 * @param {string[]} a
 * @param {string[]} b
 * @returns {[number, number][]}
 */
function matched(a, b) {
  const most = Math.min(a.length + b.length, MOST_CHANGES);
  /** @type {Map<number, number>[]} */
  const rounds = [];
  let ends = new Map([[1, 0]]);
  for (let d = 0; d <= most; d += 1) {
    rounds.push(new Map(ends));
    const next = new Map(ends);
    for (let k = -d; k <= d; k += 2) {
      let x = isDown(next, k, d) ? (next.get(k + 1) ?? 0) : (next.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      next.set(k, x);
      if (x >= a.length && x - k >= b.length) return walked(rounds, a.length, b.length);
    }
    ends = next;
  }
  return [];
}

/** Whether the best way to diagonal `k` comes from the one above. @param {Map<number, number>} ends @param {number} k @param {number} d */
const isDown = (ends, k, d) =>
  k === -d || (k !== d && (ends.get(k - 1) ?? 0) < (ends.get(k + 1) ?? 0));

/** @param {Map<number, number>[]} rounds @param {number} width @param {number} height @returns {[number, number][]} */
function walked(rounds, width, height) {
  /** @type {[number, number][]} */
  const pairs = [];
  let [x, y] = [width, height];
  for (let d = rounds.length - 1; d >= 0; d -= 1) {
    const k = x - y;
    const before = isDown(rounds[d], k, d) ? k + 1 : k - 1;
    const [fromX, fromY] =
      d === 0 ? [0, 0] : [rounds[d].get(before) ?? 0, (rounds[d].get(before) ?? 0) - before];
    while (x > fromX && y > fromY) {
      x -= 1;
      y -= 1;
      pairs.push([x, y]);
    }
    [x, y] = [fromX, fromY];
  }
  return pairs.reverse();
}
