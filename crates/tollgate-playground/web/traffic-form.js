/**
 * The fields of the traffic models, and how they are read from the traffic document and written
 * into it.
 *
 * Invariant: members that the form does not know stay in the document unchanged; the simulator
 * checks whether a value is allowed. Deliberately absent: the page; this file is plain data.
 */

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {'text'|'number'} kind
 * @property {string|number} first the initial value
 */

/** @type {(name: string, label: string, first: string|number) => Field} */
const field = (name, label, first) => ({
  name,
  label,
  kind: typeof first === 'number' ? 'number' : 'text',
  first,
});

/** The models by their names in the document. @type {Record<string, {label: string, fields: Field[]}>} */
export const MODELS = {
  steady: { label: 'steady', fields: [field('rate', 'Rate', '2/s')] },
  poisson: { label: 'Poisson (by chance)', fields: [field('rate', 'Mean rate', '2/s')] },
  on_off: {
    label: 'on and off',
    fields: [
      field('rate', 'Rate', '10/s'),
      field('on', 'On for', '2s'),
      field('off', 'Off for', '8s'),
    ],
  },
  bursts: {
    label: 'bursts',
    fields: [field('size', 'Requests', 20), field('every', 'Every', '10s')],
  },
  ramp: { label: 'ramp', fields: [field('from', 'From', '0/s'), field('to', 'To', '10/s')] },
  spaced: {
    label: 'one after the other',
    fields: [
      field('size', 'Requests', 100),
      field('wait', 'Wait', '500ms'),
      field('jitter', 'Jitter', '0s'),
    ],
  },
  edge: {
    label: 'around a window’s edge',
    fields: [
      field('window', 'Window', '10s'),
      field('size', 'Requests', 10),
      field('gap', 'Within', '500ms'),
    ],
  },
};

/** The behaviour of a client after a denial. */
export const RETRIES = {
  none: 'never comes again',
  retry_after: 'honours Retry-After',
  fixed: 'comes again after 1 s',
  backoff: 'doubles its wait',
};

/** @typedef {{length: string, sources: any[]}} Document */

/**
 * The document, if it is one whose sources the form can show.
 * @param {string} json
 * @returns {Document|null}
 */
export function documentOf(json) {
  try {
    const document = JSON.parse(json);
    const isKnown =
      typeof document.length === 'string' &&
      Array.isArray(document.sources) &&
      document.sources.length > 0 &&
      document.sources.every(
        (/** @type {any} */ source) =>
          typeof source?.arrivals === 'object' && source.arrivals !== null,
      );
    return isKnown ? document : null;
  } catch {
    return null;
  }
}

/** The model of a source, and its values. @param {any} source */
export function modelOf(source) {
  const [name, values] = Object.entries(source.arrivals)[0] ?? ['steady', {}];
  return {
    name,
    values: /** @type {Record<string, unknown>} */ (
      typeof values === 'object' && values !== null ? values : {}
    ),
  };
}

/** The text of a field; empty when the value is neither text nor number. @param {unknown} value */
export const shown = (value) =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : '';

/** The fields of a model; none for one that the form does not know. @param {string} name */
export const fieldsOf = (name) => (Object.hasOwn(MODELS, name) ? MODELS[name].fields : []);

/**
 * The source with another model; values of the same name stay.
 * @param {any} source @param {string} name
 */
export function withModel(source, name) {
  const { values } = modelOf(source);
  const fields = fieldsOf(name).map((one) => [
    one.name,
    typeof values[one.name] === typeof one.first ? values[one.name] : one.first,
  ]);
  return { ...source, arrivals: { [name]: Object.fromEntries(fields) } };
}

/**
 * The source with one value of its model changed. A number that cannot be read is left as
 * text, and the simulator reports it.
 * @param {any} source @param {Field} one @param {string} text
 */
export function withValue(source, one, text) {
  const { name, values } = modelOf(source);
  return {
    ...source,
    arrivals: { [name]: { ...values, [one.name]: one.kind === 'number' ? numberOr(text) : text } },
  };
}

/** @param {string} text */
export const numberOr = (text) => (/^\s*\d+(\.\d+)?\s*$/.test(text) ? Number(text) : text);

/** Which of `RETRIES` a source is. @param {any} source */
export function retryOf(source) {
  const wait = source.retry?.wait;
  if (!wait) return 'none';
  return typeof wait === 'string' ? wait : (Object.keys(wait)[0] ?? 'none');
}

/** @param {any} source @param {string} name of `RETRIES` */
export function withRetry(source, name) {
  const { retry, ...rest } = source;
  if (name === 'none') return rest;
  const wait = {
    retry_after: 'retry_after',
    fixed: { fixed: '1s' },
    backoff: { backoff: { first: '500ms', most: '30s' } },
  }[name];
  return { ...rest, retry: { attempts: 5, jitter: '200ms', ...retry, wait } };
}

/**
 * The source with this number of clients and this skew; `''` for the default.
 * @param {any} source @param {string} count @param {string} zipf @param {boolean} fresh
 */
export function withClients(source, count, zipf, fresh) {
  const { clients: _, ...rest } = source;
  const clients = {
    ...(count.trim() && count.trim() !== '1' ? { count: numberOr(count) } : {}),
    ...(zipf.trim() ? { zipf: numberOr(zipf) } : {}),
    ...(fresh ? { fresh: true } : {}),
  };
  return Object.keys(clients).length ? { ...rest, clients } : rest;
}
