/**
 * Announcements to a screen reader that do not move its focus.
 *
 * Invariant: one polite live region, at most one sentence per second, and never the same sentence
 * twice in a row. Users switch off a page that announces too much.
 */

import { debounced, fill } from './dom.js';

const region = () => /** @type {HTMLElement} */ (document.getElementById('said'));

/** Announces a sentence after one second without another announcement. */
export const announce = debounced(
  (/** @type {string} */ sentence) => fill(region(), sentence),
  1000,
);

/** Announces the result of a user action at once. @param {string} sentence */
export function answer(sentence) {
  fill(region(), sentence);
}
