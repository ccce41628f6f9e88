/** A document without a layout, where everything is visible, and whose clock and frames a test moves. */

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

/** now: seconds since the epoch. */
export function begin(now: number): void {
  vi.useFakeTimers({ now: now * 1000 });
  vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} }); // biome-ignore format: a stub
  vi.spyOn(HTMLElement.prototype, "offsetParent", "get").mockReturnValue(document.body);
  document.body.replaceChildren();
}

export function end(): void {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
}
