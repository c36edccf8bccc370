// Checks of errors' texts, without the line that names the documentation's page.
import assert from 'node:assert/strict';

/** @param {Error} error */
export const sentence = (error) => error.message.replace(/\nSee docs\/errors\/\w+\.md$/, '');

/** For assert.throws and assert.rejects: an error of this type with this text, or one that matches. @param {string} type @param {string | RegExp} text */
export const refusal = (type, text) => (error) => {
  if (typeof text === 'string') assert.deepEqual([error.type, sentence(error)], [type, text]);
  else assert.ok(error.type === type && text.test(error.message), error.message);
  return true;
};
