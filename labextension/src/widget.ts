/** The notebook's widget of a run. */

import type { KernelMessage, PageMessage } from "./generated";
import { kernelWidget } from "./kernelwidget";
import { RunCard } from "./view/card";
import { RunModel, unpack } from "./view/model";
import { RunView } from "./view/view";
import "uplot/dist/uPlot.min.css";
import "./view/view.css";

export default () => {
  const run = new RunModel();
  return kernelWidget<KernelMessage, PageMessage>("delta", {
    apply: ({ delta }, buffers) => run.apply(unpack(delta, buffers)),
    view: (el, send, model) => {
      const View = model.get("form") === "card" ? RunCard : RunView;
      return new View(el, { model: run, onStop: () => send({ type: "stop" }) });
    },
  });
};
