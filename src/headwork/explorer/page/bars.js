// Probabilities as bars: a list that reads well aloud.
import { h, percent } from "./dom.js";

// rows: [{name, value, cut, note, before}]
export function bars(rows, { most = 1 } = {}) {
  return h(
    "ol",
    { class: "bars" },
    rows.map(({ name, value, cut, note, before }) =>
      h(
        "li",
        { class: cut ? "cut" : "" },
        h("span", { class: "bar-name" }, name),
        h(
          "span",
          { class: "bar-room", "aria-hidden": "true" },
          before === undefined ? null : h("span", { class: "bar before", style: { width: `${(100 * before) / most}%` } }),
          h("span", { class: "bar", style: { width: `${(100 * value) / most}%` } }),
        ),
        h("span", { class: "bar-value" }, percent(value), note ? h("small", {}, ` ${note}`) : null),
      ),
    ),
  );
}
