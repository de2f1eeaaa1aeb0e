/**
 * The one cursor of the page: a point in time, and the request of lane A at that time.
 *
 * Invariant: plots, the slider and the responses read it from here, so they never show different
 * requests. Moving is cheap; a move sends requests to the workers at most once per frame.
 */

/**
 * @typedef {object} Cursor
 * @property {number} at_ms
 * @property {number|null} index the request, when a request was chosen and not a time
 */

/** @type {Set<(cursor: Cursor) => void>} */
const listeners = new Set();
/** @type {Cursor} */
let present = { at_ms: 0, index: null };
let isAsked = false;

export const cursor = () => present;

/** @param {number} at_ms @param {number|null} [index] */
export function moveTo(at_ms, index = null) {
  present = { at_ms: Math.max(0, at_ms), index };
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    listeners.forEach((listener) => listener(present));
  });
}

/** @param {(cursor: Cursor) => void} listener @returns {() => void} ends it */
export function onCursor(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
