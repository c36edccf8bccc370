// What a session's preset decides where no other option does. docs/api.md has the table; pyruntime/native/sessions/presets.py is
// its mirror.

/** @typedef {{ threads: (processors: number) => number, powerPreference: GPUPowerPreference, pausesHidden?: boolean }} Preset pausesHidden: runs wait while the page is hidden */

const COMMON = 4; // threads gain little from there on, and the page has other work

/** @type {Record<string, Preset>} */
export const PRESETS = {
  latency: { threads: (processors) => Math.min(COMMON, processors), powerPreference: 'high-performance' },
  throughput: { threads: (processors) => processors, powerPreference: 'high-performance' },
  power: { threads: () => 1, powerPreference: 'low-power', pausesHidden: true },
};
