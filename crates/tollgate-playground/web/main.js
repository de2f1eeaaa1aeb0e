/**
 * The start: the state in the address, or the first recipe; then the page's own controls.
 *
 * Invariant: a page is shown for any address; an error in a link is reported.
 */

import { App } from './app.js';
import { answer } from './announce.js';
import { fill, h, labelled } from './dom.js';
import { LinkError, read } from './permalink.js';
import { RECIPES } from './recipes.js';
import { StateError, stateOf } from './state.js';
import * as theme from './theme.js';

const place = (/** @type {string} */ id) =>
  /** @type {HTMLElement} */ (document.getElementById(id));

/** @type {App|null} */
let app = null;

/** @param {import('./state.js').State} state */
function open(state) {
  app?.destroy();
  app = new App(state, { traffic: place('traffic'), lanes: place('lanes') }, (isLog) =>
    markRecipe(null, isLog ? '' : 'Changed by you; “Copy link” keeps it.'),
  );
}

let opened = 0;

/** Opens the state after the `#`; an address without one opens the first recipe. */
async function openAddress() {
  opened += 1;
  const mine = opened;
  const notice = place('notice');
  notice.hidden = true;
  const hash = location.hash.slice(1);
  if (!hash) {
    chooseRecipe(RECIPES[0]);
    return;
  }
  try {
    const state = stateOf(await read(hash));
    if (mine !== opened) return; // another link was opened meanwhile
    open(state);
    markRecipe(null, 'This is what the link holds.');
  } catch (error) {
    const isKnown = error instanceof LinkError || error instanceof StateError;
    const why = isKnown ? error.message : `the link cannot be shown: ${error}`;
    fill(notice, `${why[0].toUpperCase()}${why.slice(1)}${why.endsWith('?') ? '' : '.'} This is the first recipe instead.`);
    notice.hidden = false;
    chooseRecipe(RECIPES[0]);
  }
}

const look = h('p', { className: 'look', 'data-testid': 'look' });
const recipes = RECIPES.map((recipe) =>
  h(
    'button',
    {
      type: 'button',
      'aria-pressed': 'false',
      'data-testid': `recipe-${recipe.id}`,
      onclick: () => {
        opened += 1; // a link that is still being read does not replace it
        place('notice').hidden = true;
        chooseRecipe(recipe);
        app?.address(); // the previous address is of another run
      },
    },
    recipe.name,
  ),
);

/** @param {import('./recipes.js').Recipe} recipe */
function chooseRecipe(recipe) {
  open(structuredClone(recipe.state));
  markRecipe(recipe);
}

/** @param {import('./recipes.js').Recipe|null} chosen @param {string} [said] shown when none is chosen */
function markRecipe(chosen, said = '') {
  recipes.forEach((button, i) =>
    button.setAttribute('aria-pressed', String(RECIPES[i] === chosen)),
  );
  fill(look, chosen?.look ?? said);
}

function tools() {
  const said = h('span', { className: 'quiet link-said', 'data-testid': 'link-said' });
  const copy = h(
    'button',
    {
      type: 'button',
      'data-testid': 'copy-link',
      onclick: async () => {
        try {
          const url = `${location.href.split('#')[0]}#${await app?.link()}`;
          history.replaceState(null, '', url);
          await navigator.clipboard.writeText(url);
          fill(said, 'copied');
          setTimeout(() => fill(said), 4000);
          answer('The link is copied.');
        } catch (error) {
          const why = error instanceof LinkError ? error.message : 'copy it from the address bar';
          fill(said, why);
          answer(why);
        }
      },
    },
    'Copy link',
  );
  const select = h(
    'select',
    { 'data-testid': 'theme' },
    ['auto', 'light', 'dark'].map((name) => h('option', { value: name }, name)),
  );
  place('tools').append(said, copy, labelled('Theme', select));
  theme.start(select);
}

/** A log may be dropped anywhere on the page; without this the browser would open it. */
function takeDrops() {
  window.addEventListener('dragover', (event) => {
    event.preventDefault();
    document.body.classList.add('is-dropping');
  });
  for (const name of ['dragleave', 'dragend', 'drop']) {
    window.addEventListener(name, () => document.body.classList.remove('is-dropping'));
  }
  window.addEventListener('drop', (event) => {
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    app?.drop(files);
  });
}

tools();
place('recipes').append(
  h('div', { className: 'recipes', 'data-testid': 'recipes' }, recipes),
  look,
);
takeDrops();
window.addEventListener('hashchange', () => void openAddress());
await openAddress();
// Hidden until here, so that nothing moves while a user reads.
/** @type {HTMLElement} */ (document.querySelector('main')).hidden = false;
