/**
 * The view of one client: its key's usage under a rule, the operations on the key, and next to them
 * an explanation of the decision on a request.
 *
 * Invariant: an operation applies to the key whose state is shown, even if the form has changed
 * since. Keys are never listed: the operator must know the value. A user that acts before the list
 * of rules arrives loses neither a click nor the focus. Test ids: keys, key-rule, key-part-N,
 * key-look, key-state, key-words, key-penalty, key-reset, key-block, key-until, key-unblock,
 * key-tenant, keys-said.
 */

import { fill, h, labelled } from '../../tollgate-playground/web/dom.js';
import { ask } from './api.js';
import { explanation, quotas } from './explain.js';
import { penalties } from './key-state.js';
import { confirmed, done, form, heading, outcome, when, wrong } from './parts.js';

/**
 * A client of a rule, as a body names it; `tenant` is null for the requests of all clients without
 * their own quotas, and absent where the rule's key identifies the tenant.
 * @typedef {{rule: string, key: string[], tenant?: string|null}} Named
 */

const HOUR = 3_600_000;
/** The most parts that a policy's key can have. */
const MOST_PARTS = 16;

export class KeysView {
  #said = outcome('keys-said');
  #state = h('div', { 'data-testid': 'key-state' });
  #names = h('datalist', { id: 'rule-names' });
  #rule = h('input', {
    type: 'text',
    list: 'rule-names',
    autocomplete: 'off',
    spellcheck: 'false',
    'aria-required': 'true',
    'data-testid': 'key-rule',
  });
  #parts = h('div', { className: 'row' });
  /** @type {Map<string, string[]>} the key parts of each rule */ #rules = new Map();
  /** @type {string|null} the key part that identifies a tenant */ #tenantPart = null;
  #tenant = h('input', {
    type: 'text',
    autocomplete: 'off',
    spellcheck: 'false',
    'data-testid': 'key-tenant',
  });
  #tenantField = h(
    'div',
    { hidden: true },
    labelled('Tenant with quotas of its own', this.#tenant, 'empty: the requests of all others'),
  );
  /** @type {Promise<void>} until the rules are known */ #known = Promise.resolve();

  /** @param {boolean} canWrite */
  constructor(canWrite) {
    this.canWrite = canWrite;
    this.#rule.addEventListener('input', () => this.#ask());
    const look = form(
      () => this.#lookAtGiven(),
      { className: 'fields', 'aria-label': 'One client' },
      h(
        'div',
        { className: 'row' },
        labelled('Rule', this.#rule),
        this.#parts,
        this.#tenantField,
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
        'One client of a rule, by the value of its key. A looked-up value is part of the query, and so appears in the logs of any proxy on the way.',
      ),
      look,
      this.#said,
      this.#state,
      h('h3', { className: 'apart' }, 'What would be decided'),
      ...explanation(),
    );
    this.#fields(['key']);
  }

  shown() {
    this.#known = this.#learn();
    return this.#known;
  }

  /** Loads the rules and fills in the name of the first one. */
  async #learn() {
    const answer = await ask('GET', 'admin/policy');
    const rules = Array.isArray(answer.json?.rules) ? answer.json.rules : [];
    this.#rules = new Map(
      rules.map((/** @type {any} */ rule) => [
        String(rule?.name),
        (Array.isArray(rule?.key) ? rule.key : []).map(partName),
      ]),
    );
    this.#tenantPart = answer.json?.tenant === undefined ? null : partName(answer.json.tenant);
    fill(
      this.#names,
      [...this.#rules.keys()].map((name) => h('option', { value: name })),
    );
    // The form shows the fields of a key at once, unless the user is typing a rule.
    if (this.#rule.value === '' && document.activeElement !== this.#rule)
      this.#rule.value = [...this.#rules.keys()][0] ?? '';
    this.#ask();
  }

  /** Shows one field for each part of the rule's key. */
  #ask() {
    const parts = this.#rules.get(this.#rule.value);
    if (parts && parts.join('\n') !== this.#shownParts) this.#fields(parts);
    this.#tenantField.hidden =
      !parts || this.#tenantPart === null || parts.includes(this.#tenantPart);
  }

  #shownParts = '';

  /** @param {string[]} parts */
  #fields(parts) {
    this.#shownParts = parts.join('\n');
    const kept = this.#given();
    const typing = this.#inputs().findIndex((input) => input === document.activeElement);
    const { selectionStart = null, selectionEnd = null } = this.#inputs()[typing] ?? {};
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
    // The focused field stays focused.
    const still = typing >= 0 ? this.#inputs()[typing] : undefined;
    still?.focus();
    still?.setSelectionRange(selectionStart, selectionEnd);
  }

  #inputs() {
    return [...this.#parts.querySelectorAll('input')];
  }

  #given() {
    return this.#inputs().map((input) => input.value);
  }

  /** Looks up the key in the form, once the rules are loaded. */
  async #lookAtGiven() {
    if (this.#rule.value === '') await this.#known;
    if (this.#rule.value === '') {
      fill(this.#said, h('p', { className: 'problem' }, 'Say which rule.'));
      return this.#rule.focus();
    }
    const tenant = this.#tenantField.hidden ? undefined : this.#tenant.value || null;
    await this.#look({ rule: this.#rule.value, key: this.#given(), tenant });
  }

  /** @param {Named} named */
  async #look(named) {
    const query = [
      `rule=${encodeURIComponent(named.rule)}`,
      ...named.key.map((part) => `key=${encodeURIComponent(part)}`),
      ...(named.tenant ? [`tenant=${encodeURIComponent(named.tenant)}`] : []),
    ].join('&');
    const answer = await ask('GET', `admin/keys?${query}`);
    fill(this.#said);
    fill(this.#state);
    if (!answer.ok) return wrong(this.#said, answer);
    this.#show(named, answer.json ?? {});
  }

  /** @param {Named} named @param {any} state */
  #show(named, state) {
    const { rule, key, tenant } = named;
    const isBlocked = typeof state.blocked_until_ms === 'number';
    const running = penalties(state.quotas ?? []);
    const isDenied = isBlocked || running.length > 0;
    const head = h(
      'h3',
      { tabindex: '-1' },
      h('code', {}, rule),
      ' ',
      h('code', {}, key.join(', ') || 'all requests'),
      tenant && [' of ', h('code', {}, tenant)],
    );
    fill(
      this.#state,
      h(
        'article',
        { className: 'card fields' },
        head,
        h(
          'p',
          { 'data-testid': 'key-words', className: isDenied ? 'problem' : '' },
          state.words ?? '',
        ),
        isBlocked && h('p', {}, 'Blocked until ', when(state.blocked_until_ms), '.'),
        ...running.map(({ name, step, until }) =>
          h(
            'p',
            { 'data-testid': 'key-penalty' },
            `Penalty of ${name}, step ${step}, until `,
            when(until),
            '.',
          ),
        ),
        quotas(state.quotas ?? [], 'What is used'),
        h(
          'p',
          { className: 'quiet' },
          'Known in logs as ',
          h('code', {}, state.pk ?? '?'),
          `, counted last under version ${state.policy_version ?? '?'}.`,
        ),
        this.canWrite && this.#deeds(named, isBlocked, running.length > 0),
      ),
    );
    head.focus();
  }

  /** @param {Named} named @param {boolean} isBlocked @param {boolean} isPenalised */
  #deeds(named, isBlocked, isPenalised) {
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
          body: JSON.stringify({ ...named, ...more }),
        });
        if (!answer.ok) return wrong(this.#said, answer);
        await this.#look(named);
        done(this.#said, said);
      };
    const reset = async () => {
      if (
        await confirmed(
          'Forget what this key has used?',
          'Reset',
          h(
            'p',
            {},
            'This clears the counts of all quotas of the rule and its tiers, also of calendar periods, with units that are held and units above the capacity, and penalties with their steps. Under a name that ends in .concurrency it clears the requests in flight.',
          ),
          h(
            'p',
            {},
            'A block stays. A response that ends later gives nothing back; what it used above its estimate is still recorded.',
          ),
        )
      )
        await deed(
          'reset',
          'What it had used is forgotten. Isolates may refuse it for up to five seconds more.',
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
      h(
        'button',
        { type: 'button', className: 'danger', 'data-testid': 'key-reset', onclick: reset },
        'Reset',
      ),
      form(
        block,
        { className: 'row', 'aria-label': 'Block' },
        labelled(`Block until (${zone()})`, until),
        h('button', { className: 'danger', 'data-testid': 'key-block' }, 'Block'),
      ),
      (isBlocked || isPenalised) &&
        h(
          'button',
          {
            type: 'button',
            'data-testid': 'key-unblock',
            onclick: deed(
              'unblock',
              `${ended(isBlocked, isPenalised)} over. Isolates may refuse it for up to five seconds more.`,
            ),
          },
          unblockVerb(isBlocked, isPenalised),
        ),
    );
  }
}

/** The label of the button. @param {boolean} isBlocked @param {boolean} isPenalised */
function unblockVerb(isBlocked, isPenalised) {
  if (isBlocked && isPenalised) return 'Unblock and end the penalty';
  return isPenalised ? 'End the penalty' : 'Unblock';
}

/** What an unblock ended. @param {boolean} isBlocked @param {boolean} isPenalised */
function ended(isBlocked, isPenalised) {
  if (isBlocked && isPenalised) return 'The block and the penalty are';
  return isPenalised ? 'The penalty is' : 'The block is';
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
