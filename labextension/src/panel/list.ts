/** The list of runs in a document: rows are made only for what is on the screen, so that any number of runs is quick. */

import type { Row } from "../api";
import type { Translation } from "../translation";
import { attribute, h, show } from "../view/dom";
import { RowView, rowId } from "./row";
import { type Held, Selection } from "./selection";

/** Rows beyond the edges, so that scrolling shows no gaps. */
const OVERSCAN = 4;

/** Where the document has no layout. */
const ROW_PX = 84;
const WINDOW_PX = 800;

export interface ListOptions {
  trans: Translation;
  /** The reader wants to see a run. */
  open(run: string): void;
  /** Other rows are chosen now. */
  chosen(): void;
}

export class ListView {
  readonly element: HTMLElement;
  private readonly box: HTMLElement;
  private readonly pool = new Map<string, RowView>();
  private readonly selection = new Selection();
  private rows: readonly Row[] = [];
  private ids: readonly string[] = [];
  private height = 0;
  private frame = 0;
  private now = 0;

  constructor(private readonly options: ListOptions) {
    this.box = h("ul", {
      class: "ddl-list",
      role: "listbox",
      tabindex: 0,
      "aria-multiselectable": "true",
      "aria-label": options.trans.__("Runs"),
    });
    this.element = h("div", { class: "ddl-list-scroll" }, this.box);
    this.element.addEventListener("scroll", () => this.later());
    this.box.addEventListener("keydown", (event) => this.press(event));
    this.box.addEventListener("click", (event) => this.click(event));
    this.box.addEventListener("dblclick", (event) => this.openAt(event));
    this.box.addEventListener("contextmenu", (event) => this.point(event), { capture: true });
    this.box.addEventListener("focus", () => this.enter());
  }

  /** The chosen runs that are shown, in order. */
  get chosen(): string[] {
    return this.selection.of(this.ids);
  }

  /** The run that the keyboard is at, if it is shown. */
  get active(): string | null {
    const { active } = this.selection;
    return active !== null && this.ids.includes(active) ? active : null;
  }

  draw(rows: readonly Row[], now: number): void {
    const before = this.chosen.join();
    this.rows = rows;
    this.ids = rows.map(({ id }) => id);
    this.now = now;
    show(this.element, rows.length > 0);
    this.drawNow();
    if (this.chosen.join() !== before) this.options.chosen();
  }

  /** The element was shown or has another size. */
  resized(): void {
    this.height = 0;
    this.drawNow();
  }

  focus(): void {
    this.box.focus();
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
  }

  private later(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  private drawNow(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { scrollTop, clientHeight } = this.element;
    const height = this.rowHeight();
    const first = Math.max(0, Math.floor(scrollTop / height) - OVERSCAN);
    const end = Math.ceil((scrollTop + (clientHeight || WINDOW_PX)) / height) + OVERSCAN;
    this.box.style.height = `${this.rows.length * height}px`;
    const shown = this.rows.slice(first, end);
    const wanted = new Set(shown.map(({ id }) => id));
    for (const id of this.pool.keys()) if (!wanted.has(id)) this.pool.delete(id);
    const elements = shown.map((row, i) => this.drawRow(row, first + i, height));
    if (elements.length !== this.box.children.length || elements.some((e, i) => e !== this.box.children[i])) {
      this.box.replaceChildren(...elements);
    }
    const { active } = this;
    attribute(this.box, "aria-activedescendant", active !== null && wanted.has(active) ? rowId(active) : undefined);
  }

  private drawRow(row: Row, index: number, height: number): HTMLElement {
    let view = this.pool.get(row.id);
    if (!view) {
      view = new RowView(this.options.trans);
      this.pool.set(row.id, view);
    }
    view.draw(row, this.now);
    const { element } = view;
    element.style.top = `${index * height}px`;
    attribute(element, "aria-setsize", this.rows.length);
    attribute(element, "aria-posinset", index + 1);
    attribute(element, "aria-selected", String(this.selection.has(row.id)));
    attribute(element, "data-active", this.selection.active === row.id);
    return element;
  }

  /** Of one row, by the fonts of this page; all are equally high. */
  private rowHeight(): number {
    if (!this.height) {
      const probe = h("li", { class: "ddl-row" });
      this.box.append(probe);
      this.height = probe.offsetHeight;
      probe.remove();
    }
    return this.height || ROW_PX;
  }

  private press(event: KeyboardEvent): void {
    const { active } = this;
    if (event.key === "Enter" && active !== null && !held(event).toggle) {
      this.options.open(active);
    } else {
      const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight()) - 1);
      if (!this.selection.press(this.ids, event.key, page, held(event))) return;
      this.reveal();
      this.changed();
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private click(event: MouseEvent): void {
    const run = runAt(event);
    if (run === null) return;
    this.selection.click(this.ids, run, held(event));
    this.changed();
  }

  private openAt(event: MouseEvent): void {
    const run = runAt(event);
    if (run !== null) this.options.open(run);
  }

  private point(event: MouseEvent): void {
    const run = runAt(event) ?? this.active;
    if (run === null) return;
    this.selection.point(run);
    this.changed();
  }

  /** The keyboard comes in: it is somewhere, without choosing anything. */
  private enter(): void {
    if (this.active === null) this.selection.active = this.ids[0] ?? null;
    this.drawNow();
  }

  private changed(): void {
    this.drawNow();
    this.options.chosen();
  }

  /** Scrolls so that the keyboard's row is seen. */
  private reveal(): void {
    const at = this.ids.indexOf(this.selection.active ?? "");
    if (at < 0) return;
    const height = this.rowHeight();
    const { scrollTop, clientHeight } = this.element;
    if (at * height < scrollTop) this.element.scrollTop = at * height;
    else if ((at + 1) * height > scrollTop + clientHeight) this.element.scrollTop = (at + 1) * height - clientHeight;
  }
}

function held(event: KeyboardEvent | MouseEvent): Held {
  return { shift: event.shiftKey, toggle: event.ctrlKey || event.metaKey };
}

function runAt(event: Event): string | null {
  return (event.target as Element).closest<HTMLElement>("[data-run]")?.dataset.run ?? null;
}
