/** How runs that are drawn over each other are told apart: by a letter, a colour and a pattern of strokes. */

/** More lines in a chart cannot be told apart. */
export const MOST_RUNS = 8;

/** Lengths of strokes and gaps, in pixels; the first line is solid. */
const DASHES: readonly (readonly number[])[] = [
  [],
  [7, 4],
  [2, 3],
  [9, 3, 2, 3],
  [14, 4],
  [9, 3, 2, 3, 2, 3],
  [4, 2],
  [14, 3, 5, 3],
];

export interface Look {
  letter: string;
  /** Counts in the view's palette. */
  colour: number;
  dash: readonly number[];
}

/** The look of the run at this place, below `MOST_RUNS`. */
export function look(place: number): Look {
  return { letter: String.fromCharCode(65 + place), colour: place, dash: DASHES[place % DASHES.length] ?? [] };
}
