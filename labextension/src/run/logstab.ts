/** The tab "Logs": the printed lines of one rank or of all, with search, from the end on. */

import { messageOf, sleep } from "../polling";
import type { Translation } from "../translation";
import { h, type Option, scrollBox, setAttribute, setNote, setOptions, setText, setVisible } from "../view/dom";
import { clock } from "../view/format";
import { pageButton } from "./button";
import type { LogPages, PrintedLine } from "./logpages";
import type { TabContent } from "./tabs";

/** Number of lines in the document at first, and added with each click on "Older lines". */
const SHOWN_LINES = 1000;

export interface LogsOptions {
  pages(rank: number | "all"): LogPages;
  /** The numbers of the ranks are below this one; 0 if unknown. */
  ranks(): number;
  /** Whether the run has not ended. */
  live(): boolean;
  /** Whether the page is visible; a hidden page does not poll. */
  visible(): boolean;
  /** The poll interval. */
  seconds(): number;
  trans: Translation;
}

/** What is in the document. */
interface Drawn {
  pages: LogPages | null;
  generation: number;
  search: string;
  limit: number;
  lines: number;
}

export class LogsTab implements TabContent {
  readonly element: HTMLElement;
  private readonly rankSelect: HTMLSelectElement;
  private readonly search: HTMLInputElement;
  private readonly count = h("span", { class: "ddl-runpage-dim", role: "status" });
  private readonly older: HTMLButtonElement;
  private readonly error = h("p", { class: "ddl-banner", role: "status", hidden: true });
  private readonly output: HTMLElement;
  private pages: LogPages;
  private limit = SHOWN_LINES;
  private drawn: Drawn = { pages: null, generation: 0, search: "", limit: 0, lines: 0 };
  /** Aborts polling when the tab is hidden; null while it is. */
  private aborter: AbortController | null = null;

  constructor(private readonly options: LogsOptions) {
    const { trans } = options;
    this.pages = options.pages("all");
    this.rankSelect = h("select", { "aria-label": trans.__("Rank whose lines are shown") });
    this.rankSelect.addEventListener("change", () => this.selectRank());
    const label = trans.__("Search the lines");
    this.search = h("input", { type: "search", placeholder: label, "aria-label": label });
    this.search.addEventListener("input", () => this.draw());
    this.older = pageButton(trans.__("Older lines"), () => this.showOlder());
    setVisible(this.older, false);
    this.output = scrollBox("ddl-runpage-log", trans.__("Lines"));
    const bar = h("div", { class: "ddl-runpage-bar" }, this.rankSelect, this.search, this.older, this.count);
    this.element = h("div", { class: "ddl-runpage-logs" }, bar, this.error, this.output);
  }

  show(): void {
    this.drawRanks();
    // A hidden element loses its scroll position.
    this.output.scrollTop = this.output.scrollHeight;
    if (!this.aborter) void this.follow();
  }

  hide(): void {
    this.aborter?.abort();
    this.aborter = null;
  }

  /** Reads the log and polls for new lines, until the tab is hidden or another rank is selected. */
  private async follow(): Promise<void> {
    const { pages, options } = this;
    const aborter = new AbortController();
    const { signal } = aborter;
    this.aborter = aborter;
    let finished = false;
    while (!signal.aborted && !finished) {
      if (options.visible()) {
        // Once more after the run has ended, for the lines since the poll before.
        const ended = !options.live();
        finished = (await this.request(() => pages.readNew(signal), signal)) && ended;
        if (!signal.aborted) this.draw();
      }
      if (!finished) await sleep(options.seconds() * 1000, signal);
    }
  }

  private selectRank(): void {
    this.hide();
    this.pages = this.options.pages(this.rankSelect.value === "all" ? "all" : Number(this.rankSelect.value));
    this.limit = SHOWN_LINES;
    this.output.replaceChildren();
    setText(this.count, this.options.trans.__("Loading …"));
    void this.follow();
  }

  private async showOlder(): Promise<void> {
    const { pages, aborter } = this;
    this.limit += SHOWN_LINES;
    if (this.matchingLines().length < this.limit && pages.hasOlder && !pages.full) {
      setAttribute(this.older, "disabled", true);
      const signal = aborter?.signal ?? new AbortController().signal;
      await this.request(() => pages.readOlder(signal), signal);
      setAttribute(this.older, "disabled", false);
    }
    if (pages === this.pages) this.draw();
  }

