/** Which rows are chosen, and how the keyboard and the mouse change that: as in any list of files. Pure. */

/** What was held while a key or the mouse was pressed. */
export interface Held {
  shift: boolean;
  /** Control, or Command. */
  toggle: boolean;
}

export class Selection {
  /** The row that the keyboard is at. */
  active: string | null = null;
  private anchor: string | null = null;
  private chosen = new Set<string>();

  has(id: string): boolean {
    return this.chosen.has(id);
  }

  /** The chosen rows, in the order of `ids`; what is not among them does not count. */
  of(ids: readonly string[]): string[] {
    return ids.filter((id) => this.chosen.has(id));
  }

  /** A click on a row. */
  click(ids: readonly string[], id: string, held: Held): void {
    this.active = id;
    if (held.shift) {
      this.reach(ids, id);
      return;
    }
    if (held.toggle) this.toggle(id);
    else this.chosen = new Set([id]);
    this.anchor = id;
  }

  /** The menu is opened on a row: what is chosen stays so if the row is part of it. */
  point(id: string): void {
    this.active = id;
    if (this.chosen.has(id)) return;
    this.chosen = new Set([id]);
    this.anchor = id;
  }

  /** A key; false where it is none of a list's. `page` is how many rows fit on the screen. */
  press(ids: readonly string[], key: string, page: number, held: Held): boolean {
    if (key === " " && this.active !== null) {
      this.toggle(this.active);
      this.anchor = this.active;
      return true;
    }
    if (key === "a" && held.toggle) {
      this.chosen = new Set(ids);
      return true;
    }
    const to = this.target(ids, key, page);
    if (to === undefined) return false;
    this.active = to;
    if (held.shift) this.reach(ids, to);
    else if (!held.toggle) {
      this.chosen = new Set([to]);
      this.anchor = to;
    }
    return true;
  }

  private target(ids: readonly string[], key: string, page: number): string | undefined {
    const last = ids.length - 1;
    const at = this.active === null ? -1 : ids.indexOf(this.active);
    const targets: Record<string, number> = {
      ArrowDown: Math.min(at + 1, last),
      ArrowUp: Math.max(at - 1, 0),
      PageDown: Math.min(Math.max(at, 0) + page, last),
      PageUp: Math.max(at - page, 0),
      Home: 0,
      End: last,
    };
    const to = targets[key];
    return to === undefined ? undefined : ids[to];
  }

  private toggle(id: string): void {
    if (!this.chosen.delete(id)) this.chosen.add(id);
  }

  /** All between the anchor and a row. */
  private reach(ids: readonly string[], id: string): void {
    const from = ids.indexOf(this.anchor ?? id);
    const to = ids.indexOf(id);
    this.chosen = new Set(ids.slice(Math.max(0, Math.min(from, to)), Math.max(from, to) + 1));
  }
}
