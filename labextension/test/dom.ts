/** Helpers to look at the document of a test. */

/** The first element that matches; fails if there is none. */
export function find<E extends Element = HTMLElement>(selector: string, root: ParentNode = document): E {
  const element = root.querySelector<E>(selector);
  if (!element) throw new Error(`no element matches ${selector}`);
  return element;
}

export function findAll<E extends Element = HTMLElement>(selector: string, root: ParentNode = document): E[] {
  return [...root.querySelectorAll<E>(selector)];
}

/** Types a text into a field. */
export function type(text: string, selector: string): void {
  find<HTMLInputElement>(selector).value = text;
  find(selector).dispatchEvent(new Event("input"));
}

/** The texts of all elements that match. */
export function texts(selector: string, root: ParentNode = document): (string | null)[] {
  return findAll(selector, root).map(({ textContent }) => textContent);
}

/** Whether an element and all around it are shown. */
export function isShown(element: Element): boolean {
  return element.closest("[hidden]") === null;
}