  /** Whether a request succeeded; an error is shown. */
  private async request(send: () => Promise<void>, signal: AbortSignal): Promise<boolean> {
    try {
      await send();
      setNote(this.error, "");
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      setNote(this.error, this.options.trans.__("The last known state is shown: %1", messageOf(error)));
      return false;
    }
  }

  private matchingLines(): PrintedLine[] {
    const search = this.search.value.toLowerCase();
    const { lines } = this.pages;
    return search ? lines.filter((line) => line.text.toLowerCase().includes(search)) : lines;
  }

  private draw(): void {
    this.drawRanks();
    const lines = this.matchingLines();
    this.drawLines(lines);
    this.drawCount(lines.length);
  }

  private drawLines(lines: PrintedLine[]): void {
    const { pages, output, drawn, limit } = this;
    const search = this.search.value;
    const grown =
      drawn.pages === pages &&
      drawn.generation === pages.generation &&
      drawn.search === search &&
      drawn.limit === limit;
    if (grown && lines.length === drawn.lines) return;
    const first = Math.max(0, lines.length - limit);
    const fromEnd = output.scrollHeight - output.scrollTop;
    const atEnd = fromEnd - output.clientHeight < 8;
    const added = lines.slice(grown ? Math.max(drawn.lines, first) : first);
    const rows = added.map((line) => lineElement(line, search, pages.rank === "all"));
    if (grown && drawn.lines) output.append(...rows);
    else output.replaceChildren(...rows);
    while (output.childElementCount > limit) output.firstElementChild?.remove();
    // Follow new lines if the end is visible; else keep the position, also when older lines are added above.
    if (atEnd || drawn.pages !== pages) output.scrollTop = output.scrollHeight;
    else if (!grown) output.scrollTop = output.scrollHeight - fromEnd;
    this.drawn = { pages, generation: pages.generation, search, limit, lines: lines.length };
  }

  private drawCount(matching: number): void {
    const { trans, live } = this.options;
    const { pages } = this;
    const total = pages.lines.length;
    setVisible(this.older, matching > this.limit || (pages.hasOlder && !pages.full));
    const count = total.toLocaleString();
    const all = trans._n("%2 line", "%2 lines", total, count);
    const known = pages.hasOlder ? trans.__("the newest %1 lines", count) : all;
    const none = live() ? trans.__("nothing printed yet") : trans.__("nothing was printed");
    if (this.search.value) setText(this.count, trans.__("%1 of %2", matching.toLocaleString(), known));
    else setText(this.count, total || pages.hasOlder ? known : none);
  }

  private drawRanks(): void {
    const { trans, ranks } = this.options;
    const each = Array.from({ length: ranks() }, (_, rank): Option => [String(rank), trans.__("Rank %1", rank)]);
    setOptions(this.rankSelect, [["all", trans.__("All ranks")], ["-1", trans.__("The job")], ...each]);
  }
}

function lineElement({ time, rank, level, text }: PrintedLine, search: string, withRank: boolean): HTMLElement {
  const parts: HTMLElement[] = [h("time", {}, clock(time))];
  if (withRank) parts.push(h("b", {}, rank < 0 ? "·" : String(rank)));
  const marked = markMatches(level === "warning" ? `⚠ ${text}` : text, search);
  return h("div", { "data-level": level }, ...parts, h("span", {}, ...marked));
}

/** The text with the matches of the search in `mark` elements. */
function markMatches(text: string, search: string): (Node | string)[] {
  if (!search) return [text || " "];
  const parts: (Node | string)[] = [];
  const [lowerText, lowerSearch] = [text.toLowerCase(), search.toLowerCase()];
  let from = 0;
  for (let at = lowerText.indexOf(lowerSearch); at >= 0; at = lowerText.indexOf(lowerSearch, from)) {
    parts.push(text.slice(from, at), h("mark", {}, text.slice(at, at + search.length)));
    from = at + search.length;
  }
  return [...parts, text.slice(from)];
}
