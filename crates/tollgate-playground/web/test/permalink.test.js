// A state survives a link unchanged, and an invalid link is refused in words, with bounded work.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deflateRawSync } from 'node:zlib';
import { LinkError, MAX_ENCODED, MAX_JSON, read, write } from '../permalink.js';
import { StateError, policyText, preset, stateOf } from '../state.js';

const STATE = {
  lanes: [
    preset('gcra', 10, '1m', { burst: 5, strict: true }),
    { kind: 'policy', policy: '{"ä": "😀</script>"}' },
  ],
  traffic: { kind: 'drawn', bin_ms: 250, counts: [0, 3, 200] },
  seed: Number.MAX_SAFE_INTEGER,
};

const packed = (/** @type {string|Buffer} */ bytes) => deflateRawSync(bytes).toString('base64url');
const link = (/** @type {unknown} */ value) => `1.${packed(JSON.stringify(value))}`;
const refused = (/** @type {string} */ text, /** @type {RegExp} */ message) =>
  assert.rejects(read(text), (error) => error instanceof LinkError && message.test(error.message));

test('a state comes back as it was', async () => {
  const text = await write(STATE);
  assert.match(text, /^1\.[A-Za-z0-9_-]+$/);
  assert.deepEqual(stateOf(await read(text)), STATE);
});

test('clicks and models come back as they were', async () => {
  for (const traffic of [
    { kind: 'live', at: [0, 0, 1_500] },
    { kind: 'model', json: '{"a": 1}' },
  ]) {
    const state = { ...STATE, traffic };
    assert.deepEqual(stateOf(await read(await write(state))), state);
  }
});

test('a link of ten million characters is refused before it is decoded', async () => {
  await refused(`1.${'A'.repeat(10_000_000)}`, /too long: 10000002 characters, at most 65536/);
  await refused(`1.${'A'.repeat(MAX_ENCODED - 1)}`, /too long/);
});

test('a link that inflates without end is cut off', async () => {
  const bomb = `1.${packed(Buffer.alloc(30_000_000))}`;
  assert.ok(bomb.length < MAX_ENCODED);
  await refused(bomb, /holds too much: more than 1048576 bytes/);
  const fits = `1.${packed(`"${'a'.repeat(MAX_JSON - 2)}"`)}`;
  assert.equal((await read(fits)).length, MAX_JSON - 2);
});

test('garbage is refused in words', async () => {
  await refused('', /no version/);
  await refused('section-2', /no version/);
  await refused('2.AAAA', /version 2, and this page reads version 1/);
  await refused('1.<script>', /characters that no link has/);
  await refused('1.AAAAA', /characters that no link has|cannot be inflated/);
  await refused('1.__________', /cannot be inflated/);
  await refused(`${link(STATE).slice(0, -20)}`, /cannot be inflated/);
  await refused(`1.${packed('{"lanes": ')}`, /not JSON/);
  await refused(`1.${packed(Buffer.from([0x22, 0xff, 0xfe, 0x22]))}`, /not JSON/);
});

test('JSON that is no state is refused in words', async () => {
  const wrong = [
    [null, /not an object/],
    [[], /not an object/],
    [{ ...STATE, lanes: [] }, /no lanes/],
    [{ ...STATE, lanes: new Array(5).fill(STATE.lanes[0]) }, /more than 4/],
    [{ ...STATE, lanes: [{ kind: 'policy', policy: 7 }] }, /no text/],
    [{ ...STATE, lanes: [{ ...STATE.lanes[0], algorithm: 'constructor' }] }, /algorithm/],
    [{ ...STATE, lanes: [{ ...STATE.lanes[0], limit: 1e300 }] }, /limit/],
    [{ ...STATE, lanes: [{ ...STATE.lanes[0], window: 'now' }] }, /window/],
    [{ ...STATE, traffic: { kind: 'drawn', bin_ms: 1, counts: new Array(241).fill(0) } }, /240/],
    [{ ...STATE, traffic: { kind: 'drawn', bin_ms: 1, counts: [-1] } }, /drawing/],
    [{ ...STATE, traffic: { kind: 'live', at: [2, 1] } }, /order/],
    [{ ...STATE, traffic: { kind: 'upload' } }, /traffic/],
    [{ ...STATE, seed: 0.5 }, /seed/],
  ];
  for (const [state, message] of wrong) {
    const back = await read(link(state));
    assert.throws(
      () => stateOf(back),
      (error) => error instanceof StateError && message.test(error.message),
    );
  }
});

test('fields that no state has do not come in', async () => {
  const state = stateOf(
    JSON.parse(JSON.stringify({ ...STATE, more: 1 }).replace('"more"', '"__proto__"')),
  );
  assert.deepEqual(Object.keys(state), ['lanes', 'traffic', 'seed']);
});

test('what is too much for a link is said when it is written', async () => {
  const noise = Array.from({ length: 200_000 }, (_, i) =>
    ((i * 2_654_435_761) >>> 7).toString(36),
  ).join('');
  const state = { ...STATE, lanes: [{ kind: 'policy', policy: noise }] };
  await assert.rejects(
    write(state),
    (error) => error instanceof LinkError && /too much/.test(error.message),
  );
});

test('a preset is the policy that one would write', () => {
  const { rules } = JSON.parse(policyText(STATE.lanes[0]));
  assert.deepEqual(rules[0].quotas, [
    { limit: 10, window: '1m', algorithm: 'gcra', burst: 5, strict: true },
  ]);
  const log = JSON.parse(policyText(preset('sliding-log', 3, '5s', { burst: 2, strict: true })));
  assert.deepEqual(log.rules[0].quotas, [{ limit: 3, window: '5s', algorithm: 'sliding-log' }]);
});
