// Colours code: comments, texts, numbers and keywords of the languages that the site shows.

const KEYWORDS = {
  js: 'as async await break case catch class const continue default do else export extends false finally for from function if import in instanceof let new null of return static super switch this throw true try typeof undefined while yield',
  py: 'and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield self',
  wgsl: 'array atomic bool break const continue else enable f16 f32 fn for i32 if let loop override private read read_write return storage struct switch true false u32 uniform var vec2 vec3 vec4 while workgroup',
  wat: 'func param result local module block loop if then else end br br_if return call drop select',
};
const COMMENTS = { js: '//.*|/\\*[^]*?\\*/', py: '#.*', wgsl: '//.*', wat: ';;.*' };
const TEXTS = '`(?:\\\\.|[^`\\\\])*`|"""[^]*?"""|"(?:\\\\.|[^"\\\\\\n])*"|\'(?:\\\\.|[^\'\\\\\\n])*\'';

/** @typedef {keyof typeof KEYWORDS} Language */

/** @param {string} text @param {Language} language @returns {DocumentFragment} */
export function highlighted(text, language) {
  const parts = new RegExp(`(${COMMENTS[language]})|(${TEXTS})|(\\b\\d[\\w.]*)|([A-Za-z_][\\w.]*)`, 'g');
  const keywords = new Set(KEYWORDS[language].split(' '));
  const made = document.createDocumentFragment();
  let at = 0;
  for (const found of text.matchAll(parts)) {
    const [all, comment, quoted, number, word] = found;
    const kind = comment ? 'comment' : quoted ? 'string' : number ? 'number' : keywords.has(word) || (language === 'wat' && /\.\w/.test(word)) ? 'keyword' : '';
    if (!kind) continue;
    made.append(text.slice(at, found.index), Object.assign(document.createElement('span'), { className: `code-${kind}`, textContent: all }));
    at = found.index + all.length;
  }
  made.append(text.slice(at));
  return made;
}

/** By a file's ending. @param {string} name @returns {Language} */
export const languageOf = (name) => (/** @type {Language} */ ({ py: 'py', wgsl: 'wgsl', wat: 'wat' }[name.split('.').at(-1) ?? ''] ?? 'js'));
