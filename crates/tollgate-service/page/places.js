/**
 * The place in a JSON text of the value at a path such as `rules[0].quotas[1].limit`.
 *
 * Invariant: any text gives a place, in time linear in its length: around a part that cannot be
 * read, the nearest value that can. Deliberately absent: whether the JSON is valid; the check of
 * the document reports that.
 */

/** @typedef {{from: number, to: number}} Place */

const STEP = /\.?([^.[\]]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]/gy;

/** The steps of a path. @param {string} path @returns {(string|number)[]} */
export function steps(path) {
  STEP.lastIndex = 0;
  const found = [];
  for (let step = STEP.exec(path); step; step = STEP.exec(path)) {
    if (step[2] !== undefined) found.push(Number(step[2]));
    else found.push(step[3] ?? step[1]);
  }
  return found;
}

/**
 * The place of a value, or of the deepest existing value around it.
 * @param {string} text
 * @param {string} path
 * @returns {Place}
 */
export function placeOf(text, path) {
  const reader = new Reader(text);
  let found = reader.space(0);
  for (const step of steps(path)) {
    const next = typeof step === 'number' ? reader.item(found, step) : reader.member(found, step);
    if (next === null) break;
    found = next;
  }
  return { from: found, to: Math.max(found + 1, reader.lineEnd(found)) };
}

/** Counted from 1. @param {string} text @param {number} offset */
export function lineOf(text, offset) {
  let line = 1;
  for (let at = text.indexOf('\n'); at !== -1 && at < offset; at = text.indexOf('\n', at + 1))
    line += 1;
  return line;
}

class Reader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  /** Past white space. @param {number} at */
  space(at) {
    let next = at;
    while (' \t\r\n'.includes(this.text[next] ?? 'x')) next += 1;
    return next;
  }

  /** The end of a value, but not of its line. @param {number} at */
  lineEnd(at) {
    const line = this.text.indexOf('\n', at);
    const end = Math.min(line === -1 ? this.text.length : line, this.#after(at));
    return Math.max(at, end);
  }

  /** The value of a member. @param {number} at @param {string} name */
  member(at, name) {
    if (this.text[at] !== '{') return null;
    let next = this.space(at + 1);
    while (this.text[next] === '"') {
      const end = this.#after(next);
      const colon = this.space(end);
      if (this.text[colon] !== ':') return null;
      const value = this.space(colon + 1);
      if (this.#is(next, end, name)) return value;
      next = this.#next(value);
    }
    return null;
  }

  /** An item of an array. @param {number} at @param {number} index */
  item(at, index) {
    if (this.text[at] !== '[') return null;
    let next = this.space(at + 1);
    for (let i = 0; next < this.text.length && this.text[next] !== ']'; i += 1) {
      if (i === index) return next;
      next = this.#next(next);
    }
    return null;
  }

  /** Past a value and its comma. @param {number} at */
  #next(at) {
    const end = this.space(this.#after(at));
    return this.text[end] === ',' ? this.space(end + 1) : this.text.length;
  }

  /** Whether the string there is `name`. @param {number} from @param {number} to @param {string} name */
  #is(from, to, name) {
    try {
      return JSON.parse(this.text.slice(from, to)) === name;
    } catch {
      return false;
    }
  }

  /** The end of the value that begins there, without recursion. @param {number} at */
  #after(at) {
    let depth = 0;
    for (let i = at; i < this.text.length; i += 1) {
      const char = this.text[i];
      if (char === '"') i = this.#string(i) - 1;
      else if (char === '{' || char === '[') depth += 1;
      else if (char === '}' || char === ']') depth -= 1;
      else if (depth === 0 && (char === ',' || ' \t\r\n'.includes(char))) return i;
      else continue;
      if (depth < 0) return i;
      if (depth === 0) return i + 1;
    }
    return this.text.length;
  }

  /** The end of a string. @param {number} at its first quote */
  #string(at) {
    for (let i = at + 1; i < this.text.length; i += 1) {
      if (this.text[i] === '\\') i += 1;
      else if (this.text[i] === '"') return i + 1;
    }
    return this.text.length;
  }
}
