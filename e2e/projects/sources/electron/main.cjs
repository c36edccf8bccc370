// A window with the page, and the sums of the main process, where the package runs as in Node.js.
const { app, BrowserWindow } = require('electron');

app.whenReady().then(async () => {
  const window = new BrowserWindow({ show: false });
  await window.loadURL(process.argv.at(-1));
  for (;;) {
    const text = await window.webContents.executeJavaScript('document.documentElement.dataset.sums');
    if (text) {
      const { sums } = await import('./check.js');
      console.log(`SUMS ${JSON.stringify({ ...JSON.parse(text), main: await sums() })}`);
      return app.exit();
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
});
