/**
 * The view of tenants: their entries page by page, one by its name, and a form to write it.
 *
 * Invariant: an entry is replaced or removed only as it was read, and a new one never replaces
 * another. A member of an entry that the form does not know is kept. Test ids: tenants,
 * tenant-rows, tenant-id, tenant-find, tenant-form, tenant-tier, tenant-priority, tenant-expires,
 * tenant-note, tenant-quotas, tenant-save, tenant-delete, tenants-said, next, first.
 */

import { fill, h, labelled, table } from '../../tollgate-playground/web/dom.js';
import { ask } from './api.js';
import { confirmed, done, form, heading, outcome, wrong } from './parts.js';

const PAGE = 50;

export class TenantsView {
  #said = outcome('tenants-said');
  #rows = h('div', {});
  #open = h('div', {});
  #id = h('input', {
    type: 'text',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
    'data-testid': 'tenant-id',
  });
  /** @type {string|null} */ #after = null;
  /** @type {string|null} */ #next = null;

  /** @param {boolean} canWrite */
  constructor(canWrite) {
    this.canWrite = canWrite;
    const find = form(
      () => this.#find(this.#id.value),
      { className: 'row', role: 'search', 'aria-label': 'Tenants' },
      labelled('Tenant, by its exact name', this.#id),
      h('button', { 'data-testid': 'tenant-find' }, canWrite ? 'Open or begin' : 'Open'),
    );
    this.element = h(
      'section',
      { 'data-testid': 'tenants', 'aria-labelledby': 'tenants-head' },
      Object.assign(heading('Tenants'), { id: 'tenants-head' }),
      find,
      this.#said,
      this.#open,
      this.#rows,
    );
  }

  async shown() {
    const after = this.#after === null ? '' : `&after=${encodeURIComponent(this.#after)}`;
    const answer = await ask('GET', `admin/tenants?limit=${PAGE}${after}`);
    if (!answer.ok) return wrong(this.#said, answer);
    this.#next = answer.json?.next_after ?? null;
    this.#show(answer.json?.tenants ?? []);
  }

  /** @param {any[]} tenants */
  #show(tenants) {
    const hasIdle = tenants.some(({ without_effect: idle }) => idle?.length > 0);
    const rows = tenants.map(({ id, entry, without_effect: idle }) => [
      h(
        'button',
        {
          type: 'button',
          className: 'plain',
          onclick: () => this.#find(id),
          'aria-label': `Open ${id}`,
        },
        id,
      ),
      limits(entry),
      entry.priority ?? 0,
      h(
        'span',
        { className: isOver(entry.expires) ? 'warning' : '' },
        entry.expires ? `${entry.expires}${isOver(entry.expires) ? ', over' : ''}` : '–',
      ),
      h('span', { className: 'note' }, entry.note ?? ''),
      ...(hasIdle ? [h('span', { className: 'warning' }, (idle ?? []).join(', '))] : []),
    ]);
    const go = (
      /** @type {string} */ testid,
      /** @type {string} */ text,
      /** @type {string|null} */ after,
    ) =>
      h(
        'button',
        { type: 'button', 'data-testid': testid, onclick: () => this.#turn(after) },
        text,
      );
    fill(
      this.#rows,
      rows.length > 0
        ? table(
            'Tenants, in the order of their names',
            [
              'tenant',
              'limits',
              'priority',
              'expires',
              'note',
              ...(hasIdle ? ['without effect'] : []),
            ],
            rows,
            'tenant-rows',
          )
        : h('p', { className: 'quiet' }, 'No tenant has limits of its own here.'),
      h(
        'div',
        { className: 'row' },
        this.#after !== null && go('first', 'First page', null),
        this.#next !== null && go('next', 'Next page', this.#next),
      ),
    );
  }

  /** @param {string|null} after */
  async #turn(after) {
    this.#after = after;
    await this.shown();
  }

  /** @param {string} id */
  async #find(id) {
    if (id === '') return;
    this.#id.value = id;
    fill(this.#said);
    const answer = await ask('GET', path(id));
    if (answer.ok) return this.#edit(id, answer.json, answer.etag);
    fill(this.#open);
    if (answer.status !== 404 || !this.canWrite) return wrong(this.#said, answer);
    this.#edit(id, {}, null);
  }

  /** @param {string} id @param {any} entry @param {string|null} etag null for a new one */
  #edit(id, entry, etag) {
    const text = (/** @type {string} */ name, /** @type {unknown} */ value, more = {}) =>
      h('input', {
        type: 'text',
        autocomplete: 'off',
        spellcheck: 'false',
        'data-testid': `tenant-${name}`,
        value: value ?? '',
        ...more,
      });
    const tier = text('tier', entry.tier);
    const priority = text('priority', entry.priority, { inputmode: 'numeric', pattern: '[0-9]*' });
    const expires = text('expires', entry.expires, { placeholder: '2027-01-31T00:00:00Z' });
    const note = text('note', entry.note, { maxlength: 256 });
    const quotas = h('textarea', {
      rows: 6,
      spellcheck: 'false',
      'data-testid': 'tenant-quotas',
      value: entry.quotas ? JSON.stringify(entry.quotas, null, 2) : '',
    });
    const save = async () => {
      const written = { ...entry };
      const put = (/** @type {string} */ name, /** @type {unknown} */ value) =>
        value === '' ? delete written[name] : (written[name] = value);
      put('tier', tier.value.trim());
      put('priority', priority.value.trim() === '' ? '' : Number(priority.value));
      put('expires', expires.value.trim());
      put('note', note.value);
      try {
        put('quotas', quotas.value.trim() === '' ? '' : JSON.parse(quotas.value));
        quotas.removeAttribute('aria-invalid');
      } catch (error) {
        quotas.setAttribute('aria-invalid', 'true');
        fill(
          this.#said,
          h(
            'p',
            { className: 'problem' },
            `The quotas are no JSON: ${error instanceof Error ? error.message : error}`,
          ),
        );
        quotas.focus();
        return;
      }
      await this.#write(id, written, etag);
    };
    const head = h(
      'h3',
      { tabindex: '-1' },
      etag === null ? 'New entry: ' : 'Entry: ',
      h('code', {}, id),
    );
    const remove = h(
      'button',
      { type: 'button', 'data-testid': 'tenant-delete', onclick: () => this.#remove(id, etag) },
      'Delete',
    );
    const close = h('button', { type: 'button', onclick: () => fill(this.#open) }, 'Close');
    fill(
      this.#open,
      form(
        save,
        { className: 'card fields', 'data-testid': 'tenant-form' },
        head,
        h(
          'div',
          { className: 'row level' },
          labelled('Tier, by name', tier),
          labelled('Priority', priority, '0 when empty'),
          labelled('Expires', expires, 'then it is absent'),
        ),
        labelled('Note', note),
        labelled(
          'Quotas of its own',
          quotas,
          'by the name of the rule: {"api": [{"limit": 500, "window": "1m"}]}',
        ),
        h(
          'div',
          { className: 'row' },
          this.canWrite &&
            h('button', { className: 'strong', 'data-testid': 'tenant-save' }, 'Save'),
          this.canWrite && etag !== null && remove,
          close,
        ),
      ),
    );
    head.focus();
  }

  /** @param {string} id @param {any} entry @param {string|null} etag */
  async #write(id, entry, etag) {
    const answer = await ask('PUT', path(id), {
      body: JSON.stringify(entry),
      match: etag,
      none: etag === null,
    });
    if (!answer.ok) return wrong(this.#said, answer);
    fill(this.#open);
    await this.shown();
    done(this.#said, `Saved ${id}. Isolates follow within 5 s.`);
    this.#id.focus();
  }

  /** @param {string} id @param {string|null} etag */
  async #remove(id, etag) {
    if (
      !(await confirmed(
        'Delete this entry?',
        'Delete',
        h('p', {}, h('code', {}, id), ' is limited by rules and tiers then.'),
      ))
    )
      return;
    const answer = await ask('DELETE', path(id), { match: etag });
    if (!answer.ok) return wrong(this.#said, answer);
    fill(this.#open);
    await this.shown();
    done(this.#said, `Deleted ${id}.`);
    this.#id.focus();
  }
}

/** @param {string} id */
const path = (id) => `admin/tenants/${encodeURIComponent(id)}`;

/** @param {any} entry */
function limits(entry) {
  const own = Object.keys(entry.quotas ?? {});
  return (
    [entry.tier && `tier ${entry.tier}`, own.length > 0 && `own for ${own.join(', ')}`]
      .filter(Boolean)
      .join('; ') || '–'
  );
}

/** @param {unknown} expires */
const isOver = (expires) => typeof expires === 'string' && Date.parse(expires) < Date.now();
