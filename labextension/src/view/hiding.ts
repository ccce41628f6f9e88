/** The rule by which a live view hides what the notebook has saved of its run: both would say the same. */

/**
 * In JupyterLab it is what stands in the same output; elsewhere, where no name of an output is known, in the document.
 * The block of a run whose kernel has ended stays: it says more than the view.
 *
 * @param id of the run or the search
 */
export function hidingRule(id: string): string {
  if (!/^[\w.-]+$/.test(id)) return "";
  const view = `.ddl-run[data-run="${id}"]:not(.ddl-stored *)`;
  const block = `.ddl-static[data-run="${id}"]`;
  const stored = `.ddl-stored[data-run="${id}"]`;
  const hidden = `${block}:not(${stored} *), ${stored}:not([data-lost])`;
  return [
    `body:not([data-jp-theme-light]):has(${view}) ${block} { display: none; }`,
    `.jp-OutputArea:has(${view}) .jp-OutputArea-child:has(${hidden}) { display: none; }`,
  ].join("\n");
}
