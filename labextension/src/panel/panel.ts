/** The panel without JupyterLab's frame: the filter, the list, why it is empty, and the number of runs. */

import type { RunRow, SearchRow } from "../generated";
import type { Translation } from "../translation";
import { h, setNote, setText, setVisible } from "../view/dom";
import { EmptyView, emptyReason } from "./empty";
import type { Connection, PanelFeed } from "./feed";
import { FilterBar } from "./filterbar";
import { Finder } from "./finder";
import { activity, title, wordOf } from "./format";
import { ListView } from "./list";
import { type ListFilter, listItems } from "./listfilter";
import type { IServerFeed } from "./serverfeed";
import { ServersView } from "./servers";

/** Interval in which the durations of live runs are updated. */
const CLOCK_MS = 1000;

export interface PanelOptions {
  feed: PanelFeed;
  servers: IServerFeed;
  trans: Translation;
  stopServer(name: string): void;
  /** Opens a run or a search. */
  open(id: string): void;
  /** The ids of the runs and searches that match a query. */
  matches(query: string): Promise<string[]>;
  selectionChanged(): void;
  filterChanged(filter: ListFilter): void;
}

export class PanelView {
  readonly list: ListView;
  private readonly filterBar: FilterBar;
  private readonly empty: EmptyView;
  private readonly banner = h("p", { class: "ddl-banner" });
  private readonly foot = h("p", { class: "ddl-foot" });
  /** Announces the end of runs to screen readers. */
  private readonly announcement = h("div", { class: "ddl-visually-hidden", "aria-live": "polite" });
  private readonly clock: ReturnType<typeof setInterval>;
  private readonly finder: Finder;
  private readonly served: ServersView;
  private readonly redrawServers = () => this.served.draw(this.options.servers.servers);
  private readonly redraw = () => {
    this.finder.refresh();
    this.draw();
  };
  private readonly announceEnd = (_: unknown, row: RunRow | SearchRow) =>
    setText(this.announcement, `${title(row)}: ${wordOf(row)}`);
  /** The searches whose trials are shown. */
  private readonly unfolded = new Set<string>();

  constructor(
    host: HTMLElement,
    private readonly options: PanelOptions,
  ) {
    const { trans, feed } = options;
    this.filterBar = new FilterBar(trans, () => this.filterChanged());
    this.finder = new Finder(options.matches, () => this.draw());
    this.list = new ListView({
      ...options,
      unfold: (search, expanded) => {
        if (expanded) this.unfolded.add(search);
        else this.unfolded.delete(search);
        this.draw();
      },
    });
    this.empty = new EmptyView(trans, {
      retry: () => feed.refresh(),
      showAll: () => {
        this.filterBar.clear();
        this.filterChanged();
      },
    });
    this.served = new ServersView(trans, options.stopServer);
    options.servers.changed.connect(this.redrawServers);
    const { filterBar, empty, list, served } = this;
    const content = [served.element, filterBar.element, this.banner, empty.element, list.element];
    host.append(...content, this.foot, this.announcement);
    feed.changed.connect(this.redraw);
    feed.ended.connect(this.announceEnd);
    this.clock = setInterval(() => {
      if (!document.hidden && feed.list.live().length) this.draw();
    }, CLOCK_MS);
    this.draw();
  }

  get filter(): ListFilter {
    return this.filterBar.filter;
  }

  /** Restores the filter of an earlier session. */
  restore(filter: ListFilter): void {
    this.filterBar.set(filter);
    this.finder.set(filter.words);
    this.draw();
  }

  /** The panel is visible, until the returned function is called. */
  watch(): () => void {
    const ends = [this.options.feed.watch(), this.options.servers.watch()];
    return () => {
      for (const end of ends) end();
    };
  }

  draw(): void {
    const { feed } = this.options;
    const now = Date.now() / 1000;
    const items = listItems(feed.list, this.filter, this.unfolded, now, this.finder.found);
    this.filterBar.showProblem(this.finder.problem);
    this.list.draw(items, now);
    this.empty.draw(emptyReason(feed.connection, feed.list, this.filter, items.length));
    setNote(this.banner, items.length ? this.staleMessage(feed.connection) : "");
    setText(this.foot, this.countMessage(items.filter(({ search }) => search === null).length));
    setVisible(this.foot, feed.list.rows.size > 0);
  }

  dispose(): void {
    clearInterval(this.clock);
    this.finder.dispose();
    this.options.feed.changed.disconnect(this.redraw);
    this.options.feed.ended.disconnect(this.announceEnd);
    this.options.servers.changed.disconnect(this.redrawServers);
    this.list.dispose();
  }

  private filterChanged(): void {
    this.finder.set(this.filter.words);
    this.draw();
    this.options.filterChanged(this.filter);
  }

  /** Why the rows may be out of date; empty if they are not. */
  private staleMessage(connection: Connection): string {
    const { trans } = this.options;
    if (connection.kind === "ready" || connection.kind === "loading") return "";
    if (connection.kind === "unreachable") {
      return trans.__("Jupyter Server does not respond. The last known state is shown.");
    }
    return trans.__("The last known state is shown: %1", connection.message);
  }

  private countMessage(shown: number): string {
    const { trans, feed } = this.options;
    const { total, rows, searches } = feed.list;
    // A search counts as one, as in the status bar: its trials stand below it.
    const live = activity(feed.list.liveWork(), trans);
    const whole = [...rows.values()].filter((row) => feed.list.searchOf(row) === null).length + searches.size;
    const all = trans._n("%1 run", "%1 runs", total);
    const filtered = shown < whole;
    const parts = [filtered && !searches.size ? trans.__("%1 of %2", shown, all) : all];
    if (searches.size) parts.push(trans._n("%1 search", "%1 searches", searches.size));
    if (searches.size && filtered) parts.push(trans.__("%1 of %2 shown", shown, whole));
    if (live) parts.push(live);
    if (rows.size < total) parts.push(trans.__("the newest %1 are listed", rows.size));
    return parts.join(" · ");
  }
}
