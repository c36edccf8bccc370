// root: or else Next.js takes the folder of a lock file further up for the project.
export default { devIndicators: false, turbopack: { root: import.meta.dirname }, outputFileTracingRoot: import.meta.dirname };
