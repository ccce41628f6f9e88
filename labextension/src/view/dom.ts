/** Making elements. Text always becomes text nodes, so that nothing a run says can become markup. */

type Props = Record<string, string | number | boolean | undefined>;

/** An element with attributes (`false` and `undefined` leave one out) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) attribute(element, name, value);
  element.append(...children);
  return element;
}

/** Sets an attribute, or removes it; touches the document only where something changes. */
export function attribute(element: Element, name: string, value: string | number | boolean | undefined): void {
  if (value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value === true ? "" : value)) {
    element.setAttribute(name, String(value === true ? "" : value));
  }
}

/** Sets an element's text where it differs: a selection in text that stays the same survives. */
export function text(element: Element, value: string): void {
  if (element.textContent !== value) element.textContent = value;
}

/** A select in the view's clothes; returns it and what to put into the document. */
export function choice(label: string): [HTMLSelectElement, HTMLElement] {
  const select = h("select", { class: "ddl-choice", "aria-label": label });
  return [select, h("span", { class: "ddl-pick" }, select)];
}

/** Shows or hides an element. */
export function show(element: HTMLElement, visible: boolean): void {
  if (element.hidden === visible) element.hidden = !visible;
}
