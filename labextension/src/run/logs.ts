/** The tab of what was printed: by one rank or by all, searched, the end first. */

import { pause } from "../follow";
import type { Translation } from "../translation";
import { attribute, h, show, text } from "../view/dom";
import type { LogLine, LogPages } from "./logpages";
import type { Part } from "./tabs";

/** Lines in the document at first, and how many more with each wish for older ones. */
const SHOWN = 1000;

export interface LogsOptions {
  pages(rank: number | "all"): LogPages;
  /** The number of workers; 0 while it is not known. */
  workers(): number;
  /** Whether lines may still come. */
  live(): boolean;
  /** Whether somebody can see the page: nothing is asked while not. */
  seen(): boolean;
  /** Seconds between two looks at a run that goes on. */
  seconds(): number;
  trans: Translation;
}

export class LogsPart implements Part {
  readonly element: HTMLElement;
  private readonly rank: HTMLSelectElement;
  private readonly words: HTMLInputElement;
  private readonly count = h("span", { class: "ddl-runpage-dim", role: "status" });
  private readonly older: HTMLButtonElement;
  private readonly trouble = h("p", { class: "ddl-banner", role: "status", hidden: true });
  private readonly output: HTMLElement;
  private pages: LogPages;
  private most = SHOWN;
  private ranks = -1;
  private drawn = { pages: null as LogPages | null, generation: 0, words: "", most: 0, lines: 0 };
  private seen: AbortController | null = null;

  constructor(private readonly options: LogsOptions) {
    const { trans } = options;
    this.pages = options.pages("all");
    this.rank = h("select", { "aria-label": trans.__("Whose lines are shown") });
    this.rank.addEventListener("change", () => this.choose());
    const label = trans.__("Search the lines");
    this.words = h("input", { type: "search", placeholder: label, "aria-label": label });
    this.words.addEventListener("input", () => this.draw());
    this.older = h("button", { type: "button", class: "ddl-runpage-button", hidden: true }, trans.__("Older lines"));
    this.older.addEventListener("click", () => void this.showOlder());
    this.output = h("div", { class: "ddl-runpage-log", tabindex: 0, role: "group", "aria-label": trans.__("Lines") });
    const bar = h("div", { class: "ddl-runpage-bar" }, this.rank, this.words, this.older, this.count);
    this.element = h("div", { class: "ddl-runpage-logs" }, bar, this.trouble, this.output);
  }

  show(): void {
    this.drawRanks();
    // What is not seen has no place that it is scrolled to.
    this.output.scrollTop = this.output.scrollHeight;
    if (!this.seen) void this.follow();
  }

  hide(): void {
    this.seen?.abort();
    this.seen = null;
  }

  /** Asks for the end of the log, and from then on for what is new, until it is hidden or another rank is chosen. */
  private async follow(): Promise<void> {
    const { pages, options } = this;
    const seen = new AbortController();
    this.seen = seen;
    let last = false;
    while (!seen.signal.aborted && !last) {
      if (options.seen()) {
        // Asked once more after the end is known: lines may have come since the question before.
        last = !options.live();
        last = (await this.tried(() => pages.follow(seen.signal), seen.signal)) && last;
        if (!seen.signal.aborted) this.draw();
      }
      if (!last) await pause(options.seconds() * 1000, seen.signal);
    }
  }

  private choose(): void {
    this.hide();
    this.pages = this.options.pages(this.rank.value === "all" ? "all" : Number(this.rank.value));
    this.most = SHOWN;
    this.output.replaceChildren();
    text(this.count, this.options.trans.__("Reading …"));
    void this.follow();
  }

  private async showOlder(): Promise<void> {
    const { pages, seen } = this;
    this.most += SHOWN;
    if (this.matching().length < this.most && pages.hasOlder && !pages.full) {
      attribute(this.older, "disabled", true);
      const signal = seen?.signal ?? new AbortController().signal;
      await this.tried(() => pages.older(signal), signal);
      attribute(this.older, "disabled", false);
    }
    if (pages === this.pages) this.draw();
  }

