/**
 * The page's client of the admin API (docs/admin.md).
 *
 * Invariant: the token is kept only here, unless the user allows this tab to keep it; it is sent
 * only to the folder of the page. No function here throws: a failed request has a status and a
 * problem, as a refused one has.
 */

/**
 * @typedef {{path: string, detail: string}} Mistake
 * @typedef {{title: string, detail: string, errors: Mistake[]}} Problem
 * @typedef {{status: number, ok: boolean, etag: string|null, header: (name: string) => string|null, text: string, json: any, problem: Problem|null}} Answer
 * @typedef {{body?: string, match?: string|null, none?: boolean, signal?: AbortSignal}} Extra
 */

/** The prefix of this page's address, which is also the prefix of the API. */
const BASE = new URL('../', document.baseURI);
const KEPT = 'tollgate-admin-token';

/** The time-out of a request that a person waits for. */
const PATIENCE_MS = 30_000;

let token = '';
/** Called when a token is no longer accepted. @type {() => void} */
let refused = () => {};

/** @param {() => void} then */
export function onRefused(then) {
  refused = then;
}

/** The token that the user let this tab keep. */
export function keptToken() {
  try {
    return sessionStorage.getItem(KEPT) ?? '';
  } catch {
    return ''; // no storage, no token
  }
}

/** @param {string} given @param {boolean} isKept whether a reload of this tab may find it */
export function use(given, isKept) {
  token = given;
  try {
    if (isKept && given) sessionStorage.setItem(KEPT, given);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // Without storage the token lasts until the page is closed.
  }
}

/**
 * Sends a request to `path` below the prefix.
 * @param {string} method
 * @param {string} path
 * @param {Extra} [extra]
 * @returns {Promise<Answer>}
 */
export async function ask(method, path, extra = {}) {
  const headers = new Headers();
  try {
    headers.set('authorization', `Bearer ${token}`);
  } catch {
    return failed(401, 'the token contains characters that no token can contain');
  }
  if (extra.body !== undefined) headers.set('content-type', 'application/json');
  if (extra.match) headers.set('if-match', extra.match);
  if (extra.none) headers.set('if-none-match', '*');
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const signal = extra.signal ? AbortSignal.any([extra.signal, patience]) : patience;
  try {
    const response = await fetch(new URL(path, BASE), {
      method,
      headers,
      body: extra.body,
      cache: 'no-store',
      redirect: 'error',
      // The credentials for a gateway in front of this page.
      credentials: 'same-origin',
      signal,
    });
    const text = await response.text();
    if (response.status === 401) refused();
    return answer(response, text);
  } catch (error) {
    const isLate = patience.aborted;
    return failed(0, isLate ? 'there was no answer within 30 s' : `no answer: ${reason(error)}`);
  }
}

/** @param {Response} response @param {string} text @returns {Answer} */
function answer(response, text) {
  const type = response.headers.get('content-type') ?? '';
  const json = type.includes('json') ? parsed(text) : null;
  const { status, ok } = response;
  const problem = ok ? null : problemOf(status, json);
  const header = (/** @type {string} */ name) => response.headers.get(name);
  return { status, ok, etag: header('etag'), header, text, json, problem };
}

/** @param {number} status @param {any} json @returns {Problem} */
function problemOf(status, json) {
  const said = (/** @type {unknown} */ value, /** @type {string} */ or) =>
    typeof value === 'string' ? value : or;
  const errors = Array.isArray(json?.errors) ? json.errors : [];
  return {
    title: said(json?.title, `Status ${status}`),
    detail: said(json?.detail, ''),
    errors: errors.map((/** @type {any} */ one) => ({
      path: said(one?.path, ''),
      detail: said(one?.detail, ''),
    })),
  };
}

/** @param {number} status @param {string} detail @returns {Answer} */
function failed(status, detail) {
  const problem = { title: 'Not answered', detail, errors: [] };
  return { status, ok: false, etag: null, header: () => null, text: '', json: null, problem };
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {unknown} error */
function reason(error) {
  return error instanceof Error ? error.message : String(error);
}
