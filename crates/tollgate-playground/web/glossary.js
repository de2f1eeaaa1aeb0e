/**
 * The definitions of the page's terms, for readers who do not know them yet.
 */

import { h } from './dom.js';

const WORDS = [
  [
    'Most in any window',
    'The greatest number of requests that one client was allowed in any window, wherever it begins: the load on the origin. Where it is above the limit, the algorithm permits that.',
  ],
  [
    'True count',
    'How many of the busiest client’s requests were admitted in the window that ends now, counted one by one.',
  ],
  [
    'Own count when asked',
    'The used units by the algorithm’s own count. A difference from the true count is its error.',
  ],
  [
    'Left, until whole',
    'The values of the RateLimit field: the units left, and the time until the whole quota is available again. For gcra that is the theoretical arrival time (TAT) minus the current time.',
  ],
  [
    'False allow, false deny',
    'Requests that were allowed (denied) although an exact limiter with the same rules would have denied (allowed) them.',
  ],
  [
    'Seed',
    'The seed of the random numbers for Poisson arrivals, Zipf clients and jitter: the same seed gives the same requests, here and on the command line.',
  ],
];

export function glossary() {
  return h(
    'details',
    { className: 'glossary' },
    h('summary', {}, 'What the words mean'),
    h(
      'dl',
      {},
      WORDS.map(([word, meaning]) => h('div', {}, h('dt', {}, word), h('dd', {}, meaning))),
    ),
  );
}