  /** Whether the server has answered; if not, the reader is told. */
  private async tried(ask: () => Promise<void>, signal: AbortSignal): Promise<boolean> {
    try {
      await ask();
      show(this.trouble, false);
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      const message = error instanceof Error ? error.message : String(error);
      text(this.trouble, this.options.trans.__("This is how it was: %1", message));
      show(this.trouble, true);
      return false;
    }
  }

  private matching(): LogLine[] {
    const words = this.words.value.toLowerCase();
    return words ? this.pages.lines.filter((line) => line.text.toLowerCase().includes(words)) : this.pages.lines;
  }

  private draw(): void {
    const { pages, output, drawn, most } = this;
    const words = this.words.value;
    this.drawRanks();
    const known = pages.lines;
    const found = this.matching();
    const same = drawn.pages === pages && drawn.generation === pages.generation && drawn.words === words;
    const grown = same && drawn.most === most;
    const first = Math.max(0, found.length - most);
    if (!grown || found.length !== drawn.lines) {
      const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 8;
      const fromEnd = output.scrollHeight - output.scrollTop;
      const from = grown ? Math.max(drawn.lines, first) : first;
      const rows = found.slice(from).map((line) => row(line, words, pages.rank === "all"));
      if (grown && drawn.lines) output.append(...rows);
      else output.replaceChildren(...rows);
      while (output.childElementCount > most) output.firstElementChild?.remove();
      // Whoever is at the end follows; whoever reads stays where they are, also when older lines come before.
      if (atEnd || drawn.pages !== pages) output.scrollTop = output.scrollHeight;
      else if (!grown) output.scrollTop = output.scrollHeight - fromEnd;
      this.drawn = { pages, generation: pages.generation, words, most, lines: found.length };
    }
    this.say(known.length, found.length, first);
  }

  private say(known: number, found: number, unseen: number): void {
    const { trans, live } = this.options;
    const { pages } = this;
    show(this.older, unseen > 0 || (pages.hasOlder && !pages.full));
    const count = known.toLocaleString();
    const all = trans._n("%2 line", "%2 lines", known, count);
    const part = pages.hasOlder ? trans.__("the newest %1 lines", count) : all;
    const none = live() ? trans.__("nothing printed yet") : trans.__("nothing was printed");
    if (this.words.value) text(this.count, trans.__("%1 of %2", found.toLocaleString(), part));
    else text(this.count, known || pages.hasOlder ? part : none);
  }

  private drawRanks(): void {
    const { trans } = this.options;
    const workers = this.options.workers();
    if (workers === this.ranks) return;
    this.ranks = workers;
    const chosen = this.rank.value || "all";
    const ranks = Array.from({ length: workers }, (_, rank) => [String(rank), trans.__("Rank %1", rank)] as const);
    const entries = [["all", trans.__("All ranks")] as const, ["-1", trans.__("The job")] as const, ...ranks];
    this.rank.replaceChildren(...entries.map(([value, title]) => h("option", { value }, title)));
    this.rank.value = chosen;
  }
}

function row({ time, rank, level, text: said }: LogLine, words: string, prefixed: boolean): HTMLElement {
  const clock = new Date(time * 1000).toLocaleTimeString(undefined, { hour12: false });
  const parts: HTMLElement[] = [h("time", {}, clock)];
  if (prefixed) parts.push(h("b", {}, rank < 0 ? "·" : String(rank)));
  const line = marked(level === "warning" ? `⚠ ${said}` : said, words);
  return h("div", { "data-level": level }, ...parts, h("span", {}, ...line));
}

/** The text with what was searched for marked. */
function marked(said: string, words: string): (Node | string)[] {
  if (!words) return [said || " "];
  const parts: (Node | string)[] = [];
  const [low, searched] = [said.toLowerCase(), words.toLowerCase()];
  let from = 0;
  for (let at = low.indexOf(searched); at >= 0; at = low.indexOf(searched, from)) {
    parts.push(said.slice(from, at), h("mark", {}, said.slice(at, at + words.length)));
    from = at + words.length;
  }
  return [...parts, said.slice(from)];
}
