/**
 * The admin API, as the page asks it (docs/admin.md).
 *
 * Invariant: the token is kept here and nowhere else, unless somebody ticks that this tab may keep
 * it; it is sent to the folder that the page lies in and never anywhere else. An answer is never
 * thrown: what failed has a status and a problem like what was refused.
 */

/**
 * @typedef {{path: string, detail: string}} Mistake
 * @typedef {{title: string, detail: string, errors: Mistake[]}} Problem
 * @typedef {{status: number, ok: boolean, etag: string|null, header: (name: string) => string|null, text: string, json: any, problem: Problem|null}} Answer
 * @typedef {{body?: string, match?: string|null, none?: boolean, signal?: AbortSignal}} Extra
 */

/** Where this page lies below, which is where the API is. */
const BASE = new URL('../', document.baseURI);
const KEPT = 'tollgate-admin-token';

/** Nothing that a person waits for takes longer. */
const PATIENCE_MS = 30_000;

let token = '';
/** What happens when a token is no longer taken. @type {() => void} */
let refused = () => {};

/** @param {() => void} then */
export function onRefused(then) {
  refused = then;
}

/** The token that this tab was told to keep. */
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
    // Without storage it lives as long as the page.
  }
}

/**
 * Asks `path` below the prefix.
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
    return failed(401, 'the token holds what no token can hold');
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
      // What a gateway in front of this page knows people by.
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
