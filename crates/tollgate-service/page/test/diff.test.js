// Guards: a diff that loses a line or hides a change, so that the text put in force is not the one
// reviewed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { around, diff } from '../diff.js';

const of = (lines, ...kinds) =>
  lines
    .filter(({ kind }) => kinds.includes(kind))
    .map(({ text }) => text)
    .join('\n');

/** The most lines that can stay: the longest common subsequence, by its table. */
function longest(a, b) {
  const most = a.map(() => new Array(b.length).fill(0));
  const at = (i, j) => (i < 0 || j < 0 ? 0 : most[i][j]);
  a.forEach((x, i) =>
    b.forEach((y, j) => {
      most[i][j] = x === y ? at(i - 1, j - 1) + 1 : Math.max(at(i - 1, j), at(i, j - 1));
    }),
  );
  return at(a.length - 1, b.length - 1);
}

test('every pair of texts is told, with the fewest changes', () => {
  let state = 1;
  const random = (n) => (state = (state * 48_271) % 2_147_483_647) % n;
  const text = () => Array.from({ length: random(9) }, () => 'abc'[random(3)]).join('\n');
  for (let turn = 0; turn < 3_000; turn += 1) {
    const [before, after] = [text(), text()];
    const lines = diff(before, after);
    assert.equal(of(lines, 'kept', 'removed'), before);
    assert.equal(of(lines, 'kept', 'added'), after);
    assert.equal(
      lines.filter(({ kind }) => kind === 'kept').length,
      longest(before.split('\n'), after.split('\n')),
    );
  }
});

test('a text of many changes is one change, and ends', () => {
  const numbers = (from) => Array.from({ length: 20_000 }, (_, i) => String(from + i)).join('\n');
  const [before, after] = [`a\n${numbers(0)}\nz`, `a\n${numbers(50_000)}\nz`];
  const lines = diff(before, after);
  assert.equal(of(lines, 'kept'), 'a\nz');
  assert.equal(of(lines, 'kept', 'added'), after);
});

test('only what is near a change is shown, and how much is not', () => {
  const before = Array.from({ length: 30 }, (_, i) => `line ${i}`);
  const after = before.with(15, 'changed');
  const shown = around(diff(before.join('\n'), after.join('\n')));
  assert.deepEqual(shown.map(({ kind }) => kind[0]).join(''), 'skkkrakkks');
  assert.deepEqual([shown[0].text, shown.at(-1).text], ['12', '11']);
  assert.deepEqual(around(diff('a', 'a')), []);
});
