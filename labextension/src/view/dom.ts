/** Helpers that make and change elements. Text always becomes text nodes, so that nothing from a run becomes markup. */

type Attributes = Record<string, string | number | boolean | undefined>;

/** An element with attributes (`false` and `undefined` leave one out) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children);
  return element;
}

/** Sets an attribute, or removes it if the value is `false` or `undefined`. Does nothing if nothing changes. */
export function setAttribute(element: Element, name: string, value: string | number | boolean | undefined): void {
  if (value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value === true ? "" : value)) {
    element.setAttribute(name, String(value === true ? "" : value));
  }
}

/** Sets the text of an element if it differs, so that a selection in unchanged text is kept. */
export function setText(element: Element, value: string): void {
  if (element.textContent !== value) element.textContent = value;
}

/** Shows or hides an element. */
export function setVisible(element: HTMLElement, visible: boolean): void {
  if (element.hidden === visible) element.hidden = !visible;
}

/** Replaces the children of an element unless they are the same already. */
export function setChildren(parent: Element, children: readonly Element[]): void {
  const current = parent.children;
  if (children.length !== current.length || children.some((child, i) => child !== current[i])) {
    parent.replaceChildren(...children);
  }
}

/** A select in the style of the view, and the element that contains it. */
export function createSelect(label: string): [select: HTMLSelectElement, element: HTMLElement] {
  const select = h("select", { class: "ddl-choice", "aria-label": label });
  return [select, h("span", { class: "ddl-pick" }, select)];
}
