/**
 * The effects of a policy change, from the response of a dry run, and the changed lines.
 *
 * Invariant: everything in the response is shown, warnings first. Colour is never the only sign:
 * each line has its sign, each quota its word.
 */

import { h, table } from '../../tollgate-playground/web/dom.js';
import { around, diff } from './diff.js';
import { span } from './parts.js';

/** The most lines shown. */
const MOST_LINES = 2_000;
const COUNTS = /** @type {Record<string, string>} */ ({
  kept: 'kept: what was used stays used',
  fresh: 'begin fresh: every client has the whole quota again',
  forgotten: 'forgotten with the quota',
});

/** @param {any} report the response of a dry run */
export function changesOf(report) {
  const {
    rules = {},
    settings = [],
    jwt_keys: keys = {},
    quotas = [],
    more = 0,
  } = report?.changes ?? {};
  const rows = [
    ...list(rules.added).map((name) => ['rule added', name]),
    ...list(rules.removed).map((name) => ['rule removed', name]),
    ...list(rules.changed).map(({ name, members }) => [
      'rule changed',
      `${name}: ${list(members).join(', ')}`,
    ]),
    ...list(settings).map((name) => ['setting changed', name]),
    ...['added', 'removed', 'changed'].flatMap((what) =>
      list(keys[what]).map((key) => [`key of tokens ${what}`, key?.kid ?? JSON.stringify(key)]),
    ),
  ];
  const warnings = list(report?.warnings).map((one) =>
    h(
      'li',
      {},
      typeof one === 'string'
        ? one
        : `${one.path ?? ''} ${one.detail ?? one.message ?? JSON.stringify(one)}`,
    ),
  );
  return [
    warnings.length > 0 && h('ul', { className: 'warnings', 'aria-label': 'Warnings' }, warnings),
    rows.length > 0 &&
      h(
        'ul',
        { className: 'changes' },
        rows.map(([what, name]) =>
          h('li', {}, h('span', { className: 'quiet' }, `${what} `), h('code', {}, name)),
        ),
      ),
    quotas.length > 0 &&
      table(
        'What becomes of counts',
        ['rule', 'quota', 'now', 'then', 'counts'],
        list(quotas).map((one) => [
          one.rule,
          [one.tier, one.quota].filter(Boolean).join(' / '),
          quota(one.before),
          quota(one.after),
          h(
            'span',
            { className: `counts-${one.counts}` },
            COUNTS[one.counts] ?? String(one.counts),
          ),
        ]),
        'counts',
      ),
    more > 0 && h('p', { className: 'warning' }, `${more} more rows are not listed.`),
    rows.length + quotas.length === 0 &&
      h(
        'p',
        { className: 'quiet' },
        'No rule, quota or setting changes; only how the document is written.',
      ),
  ];
}

/** @param {any} value @returns {any[]} */
const list = (value) => (Array.isArray(value) ? value : []);

/** @param {any} one */
function quota(one) {
  if (!one) return '–';
  const burst = one.burst === one.limit ? '' : `, burst ${one.burst}`;
  const more = `${one.strict ? ', strict' : ''}${one.weighted ? ', weighted' : ''}`;
  return `${one.limit} in ${span(one.window_ms)}${burst}${more}, ${one.algorithm}`;
}

const SIGNS = { kept: ' ', added: '+', removed: '−', skipped: '' };
const WORDS = { kept: '', added: 'added: ', removed: 'removed: ', skipped: '' };

/** @param {string} before @param {string} after @param {string} label */
export function diffOf(before, after, label) {
  const lines = around(diff(before, after));
  const shown = lines.slice(0, MOST_LINES).map((line) => {
    const isSkipped = line.kind === 'skipped';
    const text = isSkipped
      ? `${line.text} line${line.text === '1' ? '' : 's'} as before`
      : line.text;
    return h(
      'tr',
      { className: `line line-${line.kind}` },
      h('td', { className: 'number' }, line.old || ''),
      h('td', { className: 'number' }, line.new || ''),
      h('td', { className: 'sign', 'aria-hidden': 'true' }, SIGNS[line.kind]),
      h(
        'td',
        { className: 'text' },
        WORDS[line.kind] && h('span', { className: 'visually-hidden' }, WORDS[line.kind]),
        text,
      ),
    );
  });
  const left = lines.length - shown.length;
  return [
    h(
      'div',
      {
        className: 'diff-scroll',
        tabindex: '0',
        role: 'region',
        'aria-label': label,
        'data-testid': 'diff',
      },
      h(
        'table',
        { className: 'diff' },
        h('caption', { className: 'visually-hidden' }, label),
        h(
          'thead',
          { className: 'visually-hidden' },
          h(
            'tr',
            {},
            ['old line', 'new line', 'sign', 'text'].map((head) => h('th', { scope: 'col' }, head)),
          ),
        ),
        h('tbody', {}, shown),
      ),
    ),
    left > 0 && h('p', { className: 'warning' }, `${left} more lines are not shown.`),
  ];
}
