/** The icons of our own. The theme sets their colour. */

import { LabIcon } from "@jupyterlab/ui-components";

/** Of distributed runs: workers around what they share. */
export const runsIcon = new LabIcon({
  name: "ddl-magics:runs",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <circle cx="8" cy="8" r="2.4"/><circle cx="8" cy="2" r="1.7"/><circle cx="13.6" cy="6" r="1.7"/>
    <circle cx="11.5" cy="13" r="1.7"/><circle cx="4.5" cy="13" r="1.7"/><circle cx="2.4" cy="6" r="1.7"/>
  </g>
</svg>`,
});

/** Of a comparison: two curves over one axis. */
export const compareIcon = new LabIcon({
  name: "ddl-magics:compare",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <g fill="none" stroke-width="1.5" stroke-linecap="round">
    <path class="jp-icon3 jp-icon-selectable" stroke="#616161" d="M2 2v12h12"/>
    <path class="jp-icon3 jp-icon-selectable" stroke="#616161" d="M4.5 3.5c1 5 4 7 9 7"/>
    <path class="jp-icon3 jp-icon-selectable" stroke="#616161" stroke-dasharray="2 2.5" d="M4.5 6.5c1.5 3.5 4 5 9 5"/>
  </g>
</svg>`,
});
