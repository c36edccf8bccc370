// Controls whose values are in the page's address.

import { $ } from '../common.js';
import { readState, writeState } from './url_state.js';

/** Takes the values from the address, and puts changed ones into it. Sliders show their value. @param {string[]} ids of the controls */
export async function linkSettings(ids) {
  const linked = await readState() ?? {};
  const controls = ids.map((id) => /** @type {HTMLInputElement} */ ($(`#${id}`)));
  for (const control of controls) {
    if (typeof linked[control.id] === 'string') control.value = linked[control.id];
    const show = () => { if (control.type === 'range') /** @type {HTMLOutputElement} */ (control.nextElementSibling).value = control.value; };
    control.addEventListener('input', () => {
      show();
      writeState(Object.fromEntries(controls.map(({ id, value }) => [id, value])));
    });
    show();
  }
}
