/** Texts in the reader's language: the part of JupyterLab's TranslationBundle that is used here, and English. */

export interface Translation {
  /** A text with %1, %2 ... for the arguments. */
  __(text: string, ...values: unknown[]): string;
  /** The same in singular or plural, by `count`, which is %1. */
  _n(one: string, many: string, count: number, ...values: unknown[]): string;
}

/** What stands in the code, for hosts without translations. */
export const english: Translation = {
  __: fill,
  _n: (one, many, count, ...values) => fill(count === 1 ? one : many, count, ...values),
};

function fill(text: string, ...values: unknown[]): string {
  return text.replace(/%(\d+)/g, (mark, place) => (Number(place) <= values.length ? String(values[place - 1]) : mark));
}
