// Numbers for readers: grouped digits, short times, and no percentage that hides a request.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytes, count, duration, instant, parseWindow, plural, pretty, share } from '../format.js';

test('counts are grouped', () => {
  assert.deepEqual([0, 999, 1_027, 1_000_000].map(count), ['0', '999', '1,027', '1,000,000']);
  assert.deepEqual([null, undefined, NaN].map(count), ['–', '–', '–']);
  assert.equal(plural(1, 'request'), '1 request');
  assert.equal(plural(1_200, 'request'), '1,200 requests');
});

test('one request of a million is not nothing, and one less is not all', () => {
  assert.equal(share(1, 1_000_000), '< 0.1 %');
  assert.equal(share(999_999, 1_000_000), '> 99.9 %');
  assert.equal(share(0, 10), '0 %');
  assert.equal(share(10, 10), '100 %');
  assert.equal(share(1, 8), '12.5 %');
  assert.equal(share(0, 0), '–');
});

test('times have the unit that keeps them short', () => {
  const wanted = [
    '0 ms',
    '0.5 ms',
    '999 ms',
    '1.5 s',
    '1 m',
    '2 m 05 s',
    '3 h 20 m',
    '2 d 4 h',
    '1 d',
  ];
  const ms = [0, 0.5, 999, 1_500, 60_000, 125_000, 12_000_000, 187_200_000, 86_400_000];
  assert.deepEqual(ms.map(duration), wanted);
  assert.equal(duration(-1_500), '−1.5 s');
  assert.equal(instant(1_234, 5_000), '1.234 s');
  assert.equal(instant(90_400, 100_000), '90.4 s');
  assert.equal(instant(1_380_900, 3_600_000), '23 m');
});

test('windows are those of a policy', () => {
  assert.deepEqual(
    ['500ms', '10s', ' 1m ', '1h', '366d'].map(parseWindow),
    [500, 10_000, 60_000, 3_600_000, 31_622_400_000],
  );
  assert.deepEqual(['', '0s', '1', '1w', '367d', '-1s', '1.5s'].map(parseWindow), [
    null,
    null,
    null,
    null,
    null,
    null,
    null,
  ]);
});

test('sizes', () => {
  assert.deepEqual([0, 999, 1_500, 2_345_678, 5e9].map(bytes), [
    '0 B',
    '999 B',
    '1.5 kB',
    '2.3 MB',
    '5 GB',
  ]);
});

test('JSON is broken into lines where it is long, and stays the same', () => {
  const policy = {
    version: 1,
    rules: [
      { name: 'a', key: ['client_ip'], quotas: [{ limit: 10, window: '10s', algorithm: 'gcra' }] },
    ],
  };
  assert.equal(pretty({ a: [1, 2], b: {} }), '{ "a": [1, 2], "b": {} }');
  assert.equal(pretty(policy).split('\n')[3], '    {');
  // JSON syntax within a string is text.
  for (const value of [
    policy,
    null,
    'a',
    [],
    { a: '[ x ]\n  , "y" : ]'.repeat(9), b: [[], {}] },
    [`${' '.repeat(80)}[ `],
  ]) {
    assert.deepEqual(JSON.parse(pretty(value)), value);
  }
});
