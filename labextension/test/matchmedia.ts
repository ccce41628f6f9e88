/** uPlot calls matchMedia when it is imported, and jsdom has none: import this file first. */

globalThis.matchMedia = (media) => ({
  media,
  matches: false,
  onchange: null,
  addListener() {},
  removeListener() {},
  addEventListener() {},
  removeEventListener() {},
  dispatchEvent: () => false,
});
