/** Helpers that make and change elements. Text always becomes text nodes, so that nothing from a run becomes markup. */

type Attributes = Record<string, string | number | boolean | undefined>;

/** An element with attributes (`false` and `undefined` leave one out) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

/** The same in SVG. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

/** A button with a text, and what a click on it does. */
export function button(text: string, onClick: () => unknown, attributes: Attributes = {}): HTMLButtonElement {
  const element = h("button", { type: "button", ...attributes }, text);
  element.addEventListener("click", () => void onClick());
  return element;
}

/** How long a button says that it has copied. */
const COPIED_MS = 2000;

/** A button that copies a text to the clipboard; hidden where the page may not do that. */
export function copyButton(title: string, text: () => string): HTMLButtonElement {
  const copy = async () => {
    await navigator.clipboard.writeText(text());
    setText(element, "Copied");
    setTimeout(() => setText(element, title), COPIED_MS);
  };
  const element = button(title, copy, { class: "ddl-copy", hidden: !navigator.clipboard });
  return element;
}

/** A box for wide or long content: focusable, so that the keyboard can scroll it. `label` is for screen readers. */
export function scrollBox(className: string, label: string, ...children: Node[]): HTMLElement {
  return h("div", { class: className, tabindex: 0, role: "group", "aria-label": label }, ...children);
}

/** Sets an attribute, or removes it if the value is `false` or `undefined`. Does nothing if nothing changes. */
export function setAttribute(element: Element, name: string, value: Attributes[string]): void {
  if (value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value === true ? "" : value)) {
    element.setAttribute(name, String(value === true ? "" : value));
  }
}

export function setAttributes(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
}

/** Sets the text of an element if it differs, so that a selection in unchanged text is kept. */
export function setText(element: Element, value: string): void {
  if (element.textContent !== value) element.textContent = value;
}

export function setVisible(element: HTMLElement, visible: boolean): void {
  if (element.hidden === visible) element.hidden = !visible;
}

/** Sets the text of an element, which is hidden if there is none. */
export function setNote(element: HTMLElement, text: string): void {
  setText(element, text);
  setVisible(element, text !== "");
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

export type Option = readonly [value: string, title: string];

/** Sets the options of a select, which keeps its value if it can. */
export function setOptions(select: HTMLSelectElement, options: readonly Option[]): void {
  const elements = options.map(([value, title]) => h("option", { value }, title));
  const texts = (list: Iterable<HTMLOptionElement>) =>
    [...list].map(({ value, text }) => `${value} ${text}`).join("\n");
  if (texts(select.options) === texts(elements)) return;
  const selected = select.value;
  select.replaceChildren(...elements);
  if (options.some(([value]) => value === selected)) select.value = selected;
}
