/** What all parts of the extension share: the server's routes, the list, the reader's settings and language. */

import type { JupyterFrontEndPlugin } from "@jupyterlab/application";
import { PageConfig, URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import { Token } from "@lumino/coreutils";
import { Api } from "../api";
import { RunFeed } from "../panel/feed";
import type { Translation } from "../translation";
import { prefer } from "../view/preferences";
import { RunSettings } from "./settings";

export const ID = "ddl-magics";

export interface IRuns {
  readonly api: Api;
  readonly feed: RunFeed;
  readonly settings: RunSettings;
  readonly trans: Translation;
}

export const IRuns = new Token<IRuns>(`${ID}:IRuns`, "The distributed runs that this server knows.");

export const runsPlugin: JupyterFrontEndPlugin<IRuns> = {
  id: `${ID}:runs`,
  description: "Knows the distributed runs of all kernels.",
  autoStart: true,
  provides: IRuns,
  optional: [ISettingRegistry, ITranslator],
  activate: (app, registry: ISettingRegistry | null, translator: ITranslator | null) => {
    const { serverSettings } = app.serviceManager;
    const api = new Api(
      (path, init) => ServerConnection.makeRequest(URLExt.join(serverSettings.baseUrl, path), init, serverSettings),
      PageConfig.getBaseUrl(),
    );
    const feed = new RunFeed(api);
    const settings = new RunSettings();
    settings.changed(() => {
      feed.setInterval(settings.pollSeconds);
      prefer(settings);
    });
    void registry
      ?.load(runsPlugin.id)
      .then((loaded) => settings.follow(loaded))
      .catch((error) => console.warn("ddl-magics: the settings cannot be read, the defaults hold", error));
    // A hidden page asks nothing: what it missed is asked for when it is seen again.
    document.addEventListener("visibilitychange", () => document.hidden || feed.refresh());
    void app.started.then(() => feed.start());
    return { api, feed, settings, trans: (translator ?? nullTranslator).load("ddl_magics") };
  },
};
