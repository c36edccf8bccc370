import './main.jsx';
import { check } from './page.js';

check();
