// Lines pasted into a shell write these files and do nothing else, for any policy.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { command } from '../command.js';

test('hostile texts stay texts in a real shell', () => {
  const nasty = `'; touch owned; echo '$(touch owned)\`touch owned\`\\'"%s%n\u001b[201~\u009b\u202e\nEND\r`;
  const policy = JSON.stringify({ name: nasty, "it's": [nasty] });
  const traffic = JSON.stringify({ length: nasty });
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-command-'));
  try {
    const lines = command(policy, traffic, 7);
    assert.doesNotMatch(lines, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    assert.equal(lines.split('\n').length, 3);
    const tool = 'tollgate() { echo "$*"; }\n';
    writeFileSync(join(folder, 'run.sh'), tool + lines);
    const said = execFileSync('sh', ['run.sh'], { cwd: folder, encoding: 'utf8' });
    assert.equal(said, 'simulate --policy policy.json --traffic traffic.json --seed 7\n');
    assert.deepEqual(readdirSync(folder).sort(), ['policy.json', 'run.sh', 'traffic.json']);
    assert.deepEqual(
      JSON.parse(readFileSync(join(folder, 'policy.json'), 'utf8')),
      JSON.parse(policy),
    );
    assert.deepEqual(
      JSON.parse(readFileSync(join(folder, 'traffic.json'), 'utf8')),
      JSON.parse(traffic),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('what is no JSON makes no command', () => {
  assert.equal(command('{', '{}', 1), null);
  assert.equal(command('{}', "'; rm", 1), null);
});
