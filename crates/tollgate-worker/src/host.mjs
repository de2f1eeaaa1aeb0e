// The functions of the runtime that the Rust side calls: each function is one crossing instead of many.
//
// Invariant: nothing here throws and nothing here decides; a failure is returned as `undefined`. Lines of header
// fields cross as one string, `name: value\n` each.

export const policyText = () => (typeof globalThis.tollgatePolicy === "string" ? globalThis.tollgatePolicy : "");

/** What was compiled when the Worker was deployed: bytes of one policy, none, or a marker that they are not base64. */
export function compiledPolicy() {
  try {
    const text = globalThis.tollgateCompiled ?? "";
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return new Uint8Array(1);
  }
}

export const isUrl = (text) => URL.canParse(text);

export const isNamespace = (value) => typeof value?.getByName === "function";

/** The same objects, created near `hint`, or only within `jurisdiction`; where that is not possible, a text with the
 * reason. A hint counts when an object is created, which is when it is first called. */
export function placed(objects, hint, jurisdiction) {
  try {
    const within = jurisdiction === undefined ? objects : objects.jurisdiction(jurisdiction);
    if (hint === undefined) return within;
    const options = { locationHint: hint };
    return {
      getByName: (name) => within.getByName(name, options),
      idFromName: (name) => within.idFromName(name),
    };
  } catch (error) {
    return reason(error);
  }
}

/** The identity that distinguishes these objects from those of any other namespace: the platform derives an object's id
 * from both. */
export function identityOf(objects) {
  try {
    return String(objects.idFromName("tollgate"));
  } catch (error) {
    fail(`costs cannot be settled: ${reason(error)}`);
    return "";
  }
}

export const isDataset = (value) => typeof value?.writeDataPoint === "function";

export const isFetcher = (value) => typeof value?.fetch === "function";

/** Passes the outcome of `promise` to wasm, with the number of the wait as the first argument. No number is used twice in
 * the life of the isolate: an instance of wasm that was restarted does not know those of the previous one. */
export function whenSettled(promise) {
  const number = ++lastNumber;
  promise.then(
    (value) => globalThis.tollgateSettled(number, value),
    (error) => globalThis.tollgateSettled(number, error),
  );
  return number;
}

let lastNumber = 0;

/** For readers of the Worker's log: warnings, and failures. */
export const warn = (text) => console.warn("tollgate:", text);
export const fail = (text) => console.error("tollgate:", text);

export const event = (json) => console.log(json);

export const random = () => crypto.getRandomValues(new BigUint64Array(1))[0];

/** The name of the one object with the sums. */
const SUMS = "metrics";

/** Adds the counts to the sums: on failure a text with the reason, empty when it took too long. */
export const addMetrics = (objects, delta, timeout) =>
  inTime(timeout, async () => await objects.getByName(SUMS).add(delta));

/** The sums as text in a list of one; on failure a text with the reason, empty when it took too long. */
export const metricsText = (objects, isOpen, timeout) =>
  inTime(timeout, async () => [await objects.getByName(SUMS).text(isOpen)]);

/** Writes a point: `values` of the rule, quota, tier and result, found by the rule. On failure a text with the reason. */
export function writePoint(dataset, values, count) {
  try {
    dataset.writeDataPoint({ blobs: values, doubles: [count], indexes: [values[0]] });
  } catch (error) {
    return reason(error);
  }
}

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** The number of calls to one key's object while one request is decided: a check whether it still denies, a check with the
 * others and then a charge, one retry in all, and one refund. The platform bounds the calls of one invocation: beyond that
 * every key fails. */
const MAX_CALLS = 3;
const MAX_RETRIES = 1;
const MAX_REFUNDS = 1;

/** One key's object, for as long as one request is decided. All objects of a request have one time-out, which began
 * `since`: they are not awaited one after the other. */
class KeyObject {
  #calls = MAX_CALLS;
  #retries = MAX_RETRIES;
  #refunds = MAX_REFUNDS;
  #rest;

