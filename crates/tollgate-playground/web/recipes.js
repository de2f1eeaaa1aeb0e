/**
 * Starting points: situations, each with the lanes and the traffic that show it, and one sentence
 * about what to look at.
 *
 * Invariant: a recipe is a state as in a link; choosing a recipe opens that link.
 */

import { pretty } from './format.js';
import { preset } from './state.js';

/**
 * @typedef {object} Recipe
 * @property {string} id
 * @property {string} name
 * @property {string} look
 * @property {import('./state.js').State} state
 */

/** @param {object} document */
export const model = (document) => ({
  kind: /** @type {const} */ ('model'),
  json: pretty(document),
});

/** @param {object[]} rules @returns {import('./state.js').Written} */
const policy = (...rules) => ({ kind: 'policy', policy: `${pretty({ version: 1, rules })}\n` });

const login = { methods: ['POST'], paths: ['/login'] };
const guess = { method: 'POST', path: '/login' };
/** One count for all clients: every request has the same host. */
const everybody = [{ header: 'host' }];

/** @type {Recipe[]} */
export const RECIPES = [
  {
    id: 'edge',
    name: 'Burst at a window’s edge',
    look: 'Ten requests just before an edge of the window and ten on it: the fixed window lets all 20 through within half a second, the log never more than 10.',
    state: {
      lanes: ['fixed-window', 'sliding-window', 'gcra', 'sliding-log'].map((name) =>
        preset(name, 10, '10s'),
      ),
      traffic: model({
        length: '90s',
        sources: [{ name: 'edge', arrivals: { edge: { window: '20s', size: 10, gap: '500ms' } } }],
      }),
      seed: 1,
    },
  },
  {
    id: 'shaping',
    name: 'Shaping with leaky-queue',
    look: 'The same bursts of 20: leaky-queue denies as many as gcra, but lets the rest through one by one, so the window never holds more than the limit; “State as: waits” shows what that costs.',
    state: {
      lanes: [
        preset('leaky-queue', 10, '5s', { burst: 15 }),
        preset('gcra', 10, '5s', { burst: 15 }),
      ],
      traffic: model({
        length: '60s',
        sources: [{ name: 'bursts', arrivals: { bursts: { size: 20, every: '12s' } } }],
      }),
      seed: 1,
    },
  },
  {
    id: 'retry',
    name: 'Retry storm',
    look: '200 clients share 50 requests per 10 s and retry after Retry-After: a window lets all of them retry at its edge, gcra in the next second, repeatedly, and most of them are denied again.',
    state: {
      lanes: ['fixed-window', 'gcra', 'sliding-buckets'].map((algorithm) =>
        policy({
          name: 'everybody',
          key: everybody,
          quotas: [{ limit: 50, window: '10s', algorithm }],
        }),
      ),
      traffic: model({
        length: '90s',
        sources: [
          {
            name: 'outage ends',
            arrivals: { bursts: { size: 200, every: '60s' } },
            clients: { count: 200 },
            retry: { attempts: 8, wait: 'retry_after', jitter: '500ms' },
          },
        ],
      }),
      seed: 7,
    },
  },
  {
    id: 'login',
    name: 'Login guessing',
    look: 'A guesser begins 10 s before an edge and sends two requests per second: the fixed window allows 10 guesses in 12 s, the log 5 in any minute, and only a second quota stops the guesser.',
    state: {
      lanes: [
        policy({
          name: 'login',
          when: login,
          key: ['client_ip'],
          quotas: [{ limit: 5, window: '1m', algorithm: 'fixed-window' }],
        }),
        policy({
          name: 'login',
          when: login,
          key: ['client_ip'],
          quotas: [{ limit: 5, window: '1m', algorithm: 'sliding-log' }],
        }),
        policy({
          name: 'login',
          when: login,
          key: ['client_ip'],
          quotas: [
            { name: 'minute', limit: 5, window: '1m', algorithm: 'sliding-log' },
            { name: 'hour', limit: 15, window: '1h', algorithm: 'sliding-log' },
          ],
        }),
      ],
      traffic: model({
        length: '5m',
        sources: [
          { name: 'guesser', arrivals: { steady: { rate: '2/s' } }, from: '50s', request: guess },
        ],
      }),
      seed: 1,
    },
  },
  {
    id: 'spraying',
    name: 'Key spraying',
    look: 'Every request comes from a new address: a limit per client denies none of them; a common limit for all clients denies most of them, but also some customers.',
    state: {
      lanes: [
        preset('gcra', 10, '1m'),
        policy(
          { name: 'each-client', key: ['client_ip'], quotas: [{ limit: 10, window: '1m' }] },
          { name: 'everybody', key: everybody, quotas: [{ limit: 100, window: '10s' }] },
        ),
      ],
      traffic: model({
        length: '60s',
        sources: [
          {
            name: 'sprayer',
            arrivals: { poisson: { rate: '30/s' } },
            from: '15s',
            to: '45s',
            clients: { fresh: true },
          },
          { name: 'customers', arrivals: { poisson: { rate: '3/s' } }, clients: { count: 40 } },
        ],
      }),
      seed: 3,
    },
  },
  {
    id: 'zipf',
    name: 'Zipf clients',
    look: 'A few of 1,000 clients send most of the requests, as in real logs: the plots of the window follow the busiest client, which is always at its limit, while most clients are never limited.',
    state: {
      lanes: ['gcra', 'sliding-window', 'sliding-log'].map((name) => preset(name, 60, '1m')),
      traffic: model({
        length: '5m',
        sources: [
          {
            name: 'clients',
            arrivals: { poisson: { rate: '40/s' } },
            clients: { count: 1000, zipf: 1.1 },
          },
        ],
      }),
      seed: 11,
    },
  },
  {
    id: 'scanner',
    name: 'Slow scanner',
    look: 'One request every 7 s always stays below 10 per minute; a second quota of 200 per hour stops it after 23 minutes.',
    state: {
      lanes: [
        preset('sliding-log', 10, '1m'),
        policy({
          name: 'scan',
          key: ['client_ip'],
          quotas: [
            { name: 'minute', limit: 10, window: '1m', algorithm: 'sliding-log' },
            { name: 'hour', limit: 200, window: '1h', algorithm: 'sliding-buckets' },
          ],
        }),
      ],
      traffic: model({
        length: '1h',
        sources: [{ name: 'scanner', arrivals: { steady: { rate: '1/7s' } } }],
      }),
      seed: 1,
    },
  },
  {
    id: 'polite',
    name: 'A client that listens',
    look: 'One client spreads its remaining units over the time in the RateLimit field, the other does not: the first client is never denied.',
    state: {
      lanes: ['gcra', 'fixed-window', 'sliding-window'].map((name) => preset(name, 20, '10s')),
      traffic: model({
        length: '60s',
        sources: [
          { name: 'listens', arrivals: { steady: { rate: '5/s' } }, paced: true },
          { name: 'does not', arrivals: { steady: { rate: '5/s' } } },
        ],
      }),
      seed: 1,
    },
  },
];
