// Where the libraries' files are, if not where the bundler puts them; options of sessions. Some projects have their own.

export const paths = {};
export const options = () => ({});
