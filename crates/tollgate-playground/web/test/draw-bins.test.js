// A drawing always gives the same requests, and never exceeds its limits.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_PER_BIN, blank, keyed, spanMs, stroke, total, withCount } from '../draw-bins.js';

test('a drawing has a length and a sum', () => {
  const drawing = { bin_ms: 1_000, counts: [3, 0, 2] };
  assert.equal(total(drawing), 5);
  assert.equal(spanMs(drawing), 3_000);
});

test('a fast pointer leaves no holes, in either direction', () => {
  const empty = blank(5, 100);
  assert.deepEqual(stroke(empty, { bin: 0, n: 0 }, { bin: 4, n: 8 }).counts, [0, 2, 4, 6, 8]);
  assert.deepEqual(stroke(empty, { bin: 4, n: 8 }, { bin: 0, n: 0 }).counts, [0, 2, 4, 6, 8]);
  assert.deepEqual(stroke(empty, { bin: 2, n: 3 }, { bin: 2, n: 3 }).counts, [0, 0, 3, 0, 0]);
  assert.deepEqual(stroke(empty, { bin: -3, n: 5 }, { bin: 9, n: 5 }).counts, [5, 5, 5, 5, 5]);
  assert.deepEqual(empty.counts, [0, 0, 0, 0, 0]);
});

test('a count stays within its bounds', () => {
  const empty = blank(2, 100);
  assert.deepEqual(withCount(empty, 0, 1e9).counts, [MAX_PER_BIN, 0]);
  assert.deepEqual(withCount(empty, 1, -4).counts, [0, 0]);
  assert.equal(withCount(empty, 2, 1), empty);
  assert.equal(withCount(empty, Number.NaN, 1), empty);
});

test('keys change a count', () => {
  assert.equal(keyed('ArrowUp', false, 3), 4);
  assert.equal(keyed('ArrowUp', true, 3), 13);
  assert.equal(keyed('ArrowDown', false, 0), 0);
  assert.equal(keyed('PageDown', false, 12), 2);
  assert.equal(keyed('Delete', false, 12), 0);
  assert.equal(keyed('ArrowLeft', false, 12), null);
});
