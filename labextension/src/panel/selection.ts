/** The selection of a list, and how keys and clicks change it. Pure. */

export interface Modifiers {
  shift: boolean;
  /** Control, or Command on a Mac. */
  toggle: boolean;
}

export class Selection {
  /** The row at which the keyboard is. */
  active: string | null = null;
  private anchor: string | null = null;
  private selected = new Set<string>();

  has(id: string): boolean {
    return this.selected.has(id);
  }

  /** The selected rows among `ids`, in their order. */
  of(ids: readonly string[]): string[] {
    return ids.filter((id) => this.selected.has(id));
  }

  onClick(ids: readonly string[], id: string, modifiers: Modifiers): void {
    this.active = id;
    if (modifiers.shift) {
      this.extendTo(ids, id);
      return;
    }
    if (modifiers.toggle) this.toggle(id);
    else this.selected = new Set([id]);
    this.anchor = id;
  }

  /** A context menu opens on a row: the row becomes the selection, unless it is part of it. */
  onContextMenu(id: string): void {
    this.active = id;
    if (this.selected.has(id)) return;
    this.selected = new Set([id]);
    this.anchor = id;
  }

  /** Handles a key; returns false if it does not change the selection. `pageSize`: number of visible rows. */
  onKey(ids: readonly string[], key: string, pageSize: number, modifiers: Modifiers): boolean {
    if (key === " " && this.active !== null) {
      this.toggle(this.active);
      this.anchor = this.active;
      return true;
    }
    if (key === "a" && modifiers.toggle) {
      this.selected = new Set(ids);
      return true;
    }
    const to = this.target(ids, key, pageSize);
    if (to === undefined) return false;
    this.active = to;
    if (modifiers.shift) this.extendTo(ids, to);
    else if (!modifiers.toggle) {
      this.selected = new Set([to]);
      this.anchor = to;
    }
    return true;
  }

  private target(ids: readonly string[], key: string, pageSize: number): string | undefined {
    const last = ids.length - 1;
    const at = this.active === null ? -1 : ids.indexOf(this.active);
    const targets: Record<string, number> = {
      ArrowDown: Math.min(at + 1, last),
      ArrowUp: Math.max(at - 1, 0),
      PageDown: Math.min(Math.max(at, 0) + pageSize, last),
      PageUp: Math.max(at - pageSize, 0),
      Home: 0,
      End: last,
    };
    const to = targets[key];
    return to === undefined ? undefined : ids[to];
  }

  private toggle(id: string): void {
    if (!this.selected.delete(id)) this.selected.add(id);
  }

  /** Selects all rows from the anchor to a row. */
  private extendTo(ids: readonly string[], id: string): void {
    const from = ids.indexOf(this.anchor ?? id);
    const to = ids.indexOf(id);
    this.selected = new Set(ids.slice(Math.max(0, Math.min(from, to)), Math.max(from, to) + 1));
  }
}
