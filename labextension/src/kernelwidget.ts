/** A widget of the notebook: passes the kernel's messages to its views, and their clicks to the kernel. */

import type { AnyModel } from "@anywidget/types";

/** Interval of the requests for a full message; a kernel that executes a cell does not answer. */
const HELLO_INTERVAL_MS = 3000;

interface View {
  draw(): void;
  dispose(): void;
}

interface Parts<Incoming, Outgoing> {
  /** Takes a message of the kernel; false if one before it is missing. */
  apply(content: Incoming, buffers: DataView[]): boolean;
  /** Adds a view to `el`, whose clicks are sent by `send`; `model` has the widget's traits. */
  view(el: HTMLElement, send: (message: Outgoing) => void, model: AnyModel): View;
}

/** What anywidget calls for a widget model, which may be displayed several times. */
export function kernelWidget<Incoming extends { type: string }, Outgoing>(
  type: Incoming["type"],
  { apply, view }: Parts<Incoming, Outgoing>,
) {
  const views = new Set<View>();

  function initialize({ model }: { model: AnyModel }): () => void {
    let lastHello = 0;
    const requestFull = () => {
      if (Date.now() - lastHello < HELLO_INTERVAL_MS) return;
      lastHello = Date.now();
      model.send({ type: "hello" });
    };
    const receive = (content: Incoming, buffers: DataView[]) => {
      if (content.type !== type) return;
      if (!apply(content, buffers)) requestFull();
      else for (const one of views) one.draw();
    };
    model.on("msg:custom", receive);
    requestFull();
    return () => model.off("msg:custom", receive);
  }

  function render({ model, el }: { model: AnyModel; el: HTMLElement }): () => void {
    const added = view(el, (message) => model.send(message), model);
    views.add(added);
    return () => {
      views.delete(added);
      added.dispose();
    };
  }

  return { initialize, render };
}
