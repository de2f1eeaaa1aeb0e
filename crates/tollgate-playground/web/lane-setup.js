/**
 * How a lane decides: a form for one quota of one algorithm, or a policy in the editor.
 *
 * Invariant: `changed` receives only states within their bounds. An invalid value stays in its
 * field, marked, with the reason next to it.
 */

import { debounced, fill, h, labelled, newId } from './dom.js';
import { parseWindow } from './format.js';
import { ALGORITHMS, MAX_LIMIT, SURFACE, algorithm, policyText, preset } from './state.js';

/** @typedef {import('./state.js').LaneState} LaneState */
/** @typedef {import('./state.js').Preset} Preset */
/** @typedef {import('./engine.js').Engine} Engine */

/** A description of each algorithm, shown below its name. @type {Record<string, string>} */
const SAID = {
  gcra: 'a burst, then one per emission interval',
  'token-bucket': 'decides as gcra, counted in tokens',
  'leaky-bucket': 'decides as gcra, as a level that leaks',
  'leaky-queue': 'shaping: requests wait their turn',
  'fixed-window': 'counts from 0 again at each edge',
  'sliding-window': 'two counters, the older one weighted',
  'sliding-buckets': 'parts of a window: never over the limit',
  'sliding-log': 'exact: remembers every request',
};

export class LaneSetup {
  /** @type {import('./editor.js').PolicyEditor|null} */ #editor = null;
  /** The preset that was last chosen. */
  #preset = preset('gcra', 10, '10s');
  /** The policy before a preset was chosen: it returns when the preset is edited. */
  #left = { made: '', policy: '' };

  /**
   * @param {string} letter of the lane
   * @param {LaneState} state
   * @param {Engine} engine
   * @param {(state: LaneState) => void} changed
   */
  constructor(letter, state, engine, changed) {
    this.letter = letter;
    this.state = state;
    this.engine = engine;
    this.changed = changed;
    this.element = h('div', { className: 'setup' });
    /** Switches between the form and the editor; the lane shows it in its head. */
    this.toggle = h('button', {
      type: 'button',
      className: 'plain',
      onclick: () => this.#toggle(),
    });
    this.#render();
  }

  destroy() {
    this.#editor?.destroy();
  }

  /** @param {LaneState} state */
  #set(state) {
    this.state = state;
    this.changed(state);
  }

  #toggle() {
    const text = policyText(this.state);
    if (this.state.kind === 'preset') {
      this.#set({ kind: 'policy', policy: text === this.#left.made ? this.#left.policy : text });
    } else {
      this.#set(this.#preset);
      this.#left = { made: policyText(this.state), policy: text };
    }
    this.#render();
  }

  #render() {
    this.#editor?.destroy();
    this.#editor = null;
    const isPreset = this.state.kind === 'preset';
    fill(this.toggle, isPreset ? 'edit' : 'preset');
    this.toggle.setAttribute(
      'aria-label',
      isPreset ? `edit lane ${this.letter} as a policy` : `use a preset in lane ${this.letter}`,
    );
    this.toggle.dataset.testid = isPreset ? 'edit-policy' : 'use-preset';
    if (this.state.kind === 'preset') this.#renderPreset(this.state);
    else void this.#renderPolicy(this.state.policy);
  }

  /** @param {Preset} preset */
  #renderPreset(preset) {
    this.#preset = preset;
    const choice = h(
      'select',
      { 'data-testid': 'algorithm' },
      ALGORITHMS.map(({ name }) =>
        h('option', { value: name, selected: name === preset.algorithm }, name),
      ),
    );
    const limit = number('limit', preset.limit, MAX_LIMIT);
    const window = h('input', {
      'data-testid': 'window',
      value: preset.window,
      size: 6,
      autocomplete: 'off',
      spellcheck: 'false',
    });
    const burst = number('burst', preset.burst, MAX_LIMIT);
    burst.placeholder = 'limit';
    const buckets = number('buckets', preset.buckets, 360);
    buckets.placeholder = '60';
    const strict = h('input', {
      type: 'checkbox',
      'data-testid': 'strict',
      checked: preset.strict,
    });
    const strictId = newId('strict');
    strict.id = strictId;
    const problem = h('p', {
      className: 'problem',
      'data-testid': 'setup-problem',
      role: 'status',
    });
    const fields = {
      burst: labelled('Burst', burst),
      buckets: labelled('Buckets', buckets),
      strict: h('div', { className: 'check' }, strict, h('label', { for: strictId }, 'strict')),
    };
    const said = h('p', { className: 'said quiet', 'data-testid': 'bound' });
    const showBound = async () => {
      const checked = await this.engine
        .ask('check', [policyText(this.state), SURFACE])
        .catch(() => null);
      const bound = checked?.rules?.[0]?.quotas?.[0]?.bound;
      fill(said, bound ? `${SAID[choice.value]}; ${bound}` : SAID[choice.value]);
    };
    const showFields = () => {
      const kind = algorithm(choice.value);
      for (const name of /** @type {const} */ (['burst', 'buckets', 'strict']))
        fields[name].hidden = !kind?.[name];
    };
    const read = () => {
      showFields();
      const next = readPreset(
        choice.value,
        limit.value,
        window.value,
        burst.value,
        strict.checked,
        buckets.value,
      );
      limit.setAttribute('aria-invalid', String(next.wrong === 'limit'));
      window.setAttribute('aria-invalid', String(next.wrong === 'window'));
      burst.setAttribute('aria-invalid', String(next.wrong === 'burst'));
      buckets.setAttribute('aria-invalid', String(next.wrong === 'buckets'));
      fill(problem, next.why);
      if (next.preset) {
        this.#preset = next.preset;
        this.#set(next.preset);
        void showBound();
      }
    };
    const soon = debounced(read, 250);
    for (const input of [limit, window, burst, buckets]) input.addEventListener('input', soon);
    for (const input of [choice, strict]) input.addEventListener('change', read);
    showFields();
    void showBound();
    fill(
      this.element,
      labelled('Algorithm', choice),
      h(
        'div',
        { className: 'row' },
        labelled('Limit', limit),
        labelled('Window', window),
        fields.burst,
        fields.buckets,
        fields.strict,
      ),
      said,
      problem,
    );
  }

  /** The editor is fetched when it is first needed. @param {string} policy */
  async #renderPolicy(policy) {
    const place = h(
      'div',
      { className: 'editor', 'data-testid': 'editor' },
      h('p', { className: 'quiet' }, 'Loading the editor…'),
    );
    const verdict = h('div', { className: 'verdict', role: 'status', 'data-testid': 'verdict' });
    fill(
      this.element,
      place,
      verdict,
      h(
        'p',
        { className: 'quiet' },
        'Ctrl-Space completes. Tab takes what is offered, else leaves the editor.',
      ),
    );
    const { PolicyEditor } = await import('./editor.js');
    if (this.state.kind !== 'policy' || !place.isConnected) return;
    const tell = debounced(
      (/** @type {string} */ text) => this.#set({ kind: 'policy', policy: text }),
      400,
    );
    this.#editor = new PolicyEditor(place, policy, this.engine, tell, (checked) =>
      showVerdict(verdict, checked),
    );
  }
}

