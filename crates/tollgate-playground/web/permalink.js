/**
 * The whole state of the page as text after the `#` of its address, and back.
 *
 * The text is `1.` (the version), then JSON, deflated, in base64url. The text of a link is
 * untrusted: its length is bounded before it is decoded and again while it is inflated (a few bytes
 * can inflate to gigabytes), and a refused link has a message with the reason.
 *
 * Invariant: `read` returns any JSON; `state.js` checks whether it is a state.
 */

export const VERSION = '1';
/** Characters after the `#`. Browsers and chats carry this much; longer is an attack or a paste. */
export const MAX_ENCODED = 65_536;
/** Bytes of JSON: four policies of the compiler's greatest size and a drawing. */
export const MAX_JSON = 1_048_576;

/** A link that cannot be read; the message is for people. */
export class LinkError extends Error {}

/**
 * @param {unknown} state
 * @returns {Promise<string>} the text after the `#`
 */
export async function write(state) {
  const json = new TextEncoder().encode(JSON.stringify(state));
  if (json.length > MAX_JSON) throw new LinkError(tooLong(json.length));
  const packed = await through(json, new CompressionStream('deflate-raw'), MAX_JSON);
  const text = `${VERSION}.${toBase64Url(packed)}`;
  if (text.length > MAX_ENCODED) throw new LinkError(tooLong(text.length));
  return text;
}

const tooLong = (/** @type {number} */ n) =>
  `this is too much for a link (${n} characters of at most ${MAX_ENCODED}): shorten a policy or the traffic`;

/**
 * @param {string} text the text after the `#`
 * @returns {Promise<unknown>}
 */
export async function read(text) {
  if (text.length > MAX_ENCODED) {
    throw new LinkError(
      `the link is too long: ${text.length} characters, at most ${MAX_ENCODED} are read`,
    );
  }
  const dot = text.indexOf('.');
  const version = dot < 0 ? '' : text.slice(0, dot);
  if (!/^\d{1,4}$/.test(version))
    throw new LinkError('the link is none of this page: it has no version');
  if (version !== VERSION) {
    throw new LinkError(
      `the link is of version ${version}, and this page reads version ${VERSION}`,
    );
  }
  const packed = fromBase64Url(text.slice(dot + 1));
  if (!packed) throw new LinkError('the link is damaged: it has characters that no link has');
  /** @type {Uint8Array} */
  let json;
  try {
    json = await through(packed, new DecompressionStream('deflate-raw'), MAX_JSON);
  } catch (error) {
    if (error instanceof LinkError) throw error;
    throw new LinkError(
      'the link is damaged: it cannot be inflated. Was it cut off when it was copied?',
    );
  }
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json));
  } catch {
    throw new LinkError('the link is damaged: what it holds is not JSON');
  }
}

/**
 * `bytes` after a transforming stream, of which at most `limit` bytes are taken.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {CompressionStream|DecompressionStream} transform
 * @param {number} limit
 */
async function through(bytes, transform, limit) {
  const reader = new Blob([bytes]).stream().pipeThrough(transform).getReader();
  const chunks = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > limit) {
      await reader.cancel().catch(() => {});
      throw new LinkError(`the link holds too much: more than ${limit} bytes`);
    }
    chunks.push(value);
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}

/** @param {Uint8Array} bytes */
function toBase64Url(bytes) {
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/**
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>|null} null when it is not base64url
 */
function fromBase64Url(text) {
  if (!/^[A-Za-z0-9_-]*$/.test(text)) return null;
  try {
    const binary = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
    return Uint8Array.from(binary, (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
}
