// A classic service worker, or a script that the page's own imports by importScripts. Options are in its address.

import { listen } from './service_worker.js';

const isolation = new URL(globalThis.location.href).searchParams.get('isolation');
listen({ isolation: isolation === 'require-corp' || isolation === 'credentialless' ? isolation : null });