/**
 * @param {HTMLElement} element
 * @param {{ok: boolean, problems: {path: string, message: string}[], warnings: {path: string, message: string}[], rules: any[]}} checked
 */
function showVerdict(element, checked) {
  const list = (/** @type {{path: string, message: string}[]} */ findings) =>
    findings
      .slice(0, 5)
      .map(({ path, message }) => h('li', {}, path ? `${path}: ${message}` : message));
  if (!checked.ok) {
    const more = checked.problems.length - 5;
    fill(
      element,
      h(
        'ul',
        { className: 'problem' },
        list(checked.problems),
        more > 0 ? h('li', {}, `and ${more} more`) : null,
      ),
    );
    return;
  }
  const bounds = checked.rules.flatMap(({ name, quotas }) =>
    quotas.map((/** @type {{words: string, bound: string}} */ quota) =>
      h('li', {}, `${name}: ${quota.words}; ${quota.bound}`),
    ),
  );
  fill(
    element,
    h('ul', {}, bounds),
    checked.warnings.length ? h('ul', { className: 'warning' }, list(checked.warnings)) : null,
  );
}

/** @param {string} name @param {number|null} value @param {number} most */
function number(name, value, most) {
  return h('input', {
    type: 'text',
    inputmode: 'numeric',
    'data-testid': name,
    value: value === null ? '' : String(value),
    size: Math.min(6, String(most).length),
    autocomplete: 'off',
  });
}

/**
 * A preset from the values of the fields, or the field that is wrong and the reason.
 * @param {string} name @param {string} limit @param {string} window @param {string} burst
 * @param {boolean} strict @param {string} buckets
 * @returns {{preset?: Preset, wrong?: string, why: string}}
 */
export function readPreset(name, limit, window, burst, strict, buckets) {
  const kind = algorithm(name);
  const wholeLimit = whole(limit, 1, MAX_LIMIT);
  if (wholeLimit === null) return { wrong: 'limit', why: 'limit: a whole number from 1' };
  if (parseWindow(window) === null)
    return { wrong: 'window', why: 'window: such as 500ms, 10s, 1m, 1h or 1d' };
  const wholeBurst = kind?.burst && burst.trim() ? whole(burst, 1, MAX_LIMIT) : undefined;
  if (wholeBurst === null)
    return { wrong: 'burst', why: 'burst: a whole number from 1, or nothing for the limit' };
  const wholeBuckets = kind?.buckets && buckets.trim() ? whole(buckets, 2, 360) : undefined;
  if (wholeBuckets === null)
    return { wrong: 'buckets', why: 'buckets: a whole number from 2 to 360' };
  return {
    why: '',
    preset: {
      kind: 'preset',
      algorithm: name,
      limit: wholeLimit,
      window: window.trim(),
      burst: wholeBurst ?? null,
      strict: strict && Boolean(kind?.strict),
      buckets: wholeBuckets ?? null,
    },
  };
}

/** @param {string} text @param {number} least @param {number} most */
function whole(text, least, most) {
  const digits = text.trim().replaceAll(/[, _]/g, '');
  if (!/^\d{1,15}$/.test(digits)) return null;
  const n = Number(digits);
  return n >= least && n <= most ? n : null;
}
