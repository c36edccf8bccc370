// Parcel compiles scripts that are named by address, and drops their exports: the files are copied to this folder.

export const paths = { pyruntime: '/engine/' };
export const options = () => ({});
