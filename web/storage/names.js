// Names in the browser's storage that several modules use.

export const PROGRAMS = 'pyruntime-programs';
