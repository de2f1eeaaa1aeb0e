// The form changes what it shows and nothing else, and a hostile document does not stop it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RECIPES } from '../recipes.js';
import { laneName, policyText, stateOf } from '../state.js';
import * as form from '../traffic-form.js';

const SOURCE = {
  name: 'a',
  arrivals: { poisson: { rate: '7/s' } },
  request: { path: '/x' },
  retry: { attempts: 9, wait: 'retry_after' },
};

test('another model keeps what both have, and everything round it', () => {
  const steady = form.withModel(SOURCE, 'steady');
  assert.deepEqual(steady, { ...SOURCE, arrivals: { steady: { rate: '7/s' } } });
  assert.deepEqual(form.withModel(steady, 'on_off').arrivals, {
    on_off: { rate: '7/s', on: '2s', off: '8s' },
  });
});

test('a value is changed alone; a number that is none stays text for the simulator to name', () => {
  const [size] = form.MODELS.bursts.fields;
  const bursts = form.withModel(SOURCE, 'bursts');
  assert.deepEqual(form.withValue(bursts, size, '12').arrivals, {
    bursts: { size: 12, every: '10s' },
  });
  assert.deepEqual(form.withValue(bursts, size, 'many').arrivals.bursts.size, 'many');
});

test('retries and clients come and go', () => {
  assert.deepEqual(form.withRetry(SOURCE, 'backoff').retry, {
    attempts: 9,
    jitter: '200ms',
    wait: { backoff: { first: '500ms', most: '30s' } },
  });
  assert.ok(!('retry' in form.withRetry(SOURCE, 'none')));
  assert.equal(form.retryOf(form.withRetry(SOURCE, 'backoff')), 'backoff');
  assert.deepEqual(form.withClients(SOURCE, '100', '1.1', true).clients, {
    count: 100,
    zipf: 1.1,
    fresh: true,
  });
  assert.ok(!('clients' in form.withClients(SOURCE, '1', '', false)));
});

test('a hostile document is shown as nothing, and never called', () => {
  const nasty = { toString: 1, valueOf: null };
  for (const arrivals of [
    { constructor: nasty },
    { steady: null },
    { steady: 7 },
    [],
    { __proto__: null, poisson: { rate: nasty } },
  ]) {
    const document = form.documentOf(
      JSON.stringify({
        length: '1s',
        sources: [{ name: nasty, arrivals, clients: 7, retry: { wait: 5 } }],
      }),
    );
    const source = document.sources[0];
    const { name, values } = form.modelOf(source);
    form
      .fieldsOf(name)
      .forEach((field) => assert.equal(typeof form.shown(values[field.name]), 'string'));
    assert.equal(form.shown(source.name), '');
    assert.equal(typeof form.retryOf(source), 'string');
  }
  for (const json of [
    '',
    'null',
    '[]',
    '{"length": 1, "sources": [{"arrivals": {}}]}',
    '{"length": "1s", "sources": [null]}',
    '{"length": "1s", "sources": []}',
  ]) {
    assert.equal(form.documentOf(json), null);
  }
});

test('a lane has a name whatever its policy is', () => {
  const named = (/** @type {unknown} */ policy) =>
    laneName({ kind: 'policy', policy: JSON.stringify(policy) });
  assert.equal(named({ rules: [{ name: 'a', quotas: [{}] }, {}] }), 'a, gcra and 1 more');
  assert.equal(named({ rules: [{ name: 'x'.repeat(500), quotas: [{}] }] }).length, 80);
  for (const policy of [
    null,
    {},
    { rules: [] },
    { rules: [{ name: { toString: 1 }, quotas: [{}] }] },
    { rules: [{ name: 'a' }] },
  ]) {
    assert.equal(named(policy), 'your policy');
  }
});

test('every recipe is a state as a link holds it, of JSON that the form knows', () => {
  for (const { id, look, state } of RECIPES) {
    assert.deepEqual(stateOf(JSON.parse(JSON.stringify(state))), state, id);
    assert.ok(form.documentOf(state.traffic.json), id);
    state.lanes.forEach((lane) => JSON.parse(policyText(lane)));
    assert.match(look, /^[A-Z0-9][^.]*\.$/, `${id}: one sentence`);
  }
});
