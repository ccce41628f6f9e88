/** Trials and messages of a search for tests. */

import type { SearchInfo, SearchMessage, SearchState, TrialView } from "../../src/generated";

export const NOW = 1_700_000_000;

export const INFO: SearchInfo = {
  id: "s1",
  name: "tuned",
  metric: "val_accuracy",
  direction: "max",
  others: [],
  planned: 5,
  axes: [
    { name: "lr", low: 1e-4, high: 1e-1, log: true, choices: null },
    { name: "act", low: 0, high: 1, log: false, choices: ["relu", null, true] },
  ],
  waiting: false,
};

export const STATE: SearchState = {
  state: "RUNNING",
  message: "",
  about: "tpe, asha, 4 at a time, 1 worker each",
  at: NOW,
  seconds: 100,
  left: 65,
  front: [],
};

export function trial(number: number, fields: Partial<TrialView> = {}): TrialView {
  return {
    number,
    state: "finished",
    value: 0.5,
    others: [],
    params: [1e-2, "relu"],
    epochs: 9,
    begun: NOW - 30,
    seconds: 30,
    reason: "",
    run: `run${number}`,
    tries: 1,
    curve: [
      [1, 0.25],
      [9, 0.5],
    ],
    ...fields,
  };
}

export function full(
  trials: TrialView[],
  state: Partial<SearchState> = {},
  info: Partial<SearchInfo> = {},
): SearchMessage {
  return { n: 1, full: true, now: NOW, info: { ...INFO, ...info }, state: { ...STATE, ...state }, trials };
}

export function update(n: number, trials: TrialView[], state: Partial<SearchState> = {}): SearchMessage {
  return { n, full: false, now: NOW, state: { ...STATE, ...state }, trials };
}
