// Names in the browser's storage that several modules use.

export const PROGRAMS = 'pyruntime-programs';
export const CHOICES = 'pyruntime-choices';

/** Identifies a model before it is downloaded: false if its address is valid only in this page (blob:). @param {import('../common/protocol.js').Origin} model */
export function sourceOf(model) {
  if ('url' in model) return /^http/.test(model.url) && model.url;
  if ('handle' in model) return model.handle.name;
  if ('bytes' in model) return model.bytes.length;
  return 'blob' in model ? model.blob.size : 'port' in model && model.size;
}

/** The part of the address of an entry of PROGRAMS that names the model's source. @param {import('../common/protocol.js').Origin} model */
export const sourceParameter = (model) => `&source=${encodeURIComponent(sourceOf(model)).replaceAll("'", '%27')}&`;
