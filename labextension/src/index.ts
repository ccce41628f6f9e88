/** The extension of JupyterLab and Notebook 7. */

import { blocksPlugin } from "./lab/blocks";
import { panelPlugin } from "./lab/panel";
import { runningPlugin } from "./lab/running";
import { runsPlugin } from "./lab/runs";
import { statusPlugin } from "./lab/status";
import "./panel/panel.css";
import "./panel/state.css";

export default [runsPlugin, panelPlugin, runningPlugin, statusPlugin, blocksPlugin];