  constructor(objects, name, timeout, since) {
    this.objects = objects;
    this.name = name;
    this.timeout = timeout;
    this.since = since;
  }

  /** The time for which its reply may still be awaited. A clock that was set back does not make the wait longer. */
  #left() {
    return Math.min(Math.max(this.since + this.timeout - Date.now(), 0), this.timeout);
  }

  /** The object's reply; on failure a text with the reason, empty when the object was too slow. */
  check(request) {
    const left = this.#left();
    if (left === 0) return Promise.resolve(LATE);
    if (this.#calls-- <= 0) return Promise.resolve("it was asked too often");
    return inTime(left, (turn) => this.#checkTwice(request, turn));
  }

  /** The same within half of the remaining time: after that it is too slow for now, and `rest` returns the reply within all
   * of it. */
  checkSoon(request) {
    const half = this.#left() / 2;
    this.#rest = this.check(request);
    return inTime(half, () => this.#rest);
  }

  rest() {
    return this.#rest;
  }

  /** The same after the refund of the charge. Tried once: a second refund would allow too many requests. It is sent also
   * when no time is left to wait for it. */
  refund(request, reply) {
    if (this.#refunds-- <= 0) return Promise.resolve("it was asked too often");
    return inTime(this.#left(), async () => await this.takeBack(request, reply));
  }

  /** The same for the effects of a response, when it returns places: tried once, too. */
  settle(request) {
    if (this.#refunds-- <= 0) return Promise.resolve("it was asked too often");
    return inTime(this.#left(), async () => await this.objects.getByName(this.name).check(request));
  }

  // The platform marks errors that a second try may cure: the object moved, or its code was updated. At worst the
  // request is charged twice.
  async #checkTwice(request, turn) {
    try {
      return await this.ask(request);
    } catch (error) {
      if (!error?.retryable || error.overloaded || turn.isOver || this.#retries-- <= 0) throw error;
      return await this.ask(request);
    }
  }

  ask(request) {
    return this.objects.getByName(this.name).check(request);
  }

  takeBack(request, reply) {
    return this.objects.getByName(this.name).refund(request, reply);
  }
}

/** The same for a hot key, whose requests are spread over shards: each goes to any of them and, denied there, to one other,
 * which allows it if it holds enough. */
class ShardedKey extends KeyObject {
  #shards;
  #asked; // the shard called last

  constructor(objects, name, timeout, since, shards) {
    super(objects, name, timeout, since);
    this.#shards = shards;
  }

  async ask(request) {
    const first = Math.floor(Math.random() * this.#shards);
    this.#asked = shard(this.objects, this.name, first);
    const [isRefused, reply] = await this.#asked.spend(this.name, request);
    if (!isRefused) {
      countShard(reply[0] === HELD ? 0 : 1, reply);
      return reply;
    }
    const other = (first + 1 + Math.floor(Math.random() * (this.#shards - 1))) % this.#shards;
    const another = shard(this.objects, this.name, other);
    // A failure here leaves the denial as it is.
    const inHand = await another.spendInHand(request).catch(() => undefined);
    countShard(inHand === undefined ? 3 : 2, inHand ?? reply);
    if (inHand === undefined) return reply;
    this.#asked = another;
    return inHand;
  }

  takeBack(request, reply) {
    return this.#asked.putBack(this.name, request, reply);
  }
}

/** The first byte of replies: the key's own object decided, or a shard from its held units (`wire.rs`). */
const DECIDED = 0;
const HELD = 5;

/** The number of requests decided from a shard's held units, by the key's own object, by a second shard, and denied by
 * that, too. */
let shardCounts = new Uint32Array(4);

function countShard(place, reply) {
  if (reply[0] === DECIDED || reply[0] === HELD) shardCounts[place]++;
}

export function takeShardCounts() {
  const counts = shardCounts;
  shardCounts = new Uint32Array(4);
  return counts;
}

/** Shards are objects of the same class as the key's own object. */
const shard = (objects, name, i) => objects.getByName(`${name}.${i}`);

/** Makes all shards of a key return the units that they hold: after that the key's own object knows all spent units. */
export const closeShards = (objects, name, shards, timeout) =>
  inTime(timeout, async () => {
    await Promise.all(Array.from({ length: shards }, (_, i) => shard(objects, name, i).close(name)));
    return new Uint8Array();
  });

/** An operator's request to a key's object; it may be sent twice. */
export const operate = (objects, name, request, timeout) =>
  inTime(timeout, async () => await objects.getByName(name).operate(request));

export const keyObject = (objects, name, timeout, since, shards) =>
  shards === undefined ? new KeyObject(objects, name, timeout, since) : new ShardedKey(objects, name, timeout, since, shards);

/** The reply to `call` of the object `name`, which is not a partition key's. Asked again, at most `retries` times, where
 * the platform reports that it may help: only for calls that may be repeated. */
export const askObject = (objects, name, request, timeout, retries) =>
  inTime(timeout, async (turn) => {
    for (let left = retries; ; left--) {
      try {
        return await objects.getByName(name).call(request);
      } catch (error) {
        if (!error?.retryable || error.overloaded || turn.isOver || left <= 0) throw error;
      }
    }
  });

/** Wakes requests that wait for the result of another request. Each waits by a promise and a timer of its own: one request
 * must not use the promises of another. */
class Bell {
  #listeners = new Set();

  ring() {
    for (const wake of this.#listeners) wake();
  }

  /** Until it rings, or for at most this long. */
  async ringsWithin(milliseconds) {
    let wake;
    let timer;
    const rung = new Promise((resolve) => {
      wake = resolve;
      timer = setTimeout(resolve, milliseconds);
    });
    this.#listeners.add(wake);
    await rung;
    this.#listeners.delete(wake);
    clearTimeout(timer);
  }
}

export const bell = () => new Bell();

/** The end of a forwarded response. Its body passes through a stream of ours, and the runtime moves the bytes, unless they are
 * counted or scanned: then every piece is, before it is handed to the client. A client that leaves is noticed with the next
 * piece. */
class ResponseEnd extends Bell {
  number = ++lastNumber;
  isOver = false;
  isHidden = false; // over, and the platform does not report how
  isWhole = false; // the body, where it is counted or scanned
  bytes = 0;
  #countsBytes;

  constructor(countsBytes) {
    super();
    this.#countsBytes = countsBytes;
  }

  over() {
    this.isOver = true;
    this.ring();
  }

  #hide() {
    this.isHidden = true;
    this.over();
  }

  /** The response with `fields` added, of which this is the end. */
  pass(response, fields, isScanned) {
    const { body } = response;
    if (body === null) {
      this.isWhole = true;
      // The end of an upgraded connection is not known.
      if (response.webSocket) this.#hide();
      else this.over();
      return fields === "" ? response : withFields(response, fields);
    }
    const { readable, writable } = passage(response.headers.get("content-length"));
    const copy = withFields(response, fields, readable);
    if (copy === response) this.#hide();
    else this.#follow(body, writable, isScanned);
    return copy;
  }

  async #follow(body, writable, isScanned) {
    const isRead = this.#countsBytes || isScanned;
    // An error is of one end, and has ended the other one.
    await (isRead ? this.#read(body, writable, isScanned) : body.pipeTo(writable)).catch(() => {});
    this.over();
  }

  async #read(body, writable, isScanned) {
    const writer = writable.getWriter();
    let reader;
    try {
      reader = body.getReader({ mode: "byob" });
      for (let piece = new Uint8Array(SHORTEST_PIECE); ; ) {
        const { done, value } = await reader.read(piece);
        if (done) {
          this.isWhole = true;
          return await writer.close();
        }
        this.bytes += value.length;
        if (isScanned) globalThis.tollgateScan(this.number, value);
        await writer.write(value);
        const { byteLength } = value.buffer;
        const isShort = value.length === byteLength && byteLength < LONGEST_PIECE;
        piece = new Uint8Array(isShort ? new ArrayBuffer(2 * byteLength) : value.buffer);
      }
    } catch (error) {
      reader?.cancel(error).catch(() => {});
      writer.abort(error).catch(() => {});
    }
  }
}

/** Long bodies are read in long pieces, which cost less; a stream of short ones takes little memory. */
const SHORTEST_PIECE = 4 * 1024;
const LONGEST_PIECE = 128 * 1024;

/** A stream through which a body passes that has this length. */
const passage = (length) => (/^\d{1,15}$/.test(length) ? new FixedLengthStream(Number(length)) : new IdentityTransformStream());

export const responseEnd = (countsBytes) => new ResponseEnd(countsBytes);

const LATE = "";

/** The result of `ask`, an asynchronous function, within `timeout` milliseconds. A call cannot be cancelled: a later result
 * is dropped. */
function inTime(timeout, ask) {
  return new Promise((resolve) => {
    const turn = { isOver: false };
    const asked = ask(turn);
    const timer = setTimeout(() => {
      turn.isOver = true;
      resolve(LATE);
    }, timeout);
    const end = (reply) => {
      clearTimeout(timer);
      resolve(reply);
    };
    asked.then(end, (error) => end(reason(error)));
  });
}

/** The reason of a failure, never empty. */
const reason = (error) => String(error?.message || error || "unknown");

// An exception here would leave the request without a response: wasm has no way to catch it.
export function respond(status, fields, body) {
  try {
    // An empty text has a content type, and a status that has no body throws on any.
    const content = body === "" || BODILESS.has(status) ? null : body;
    return new Response(content, { status, headers: headersOf(fields) });
  } catch (error) {
    fail(`a response cannot be made: ${reason(error)}`);
    return new Response(null, { status: 500 });
  }
}

/** For a response: an object, which the runtime reads in half the time of a list of pairs, unless a name comes twice. */
function headersOf(fields) {
  const headers = { __proto__: null };
  for (const line of fields.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon <= 0) continue;
    const name = line.slice(0, colon);
    if (name in headers) return [...lines(fields)];
    headers[name] = line.slice(colon + 2);
  }
  return headers;
}

const BODILESS = new Set([204, 205, 304]);

/** The reason why there is no response of the origin; wasm has the same numbers. */
const [ORIGIN_FAILED, BROKEN_OFF, EITHER_FAILED, NOT_SENT, LENGTH_REQUIRED] = [0, 1, 2, 3, 4];

/** The origin's response to `request` sent to `url` with `marks` set, streamed; on failure a list: one of the numbers
 * above, and the reason for the log. Fields that a client sent under the names of the marks are replaced. Every request
 * goes the same way, whatever the outcome of its response. Where its body `isRead` here, it comes as the origin encoded it. */
export async function fetchFrom(request, url, marks, isRead) {
  const upload = { request, isBrokenOff: false, isOver: false };
  let forwarded;
  try {
    const refusal = await prepare(upload);
    if (refusal !== undefined) return [refusal, ""];
    forwarded = new Request(url, upload.request);
    for (const [name, value] of lines(marks)) forwarded.headers.set(name, value);
  } catch (error) {
    return [NOT_SENT, reason(error)];
  }
  try {
    const encoding = isRead ? { encodeResponseBody: "manual" } : {};
    const response = await fetch(forwarded, { redirect: "manual", ...encoding });
    // No response: the runtime would close the client's connection without one.
    if (response.status === 101 && !response.webSocket) {
      return [ORIGIN_FAILED, "it changed the protocol, which no client asked for"];
    }
    return response;
  } catch (error) {
    if (upload.isBrokenOff) return [BROKEN_OFF, ""];
    return [upload.isUnwatched ? EITHER_FAILED : ORIGIN_FAILED, reason(error)];
  } finally {
    upload.isOver = true;
  }
}

/** Decides how the body goes on. A body with a length goes through a pipe: a failed call does not show whose end failed, the
 * client's or the origin's. When the origin's end fails, so does the call. When the client's does, the call waits for more, and
 * is ended from here. The runtime moves the bytes: copied here they took 100 MiB of garbage and five times as long. Two kinds of
 * bodies go on as they are, so a failure may be either end's: one without a length, which the runtime would take for whole when
 * a part has passed, and that of a GET or HEAD, for which no request can be made but from the one that came. */
async function prepare(upload) {
  const { request } = upload;
  const length = request.headers.get("content-length");
  if (!request.body || Number(length ?? 1) === 0) return undefined;
  const isGetOrHead = request.method === "GET" || request.method === "HEAD";
  if (isGetOrHead && length === null) return await withoutBody(upload);
  upload.isUnwatched = isGetOrHead || length === null;
  if (upload.isUnwatched) return undefined;
  const { readable, writable } = new FixedLengthStream(Number(length));
  upload.request = { method: request.method, headers: request.headers, body: readable };
  request.body.pipeTo(writable, { preventAbort: true }).catch((error) => {
    setTimeout(() => {
      upload.isBrokenOff = !upload.isOver;
      writable.abort(error).catch(() => {}); // its reader gets the error
    }, BOTH_FAIL_WITHIN_MS);
  });
  return undefined;
}

/** The runtime sends a GET or HEAD in chunks to the origin without its body and does not report it (workerd 2026-10-23). An
 * empty body is lost without harm; one with bytes is refused (RFC 9110, 15.5.12). */
async function withoutBody(upload) {
  const { request } = upload;
  const reader = request.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (value.length > 0) {
        reader.cancel().catch(() => {});
        return LENGTH_REQUIRED;
      }
    }
  } catch {
    return BROKEN_OFF;
  }
  const headers = new Headers(request.headers);
  headers.delete("transfer-encoding");
  upload.request = { method: request.method, headers };
  return undefined;
}

/** The call ends this soon after the pipe when the origin's end failed: both receive the same event. */
const BOTH_FAIL_WITHIN_MS = 250;

/** The file at `path` among the deployment's assets, with `fields` in place of its own; `undefined` when there is none. Of
 * the request only data that the client already has are passed on. */
export async function assetAt(assets, request, path, fields) {
  try {
    const headers = new Headers();
    const known = request.headers.get("if-none-match");
    if (known !== null) headers.set("if-none-match", known);
    const asked = new Request(new URL(path, request.url), { method: request.method, headers, redirect: "manual" });
    const found = await assets.fetch(asked);
    if (found.status !== 200 && found.status !== 304) return undefined;
    const copy = new Response(found.body, found);
    for (const [name, value] of lines(fields)) copy.headers.set(name, value);
    return copy;
  } catch (error) {
    fail(`a file of a page cannot be read: ${reason(error)}`);
    return undefined;
  }
}

/** The response with `fields` added to its own, and with `body`. */
export function withFields(response, fields, body = response.body) {
  let copy = response;
  try {
    copy = new Response(body, response); // a fetched response's headers are immutable
    for (const [name, value] of lines(fields)) copy.headers.append(name, value);
  } catch (error) {
    fail(`a response is passed on without its fields: ${reason(error)}`);
  }
  return copy;
}

/** The edge's data about the client, as text; that of a group of it, such as `tlsClientAuth`. */
export function edgeFact(request, name, group) {
  const value = (group === undefined ? request.cf : request.cf?.[group])?.[name];
  return value === undefined || value === null ? undefined : String(value);
}

/** The whole body; `undefined` when it is longer than `limit` bytes or is cut off. */
export async function readBody(request, limit) {
  const length = request.headers.get("content-length");
  if (Number(length ?? 0) > limit) return undefined;
  try {
    // A body with a declared length is no longer than that, and is read in one piece: chunk by chunk costs 50 us
    // more.
    if (length !== null) {
      const body = new Uint8Array(await request.arrayBuffer());
      return body.length > limit ? undefined : body;
    }
    return await readChunks(request.body ?? [], limit);
  } catch {
    return undefined;
  }
}

async function readChunks(chunks, limit) {
  const body = new Uint8Array(limit);
  let length = 0;
  for await (const chunk of chunks) {
    if (length + chunk.length > limit) return undefined;
    body.set(chunk, length);
    length += chunk.length;
  }
  return body.subarray(0, length);
}

function* lines(fields) {
  for (const line of fields.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) yield [line.slice(0, colon), line.slice(colon + 2)];
  }
}

// Verifying tokens: RFC 7515 (signature), RFC 7519 (claims), RFC 8725 (the algorithm is the key's, never the token's).

const ALGORITHMS = {
  HS256: { name: "HMAC", hash: "SHA-256" },
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  ES256: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
};
/** The clocks of an issuer and of this platform may differ by this much. */
const LEEWAY_SECONDS = 60;
const MAX_TOKEN = 16 * 1024;
const imported = new Map(); // keys by their JSON, for the life of the isolate: as many as the policy has

/** The claims of a token that one of `keys` ([alg, kid, json] each) signed and that is valid; else `undefined`. */
export async function verify(token, keys, issuer, audiences, nowMs) {
  try {
    const parts = token.split(".");
    if (parts.length !== 3 || token.length > MAX_TOKEN) return undefined;
    const header = JSON.parse(new TextDecoder().decode(bytesOf(parts[0])));
    if (header.crit !== undefined) return undefined; // extensions that we do not know (RFC 7515, 4.1.11)
    const signed = new TextEncoder().encode(`${parts[0]}.${parts[1]}`);
    const signature = bytesOf(parts[2]);
    for (const [alg, kid, json] of keys) {
      if (alg !== header.alg || (kid !== undefined && header.kid !== undefined && kid !== header.kid)) continue;
      const key = await importedKey(alg, json);
      if (!key || !(await crypto.subtle.verify(ALGORITHMS[alg], key, signature, signed))) continue;
      // Bytes that are not UTF-8 are not a token (RFC 7519, 7.2): with replacements, several claims would be one.
      const claims = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytesOf(parts[1])));
      return isValid(claims, issuer, audiences, nowMs / 1000) ? claims : undefined;
    }
  } catch {
    // Not a token: no claims.
  }
  return undefined;
}

function isValid(claims, issuer, audiences, now) {
  // Numbers (RFC 7519, 2): JavaScript would compare texts and empty lists too.
  const isTime = (claim) => claim === undefined || typeof claim === "number";
  if (!isTime(claims.nbf) || !isTime(claims.exp)) return false;
  const early = claims.nbf > now + LEEWAY_SECONDS;
  const late = now - LEEWAY_SECONDS >= claims.exp;
  if (early || late || (issuer !== undefined && claims.iss !== issuer)) return false;
  return audiences.length === 0 || [claims.aud].flat().some((audience) => audiences.includes(audience));
}

/** `undefined` for an invalid key: the other keys still verify. */
async function importedKey(alg, json) {
  if (!imported.has(json)) {
    const parsed = JSON.parse(json);
    const key = await crypto.subtle.importKey("jwk", parsed, ALGORITHMS[alg], false, ["verify"]).catch((error) => {
      console.error("tollgate: a key of the policy cannot be used:", alg, error?.message);
    });
    imported.set(json, key);
  }
  return imported.get(json);
}

function bytesOf(base64url) {
  if (!/^[A-Za-z0-9_-]*$/.test(base64url)) throw new SyntaxError("not base64url");
  return Uint8Array.from(atob(base64url.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
}
