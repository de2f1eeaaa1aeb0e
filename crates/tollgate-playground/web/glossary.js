/**
 * The definitions of the page's terms, for readers who do not know them yet.
 */

import { h } from './dom.js';

const WORDS = [
  [
    'Most in any window',
    'The greatest number that one client got through in any window, wherever it begins: what the origin has to bear. Where it is above the limit, the algorithm allows that.',
  ],
  [
    'True count',
    'How many of the busiest client’s requests were admitted in the window that ends now, counted one by one.',
  ],
  [
    'Own count when asked',
    'How many the algorithm believes were used. Where it is not the true count, it errs.',
  ],
  [
    'Left, until whole',
    'What the RateLimit field tells a client: units left, and the time until nothing is used any more. For gcra that is how far its theoretical arrival time (TAT) lies ahead of now.',
  ],
  [
    'False allow, false deny',
    'Requests that an exact limiter with the same rules, which remembers every unit, would have refused, or let through.',
  ],
  [
    'Seed',
    'Where the chance of Poisson arrivals, Zipf clients and jitter begins: the same seed gives the same requests, here and on the command line.',
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
