/**
 * The view of one client: what its key has used under a rule, what may be done to it, and what
 * would be decided about a request.
 *
 * Invariant: what is done is done to the key whose state is shown, not to what stands in the form
 * by then. Keys are never listed: whoever asks knows the value. Test ids: keys, key-rule,
 * key-part-N, key-look, key-state, key-words, key-reset, key-block, key-until, key-unblock,
 * keys-said, explain-*.
 */

import { fill, h, labelled, table } from '../../tollgate-playground/web/dom.js';
import { ask } from './api.js';
import { confirmed, done, form, heading, outcome, span, when, wrong } from './parts.js';

const HOUR = 3_600_000;
/** No policy has longer keys. */
const MOST_PARTS = 16;

export class KeysView {
  #said = outcome('keys-said');
  #state = h('div', { 'data-testid': 'key-state' });
  #explained = h('div', { role: 'status', 'data-testid': 'explained' });
  #names = h('datalist', { id: 'rule-names' });
  #rule = h('input', {
    type: 'text',
    list: 'rule-names',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
    'data-testid': 'key-rule',
  });
  #parts = h('div', { className: 'row' });
  /** @type {Map<string, string[]>} what each rule counts by */ #rules = new Map();

  /** @param {boolean} canWrite */
  constructor(canWrite) {
    this.canWrite = canWrite;
    this.#rule.addEventListener('input', () => this.#ask());
    const look = form(
      () => this.#look(this.#rule.value, this.#given()),
      { className: 'fields', 'aria-label': 'One client' },
      h(
        'div',
        { className: 'row' },
        labelled('Rule', this.#rule),
        this.#parts,
        h('button', { className: 'strong', 'data-testid': 'key-look' }, 'Look'),
      ),
      this.#names,
    );
    this.element = h(
      'section',
      { 'data-testid': 'keys', 'aria-labelledby': 'keys-head' },
      Object.assign(heading('Keys'), { id: 'keys-head' }),
      h(
        'p',
        { className: 'quiet' },
        'One client of a rule, by the value of its key. A value that is looked up stands in the query, and so in the logs of what is between.',
      ),
      look,
      this.#said,
      this.#state,
      h('h3', { className: 'apart' }, 'What would be decided'),
      this.#explain(),
      this.#explained,
    );
    this.#fields(['key']);
  }

  async shown() {
    const answer = await ask('GET', 'admin/policy');
    const rules = Array.isArray(answer.json?.rules) ? answer.json.rules : [];
    this.#rules = new Map(
      rules.map((/** @type {any} */ rule) => [
        String(rule?.name),
        (Array.isArray(rule?.key) ? rule.key : []).map(partName),
      ]),
    );
    fill(
      this.#names,
      [...this.#rules.keys()].map((name) => h('option', { value: name })),
    );
    if (this.#rule.value === '' && this.#rules.size === 1)
      this.#rule.value = [...this.#rules.keys()][0];
    this.#ask();
  }

  /** Asks for as many parts as the rule's key has. */
  #ask() {
    const parts = this.#rules.get(this.#rule.value);
    if (parts && parts.join('\n') !== this.#shownParts) this.#fields(parts);
  }

  #shownParts = '';

  /** @param {string[]} parts */
  #fields(parts) {
    this.#shownParts = parts.join('\n');
    const kept = this.#given();
    fill(
      this.#parts,
      parts
        .slice(0, MOST_PARTS)
        .map((part, i) =>
          labelled(
            part,
            h('input', {
              type: 'text',
              autocomplete: 'off',
              spellcheck: 'false',
              'data-testid': `key-part-${i}`,
              value: kept[i] ?? '',
            }),
          ),
        ),
      parts.length === 0 && h('p', { className: 'quiet' }, 'all requests together'),
    );
  }

  #given() {
    return [...this.#parts.querySelectorAll('input')].map((input) => input.value);
  }

  /** @param {string} rule @param {string[]} key */
  async #look(rule, key) {
    const query = [
      `rule=${encodeURIComponent(rule)}`,
      ...key.map((part) => `key=${encodeURIComponent(part)}`),
    ].join('&');
    const answer = await ask('GET', `admin/keys?${query}`);
    fill(this.#said);
    fill(this.#state);
    if (!answer.ok) return wrong(this.#said, answer);
    this.#show(rule, key, answer.json ?? {});
  }

  /** @param {string} rule @param {string[]} key @param {any} state */
  #show(rule, key, state) {
    const isBlocked = typeof state.blocked_until_ms === 'number';
    const head = h(
      'h3',
      { tabindex: '-1' },
      h('code', {}, rule),
      ' ',
      h('code', {}, key.join(', ') || 'all requests'),
    );
    fill(
      this.#state,
      h(
        'article',
        { className: 'card fields' },
        head,
        h(
          'p',
          { 'data-testid': 'key-words', className: isBlocked ? 'problem' : '' },
          state.words ?? '',
        ),
        isBlocked && h('p', {}, 'Blocked until ', when(state.blocked_until_ms), '.'),
        quotas(state.quotas ?? [], 'What is used'),
        h(
          'p',
          { className: 'quiet' },
          'Known in logs as ',
          h('code', {}, state.pk ?? '?'),
          `, counted last under version ${state.policy_version ?? '?'}.`,
        ),
        this.canWrite && this.#deeds(rule, key, isBlocked),
      ),
    );
    head.focus();
  }

  /** @param {string} rule @param {string[]} key @param {boolean} isBlocked */
  #deeds(rule, key, isBlocked) {
    const until = h('input', {
      type: 'datetime-local',
      step: 1,
      value: local(Date.now() + HOUR),
      required: true,
      'data-testid': 'key-until',
    });
    const deed =
      (/** @type {string} */ name, /** @type {string} */ said, /** @type {object} */ more = {}) =>
      async () => {
        const answer = await ask('POST', `admin/keys/${name}`, {
          body: JSON.stringify({ rule, key, ...more }),
        });
        if (!answer.ok) return wrong(this.#said, answer);
        await this.#look(rule, key);
        done(this.#said, said);
      };
    const reset = async () => {
      if (
        await confirmed(
          'Forget what this key has used?',
          'Reset',
          h('p', {}, 'It has whole quotas again. A block stays.'),
        )
      )
        await deed(
          'reset',
          'What it had used is forgotten. Isolates may refuse it for up to a second more.',
        )();
    };
    const block = async () => {
      const at = new Date(until.value).getTime();
      if (Number.isNaN(at))
        return void fill(this.#said, h('p', { className: 'problem' }, 'Say until when.'));
      await deed('block', 'It is blocked.', { until_ms: at })();
    };
    return h(
      'div',
      { className: 'row' },
      h('button', { type: 'button', 'data-testid': 'key-reset', onclick: reset }, 'Reset'),
      form(
        block,
        { className: 'row', 'aria-label': 'Block' },
        labelled(`Block until (${zone()})`, until),
        h('button', { 'data-testid': 'key-block' }, 'Block'),
      ),
      isBlocked &&
        h(
          'button',
          {
            type: 'button',
            'data-testid': 'key-unblock',
            onclick: deed(
              'unblock',
              'The block is over. Isolates may refuse it for up to a second more.',
            ),
          },
          'Unblock',
        ),
    );
  }

  #explain() {
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
    return form(
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
        if (!answer.ok) return wrong(this.#explained, answer);
        fill(this.#explained, ...explained(answer.json ?? {}));
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
        h('button', { 'data-testid': 'explain' }, 'Explain'),
        h('span', { className: 'quiet' }, 'Consumes nothing.'),
      ),
    );
  }
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
        quotas(rule.quotas ?? [], `Quotas of ${rule.name}`),
      ),
    ),
  ];
}

/** @param {any[]} rows @param {string} caption */
function quotas(rows, caption) {
  if (rows.length === 0) return null;
  return table(
    caption,
    ['quota', 'used', 'remaining', 'limit', 'full again in'],
    rows.map((one) => [
      [one.tier, one.name].filter(Boolean).join(' / '),
      one.used,
      one.remaining,
      `${one.limit} in ${span(one.window_ms)}`,
      span(one.reset_after_ms),
    ]),
  );
}

/** The name of a part of a key. @param {unknown} part */
function partName(part) {
  if (typeof part === 'string') return part;
  const [[name, value] = ['key', '']] = Object.entries(part ?? {});
  return `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`;
}

/** As an input of local time has it. @param {number} ms */
function local(ms) {
  const date = new Date(ms);
  return new Date(ms - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function zone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone ?? 'your time';
}
