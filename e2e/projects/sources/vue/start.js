import { createApp } from 'vue';
import Digit from './Digit.vue';
import { check } from './page.js';

createApp(Digit, { pixels: new Float32Array(28 * 28) }).mount(document.body.appendChild(document.createElement('main')));
check();
