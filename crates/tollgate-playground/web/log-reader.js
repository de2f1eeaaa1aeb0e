/**
 * A file, read piece by piece in the worker, unpacked when it is gzip.
 *
 * Invariant: at most a few pieces are in memory, however large the file is or unpacks to. A format
 * that cannot be read is refused by name, never read as if it were text.
 */

/** The interval of progress reports, in milliseconds. */
const TELL = 100;

/** Browsers stop after the first of several gzip members, and do not report this reason. */
const BROKEN =
  'the gzip data is damaged, cut off, or of several parts, of which browsers unpack only the first (gunzip it, or use tollgate replay)';

/** The file is truncated or damaged: the part before that point was read. */
export class Damaged extends Error {}

/**
 * @param {Uint8Array} head the first bytes of a file
 * @returns {'gzip'|'plain'}
 */
export function packing(head) {
  const begins = (/** @type {number[]} */ ...magic) => magic.every((byte, i) => head[i] === byte);
  if (begins(0x1f, 0x8b)) return 'gzip';
  if (begins(0x28, 0xb5, 0x2f, 0xfd)) {
    throw new Error(
      'this file is zstd, which browsers cannot unpack: unpack it first (zstd -d), or use tollgate replay',
    );
  }
  if (begins(0x42, 0x5a, 0x68)) throw new Error('this file is bzip2: unpack it first');
  if (begins(0xfd, 0x37, 0x7a, 0x58, 0x5a)) throw new Error('this file is xz: unpack it first');
  if (begins(0x50, 0x4b, 0x03, 0x04))
    throw new Error('this file is a ZIP archive: unpack it first');
  return 'plain';
}

/**
 * Passes every piece of the file to `take`, and reports how many bytes of the file were read.
 * `isCurrent` returns whether the result is still wanted.
 * @param {Blob} file
 * @param {(piece: Uint8Array) => void} take
 * @param {(read: number) => void} tell
 * @param {() => boolean} isCurrent
 * @throws {Damaged} the part before was passed to `take`
 */
export async function readLog(file, take, tell, isCurrent) {
  const head = await file
    .slice(0, 8)
    .arrayBuffer()
    .catch(() => {
      throw new Error('this cannot be read: is it a folder, or was it moved meanwhile?');
    });
  const kind = packing(new Uint8Array(head));
  let read = 0;
  let told = performance.now();
  const counted = new TransformStream({
    transform(/** @type {Uint8Array} */ piece, controller) {
      read += piece.length;
      controller.enqueue(piece);
    },
  });
  const bytes = file.stream().pipeThrough(counted);
  const plain = kind === 'gzip' ? bytes.pipeThrough(new DecompressionStream('gzip')) : bytes;
  const reader = plain.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw kind === 'gzip' ? new Damaged(BROKEN) : error;
    });
    if (done) break;
    if (!isCurrent()) {
      await reader.cancel().catch(() => {});
      throw new Error('cancelled');
    }
    take(value);
    if (performance.now() - told > TELL) {
      told = performance.now();
      tell(read);
    }
  }
  tell(read);
}
