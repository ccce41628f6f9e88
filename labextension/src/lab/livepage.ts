/** A run's tab: the live view that the notebook draws too, fed by the server instead of a kernel. */

import type { RunActions } from "../actions";
import { type Api, ApiError } from "../api";
import { Follower } from "../follow";
import type { Translation } from "../translation";
import { h, show, text } from "../view/dom";
import { RunView } from "../view/view";
import "uplot/dist/uPlot.min.css";
import "../view/view.css";

/** How long the server may wait for news, and we after it could not be asked. */
const WAIT_SECONDS = 20;
const AGAIN_MS = 5000;

export interface LivePageOptions {
  api: Api;
  run: string;
  actions: RunActions;
  trans: Translation;
}

/** Draws the run into `host` until it has ended, or `dispose` is called. A hidden tab asks nothing. */
export function createLivePage(host: HTMLElement, { api, run, actions, trans }: LivePageOptions): { dispose(): void } {
  const over = new AbortController();
  const follower = new Follower(api, run);
  const notice = h("p", { class: "ddl-banner", role: "status" });
  show(notice, false);
  host.append(notice);
  const view = new RunView(host, { model: follower.model, onStop: () => void actions.stop(run) });

  async function follow(): Promise<void> {
    while (!over.signal.aborted) {
      if (document.hidden || !host.offsetParent) {
        await pause(1000);
        continue;
      }
      try {
        await follower.ask(WAIT_SECONDS, over.signal);
        show(notice, false);
        view.draw();
        if (follower.done) return;
      } catch (error) {
        if (over.signal.aborted) return;
        text(notice, error instanceof Error ? error.message : String(error));
        show(notice, true);
        if (error instanceof ApiError && (error.status === 404 || error.status === 409)) return;
        text(notice, trans.__("This is how it was: %1", notice.textContent));
        await pause(AGAIN_MS);
      }
    }
  }

  void follow();
  return {
    dispose() {
      over.abort();
      view.dispose();
    },
  };
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
