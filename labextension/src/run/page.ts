/** A run's page: its charts as the notebook draws them, fed by the server; what it printed, its cell, all that is known. */

import type { RunActions, Settings } from "../actions";
import { type Api, ApiError } from "../api";
import { Follower, isSeen, pause } from "../follow";
import type { RunFeed } from "../panel/feed";
import { readable } from "../panel/runlist";
import { title } from "../panel/words";
import type { Translation } from "../translation";
import { attribute, h, show, text } from "../view/dom";
import { keepKeys } from "../view/keys";
import { cellParts } from "./cell";
import { changeParts } from "./changes";
import { ChartsPart } from "./charts";
import { DetailPart } from "./detailpart";
import { DetailsSource } from "./details";
import { factParts } from "./facts";
import { Head } from "./head";
import { LogPages } from "./logpages";
import { LogsPart } from "./logs";
import { Recording } from "./recording";
import { Tabs } from "./tabs";
import "uplot/dist/uPlot.min.css";
import "../view/view.css";
import "./run.css";

/** How long the server may wait for news, and we after it could not be asked. */
const WAIT_SECONDS = 20;
const AGAIN_MS = 5000;

/** How soon it is looked again whether the page is seen. */
const SEEN_MS = 1000;

export interface RunPageOptions {
  api: Api;
  feed: Pick<RunFeed, "list" | "changed">;
  settings: Settings;
  actions: RunActions;
  trans: Translation;
  run: string;
}

/** Draws the run into `host`, and follows it until it has ended or `dispose` is called. A hidden page asks nothing. */
export function createRunPage(host: HTMLElement, options: RunPageOptions): { dispose(): void } {
  return new RunPage(host, options);
}

class RunPage {
  private readonly over = new AbortController();
  private readonly follower: Follower;
  private readonly source: DetailsSource;
  private readonly banner = h("p", { class: "ddl-banner", role: "status", hidden: true });
  private readonly head: Head;
  private readonly charts: ChartsPart;
  private readonly logs: LogsPart;
  private readonly parts: DetailPart[];
  private readonly changes: DetailPart;
  private readonly root: HTMLElement;
  private readonly listed = () => this.drawListed();
  private state = "";
  /** The size of the list when the run before was looked for. */
  private before = -1;
  private wasListed = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly options: RunPageOptions,
  ) {
    const { api, run, actions, trans, feed, settings } = options;
    this.follower = new Follower(api, run);
    const { model } = this.follower;
    this.source = new DetailsSource(api, run);
    this.head = new Head(run, actions, trans);
    this.charts = new ChartsPart(model, new Recording(api, run), trans, () => void actions.stop(run));
    this.logs = new LogsPart({
      pages: (rank) => new LogPages(api, run, rank),
      workers: () => model.run?.workers ?? 0,
      live: () => !model.over,
      seen: () => isSeen(host),
      seconds: () => settings.pollSeconds,
      trans,
    });
    const cell = new DetailPart(this.source, trans, (details) => cellParts(details, actions, trans));
    const facts = new DetailPart(this.source, trans, (details) => factParts(details, trans));
    this.changes = new DetailPart(this.source, trans, (details) =>
      changeParts(details, {
        rows: () => feed.list.rows.values(),
        details: (other) => new DetailsSource(api, other).get(),
        actions,
        trans,
      }),
    );
    this.parts = [cell, facts, this.changes];
    const tabs = new Tabs(trans.__("Parts of the run"), [
      { title: trans.__("Charts"), part: this.charts },
      { title: trans.__("Logs"), part: this.logs },
      { title: trans.__("Cell"), part: cell },
      { title: trans.__("Details"), part: facts },
      { title: trans.__("Changes"), part: this.changes },
    ]);
    this.root = h("section", { class: "ddl-runpage" }, this.banner, this.head.element, tabs.element);
    keepKeys(this.root);
    host.append(this.root);
    feed.changed.connect(this.listed);
    this.drawListed();
    void this.follow();
  }

  dispose(): void {
    this.over.abort();
    this.options.feed.changed.disconnect(this.listed);
    this.logs.hide();
    this.charts.dispose();
    this.root.remove();
  }

  private async follow(): Promise<void> {
    const { signal } = this.over;
    while (!signal.aborted) {
      if (!isSeen(this.host)) {
        await pause(SEEN_MS, signal);
        continue;
      }
      try {
        await this.follower.ask(WAIT_SECONDS, signal);
        this.say("");
        this.draw();
        if (this.follower.done) return;
      } catch (error) {
        if (signal.aborted) return;
        const message = error instanceof Error ? error.message : String(error);
        if (error instanceof ApiError && (error.status === 404 || error.status === 409)) return this.say(message);
        this.say(this.options.trans.__("This is how it was: %1", message));
        await pause(AGAIN_MS, signal);
      }
    }
  }

  private draw(): void {
    const { model } = this.follower;
    this.charts.draw();
    this.drawHead();
    const state = model.state?.state ?? "";
    if (state === this.state) return;
    this.state = state;
    this.source.outdate();
    for (const part of this.parts) void part.update();
  }

  /** What the list says: its title, whether it is there, and which run was before it. */
  private drawListed(): void {
    this.drawHead();
    const before = this.options.feed.list.rows.size;
    if (before === this.before) return;
    this.before = before;
    void this.changes.update(true);
  }

  private drawHead(): void {
    const { run, feed, trans } = this.options;
    const { model } = this.follower;
    const { list } = feed;
    const row = list.rows.get(run);
    const name = row ? title(row) : (model.run?.name ?? run);
    // A list that is cut off does not say that what it lacks is gone.
    const removed = model.over && !row && this.wasListed;
    if (row) this.wasListed = true;
    if (removed) this.say(trans.__("This run is deleted. What has been read of it is still shown."));
    // A long run is read in parts, from its begin on: the list knows sooner that it has ended.
    const ended = row && readable(row) && !row.live;
    const state = ended ? row.state : (model.state?.state ?? "");
    this.head.draw({ name, state, live: state !== "" && !ended && !model.over, removed });
    attribute(this.root, "aria-label", name);
  }

  private say(words: string): void {
    text(this.banner, words);
    show(this.banner, words !== "");
  }
}
