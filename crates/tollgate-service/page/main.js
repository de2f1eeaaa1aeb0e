/**
 * The page: sign in, and one view at a time.
 *
 * Invariant: the page sends no request before it has a token, and removes everything shown when the
 * token is given up or no longer accepted. The address contains the view and nothing else.
 */

import { answer as say } from '../../tollgate-playground/web/announce.js';
import { fill, h, labelled } from '../../tollgate-playground/web/dom.js';
import { start } from '../../tollgate-playground/web/theme.js';
import { ask, keptToken, onRefused, use } from './api.js';
import { HistoryView } from './history.js';
import { KeysView } from './keys.js';
import { confirmed, form, heading, outcome, problemParts } from './parts.js';
import { PolicyView } from './policy.js';
import { RatesView } from './rates.js';
import { TenantsView } from './tenants.js';

const at = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const main = at('main');
const nav = at('nav');

const NAMES = /** @type {const} */ ({
  rates: 'Rates',
  policy: 'Policy',
  tenants: 'Tenants',
  keys: 'Keys',
  history: 'History',
});
/** @typedef {keyof typeof NAMES} Name */
/** @typedef {{element: HTMLElement, shown: () => unknown, end?: () => void, isClean?: boolean}} View */

/** @type {Partial<Record<Name, View>>} */
let views = {};

/** The permissions of a token. */
async function roleOf() {
  const policy = await ask('GET', 'admin/policy');
  if (policy.status === 401 || policy.status === 0) return { answer: policy };
  if (policy.status === 403 || policy.status === 404) {
    const metrics = await ask('GET', 'metrics');
    return metrics.ok
      ? { names: /** @type {Name[]} */ (['rates']), canWrite: false, words: 'reads metrics' }
      : { answer: policy };
  }
  // The same document again is not a change; a token without write access gets 403.
  const write = policy.ok
    ? await ask('PUT', 'admin/policy?dry_run', { body: policy.text, match: policy.etag })
    : null;
  const canWrite = write?.status !== 403;
  return {
    names: /** @type {Name[]} */ (Object.keys(NAMES)),
    canWrite,
    words: canWrite ? 'reads and writes' : 'reads only',
  };
}

/** @param {string} [why] */
function signIn(why) {
  leave();
  const token = h('input', {
    type: 'password',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
    'data-testid': 'token',
  });
  const keep = h('input', {
    type: 'checkbox',
    id: 'keep',
    'data-testid': 'keep',
    'aria-describedby': 'keep-note',
  });
  const said = outcome('sign-in-said');
  const enter = async () => {
    use(token.value.trim(), keep.checked);
    fill(said, h('p', { className: 'quiet' }, 'Asking…'));
    if (await opened(said)) return;
    token.setAttribute('aria-invalid', 'true');
    token.focus();
  };
  fill(
    main,
    h(
      'section',
      { className: 'sign-in', 'aria-labelledby': 'sign-in-head' },
      Object.assign(heading('Sign in'), { id: 'sign-in-head' }),
      form(
        enter,
        { className: 'fields', 'data-testid': 'sign-in' },
        labelled(
          'Token',
          token,
          'ADMIN_TOKEN reads and writes, READ_TOKEN reads. It is sent to this host only.',
        ),
        h(
          'div',
          {},
          h(
            'div',
            { className: 'check' },
            keep,
            h('label', { for: 'keep' }, 'Keep it while this tab is open'),
          ),
          h(
            'small',
            { id: 'keep-note' },
            'So that a reload does not ask again. Off, because every page of this host that is opened in this tab could read it; without it the token is in the memory of this page only.',
          ),
        ),
        h(
          'div',
          { className: 'row' },
          h('button', { className: 'strong', 'data-testid': 'enter' }, 'Sign in'),
        ),
        said,
      ),
    ),
  );
  if (why) fill(said, h('p', { className: 'problem' }, why));
  token.focus();
}

/** Shows the views if the token opens any. @param {HTMLElement} said */
async function opened(said) {
  const role = await roleOf();
  if (!role.names) {
    use('', false);
    fill(said, ...problemParts(role.answer));
    return false;
  }
  const { names, canWrite, words } = role;
  const made = {
    rates: () => new RatesView(),
    policy: () => new PolicyView(canWrite),
    tenants: () => new TenantsView(canWrite),
    keys: () => new KeysView(canWrite),
    history: () => new HistoryView(canWrite),
  };
  views = Object.fromEntries(names.map((name) => [name, made[name]()]));
  fill(
    nav,
    h(
      'ul',
      {},
      names.map((name) =>
        h('li', {}, h('a', { href: `#${name}`, 'data-testid': `nav-${name}` }, NAMES[name])),
      ),
    ),
  );
  nav.hidden = false;
  at('session').hidden = false;
  fill(at('role'), `Token ${words}`);
  fill(main, ...names.map((name) => /** @type {View} */ (views[name]).element));
  show();
  return true;
}

/** The view that the address names, or the first. */
function show() {
  const names = /** @type {Name[]} */ (Object.keys(views));
  if (names.length === 0) return;
  const asked = /** @type {Name} */ (location.hash.slice(1));
  const name = names.includes(asked) ? asked : names[0];
  for (const [other, view] of Object.entries(views)) view.element.hidden = other !== name;
  for (const link of nav.querySelectorAll('a')) {
    if (link.getAttribute('href') === `#${name}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${NAMES[name]} – Tollgate admin`;
  const view = /** @type {View} */ (views[name]);
  view.element.querySelector('h2')?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  view.shown();
}

/** Removes everything that was shown. */
function leave() {
  for (const view of Object.values(views)) view.end?.();
  views = {};
  nav.hidden = true;
  fill(nav);
  at('session').hidden = true;
  document.title = 'Tollgate admin';
}

async function signOut() {
  const isLost = Object.values(views).some((view) => view.isClean === false);
  if (
    isLost &&
    !(await confirmed(
      'Sign out? The policy you have typed is not in force and will be lost.',
      'Sign out',
    ))
  )
    return;
  use('', false);
  signIn();
  say('Signed out');
}

function begin() {
  const theme = h(
    'select',
    { 'data-testid': 'theme' },
    ['auto', 'light', 'dark'].map((name) => h('option', { value: name }, name)),
  );
  fill(
    at('tools'),
    h(
      'div',
      { id: 'session', className: 'row tight', hidden: true },
      h('small', { id: 'role', 'data-testid': 'role' }),
      h('button', { type: 'button', 'data-testid': 'sign-out', onclick: signOut }, 'Sign out'),
    ),
    labelled('Theme', theme),
  );
  start(theme);
  fill(at('host'), location.host);
  window.addEventListener('hashchange', show);
  window.addEventListener('beforeunload', (event) => {
    if (Object.values(views).some((view) => view.isClean === false)) event.preventDefault();
  });
  onRefused(() => {
    if (Object.keys(views).length === 0) return;
    use('', false);
    signIn('The token is no longer accepted.');
  });
  const kept = keptToken();
  signIn();
  if (kept === '') return;
  use(kept, true);
  opened(/** @type {HTMLElement} */ (main.querySelector('.outcome')));
}

begin();
