// Guards: false rates from a counter that restarted, a gap, or a name like that of another series.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { growth, parse, sum } from '../metrics-text.js';
import { READINGS, Rates } from '../rate-model.js';

const line = (rule, result, value) =>
  `tollgate_decisions_total{rule="${rule}",quota="q",tier="",result="${result}"} ${value}`;

test('labels are read as they are written', () => {
  const hostile = line('a\\"} 7\\n<script>\\\\', 'denied', 3);
  const { samples, unread } = parse(
    `# HELP x\n${hostile}\ntollgate_isolates 2\nbad{ 1\nx{a="b} 1\nnone \n`,
  );
  assert.equal(unread, 3);
  assert.equal(samples[0].labels.rule, 'a"} 7\n<script>\\');
  assert.equal(samples[0].value, 3);
  assert.equal(sum(samples, 'tollgate_isolates'), 2);
  assert.equal(parse('x{__proto__="1"} 1').samples[0].labels.__proto__, '1');
});

test('rates are by the second, for each rule and kind', () => {
  const rates = new Rates();
  rates.add([line('r', 'allowed', 100), line('r', 'shadowed', 0)].join('\n'), 0);
  assert.equal(rates.total('requests'), null, 'one reading is no rate');
  rates.add(
    [
      line('r', 'allowed', 150),
      line('r', 'delayed', 50),
      line('r', 'shadowed', 20),
      line('new', 'denied', 10),
    ].join('\n'),
    10_000,
  );
  assert.deepEqual(rates.rules, ['new', 'r']);
  assert.deepEqual(rates.rule('r', 'admitted'), [10]);
  assert.deepEqual(rates.rule('r', 'would'), [2]);
  assert.deepEqual(rates.rule('new', 'refused'), [1]);
});

test('a denial by a count, an operator or a penalty is a refusal', () => {
  const rates = new Rates();
  const results = ['denied', 'blocked', 'penalised'];
  rates.add(results.map((result) => line(result, result, 0)).join('\n'), 0);
  rates.add(results.map((result) => line(result, result, 10)).join('\n'), 10_000);
  for (const result of results) assert.deepEqual(rates.rule(result, 'refused'), [1], result);
});

test('a counter that began again is no negative rate, and a gap is its mean', () => {
  assert.equal(growth(100, 30), 30);
  const rates = new Rates();
  rates.add(line('r', 'denied', 100), 0);
  rates.miss();
  rates.add(line('r', 'denied', 300), 20_000);
  assert.deepEqual([rates.rule('r', 'refused'), rates.times], [[10], [20]]);
  for (let i = 0; i < 2 * READINGS; i += 1) rates.add(line('r', 'denied', 300), 30_000 + i);
  assert.equal(rates.times.length, READINGS - 1, 'what is old is forgotten');
});
