// What a visitor takes away from a page that has learned something: files and links. Writes names into ONNX files.

/** @param {string} name @param {BlobPart} content @param {string} [type] */
export function download(name, content, type = 'application/octet-stream') {
  const anchor = Object.assign(document.createElement('a'), { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

/**
 * Shares the page's address by the system's dialog, or copies it. Returns what happened, as a sentence.
 * @param {string} title
 */
export async function shareAddress(title) {
  const url = location.href;
  if (navigator.share) return navigator.share({ title, url }).then(() => 'Shared.', () => 'Not shared.');
  const isCopied = await navigator.clipboard?.writeText(url).then(() => true, () => false);
  return isCopied ? 'Link copied.' : 'The address bar has the link.';
}

/** @param {number} value of a protobuf @returns {number[]} */
const varint = (value) => (value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))]);

/** @param {number} field @param {Uint8Array} content */
const message = (field, content) => new Uint8Array([...varint(field * 8 + 2), ...varint(content.length), ...content]);

/** @param {Uint8Array[]} parts */
const joined = (...parts) => new Uint8Array(parts.flatMap((part) => [...part]));

/**
 * The file with more entries in its metadata_props (field 14 of ModelProto), where runtimes find them. A field that repeats
 * may stand at the end of a protobuf message.
 * @param {Uint8Array} model @param {Record<string, string>} entries @returns {Blob}
 */
export function withMetadata(model, entries) {
  const text = new TextEncoder();
  const added = Object.entries(entries).map(([key, value]) => message(14, joined(message(1, text.encode(key)), message(2, text.encode(value)))));
  return new Blob(/** @type {BlobPart[]} */ ([model, ...added]));
}
