/** The notebook's widget of a search. */

import type { SearchKernelMessage, SearchPageMessage } from "./generated";
import { kernelWidget } from "./kernelwidget";
import { SearchModel } from "./search/model";
import { SearchView } from "./search/view";
import "./view/view.css";
import "./search/search.css";

export default () => {
  const model = new SearchModel();
  return kernelWidget<SearchKernelMessage, SearchPageMessage>("search", {
    apply: ({ search }) => model.apply(search),
    view: (el, send) =>
      new SearchView(el, {
        model,
        onStop: () => send({ type: "stop" }),
        onStopTrial: (trial) => send({ type: "stop_trial", trial }),
      }),
  });
};
