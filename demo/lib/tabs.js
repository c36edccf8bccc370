// Tabs: buttons with role=tab whose aria-controls name the panels. Arrow keys move between them.

/** @param {ParentNode} root */
export function connectTabs(root = document) {
  for (const list of root.querySelectorAll('[role=tablist]')) {
    const tabs = /** @type {HTMLElement[]} */ ([...list.querySelectorAll('[role=tab]')]);
    for (const [i, tab] of tabs.entries()) {
      tab.addEventListener('click', () => select(tabs, tab));
      tab.addEventListener('keydown', ({ key }) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
        if (!step) return;
        const next = tabs[(i + step + tabs.length) % tabs.length];
        next.focus();
        next.click();
      });
    }
  }
}

/** @param {HTMLElement[]} tabs @param {HTMLElement} chosen */
function select(tabs, chosen) {
  for (const tab of tabs) {
    tab.setAttribute('aria-selected', String(tab === chosen));
    const panel = document.getElementById(tab.getAttribute('aria-controls') ?? '');
    if (panel) panel.hidden = tab !== chosen;
  }
}
