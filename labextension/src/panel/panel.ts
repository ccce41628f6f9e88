/** The panel without its frame: filter, list, why it is empty, how many there are. Plain DOM over a feed. */

import type { Translation } from "../translation";
import { h, show, text } from "../view/dom";
import { arrange, type Wish } from "./arrange";
import { EmptyView, emptiness } from "./empty";
import type { Link, RunFeed } from "./feed";
import { FilterBar } from "./filterbar";
import { ListView } from "./list";
import { title } from "./words";

/** Times of runs that go on count up. */
const CLOCK_MS = 1000;

export interface PanelOptions {
  feed: RunFeed;
  trans: Translation;
  /** The reader wants to see a run. */
  open(run: string): void;
  /** Other rows are chosen now. */
  chosen(): void;
  /** The filter is another one. */
  wished(wish: Wish): void;
}

export class PanelView {
  readonly list: ListView;
  private readonly filter: FilterBar;
  private readonly empty: EmptyView;
  private readonly banner = h("p", { class: "ddl-banner" });
  private readonly foot = h("p", { class: "ddl-foot" });
  private readonly spoken = h("div", { class: "ddl-aloud", "aria-live": "polite" });
  private readonly clock: ReturnType<typeof setInterval>;
  private readonly redraw = () => this.draw();
  private readonly tellEnd = (_: RunFeed, run: Parameters<typeof title>[0] & { state?: string }) =>
    text(this.spoken, `${title(run)}: ${run.state}`);

  constructor(
    host: HTMLElement,
    private readonly options: PanelOptions,
  ) {
    const { trans, feed } = options;
    this.filter = new FilterBar(trans, () => this.rewish());
    this.list = new ListView(options);
    this.empty = new EmptyView(trans, {
      retry: () => feed.refresh(),
      showAll: () => {
        this.filter.clear();
        this.rewish();
      },
    });
    host.append(this.filter.element, this.banner, this.empty.element, this.list.element, this.foot, this.spoken);
    feed.changed.connect(this.redraw);
    feed.ended.connect(this.tellEnd);
    this.clock = setInterval(() => {
      if (!document.hidden && feed.list.live().length) this.draw();
    }, CLOCK_MS);
    this.draw();
  }

  get wish(): Wish {
    return this.filter.wish;
  }

  /** Puts the filter of an earlier page back. */
  restore(wish: Wish): void {
    this.filter.set(wish);
    this.draw();
  }

  /** Somebody sees the panel from now on; call what is returned when they do not. */
  watch(): () => void {
    return this.options.feed.watch();
  }

  draw(): void {
    const { feed } = this.options;
    const now = Date.now() / 1000;
    const rows = arrange(feed.list.rows.values(), this.wish, now);
    this.list.draw(rows, now);
    this.empty.draw(emptiness(feed.link, feed.list, this.wish, rows.length));
    const stale = rows.length > 0 ? this.stale(feed.link) : "";
    text(this.banner, stale);
    show(this.banner, stale !== "");
    text(this.foot, this.count(rows.length));
    show(this.foot, feed.list.rows.size > 0);
  }

  dispose(): void {
    clearInterval(this.clock);
    this.options.feed.changed.disconnect(this.redraw);
    this.options.feed.ended.disconnect(this.tellEnd);
    this.list.dispose();
  }

  private rewish(): void {
    this.draw();
    this.options.wished(this.wish);
  }

  /** Rows are shown, and are not known to be the newest. */
  private stale(link: Link): string {
    const { trans } = this.options;
    if (link.kind === "ready" || link.kind === "loading") return "";
    if (link.kind === "gone") return trans.__("Jupyter Server does not answer: this is how it was.");
    return trans.__("This is how it was: %1", link.message);
  }

  private count(shown: number): string {
    const { trans, feed } = this.options;
    const { total, rows } = feed.list;
    const live = feed.list.live().length;
    const all = trans._n("%1 run", "%1 runs", total);
    const parts = [shown < rows.size ? trans.__("%1 of %2", shown, all) : all];
    if (live) parts.push(trans.__("%1 running", live));
    if (rows.size < total) parts.push(trans.__("the newest %1 are listed", rows.size));
    return parts.join(" · ");
  }
}
