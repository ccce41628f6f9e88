/** Translation of texts: what is used of JupyterLab's bundles, and English. */

import type { TranslationBundle } from "@jupyterlab/translation";

export type Translation = Pick<TranslationBundle, "__" | "_n">;

/** The texts as they are in the code, for hosts without translations. */
export const english: Translation = {
  __: fill,
  _n: (singular, plural, count, ...values) => fill(count === 1 ? singular : plural, count, ...values),
};

function fill(text: string, ...values: unknown[]): string {
  return text.replace(/%(\d+)/g, (mark, n) => (Number(n) <= values.length ? String(values[n - 1]) : mark));
}
