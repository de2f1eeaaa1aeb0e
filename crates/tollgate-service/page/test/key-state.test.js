// Guards: a client that a penalty denies and that looks free, and one that used three limits and
// looks like one that used one.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nameOf, penalties, uses } from '../key-state.js';

test('the penalties that run are shown with their step and end', () => {
  const quotas = [
    { tier: null, name: 'hour', used: 20 },
    { tier: 'gold', name: 'day', used: 20, penalty_until_ms: 9_000, penalty_step: 2 },
  ];
  assert.deepEqual(penalties(quotas), [{ name: 'gold / day', step: 2, until: 9_000 }]);
  assert.deepEqual(penalties([]), []);
  assert.equal(nameOf(quotas[0]), 'hour');
});

test('held units, units above the capacity and requests in flight are named', () => {
  assert.equal(uses({ used: 7 }), '7');
  assert.equal(uses({ used: 0, held: 0, debt: 0 }), '0');
  assert.equal(uses({ used: 600, held: 500, debt: 0 }), '600, 500 of them held');
  assert.equal(
    uses({ used: 1000, held: 10, debt: 2000 }),
    '1000, 10 of them held, 2000 above the capacity',
  );
  assert.equal(uses({ used: 3, debt: 0, in_flight: 3 }), '3 in flight');
});
