/**
 * What is said to a screen reader without moving its focus.
 *
 * Invariant: one region, spoken politely, at most one sentence a second, and never the same one
 * twice: a page that talks all the time is switched off.
 */

import { debounced, fill } from './dom.js';

const region = () => /** @type {HTMLElement} */ (document.getElementById('said'));

/** Says a sentence when the page has been quiet for a second. */
export const announce = debounced(
  (/** @type {string} */ sentence) => fill(region(), sentence),
  1000,
);

/** Says at once what somebody has just asked for. @param {string} sentence */
export function answer(sentence) {
  fill(region(), sentence);
}
