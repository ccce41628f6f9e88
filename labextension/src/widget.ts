/** The notebook's widget: hands what the kernel sends to the views, and their clicks to the kernel. */

import type { AnyModel } from "@anywidget/types";
import type { Message } from "./view/messages";
import { RunModel, unpack } from "./view/model";
import { RunView } from "./view/view";
import "uplot/dist/uPlot.min.css";
import "./view/view.css";

/** A kernel that does not answer (it may be busy) is not asked more often. */
const ASK_AGAIN_MS = 3000;

/** One for each widget model; the model may be shown in several places. */
export default () => {
  const run = new RunModel();
  const views = new Set<RunView>();

  function initialize({ model }: { model: AnyModel }): () => void {
    let asked = 0;
    const ask = () => {
      if (Date.now() - asked < ASK_AGAIN_MS) return;
      asked = Date.now();
      model.send({ type: "hello" });
    };
    const receive = (content: { type: string; delta: Message }, buffers: DataView[]) => {
      if (content.type !== "delta") return;
      if (!run.apply(unpack(content.delta, buffers))) ask();
      else for (const view of views) view.draw();
    };
    model.on("msg:custom", receive);
    ask();
    return () => model.off("msg:custom", receive);
  }

  function render({ model, el }: { model: AnyModel; el: HTMLElement }): () => void {
    const view = new RunView(el, { model: run, onStop: () => model.send({ type: "stop" }) });
    views.add(view);
    return () => {
      views.delete(view);
      view.dispose();
    };
  }

  return { initialize, render };
};
