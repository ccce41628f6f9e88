/** Helpers of the pages that poll the server. */

/** Whether `host` is visible: in the active tab of a page that is not hidden. */
export function isVisible(host: HTMLElement): boolean {
  return !document.hidden && host.offsetParent !== null;
}

/** Resolves after a time, or as soon as `signal` is aborted. */
export function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}

/** Time that the server may wait for an update of what a tab shows. */
export const WAIT_SECONDS = 20;

/** Pause after a failed request, and interval of the checks whether a hidden page has become visible. */
const RETRY_MS = 5000;
const VISIBLE_CHECK_MS = 1000;

/**
 * Calls `poll` until it or `failed` returns true, or `signal` is aborted. Not while `host` is hidden; a while after an
 * error, which `failed` gets.
 */
export async function follow(
  host: HTMLElement,
  signal: AbortSignal,
  poll: () => Promise<boolean>,
  failed: (error: unknown) => boolean,
): Promise<void> {
  while (!signal.aborted) {
    if (!isVisible(host)) {
      await sleep(VISIBLE_CHECK_MS, signal);
      continue;
    }
    try {
      if (await poll()) return;
    } catch (error) {
      if (signal.aborted || failed(error)) return;
      await sleep(RETRY_MS, signal);
    }
  }
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
