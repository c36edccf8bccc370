// What the browser calls what it keeps, where more than one asks for it.

export const PROGRAMS = 'pyruntime-programs';
