/** A document without a layout, where everything in it is visible, and whose clock and frames a test moves. */

import { vi } from "vitest";

/** Draws what waits for the next frame. */
export function frame(): void {
  vi.advanceTimersToNextFrame();
}

/** A function that applies a message to a model, and draws its view in the next frame. */
export function drawing<Message>(model: { apply(message: Message): boolean }, view: { draw(): void }) {
  return (message: Message) => {
    model.apply(message);
    view.draw();
    frame();
  };
}

/** Lets some seconds pass. */
export async function seconds(time: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(time * 1000);
}

const observers = new Set<Observer>();

class Observer {
  constructor(readonly call: () => void) {}
  observe() {
    observers.add(this);
  }
  disconnect() {
    observers.delete(this);
  }
}

/** Tells all observers of sizes that a size has changed. */
export function resize(): void {
  for (const { call } of observers) call();
}

/** now: seconds since the epoch. */
export function begin(now: number): void {
  vi.useFakeTimers({ now: now * 1000 });
  observers.clear();
  vi.stubGlobal("ResizeObserver", Observer);
  vi.spyOn(HTMLElement.prototype, "offsetParent", "get").mockImplementation(function (this: HTMLElement) {
    return this.isConnected ? document.body : null;
  });
  document.body.replaceChildren();
}

export function end(): void {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
}
