import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { Digit } from './Digit.jsx';

const root = document.body.appendChild(document.createElement('main'));
createRoot(root).render(<StrictMode><Digit pixels={new Float32Array(28 * 28)} /></StrictMode>);
