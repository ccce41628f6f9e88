/** Keyboard navigation: a group of buttons is one Tab stop, and the arrow keys move in it. */

/** Keeps keys pressed inside `root` from the notebook: `x` on a tab must not cut the cell. */
export function keepKeys(root: HTMLElement): void {
  // JupyterLab looks for this attribute at the focused element only, not at its ancestors.
  root.addEventListener("focusin", ({ target }) => {
    if (target instanceof HTMLElement) target.dataset.lmSuppressShortcuts = "true";
  });
}

/** Makes the buttons in `container` one Tab stop. `columns`: how far the up and down keys move. */
export function roving(container: HTMLElement, columns: () => number = () => 1): void {
  container.addEventListener("keydown", (event) => {
    const buttons = [...container.querySelectorAll<HTMLButtonElement>("button")];
    const from = buttons.findIndex((button) => button.matches(":focus"));
    const to = moved(event.key, from, buttons.length, columns());
    if (from < 0 || to === null) return;
    event.preventDefault();
    focusOn(buttons, to);
    buttons[to]?.focus();
  });
}

/** Makes the button at `index` the only one that Tab reaches. */
export function focusOn(buttons: readonly HTMLButtonElement[], index: number): void {
  buttons.forEach((button, i) => {
    button.tabIndex = i === index ? 0 : -1;
  });
}

/** The index to which a key moves from `index` among `count`; null if it does not move. */
export function moved(key: string, index: number, count: number, columns: number): number | null {
  const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  const step = steps[key];
  if (step === undefined) return null;
  const to = index + step;
  return to >= 0 && to < count ? to : null;
}
