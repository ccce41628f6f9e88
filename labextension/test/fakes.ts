/** What the panel and the pages get from JupyterLab, for tests. */

import { Signal } from "@lumino/signaling";
import type { RunActions } from "../src/actions";
import type { Row } from "../src/api";
import type { RunRow, SearchRow } from "../src/generated";
import type { Connection, PanelFeed } from "../src/panel/feed";
import { RunList } from "../src/panel/runlist";
import { page } from "./panel/rows";

/** What is watched and refreshed, without a server. */
export class Watched {
  refreshed = 0;
  readonly changed = new Signal<this, void>(this);

  watch(): () => void {
    return () => {};
  }

  refresh(): void {
    this.refreshed += 1;
  }
}

export class FakeFeed extends Watched implements PanelFeed {
  list = new RunList();
  connection: Connection = { kind: "loading" };
  readonly ended = new Signal<this, RunRow | SearchRow>(this);

  set(rows: Row[], searches: SearchRow[] = [], connection: Connection = { kind: "ready" }): void {
    this.list = new RunList();
    this.list.addPage(page("v1", rows, { searches }));
    this.connection = connection;
    this.changed.emit();
  }
}

/** Actions that add their names and arguments to `called`, and answer with `result`. */
export function fakeActions(called: string[], result: () => unknown = () => null): RunActions {
  const call = async (...words: unknown[]) => {
    called.push(words.join(" "));
    return result();
  };
  return new Proxy({} as RunActions, { get: (_, name) => call.bind(null, name) });
}
