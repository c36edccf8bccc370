// A text editor with Python's colours: CodeMirror, bundled by scripts/site.mjs.

import { basicSetup, EditorView } from 'codemirror';
import { python } from '@codemirror/lang-python';
import { EditorState } from '@codemirror/state';
import { HighlightStyle, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { tags } from '@lezer/highlight';

const COLOURS = syntaxHighlighting(HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.bool, tags.null], color: 'var(--accent)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: tags.number, color: 'var(--warm)' },
  { tag: tags.comment, color: 'var(--soft)', fontStyle: 'italic' },
]));
const THEME = EditorView.theme({
  '&': { backgroundColor: 'var(--paper)', color: 'var(--ink)' },
  '.cm-content': { fontFamily: 'var(--mono)', caretColor: 'var(--ink)' },
  '.cm-gutters': { backgroundColor: 'var(--paper)', color: 'var(--soft)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--accent-soft)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--accent-soft) !important' },
});

/**
 * Tab leaves the editor, as in other fields of a page.
 * @param {HTMLElement} parent @param {string} text @param {string} label @param {(text: string) => void} changed
 */
export function createEditor(parent, text, label, changed) {
  const watch = EditorView.updateListener.of((update) => { if (update.docChanged) changed(update.state.doc.toString()); });
  const extensions = [basicSetup, EditorView.lineWrapping, python(), indentUnit.of('    '), COLOURS, THEME, watch, EditorView.contentAttributes.of({ 'aria-label': label })];
  const view = new EditorView({ parent, state: EditorState.create({ doc: text, extensions }) });
  return { set: (/** @type {string} */ next) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }) };
}
