/** The served models, above the list of runs: version, requests, latencies and errors, and a button that ends one. */

import type { ServedModel } from "../generated";
import type { Translation } from "../translation";
import { button, h, setAttribute, setChildren, setNote, setText, setVisible } from "../view/dom";
import { number, UNKNOWN } from "../view/format";
import { Sparkline } from "./sparkline";

export class ServersView {
  readonly element: HTMLElement;
  private readonly list = h("ul", { class: "ddl-servers-list" });
  private readonly rows = new Map<string, ServerRow>();

  /** @param stop ends a served model */
  constructor(
    private readonly trans: Translation,
    private readonly stop: (name: string) => void,
  ) {
    const title = h("h2", { class: "ddl-servers-title", id: "ddl-servers-title" }, trans.__("Served models"));
    this.element = h("section", { class: "ddl-servers", "aria-labelledby": title.id }, title, this.list);
    setVisible(this.element, false);
  }

  draw(servers: readonly ServedModel[]): void {
    setVisible(this.element, servers.length > 0);
    const names = new Set(servers.map(({ name }) => name));
    for (const name of this.rows.keys()) if (!names.has(name)) this.rows.delete(name);
    const elements = servers.map((server) => {
      const row = this.rows.get(server.name) ?? new ServerRow(this.trans, () => this.stop(server.name));
      this.rows.set(server.name, row);
      row.draw(server);
      return row.element;
    });
    setChildren(this.list, elements);
  }
}

class ServerRow {
  readonly element: HTMLElement;
  private readonly name = h("span", { class: "ddl-server-name" });
  private readonly version = h("span", { class: "ddl-server-version" });
  private readonly url = h("span", { class: "ddl-server-url" });
  private readonly rate = h("span", { class: "ddl-server-rate" });
  private readonly latency = h("span", { class: "ddl-server-latency" });
  private readonly errors = h("span", { class: "ddl-server-errors" });
  private readonly problem = h("span", { class: "ddl-server-problem" });
  private readonly sparkline = new Sparkline();
  private readonly button: HTMLButtonElement;

  constructor(
    private readonly trans: Translation,
    stop: () => void,
  ) {
    this.button = button("", stop, { class: "ddl-server-stop" });
    this.element = h(
      "li",
      { class: "ddl-server" },
      h("span", { class: "ddl-server-line" }, this.name, this.version, this.button),
      h("span", { class: "ddl-server-line" }, this.url),
      h("span", { class: "ddl-server-line" }, this.rate, this.sparkline.element, this.errors),
      h("span", { class: "ddl-server-line" }, this.latency),
      this.problem,
    );
  }

  draw(server: ServedModel): void {
    const { trans } = this;
    const { name, alive, latency } = server;
    setAttribute(this.element, "data-server", name);
    setAttribute(this.element, "data-alive", String(alive));
    setText(this.name, name);
    setAttribute(this.name, "title", name);
    setText(this.version, trans.__("version %1", server.version));
    setText(this.url, server.url);
    setAttribute(this.url, "title", trans.__("gRPC: %1", server.grpc));
    setText(this.rate, alive ? trans.__("%1 requests/s", number(server.rate)) : "");
    this.sparkline.draw(alive ? server.rates : []);
    setText(this.errors, trans._n("%1 error", "%1 errors", server.errors));
    setAttribute(this.errors, "data-some", server.recent_errors > 0);
    setText(this.latency, alive ? latencies(latency) : "");
    const lost = server.dropped ? trans.__("%1 requests are missing in the log", number(server.dropped)) : "";
    setNote(this.problem, alive ? lost : server.problem);
    setText(this.button, alive ? trans.__("Stop") : trans.__("Remove"));
    setAttribute(this.button, "aria-label", alive ? trans.__("Stop serving %1", name) : trans.__("Remove %1", name));
  }
}

/** "p50 1.20 · p95 3.40 · p99 8.00 ms", of the last minute. */
export function latencies(latency: ServedModel["latency"]): string {
  const entries = [
    ["p50", latency.p50],
    ["p95", latency.p95],
    ["p99", latency.p99],
  ] as const;
  if (entries.every(([, value]) => value === null)) return "";
  const times = entries.map(([name, value]) => `${name} ${value === null ? UNKNOWN : number(value * 1000)}`);
  return `${times.join(" · ")} ms`;
}
