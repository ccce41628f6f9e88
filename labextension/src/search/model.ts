/** A search as the page knows it: built from the kernel's messages, and read by the views. */

import {
  ENDED_TRIAL_STATES,
  type SearchInfo,
  type SearchMessage,
  type SearchState,
  type TrialState,
  type TrialView,
} from "../generated";
import { TERMINAL } from "../view/model";

const ENDED: ReadonlySet<TrialState> = new Set(ENDED_TRIAL_STATES);

export class SearchModel {
  info: SearchInfo | null = null;
  state: SearchState | null = null;
  /** By number. */
  readonly trials = new Map<number, TrialView>();
  private last = 0;
  /** The kernel's clock minus that of the page, in seconds. */
  private offset = 0;

  /** Applies a message. Returns false if one before it is missing: then a full one is needed. */
  apply(message: SearchMessage): boolean {
    if (!message.full && (message.n !== this.last + 1 || !this.info)) return false;
    this.last = message.n;
    this.offset = message.now - Date.now() / 1000;
    if (message.full) this.trials.clear();
    if (message.info) this.info = message.info;
    this.state = message.state;
    for (const trial of message.trials) this.trials.set(trial.number, trial);
    return true;
  }

  get over(): boolean {
    return this.state !== null && TERMINAL.has(this.state.state);
  }

  /** The best finished trial; null with several objectives. */
  get best(): TrialView | null {
    const [first] = this.state?.front ?? [];
    return (first === undefined || this.info?.others.length ? null : this.trials.get(first)) ?? null;
  }

  /** The time now by the kernel's clock, in seconds since the epoch. */
  now(): number {
    return Date.now() / 1000 + this.offset;
  }

  /** Seconds since the trial began, or that it took. */
  seconds(trial: TrialView): number {
    return trial.seconds ?? Math.max(0, this.now() - trial.begun);
  }

  ended(): number {
    return [...this.trials.values()].filter(({ state }) => ENDED.has(state)).length;
  }
}

/** "21 finished · 11 pruned (38 of 196 epochs saved) · 1 failed · 2 tried again". */
export function totals(trials: readonly TrialView[]): string {
  const count = (state: TrialState) => trials.filter((trial) => trial.state === state).length;
  const pruned = trials.filter(({ state }) => state === "pruned");
  const whole = Math.max(0, ...trials.filter(({ state }) => state === "finished").map(({ epochs }) => epochs));
  const saved = pruned.reduce((sum, { epochs }) => sum + Math.max(0, whole - epochs), 0);
  const spared = saved
    ? ` (${saved} of ${saved + trials.reduce((sum, { epochs }) => sum + epochs, 0)} epochs saved)`
    : "";
  const again = trials.filter(({ tries }) => tries > 1).length;
  const parts = [`${count("finished")} finished`, `${pruned.length} pruned${spared}`, `${count("failed")} failed`];
  return [...parts, ...(again ? [`${again} tried again`] : [])].join(" · ");
}
