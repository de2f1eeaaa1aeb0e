/**
 * The policy editor: CodeMirror, with the problems and completions of our own compiler.
 *
 * Invariant: this file knows nothing about policies; underlines and completions come from the
 * compiler in the worker. It lives in a shadow root, where its styles are adopted style sheets: a
 * document's would need inline styles, which the page's security policy forbids. This file is
 * fetched when the first policy is edited.
 */

import {
  acceptCompletion,
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
  snippetCompletion,
} from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { json } from '@codemirror/lang-json';
import {
  HighlightStyle,
  bracketMatching,
  indentUnit,
  syntaxHighlighting,
} from '@codemirror/language';
import { linter, lintKeymap } from '@codemirror/lint';
import { EditorState } from '@codemirror/state';
import {
  EditorView,
  drawSelection,
  highlightActiveLine,
  keymap,
  lineNumbers,
} from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { MAX_POLICY, SURFACE } from './state.js';

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: 'var(--admitted)' },
  { tag: tags.string, color: 'var(--text)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--estimate)' },
  { tag: tags.punctuation, color: 'var(--quiet)' },
]);

const look = EditorView.theme({
  '&': {
    color: 'var(--text)',
    backgroundColor: 'var(--ground)',
    fontSize: '12.5px',
    border: '1px solid var(--edge)',
    borderRadius: '4px',
  },
  '&.cm-focused': { outline: '2px solid var(--focus)', outlineOffset: '1px' },
  '.cm-content': { fontFamily: 'var(--mono)', caretColor: 'var(--text)' },
  '.cm-scroller': {
    minHeight: '12rem',
    maxHeight: 'var(--editor-height, 24rem)',
    overflow: 'auto',
    fontFamily: 'var(--mono)',
  },
  '.cm-gutters': { backgroundColor: 'var(--ground)', color: 'var(--quiet)', border: 'none' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--tint)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground':
    { backgroundColor: 'var(--selection)' },
  '.cm-tooltip': {
    color: 'var(--text)',
    backgroundColor: 'var(--ground)',
    border: '1px solid var(--edge)',
  },
  '.cm-tooltip-autocomplete > ul > li[aria-selected]': {
    color: 'var(--ground)',
    backgroundColor: 'var(--admitted)',
  },
  '.cm-completionDetail': { color: 'inherit', fontStyle: 'normal' },
  '.cm-diagnostic': { borderLeftWidth: '3px' },
});

export class PolicyEditor {
  /** @type {EditorView} */ #view;

  /**
   * @param {HTMLElement} place
   * @param {string} text
   * @param {import('./engine.js').Engine} engine
   * @param {(text: string) => void} changed
   * @param {(checked: any) => void} checked receives the compiler's result
   * @param {number} [most] characters
   */
  constructor(place, text, engine, changed, checked, most = MAX_POLICY) {
    const root = place.shadowRoot ?? place.attachShadow({ mode: 'open' });
    root.replaceChildren();
    this.#view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          highlightActiveLine(),
          bracketMatching(),
          closeBrackets(),
          json(),
          syntaxHighlighting(colours),
          look,
          indentUnit.of('  '),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({
            'aria-label': 'policy, as JSON',
            spellcheck: 'false',
            tabindex: '0',
          }),
          EditorState.changeFilter.of((change) => change.newDoc.length <= most),
          linter(lint(engine, checked), { delay: 250 }),
          autocompletion({ override: [complete(engine)], icons: false }),
          keymap.of([
            { key: 'Tab', run: acceptCompletion },
            ...closeBracketsKeymap,
            ...defaultKeymap,
            ...historyKeymap,
            ...completionKeymap,
            ...lintKeymap,
          ]),
          overSelection,
          EditorView.updateListener.of((update) => {
            if (update.docChanged) changed(update.state.doc.toString());
          }),
        ],
      }),
    });
  }

  destroy() {
    this.#view.destroy();
  }
}

/**
 * Text that is typed over a selection. By default the browser keeps the style of the
 * replaced text in a style attribute, which the page's security policy forbids and reports.
 */
const overSelection = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { main } = view.state.selection;
    const text = event.data;
    if (event.inputType !== 'insertText' || !text || main.empty || view.composing) return false;
    event.preventDefault();
    const insert = () =>
      view.state.update(view.state.replaceSelection(text), { userEvent: 'input.type' });
    const handlers = view.state.facet(EditorView.inputHandler);
    if (!handlers.some((handle) => handle(view, main.from, main.to, text, insert)))
      view.dispatch(insert());
    return true;
  },
});

/**
 * @param {import('./engine.js').Engine} engine
 * @param {(checked: any) => void} report
 * @returns {import('@codemirror/lint').LintSource}
 */
function lint(engine, report) {
  return async (view) => {
    // The thread may have ended; the next change sends a new request.
    const checked = await engine
      .ask('check', [view.state.doc.toString(), SURFACE])
      .catch(() => null);
    if (!checked) return [];
    report(checked);
    const length = view.state.doc.length;
    const shown =
      (/** @type {'error'|'warning'} */ severity) =>
      (/** @type {import('./engine.js').Finding} */ { from, to, message }) => ({
        from: Math.min(from, length),
        to: Math.min(to, length),
        severity,
        message,
      });
    return [...checked.problems.map(shown('error')), ...checked.warnings.map(shown('warning'))];
  };
}

/**
 * @param {import('./engine.js').Engine} engine
 * @returns {import('@codemirror/autocomplete').CompletionSource}
 */
function complete(engine) {
  return async (context) => {
    const before = context.state.sliceDoc(Math.max(0, context.pos - 1), context.pos);
    // Offered after a quote or a letter while typing; anywhere on explicit request.
    if (!context.explicit && !/["\w]/.test(before)) return null;
    const offers = await engine
      .ask('complete', [context.state.doc.toString(), context.pos])
      .catch(() => []);
    if (offers.length === 0) return null;
    const options = offers.map(
      (/** @type {{label: string, detail: string, insert: string}} */ { label, detail, insert }) =>
        snippetCompletion(insert, {
          label,
          detail: detail.length > 90 ? `${detail.slice(0, 88)}…` : detail,
        }),
    );
    // The compiler has already chosen the completions that fit: nothing is filtered here.
    return { from: offers[0].from, to: offers[0].to, options, filter: false };
  };
}
