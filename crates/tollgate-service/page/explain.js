/**
 * Explains the decision on a request: a form that describes the request, and the decision in words
 * and numbers. Consumes nothing.
 *
 * Invariant: the page shows the service's response and computes nothing. Test ids:
 * explain, explained, explain-method, explain-path, explain-host, explain-client, explain-headers.
 */

import { fill, h, labelled, table } from '../../tollgate-playground/web/dom.js';
import { ask } from './api.js';
import { nameOf, uses } from './key-state.js';
import { form, span, when, wrong } from './parts.js';

/** The form of a request, and the place of the decision on it. */
export function explanation() {
  const said = h('div', { role: 'status', 'data-testid': 'explained' });
  const text = (/** @type {string} */ name, value = '', more = {}) =>
    h('input', {
      type: 'text',
      autocomplete: 'off',
      spellcheck: 'false',
      'data-testid': `explain-${name}`,
      value,
      ...more,
    });
  const method = text('method', 'GET', { size: 7, required: true });
  const path = text('path', '/', { required: true, pattern: '/.*' });
  const host = text('host');
  const client = text('client', '', { placeholder: '192.0.2.1' });
  const headers = h('textarea', {
    rows: 2,
    spellcheck: 'false',
    'data-testid': 'explain-headers',
  });
  const element = form(
    async () => {
      const fields = headers.value
        .split('\n')
        .map((line) => line.split(/:(.*)/s))
        .filter(([name]) => name.trim() !== '');
      const asked = {
        method: method.value,
        path: path.value,
        ...(host.value && { host: host.value }),
        ...(client.value && { client_ip: client.value }),
        ...(fields.length > 0 && {
          headers: Object.fromEntries(
            fields.map(([name, value = '']) => [name.trim(), value.trim()]),
          ),
        }),
      };
      const answer = await ask('POST', 'admin/explain', { body: JSON.stringify(asked) });
      if (!answer.ok) return wrong(said, answer);
      fill(said, ...explained(answer.json ?? {}));
    },
    { className: 'card fields', 'aria-label': 'Explain a request' },
    h(
      'div',
      { className: 'row' },
      labelled('Method', method),
      labelled('Path and query', path),
      labelled('Host', host),
      labelled('Client address', client),
    ),
    labelled('Header fields', headers, 'one a line, "name: value"'),
    h(
      'div',
      { className: 'row tight' },
      h('button', { className: 'strong', 'data-testid': 'explain' }, 'Explain'),
      h('span', { className: 'quiet' }, 'Consumes nothing.'),
    ),
  );
  return [element, said];
}

/** @param {any} answer */
function explained(answer) {
  const head =
    {
      allow: 'It would pass',
      deny: `It would be refused with ${answer.status}`,
      delay: 'It would wait',
    }[/** @type {string} */ (answer.decision)] ?? String(answer.decision);
  const wait =
    typeof answer.retry_after_ms === 'number' ? `, again in ${span(answer.retry_after_ms)}` : '';
  const rules = Array.isArray(answer.rules) ? answer.rules : [];
  return [
    h(
      'p',
      { className: answer.decision === 'deny' ? 'problem' : 'done' },
      h('strong', {}, head),
      `${wait}.`,
    ),
    rules.length === 0 && h('p', { className: 'quiet' }, 'No rule applies.'),
    ...rules.map((/** @type {any} */ rule) =>
      h(
        'article',
        { className: 'card' },
        h(
          'h4',
          {},
          rule.name,
          h(
            'span',
            { className: 'quiet' },
            ` ${rule.result}${rule.is_enforced ? '' : ', not enforced'}, counts by ${(rule.key ?? []).join(', ') || 'all requests'}`,
          ),
        ),
        typeof rule.blocked_until_ms === 'number' &&
          h('p', { className: 'problem' }, 'Blocked until ', when(rule.blocked_until_ms), '.'),
        rule.entry &&
          h(
            'p',
            {},
            rule.entry.quotas === 'own' ? 'Quotas of its own' : `The tier ${rule.tier}`,
            `, by the entry of its tenant (priority ${rule.entry.priority}).`,
          ),
        quotas(rule.quotas ?? [], `Quotas of ${rule.name}`),
      ),
    ),
  ];
}

/** A table of them, if there are any. @param {any[]} rows @param {string} caption */
export function quotas(rows, caption) {
  if (rows.length === 0) return null;
  return table(
    caption,
    ['quota', 'used', 'remaining', 'limit', 'full again in'],
    rows.map((one) => [
      nameOf(one),
      uses(one),
      one.remaining,
      `${one.limit} in ${span(one.window_ms)}`,
      span(one.reset_after_ms),
    ]),
  );
}
