/**
 * The form of the traffic's models, and the document itself next to it.
 *
 * Invariant: the document is the truth; the form is drawn from it and changes it, so both always
 * agree.
 */

import { debounced, fill, h, labelled, newId } from './dom.js';
import { pretty } from './format.js';
import * as form from './traffic-form.js';

export class TrafficModel {
  /** @type {number} the source that the form shows */ #source = 0;

  /**
   * @param {string} json
   * @param {(json: string) => void} changed
   */
  constructor(json, changed) {
    this.json = json;
    this.changed = changed;
    this.fields = h('div', { className: 'row', 'data-testid': 'model-form' });
    /** Where the page puts the seed. */
    this.seed = h('span');
    this.text = h('textarea', {
      'data-testid': 'traffic-json',
      rows: 14,
      spellcheck: 'false',
      autocomplete: 'off',
    });
    this.problem = h('p', {
      className: 'problem',
      role: 'status',
      'data-testid': 'traffic-problem',
    });
    this.text.addEventListener(
      'input',
      debounced(() => this.#read(), 350),
    );
    this.element = h(
      'div',
      {},
      h('div', { className: 'row' }, this.fields, this.seed),
      this.problem,
      h(
        'details',
        {},
        h('summary', {}, 'As JSON: several sources, headers, servers and their clocks'),
        labelled('Traffic document', this.text),
      ),
    );
    this.show(json);
  }

  /** @param {string} json */
  show(json) {
    this.json = json;
    this.text.value = json;
    this.#source = 0;
    this.#render();
  }

  #read() {
    try {
      JSON.parse(this.text.value);
    } catch (error) {
      fill(this.problem, `the traffic is not JSON: ${error instanceof Error ? error.message : ''}`);
      this.text.setAttribute('aria-invalid', 'true');
      return;
    }
    fill(this.problem, '');
    this.text.removeAttribute('aria-invalid');
    this.json = this.text.value;
    this.#render();
    this.changed(this.json);
  }

  /** @param {form.Document} document */
  #write(document) {
    this.json = pretty(document);
    this.text.value = this.json;
    this.changed(this.json);
  }

  #render() {
    const document = form.documentOf(this.json);
    if (!document) {
      fill(this.fields, h('p', { className: 'quiet' }, 'This traffic is edited as JSON.'));
      return;
    }
    this.#source = Math.min(this.#source, document.sources.length - 1);
    const source = document.sources[this.#source];
    fill(
      this.fields,
      this.#sources(document),
      this.#length(document),
      this.#models(source),
      this.#values(source),
      this.#clients(source),
      this.#retries(source),
    );
  }

  /** Replaces the source that the form shows. @param {(source: any) => any} change */
  #change(change, redraw = false) {
    const document = form.documentOf(this.json);
    if (!document) return;
    document.sources[this.#source] = change(document.sources[this.#source]);
    this.#write(document);
    if (redraw) this.#render();
  }

  /** @param {form.Document} document */
  #sources(document) {
    if (document.sources.length < 2) return null;
    const options = document.sources.map((source, i) =>
      h(
        'option',
        { value: i, selected: i === this.#source },
        form.shown(source.name) || `source ${i + 1}`,
      ),
    );
    const select = h(
      'select',
      {
        onchange: () => {
          this.#source = Number(select.value);
          this.#render();
        },
      },
      options,
    );
    return labelled(`Source (of ${document.sources.length})`, select);
  }

  /** @param {form.Document} document */
  #length(document) {
    return labelled(
      'Length',
      input(document.length, 'length', (text) => {
        const now = form.documentOf(this.json);
        if (now) this.#write({ ...now, length: text.trim() });
      }),
    );
  }

  /** @param {any} source */
  #models(source) {
    const { name } = form.modelOf(source);
    const known = Object.entries(form.MODELS).map(([value, { label }]) =>
      h('option', { value, selected: value === name }, label),
    );
    const other = Object.hasOwn(form.MODELS, name)
      ? []
      : [h('option', { value: name, selected: true }, name)];
    const select = h(
      'select',
      {
        'data-testid': 'model',
        onchange: () => {
          this.#change((one) => form.withModel(one, select.value), true);
          /** @type {HTMLElement|null} */ (
            this.fields.querySelector('[data-testid=model]')
          )?.focus();
        },
      },
      other,
      known,
    );
    return labelled('Arrivals', select);
  }

  /** @param {any} source */
  #values(source) {
    const { name, values } = form.modelOf(source);
    return form.fieldsOf(name).map((field) =>
      labelled(
        field.label,
        input(form.shown(values[field.name]), field.name, (text) =>
          this.#change((one) => form.withValue(one, field, text.trim())),
        ),
      ),
    );
  }

  /** @param {any} source */
  #clients(source) {
    const { count = 1, zipf = '', fresh = false } = source.clients ?? {};
    const change = () =>
      this.#change((one) => form.withClients(one, counted.value, uneven.value, isFresh.checked));
    const counted = input(form.shown(count), 'clients', change);
    const uneven = input(form.shown(zipf), 'zipf', change);
    uneven.placeholder = 'even';
    const isFresh = h('input', {
      type: 'checkbox',
      checked: fresh === true,
      id: newId('fresh'),
      onchange: change,
    });
    return [
      labelled('Clients', counted),
      labelled('Zipf exponent', uneven),
      h('div', { className: 'check' }, isFresh, h('label', { for: isFresh.id }, 'always new ones')),
    ];
  }

  /** @param {any} source */
  #retries(source) {
    const present = form.retryOf(source);
    const select = h(
      'select',
      {
        'data-testid': 'retry',
        onchange: () => this.#change((one) => form.withRetry(one, select.value)),
      },
      Object.entries(form.RETRIES).map(([value, label]) =>
        h('option', { value, selected: value === present }, label),
      ),
    );
    const paced = h('input', {
      type: 'checkbox',
      checked: source.paced === true,
      id: newId('paced'),
      onchange: () =>
        this.#change(({ paced: _, ...rest }) => (paced.checked ? { ...rest, paced: true } : rest)),
    });
    return [
      labelled('When refused', select),
      h(
        'div',
        { className: 'check' },
        paced,
        h('label', { for: paced.id }, 'paces itself by RateLimit'),
      ),
    ];
  }
}

/** @param {string} value @param {string} testid @param {(text: string) => void} changed */
function input(value, testid, changed) {
  const element = h('input', {
    value,
    size: 7,
    autocomplete: 'off',
    spellcheck: 'false',
    'data-testid': `traffic-${testid}`,
  });
  element.addEventListener(
    'input',
    debounced(() => changed(element.value), 300),
  );
  return element;
}
