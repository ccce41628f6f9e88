/** The icon of distributed runs: workers around what they share. The theme sets its colour. */

import { LabIcon } from "@jupyterlab/ui-components";

export const runsIcon = new LabIcon({
  name: "ddl-magics:runs",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <circle cx="8" cy="8" r="2.4"/><circle cx="8" cy="2" r="1.7"/><circle cx="13.6" cy="6" r="1.7"/>
    <circle cx="11.5" cy="13" r="1.7"/><circle cx="4.5" cy="13" r="1.7"/><circle cx="2.4" cy="6" r="1.7"/>
  </g>
</svg>`,
});
