// A figure named fig-explore-NAME is a picture with a caption wherever the book is read. In a browser that runs scripts,
// this one puts the interactive figure NAME in the picture's place; if anything goes wrong, the picture stays.
(() => {
  const folder = document.currentScript.src.replace(/load\.js.*$/, "");
  const version = document.currentScript.src.replace(/^[^?]*/, "");
  const add = (file) => new Promise((done, failed) => {
    const script = Object.assign(document.createElement("script"), { src: folder + file + version, onload: done, onerror: failed });
    document.head.append(script);
  });
  // The interactive picture of chapter 6 is HTML that a cell has written: it is moved into the figure above it.
  document.addEventListener("DOMContentLoaded", () => {
    const live = document.querySelector(".dpt[data-ready]"), picture = document.querySelector("#fig-coins-profile .figure-box");
    if (!live || !picture) return;
    const cell = live.closest(".cell");
    picture.before(live);
    cell?.remove();
  });
  document.addEventListener("DOMContentLoaded", async () => {
    const figures = [...document.querySelectorAll("figure[id^='fig-explore-']")];
    if (!figures.length) return;
    document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: `${folder}stage.css${version}` }));
    for (const file of ["numbers.js", "data.js", "stage.js"]) await add(file);
    for (const figure of figures) {
      await add(`${figure.id.replace("fig-explore-", "")}.js`);
    }
  });
})();
