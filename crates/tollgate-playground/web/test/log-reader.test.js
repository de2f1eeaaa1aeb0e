// A file is read whole and in pieces, and a format that browsers cannot unpack is refused by name.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Damaged, packing, readLog } from '../log-reader.js';

const LINES = '192.0.2.1 - - [01/Aug/1995:00:00:01 -0400] "GET / HTTP/1.0" 200 1\n'.repeat(20_000);

/** The content read from a file, and the reported progress. @param {BlobPart[]} parts */
async function all(parts, isCurrent = () => true) {
  const decoder = new TextDecoder();
  const out = { text: '', pieces: 0, read: 0 };
  await readLog(
    new Blob(parts),
    (piece) => {
      out.text += decoder.decode(piece, { stream: true });
      out.pieces += 1;
    },
    (read) => {
      out.read = read;
    },
    isCurrent,
  );
  return out;
}

test('a plain log comes in pieces, whole', async () => {
  const { text, pieces, read } = await all([LINES, LINES]);
  assert.equal(text, LINES + LINES);
  assert.equal(read, 2 * LINES.length);
  assert.ok(pieces > 1);
});

test('gzip is unpacked, and progress counts the file', async () => {
  const packed = gzipSync(LINES);
  const { text, read } = await all([packed]);
  assert.equal(text, LINES);
  assert.equal(read, packed.length);
});

test('an empty file is an empty log', async () => {
  assert.deepEqual(await all([]), { text: '', pieces: 0, read: 0 });
});

test('gzip that is cut off is said', async () => {
  const packed = gzipSync(LINES);
  let taken = 0;
  const reading = readLog(
    new Blob([packed.subarray(0, packed.length - 500)]),
    (piece) => {
      taken += piece.length;
    },
    () => {},
    () => true,
  );
  await assert.rejects(
    reading,
    (error) => error instanceof Damaged && /damaged, cut off, or of several parts/.test(error.message),
  );
  assert.ok(taken > 0 && taken < LINES.length, 'what came before is taken');
});

test('a folder is said in words', async () => {
  const folder = { slice: () => ({ arrayBuffer: () => Promise.reject(new Error('NotFoundError')) }) };
  const reading = readLog(
    /** @type {Blob} */ (/** @type {unknown} */ (folder)),
    () => {},
    () => {},
    () => true,
  );
  await assert.rejects(reading, /is it a folder/);
});

test('others are refused by name', () => {
  assert.throws(() => packing(Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd)), /zstd/);
  assert.throws(() => packing(Uint8Array.of(0x42, 0x5a, 0x68, 0x39)), /bzip2/);
  assert.throws(() => packing(Uint8Array.of(0xfd, 0x37, 0x7a, 0x58, 0x5a, 0)), /xz/);
  assert.throws(() => packing(Uint8Array.of(0x50, 0x4b, 3, 4)), /ZIP/);
  assert.equal(packing(Uint8Array.of(0x31)), 'plain');
  assert.equal(packing(new Uint8Array()), 'plain');
});

test('a cancelled reading ends', async () => {
  await assert.rejects(
    all([LINES], () => false),
    /cancelled/,
  );
});
