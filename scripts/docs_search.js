// Put before the search worker of Material for MkDocs (docs_site.py). The worker finds pages with any of the words, or with
// words that begin as they do. This leaves out words that say nothing, and if nothing is found, searches for similar words.

{
  const EMPTY = new Set(`a about an and any are as at be by can do does for from get has have how i if in into is it its me my
    no not of on or our so some that the then there this to us use using was we what when where which who why will with you
    your`.split(/\s+/));
  const answer = self.postMessage.bind(self);
  let asked = '';

  const meaningful = (query) => query.split(/\s+/).filter((word) => !EMPTY.has(word.toLowerCase())).join(' ') || query;
  // Letters that may differ: one, or two in long words. The worker reads them from the number behind the tilde.
  const similar = (query) => query.replace(/[\p{L}\d]{4,}/gu, (word) => `${word}~${word.length < 8 ? 1 : 2}`);

  self.addEventListener('message', ({ data }) => {
    if (data.type !== 2) return;
    if (!data.data.includes('~')) data.data = meaningful(data.data);
    asked = data.data;
  });
  self.postMessage = (message) => {
    const retry = message.type === 3 && !message.data.items.length && !asked.includes('~') ? similar(asked) : asked;
    if (retry === asked) answer(message);
    else self.dispatchEvent(new MessageEvent('message', { data: { type: 2, data: retry } }));
  };
}
