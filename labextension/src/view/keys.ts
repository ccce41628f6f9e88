/** The keyboard: a row or grid of buttons is one stop of Tab, the arrows move in it, and its keys stay in the view. */

/** Keys pressed inside `root` are no commands of the notebook around it: `x` on a tab must not cut the cell. */
export function keepKeys(root: HTMLElement): void {
  // JupyterLab looks for this mark at the focused element itself; an ancestor's does not count.
  root.addEventListener("focusin", (event) => {
    (event.target as HTMLElement).dataset.lmSuppressShortcuts = "true";
  });
}

/** Makes `container`'s buttons one stop of the Tab key. `columns` tells how far up and down move. */
export function roving(container: HTMLElement, columns: () => number = () => 1): void {
  container.addEventListener("keydown", (event) => {
    const buttons = [...container.querySelectorAll<HTMLButtonElement>("button")];
    const from = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const to = target(event.key, from, buttons.length, columns());
    if (from < 0 || to === null) return;
    event.preventDefault();
    focusOn(buttons, to);
    buttons[to]?.focus();
  });
}

/** Lets exactly one of the buttons be reached with Tab. */
export function focusOn(buttons: readonly HTMLButtonElement[], index: number): void {
  buttons.forEach((button, i) => {
    button.tabIndex = i === index ? 0 : -1;
  });
}

/** Where a key leads from position `from` of `count`, or null where it does not. */
export function target(key: string, from: number, count: number, columns: number): number | null {
  const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  const step = steps[key];
  if (step === undefined) return null;
  const to = from + step;
  return to >= 0 && to < count ? to : null;
}
