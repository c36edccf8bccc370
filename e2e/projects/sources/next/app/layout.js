import { createElement } from 'react';

export default function Layout({ children }) {
  return createElement('html', { lang: 'en', suppressHydrationWarning: true }, createElement('body', null, children));
}
