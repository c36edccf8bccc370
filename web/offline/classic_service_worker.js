// A whole service worker, or what one of a page's own takes by importScripts: options are in its address.

import { listen } from './service_worker.js';

const isolation = new URL(globalThis.location.href).searchParams.get('isolation');
listen({ isolation: isolation === 'require-corp' || isolation === 'credentialless' ? isolation : null });
