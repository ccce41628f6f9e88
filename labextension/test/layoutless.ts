/** A document without a layout, whose clock and frames a test moves. */

import { vi } from "vitest";

let frames: FrameRequestCallback[] = [];

/** Draws what waits for the next frame. */
export function frame(): void {
  for (const draw of frames.splice(0)) draw(0);
}

/** now: seconds since the epoch. */
export function begin(now: number): void {
  frames = [];
  vi.useFakeTimers({ now: now * 1000, toFake: ["Date", "setInterval", "clearInterval"] });
  vi.stubGlobal("requestAnimationFrame", (draw: FrameRequestCallback) => frames.push(draw));
  vi.stubGlobal("cancelAnimationFrame", () => {});
  vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} }); // biome-ignore format: a stub
  document.body.replaceChildren();
}

export function end(): void {
  vi.useRealTimers();
  vi.unstubAllGlobals();
}
