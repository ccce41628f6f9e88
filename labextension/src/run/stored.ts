/**
 * The block of a run or a search below its live view in a notebook. Where the kernel shows no live view, or one that is
 * out of date because the kernel has ended, the block draws it from the store. Independent of JupyterLab.
 */

import { type Api, ApiError } from "../api";
import { Follower } from "../follower";
import type { Block } from "../generated";
import type { PanelFeed } from "../panel/feed";
import { isReadable } from "../panel/runlist";
import { follow, sleep, WAIT_SECONDS } from "../polling";
import { h, setAttribute, setChildren } from "../view/dom";
import { TERMINAL } from "../view/model";
import { RunView } from "../view/view";
import "uplot/dist/uPlot.min.css";
import "../view/view.css";
import "./stored.css";

/** How long the kernel has to put the end of a run into the notebook: after a reload of the page it does not reach it. */
const KERNEL_MS = 5000;

/** How long its view has to show the end: a kernel that is restarted may still have stopped the run, and tells nobody. */
const VIEW_MS = 2000;

/** MIME type -> content. */
export type Bundle = NonNullable<Block["data"]>;

export interface StoredOptions {
  feed: Pick<PanelFeed, "list" | "changed" | "watch" | "refresh">;
  /** Of the run or the search. */
  id: string;
  /** What the notebook has saved of it: it is shown where the store does not have it. */
  saved: HTMLElement;
  /** The state in it. */
  savedState(): string;
  /** Puts another one into the notebook. */
  save(bundle: Bundle): void;
  /** The reader clicked Stop. */
  onStop(): void;
}

/** What draws the run or the search into a host, from what its follower has read. */
interface Drawing {
  draw(): void;
  dispose(): void;
}

export abstract class Stored<Options extends StoredOptions = StoredOptions> {
  readonly element: HTMLElement;
  private readonly aborter = new AbortController();
  private readonly update = () => this.listChanged();
  private readonly drawn = h("div");
  private view: Drawing | null = null;
  private following = false;
  private saving = false;
  /** When the list first said that the run has ended, in milliseconds; 0 if it has not. */
  private endSeen = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private endWatching: (() => void) | null = null;

  constructor(protected readonly options: Options) {
    const { feed, id, saved } = options;
    this.element = h("div", { class: "ddl-stored", "data-run": id }, saved);
    feed.changed.connect(this.update);
    feed.refresh();
  }

  protected abstract readonly follower: { readonly done: boolean };
  /** What the list says of it; undefined if it does not have it, or cannot read it. */
  protected abstract get row(): { live: boolean; state: string } | undefined;
  /** Polls the follower once. wait: seconds that the server may wait for an update. */
  protected abstract read(wait: number, signal: AbortSignal): Promise<unknown>;
  protected abstract createView(host: HTMLElement): Drawing;
  /** What a notebook keeps of it. */
  protected abstract block(signal: AbortSignal): Promise<Block>;

  dispose(): void {
    this.aborter.abort();
    this.options.feed.changed.disconnect(this.update);
    clearTimeout(this.timer);
    this.endWatching?.();
    this.view?.dispose();
  }

  /** Looks at what the list says of the run, and at the live view. To be called when the element is in the document. */
  listChanged(): void {
    const { feed } = this.options;
    const { row } = this;
    if (!row || this.aborter.signal.aborted) return;
    if (row.live) {
      this.endWatching ??= feed.watch();
      this.endSeen = 0;
    } else {
      void this.saveEnd();
      this.endWatching?.();
      this.endWatching = null;
    }
    const live = this.liveView();
    if (live && !row.live && !TERMINAL.has(live.dataset.state ?? "") && this.isLate(row.state)) {
      setAttribute(this.element, "data-lost", true);
      this.show(this.drawn); // what was saved hides itself beside a live view
    }
    const isStale = this.element.dataset.lost !== undefined;
    if ((!live || isStale) && (!this.view || (row.live && this.follower.done))) void this.follow();
  }

  /** Whether the kernel's view would have the end of the run by now. Of a lost run it will never have it. */
  private isLate(state: string): boolean {
    this.endSeen ||= Date.now();
    const late = Date.now() - this.endSeen >= VIEW_MS;
    if (!late) this.timer ??= setTimeout(this.update, VIEW_MS);
    return late || state === "LOST";
  }

  /** The kernel's view of it in the same output. */
  private liveView(): HTMLElement | undefined {
    const area = this.element.closest(".jp-OutputArea");
    const views = [...(area?.querySelectorAll<HTMLElement>(".ddl-run") ?? [])];
    return views.find((view) => view.dataset.run === this.options.id && !this.element.contains(view));
  }

  private async follow(): Promise<void> {
    if (this.following) return;
    this.following = true;
    const { signal } = this.aborter;
    await follow(this.element, signal, () => this.poll(signal), (error) => this.failed(error)); // biome-ignore format: short
    this.following = false;
  }

  private async poll(signal: AbortSignal): Promise<boolean> {
    await this.read(this.view ? WAIT_SECONDS : 0, signal);
    this.view ??= this.createView(this.drawn);
    this.view.draw();
    this.show(this.drawn);
    setAttribute(this.element, "data-drawn", true);
    return this.follower.done;
  }

  /** Puts the end into the notebook, unless the kernel does. */
  private async saveEnd(): Promise<void> {
    const { savedState, save } = this.options;
    const { signal } = this.aborter;
    if (this.saving || TERMINAL.has(savedState())) return;
    this.saving = true;
    await sleep(KERNEL_MS, signal);
    try {
      while (!signal.aborted && !TERMINAL.has(savedState())) {
        const { data } = await this.block(signal);
        if (data) return save(data);
      }
    } catch {
      this.saving = false; // the server does not answer: it is asked again when the list changes
    }
  }

  /** It is not there any more, or cannot be read: what was saved is. */
  private failed(error: unknown): boolean {
    const final = error instanceof ApiError && [404, 409].includes(error.status);
    if (final) this.show(this.options.saved);
    return final;
  }

  private show(content: HTMLElement): void {
    setChildren(this.element, [content]);
  }
}

export interface StoredRunOptions extends StoredOptions {
  api: Pick<Api, "view" | "block">;
}

export class StoredRun extends Stored<StoredRunOptions> {
  protected readonly follower = new Follower(this.options.api, this.options.id);

  protected override get row() {
    const row = this.options.feed.list.rows.get(this.options.id);
    return row && isReadable(row) ? row : undefined;
  }

  protected override read(wait: number, signal: AbortSignal): Promise<unknown> {
    return this.follower.poll(wait, signal);
  }

  protected override createView(host: HTMLElement): RunView {
    return new RunView(host, { model: this.follower.model, onStop: this.options.onStop });
  }

  protected override block(signal: AbortSignal): Promise<Block> {
    return this.options.api.block(this.options.id, signal);
  }
}
