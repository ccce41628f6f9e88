/** How overlaid runs are told apart: by a letter, a colour and a dash pattern. */

/** With more lines, a chart is unreadable. */
export const MAX_RUNS = 8;

/** Lengths of strokes and gaps in pixels; the first line is solid. */
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

export interface LineStyle {
  letter: string;
  /** Index in the palette. */
  colour: number;
  dash: readonly number[];
}

/** The style of the run at `index`, which is below `MAX_RUNS`. */
export function lineStyle(index: number): LineStyle {
  return { letter: String.fromCharCode(65 + index), colour: index, dash: DASHES[index % DASHES.length] ?? [] };
}
