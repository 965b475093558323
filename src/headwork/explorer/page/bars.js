// Probabilities as bars: a list that reads well aloud.
import { h, percent } from "./dom.js";

// rows: [{name, value, cut, note, before}]
export function bars(rows, { most = 1 } = {}) {
  return h(
    "ol.bars",
    rows.map(({ name, value, cut, note, before }) =>
      h(
        "li",
        { class: cut ? "cut" : "" },
        h("span.bar-name", name),
        h(
          "span.bar-room",
          { "aria-hidden": "true" },
          before === undefined ? null : h("span.bar.before", { style: { width: `${(100 * before) / most}%` } }),
          h("span.bar", { style: { width: `${(100 * value) / most}%` } }),
        ),
        h("span.bar-value", percent(value), note ? h("small", ` ${note}`) : null),
      ),
    ),
  );
}
