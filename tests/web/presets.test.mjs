// What a session's preset decides, and how its runs rest in a hidden page.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { env } from 'onnxruntime-common';
import { Caller } from '../../web/common/protocol.js';
import { Handler } from '../../web/page/sessions/handler.js';
import { PRESETS } from '../../web/page/options/engine_options.js';
import { Rests } from '../../web/page/executor/pressure.js';
import * as maps from '../../web/page/tensors/maps.js';
import { untilVisible } from '../../web/page/executor/visibility.js';
import { workerEnv } from '../../web/page/options/options.js';
import { Cancellation } from '../../web/page/engine/cancellation.js';

class Page extends EventTarget {
  visibilityState = 'hidden';

  show() {
    this.visibilityState = 'visible';
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

const { signal } = new AbortController(); // of a session that stays

afterEach(() => { delete globalThis.document; delete env.webgpu.powerPreference; });

test('threads', () => {
  assert.deepEqual(['latency', 'throughput', 'power'].map((name) => PRESETS[name].threads), [4, Infinity, 1]);
});

test('the adapter that is asked for, unless env says which', () => {
  const asked = () => [undefined, 'latency', 'throughput', 'power'].map((preset) => workerEnv(preset).adapter.powerPreference);
  assert.deepEqual(asked(), ['high-performance', 'high-performance', 'high-performance', 'low-power']);
  env.webgpu.powerPreference = 'low-power';
  assert.deepEqual(asked(), ['low-power', 'low-power', 'low-power', 'low-power']);
});

test('a run rests until the page is shown', async () => {
  const page = globalThis.document = new Page();
  let rested = false;
  const run = untilVisible(null, signal).then(() => { rested = true; });
  await new Promise((resolve) => { setTimeout(resolve, 5); });
  assert.equal(rested, false);
  page.show();
  await run;
  await untilVisible(null, signal);
});

test('where there is no page it does not', () => untilVisible(null, signal));

test('one that rests may be stopped', async () => {
  globalThis.document = new Page();
  const controller = new AbortController();
  const run = untilVisible(new Cancellation({ signal: controller.signal }, 'the run'), signal);
  controller.abort();
  await assert.rejects(run, { name: 'AbortError' });
});

test('one whose session is released rests no more', async () => {
  globalThis.document = new Page();
  const session = new AbortController();
  const run = untilVisible(null, session.signal);
  session.abort();
  await run;
});

test('one whose worker is gone rests no more', async () => {
  globalThis.document = new Page();
  const caller = new Caller({});
  const handler = new Handler(caller, { session: 1, inputs: [], outputs: [], compiled: null, about: { uses: {}, unused: [] } }, { options: { preset: 'power' }, params: { limits: {} } }, '', { Rests, maps });
  const run = handler.run({}, {}, null);
  caller.fail('it was shut down', '');
  await assert.rejects(run, { type: 'SessionFailed', detail: 'the worker is gone: it was shut down' });
});
