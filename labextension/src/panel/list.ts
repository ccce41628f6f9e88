/**
 * The list of runs as a tree of one or two levels: the trials of a search stand below it. Only the visible rows are in the
 * document, so that its length costs nothing.
 */

import type { Translation } from "../translation";
import { h, setAttribute, setChildren, setVisible } from "../view/dom";
import type { ListItem } from "./listfilter";
import { RowView, rowId } from "./row";
import { type Modifiers, Selection } from "./selection";

/** Number of rows drawn beyond each edge, so that scrolling shows no gaps. */
const OVERSCAN = 4;

/** Sizes for documents without a layout. */
const ROW_PX = 84;
const WINDOW_PX = 800;

export interface ListOptions {
  trans: Translation;
  /** Opens a run or a search. */
  open(id: string): void;
  /** Shows or hides the trials of a search. */
  unfold(search: string, expanded: boolean): void;
  selectionChanged(): void;
}

export class ListView {
  readonly element: HTMLElement;
  private readonly box: HTMLElement;
  private readonly pool = new Map<string, RowView>();
  private readonly selection = new Selection();
  private items: readonly ListItem[] = [];
  private ids: readonly string[] = [];
  private height = 0;
  private frame = 0;
  private now = 0;

  constructor(private readonly options: ListOptions) {
    this.box = h("ul", {
      class: "ddl-list",
      role: "tree",
      tabindex: 0,
      "aria-multiselectable": "true",
      "aria-label": options.trans.__("Runs"),
    });
    this.element = h("div", { class: "ddl-list-scroll" }, this.box);
    this.element.addEventListener("scroll", () => this.drawLater());
    this.box.addEventListener("keydown", (event) => this.onKeyDown(event));
    this.box.addEventListener("click", (event) => this.onClick(event));
    this.box.addEventListener("dblclick", (event) => this.onDoubleClick(event));
    this.box.addEventListener("contextmenu", (event) => this.onContextMenu(event), { capture: true });
    this.box.addEventListener("focus", () => this.onFocus());
  }

  /** The selected runs and searches among those that are listed, in order. */
  get selected(): string[] {
    return this.selection.of(this.ids);
  }

  /** The row at which the keyboard is, if it is listed. */
  get active(): string | null {
    const { active } = this.selection;
    return active !== null && this.ids.includes(active) ? active : null;
  }

  draw(items: readonly ListItem[], now: number): void {
    const before = this.selected.join();
    this.items = items;
    this.ids = items.map(({ row }) => row.id);
    this.now = now;
    setVisible(this.element, items.length > 0);
    this.drawNow();
    if (this.selected.join() !== before) this.options.selectionChanged();
  }

  /** The element became visible or changed its size. */
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

  private drawLater(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  private drawNow(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { scrollTop, clientHeight } = this.element;
    const height = this.rowHeight();
    const first = Math.max(0, Math.floor(scrollTop / height) - OVERSCAN);
    const end = Math.ceil((scrollTop + (clientHeight || WINDOW_PX)) / height) + OVERSCAN;
    this.box.style.height = `${this.items.length * height}px`;
    const shown = this.items.slice(first, end);
    const ids = new Set(shown.map(({ row }) => row.id));
    for (const id of this.pool.keys()) if (!ids.has(id)) this.pool.delete(id);
    const elements = shown.map((item, i) => this.drawRow(item, first + i, height));
    setChildren(this.box, elements);
    const { active } = this;
    setAttribute(this.box, "aria-activedescendant", active !== null && ids.has(active) ? rowId(active) : undefined);
  }

  private drawRow(item: ListItem, index: number, height: number): HTMLElement {
    const { row, search, expanded, position, size } = item;
    const view = this.pool.get(row.id) ?? new RowView(this.options.trans);
    this.pool.set(row.id, view);
    view.draw(row, search, this.now);
    const { element } = view;
    element.style.top = `${index * height}px`;
    setAttribute(element, "aria-level", search ? 2 : 1);
    setAttribute(element, "aria-expanded", expanded === undefined ? undefined : String(expanded));
    setAttribute(element, "aria-setsize", size);
    setAttribute(element, "aria-posinset", position);
    setAttribute(element, "aria-selected", String(this.selection.has(row.id)));
    setAttribute(element, "data-active", this.selection.active === row.id);
    return element;
  }

  /** The height of each row, which depends on the fonts of the page. */
  private rowHeight(): number {
    if (!this.height) {
      const probe = h("li", { class: "ddl-row" });
      this.box.append(probe);
      this.height = probe.offsetHeight;
      probe.remove();
    }
    return this.height || ROW_PX;
  }

  private onKeyDown(event: KeyboardEvent): void {
    const { active } = this;
    if (event.key === "Enter" && active !== null && !modifiers(event).toggle) {
      this.options.open(active);
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      if (!this.onSideways(event.key === "ArrowRight")) return;
    } else {
      const pageSize = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight()) - 1);
      if (!this.selection.onKey(this.ids, event.key, pageSize, modifiers(event))) return;
      this.scrollToActive();
      this.changed();
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Right shows the trials of a search, then goes to the first; left goes to the search, then hides them. */
  private onSideways(right: boolean): boolean {
    const index = this.ids.indexOf(this.active ?? "");
    const item = this.items[index];
    if (!item) return false;
    const next = right ? this.items[index + 1] : this.items.find(({ row }) => row.id === item.search?.id);
    if (item.expanded === !right) this.options.unfold(item.row.id, right);
    else if (next && (right ? item.expanded : item.search)) {
      this.selection.onClick(this.ids, next.row.id, { shift: false, toggle: false });
      this.scrollToActive();
      this.changed();
    } else return false;
    return true;
  }

  private onClick(event: MouseEvent): void {
    const run = runAt(event);
    if (run === null) return;
    const item = this.items.find(({ row }) => row.id === run);
    if (item?.expanded !== undefined && event.target instanceof Element && event.target.closest(".ddl-row-fold")) {
      this.options.unfold(run, !item.expanded);
      return;
    }
    this.selection.onClick(this.ids, run, modifiers(event));
    this.changed();
  }

  private onDoubleClick(event: MouseEvent): void {
    const run = runAt(event);
    const onFold = event.target instanceof Element && event.target.closest(".ddl-row-fold");
    if (run !== null && !onFold) this.options.open(run);
  }

  private onContextMenu(event: MouseEvent): void {
    const run = runAt(event) ?? this.active;
    if (run === null) return;
    this.selection.onContextMenu(run);
    this.changed();
  }

  /** The first row becomes active, but not selected, when the list gets the focus. */
  private onFocus(): void {
    if (this.active === null) this.selection.active = this.ids[0] ?? null;
    this.drawNow();
  }

  private changed(): void {
    this.drawNow();
    this.options.selectionChanged();
  }

  private scrollToActive(): void {
    const index = this.ids.indexOf(this.selection.active ?? "");
    if (index < 0) return;
    const height = this.rowHeight();
    const { scrollTop, clientHeight } = this.element;
    const [top, bottom] = [index * height, (index + 1) * height];
    if (top < scrollTop) this.element.scrollTop = top;
    else if (bottom > scrollTop + clientHeight) this.element.scrollTop = bottom - clientHeight;
  }
}

function modifiers(event: KeyboardEvent | MouseEvent): Modifiers {
  return { shift: event.shiftKey, toggle: event.ctrlKey || event.metaKey };
}

function runAt({ target }: Event): string | null {
  return target instanceof Element ? (target.closest<HTMLElement>("[data-run]")?.dataset.run ?? null) : null;
}
