// Names in the browser's storage that several modules use.

export const PROGRAMS = 'pyruntime-programs';
export const CHOICES = 'pyruntime-choices';
