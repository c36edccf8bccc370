// In place of modules of Node.js that disco's training does not call.
