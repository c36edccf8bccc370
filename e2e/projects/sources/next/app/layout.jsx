import { Check } from './check.jsx';

export default function Layout({ children }) {
  return <html lang="en" suppressHydrationWarning><body>{children}<Check /></body></html>;
}
