// A pane: a heading, one sentence on what it shows, the tools of its picture, and the rest.
import { h, newId } from "./dom.js";
import { pictureTools } from "./picture.js";

export function pane(name, title, about, describe, ...children) {
  const id = newId("pane");
  return h(
    "section",
    { class: `pane pane-${name}`, "aria-labelledby": id },
    h("div.pane-top", h("h2", { id }, title), describe ? pictureTools(describe) : null),
    h("p.about", about),
    ...children,
  );
}
