/** Translation of texts: the part of JupyterLab's TranslationBundle that is used here, and English. */

export interface Translation {
  /** A text in which %1, %2 ... stand for the values. */
  __(text: string, ...values: unknown[]): string;
  /** The singular or the plural text for `count`, which is %1. */
  _n(singular: string, plural: string, count: number, ...values: unknown[]): string;
}

/** The texts as they are in the code, for hosts without translations. */
export const english: Translation = {
  __: fill,
  _n: (singular, plural, count, ...values) => fill(count === 1 ? singular : plural, count, ...values),
};

function fill(text: string, ...values: unknown[]): string {
  return text.replace(/%(\d+)/g, (mark, n) => (Number(n) <= values.length ? String(values[n - 1]) : mark));
}
