import { check } from './page.js';

check();
