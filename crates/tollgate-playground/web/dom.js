/**
 * Elements, made without markup.
 *
 * Invariant: text from a policy, a log or a link becomes a text node and nothing else; no file of
 * this page sets `innerHTML` or makes an element from text.
 */

/**
 * @typedef {Node|string|number|null|undefined|false} Child
 */

/**
 * An element. Properties that begin with `on` are listeners, `dataset` and `aria-…` are set as
 * attributes are, and `false`, `null` and `undefined` leave an attribute out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown>} [props]
 * @param {...(Child|Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith('on') && typeof value === 'function') {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (name === 'value' || name === 'checked' || name === 'disabled') {
      Reflect.set(element, name, value);
    } else {
      element.setAttribute(
        name === 'className' ? 'class' : name,
        value === true ? '' : String(value),
      );
    }
  }
  element.append(...nodes(children));
  return element;
}

/**
 * @param {(Child|Child[])[]} children
 * @returns {(Node|string)[]}
 */
function nodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/**
 * Replaces the content of an element. Does nothing when the text is the same, so that a screen
 * reader does not announce a live region again.
 * @param {Element} element
 * @param {...(Child|Child[])} children
 */
export function fill(element, ...children) {
  const all = nodes(children);
  if (all.length === 1 && typeof all[0] === 'string' && element.textContent === all[0]) return;
  element.replaceChildren(...all);
}

let lastId = 0;

/** An id that no other element has. @param {string} kind */
export function newId(kind) {
  lastId += 1;
  return `${kind}-${lastId}`;
}

/**
 * A labelled control, with the label above it.
 * @param {string} text
 * @param {HTMLElement} control
 * @param {string} [note] text below it, which a screen reader reads with it
 */
export function labelled(text, control, note) {
  const id = control.id || newId('control');
  control.id = id;
  const noteId = `${id}-note`;
  if (note) control.setAttribute('aria-describedby', noteId);
  return h(
    'div',
    { className: 'field' },
    h('label', { for: id }, text),
    control,
    note ? h('small', { id: noteId }, note) : null,
  );
}

/** A number, also with its unit's sign before it. @param {unknown} cell */
const isNumber = (cell) =>
  typeof cell === 'number' || (typeof cell === 'string' && /^(< )?[\d.,]+$/.test(cell));

/**
 * A table of text: the first column heads the rows. A column of numbers is marked as one.
 * @param {string} caption
 * @param {string[]} heads
 * @param {(string|number|Node)[][]} rows
 * @param {string} [testid]
 */
export function table(caption, heads, rows, testid) {
  const numbers = heads.map((_, i) => {
    const cells = i === 0 ? [] : rows.map((row) => row[i]);
    return cells.some(isNumber) && cells.every((cell) => isNumber(cell) || cell === '–');
  });
  const className = (/** @type {number} */ i) => (numbers[i] ? 'number' : false);
  const head = h(
    'tr',
    {},
    heads.map((text, i) => h('th', { scope: 'col', className: className(i) }, text)),
  );
  const body = rows.map(([first, ...rest]) =>
    h(
      'tr',
      {},
      h('th', { scope: 'row' }, first),
      rest.map((cell, i) => h('td', { className: className(i + 1) }, cell)),
    ),
  );
  return h(
    'div',
    { className: 'table-scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h(
      'table',
      { 'data-testid': testid },
      h('caption', {}, caption),
      h('thead', {}, head),
      h('tbody', {}, body),
    ),
  );
}

/**
 * Calls `work` after `ms` without another call.
 * @template {unknown[]} A
 * @param {(...args: A) => void} work
 * @param {number} ms
 * @returns {(...args: A) => void}
 */
export function debounced(work, ms) {
  /** @type {number|undefined} */
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => work(...args), ms);
  };
}
