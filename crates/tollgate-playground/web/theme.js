/**
 * Light and dark: the system's preference, or the setting of the switch.
 *
 * Invariant: colours are in `style.css` only, and plots read them from there.
 */

const KEY = 'tollgate-theme';
const dark = window.matchMedia('(prefers-color-scheme: dark)');
/** @type {Set<() => void>} */
const listeners = new Set();

/** `auto`, `light` or `dark`. Without storage (a private window) the choice lasts until the page is closed. */
let choice = 'auto';

/** Applies the stored choice and connects the switch to it. @param {HTMLSelectElement} select */
export function start(select) {
  try {
    choice = localStorage.getItem(KEY) ?? 'auto';
  } catch {
    // No storage: the system decides.
  }
  if (!['auto', 'light', 'dark'].includes(choice)) choice = 'auto';
  select.value = choice;
  apply();
  select.addEventListener('change', () => {
    choice = select.value;
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // As above.
    }
    apply();
  });
  dark.addEventListener('change', apply);
}

/** Calls `listener` whenever the colours have changed. @param {() => void} listener */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function apply() {
  const isDark = choice === 'dark' || (choice === 'auto' && dark.matches);
  document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
  listeners.forEach((listener) => listener());
}

/** A colour of the present theme, by the name of its custom property. @param {string} name */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
