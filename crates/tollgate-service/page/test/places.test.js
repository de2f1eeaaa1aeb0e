// Guards: a mistake that is shown at the wrong place, or a text that makes the page hang.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lineOf, placeOf, steps } from '../places.js';

const TEXT = `{
  "version": 1,
  "rules": [
    {"name": "a,]}\\"", "quotas": [{"limit": 1, "window": "1m"}]},
    {"name": "b", "quotas": [
      {"limit": 0},
      {"limit": 2, "window": "1 day"}
    ]}
  ]
}`;
const at = (path, text = TEXT) => {
  const { from, to } = placeOf(text, path);
  return text.slice(from, to);
};

test('a path is its steps', () => {
  assert.deepEqual(steps('rules[0].quotas[12].limit'), ['rules', 0, 'quotas', 12, 'limit']);
  assert.deepEqual(steps('jwt.keys[0]'), ['jwt', 'keys', 0]);
  assert.deepEqual(steps(''), []);
});

test('a value is found, or what is around it', () => {
  assert.equal(at('version'), '1');
  assert.equal(at('rules[0].quotas[0].window'), '"1m"');
  assert.equal(at('rules[1].quotas[0].limit'), '0');
  assert.equal(at('rules[1].quotas[1].window'), '"1 day"');
  assert.equal(lineOf(TEXT, placeOf(TEXT, 'rules[1].quotas[1].window').from), 7);
  assert.ok(at('rules[1].key').startsWith('{"name": "b"'), 'what is missing is at what lacks it');
  assert.ok(at('rules[9]').startsWith('['));
});

test('any text has an answer, also a deep one', () => {
  for (const text of [
    '',
    '{',
    '[[',
    '"',
    '{"a"',
    '{"a":',
    'x',
    '{"a": 1',
    '[1,',
    '\u0000',
    '{"a\\": 1}',
    '{"a": }',
  ]) {
    for (const path of ['', 'a', 'a[0].b', '[0]', '[3]', '..', 'a[']) {
      const { from, to } = placeOf(text, path);
      assert.ok(from <= text.length && from <= to, JSON.stringify([text, path]));
    }
  }
  const deep = '['.repeat(500_000);
  assert.equal(placeOf(deep, '[0][0]').from, 2);
});
