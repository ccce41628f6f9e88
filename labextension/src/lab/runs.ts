/** The plugin that provides what the others share: the REST routes, the list of runs, settings and translation. */

import type { JupyterFrontEndPlugin } from "@jupyterlab/application";
import { PageConfig, URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import { Token } from "@lumino/coreutils";
import { Api } from "../api";
import { DEFAULT_SETTINGS, type SettingValues } from "../generated";
import { RunFeed } from "../panel/feed";
import { ServerFeed } from "../panel/serverfeed";
import type { Translation } from "../translation";
import { setPreferences } from "../view/preferences";

export const ID = "ddl-magics";

export interface IRuns {
  readonly api: Api;
  readonly feed: RunFeed;
  readonly servers: ServerFeed;
  /** The settings of schema/runs.json, as the reader has set them now. */
  readonly settings: Readonly<SettingValues>;
  readonly trans: Translation;
}

export const IRuns = new Token<IRuns>(`${ID}:IRuns`, "The distributed runs of this server.");

export const runsPlugin: JupyterFrontEndPlugin<IRuns> = {
  id: `${ID}:runs`,
  description: "Provides the distributed runs of all kernels.",
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
    const settings = { ...DEFAULT_SETTINGS };
    const update = ({ composite }: ISettingRegistry.ISettings) => {
      Object.assign(settings, DEFAULT_SETTINGS, composite);
      feed.setInterval(settings.pollSeconds);
      setPreferences(settings);
    };
    void registry
      ?.load(runsPlugin.id)
      .then((loaded) => {
        loaded.changed.connect(update);
        update(loaded);
      })
      .catch((error) => console.warn("ddl-magics: cannot read the settings, using the defaults", error));
    // A hidden page does not poll, so the list is out of date when the page becomes visible.
    document.addEventListener("visibilitychange", () => document.hidden || feed.refresh());
    void app.started.then(() => feed.start());
    return {
      api,
      feed,
      servers: new ServerFeed(api),
      settings,
      trans: (translator ?? nullTranslator).load("ddl_magics"),
    };
  },
};
