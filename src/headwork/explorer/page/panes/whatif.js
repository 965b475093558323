// Put what a second input gives, at one place after the other, into the first; see how the answer moves.
import { h, percent, put, times } from "../dom.js";
import { Heatmap } from "../heatmap.js";
import { pixelsAsImage } from "../image.js";
import { differenceLegend } from "../legend.js";
import { pane } from "../pane.js";
import { saidBy } from "../said.js";
import { TYPING } from "../session.js";
import { words } from "../words.js";

export function whatifPane(context) {
  const { described, store, session, newLive, isShown } = context;
  const map = new Heatmap({ label: "change of the answer, by place", largest: 36, most: 520, onPoint: (row, column) => point(row, column) });
  const note = h("p.note", { "aria-live": "polite" });
  const legend = h("p.note");
  const inputs = h("div.compared");
  let found = null; // {header, values: how much the score changes, shape}
  let parts = [];
  const live = newLive("effects", (part) => add(part), note);

  function add(part) {
    const { header } = part;
    parts[header.row] = part;
    const shape = [header.names.length, Math.max(...parts.map(({ arrays }) => arrays.metric.shape[0]))];
    found = { header, shape, values: new Float32Array(shape[0] * shape[1]).fill(NaN) };
    parts.forEach(({ arrays }, row) => arrays.metric.data.forEach((v, i) => (found.values[row * shape[1] + i] = v - header.own.logit)));
    const where = header.begun === null ? "" : ` The target is read as far as ${words.quote(header.begun)}, where the two translations part.`;
    note.textContent = `Row ${header.row + 1} of ${shape[0]}.${where}`;
    put(legend, differenceLegend(`the score of ${header.name} falls`, "rises"), `; white: it stays. It is ${header.own.logit.toFixed(1)} for the first input and ${header.other.logit.toFixed(1)} for the second.`);
    draw();
  }

  // What putting in one place does, in words.
  function sentence(row, column) {
    const { name, names, own } = found.header;
    const place = `${names[row]}, ${columnName(row, column)}`;
    const said = parts[row]?.header.said[column];
    if (said === undefined) return `${place}: not computed`;
    const [before, now] = [own.logit, parts[row].arrays.metric.data[column]].map((v) => v.toFixed(1));
    const score = before === now ? `the score of ${name} stays ${now}` : `the score of ${name} ${Number(now) < before ? "falls" : "rises"} from ${before} to ${now} (${percent(own.share)} to ${percent(parts[row].arrays.share.data[column])})`;
    return `Taking ${place} from the second input ${said === own.name ? `leaves the answer ${said}` : `moves the answer from ${own.name} to ${said}`}: ${score}`;
  }
  function columnName(row, column) {
    if (found.header.axis === "head") return `head ${column}`;
    const sequence = parts[row]?.header.sequence ?? 0;
    const token = store.get("reading")?.header.sequences[sequence]?.strings[column];
    return `at ${token === undefined ? `token ${column}` : described.image ? token : words.quote(token)}`;
  }
  function picture() {
    if (!found) return null;
    const { header, values, shape } = found;
    let high = 1e-6;
    for (const v of values) if (Math.abs(v) > high) high = Math.abs(v);
    const isPair = described.input === "text pair";
    const columnNames = times(shape[1], (i) => (header.axis === "head" ? `head ${i}` : isPair ? String(i) : (store.get("reading")?.header.sequences[0].strings[i] ?? String(i))));
    return { title: `What if: change of the score of ${header.name}`, values, shape, rowNames: header.names, columnNames, high, signed: true, describe: sentence };
  }
  const draw = () => map.draw(picture());
  function point(row, column) {
    if (row === null || !found) return store.set({ hover: null });
    if (found.header.axis === "token") store.set({ hover: { sequence: parts[row]?.header.sequence ?? 0, token: column } });
  }

  // Both inputs with their answers, one below the other.
  const other = () => store.get("other");
  let second = null;
  const look = newLive("second input", (part) => ((second = part), compare()), (sentence) => ((second = null), compare(sentence)));
  const askSecond = () => other() && isShown() && look.question({ question: "Read", about: session.about(other()) }, { after: TYPING });
  function compare(problem) {
    const { reading } = store.values;
    if (!reading) return;
    const line = (title, part) => h("div.compared-line", h("span.note", title), part ? shown(part) : h("span", { class: problem ? "error" : "note" }, problem ?? "There is none yet."));
    put(inputs, line("First input", reading), line("Second input", second));
    if (!second || described.image) return;
    const [mine, theirs] = [reading, second].map(({ header }) => header.sequences[0].strings.length);
    if (mine !== theirs) inputs.append(h("p.error", `The first has ${mine} tokens, the second ${theirs}: both must have as many.`));
  }
  function shown(part) {
    const { header, arrays } = part;
    const what = described.image ? pixelsAsImage(arrays.pixels.data, described.image.size, described.image.channels) : h("span.compared-text", header.sequences[0].strings.join(""));
    return h("span", what, " → ", h("strong", saidBy(part)));
  }
  const field = described.input === "image" ? imageField() : textField();
  function textField() {
    const value = (input) => (described.has_tokenizer ? (input.text ?? "") : (input.ids ?? []).join(" "));
    const area = h("textarea", {
      rows: 2,
      spellcheck: false,
      oninput: () => store.set({ other: described.has_tokenizer ? { text: area.value } : { ids: area.value.split(/[\s,]+/).filter(Boolean).map(Number) } }),
    });
    const show = () => {
      if (area !== document.activeElement) area.value = value(other() ?? store.get("input"));
    };
    show();
    store.on(["other", "input"], show);
    return h("label.field", h("span", "The second input: change some of it, but keep as many tokens"), area);
  }
  function imageField() {
    return h("p.row", h("button", { onclick: () => store.set({ other: store.get("input") }) }, "Keep this image as the second input"), h("span.note", "Then draw the first."));
  }
  store.on(["reading", "tab"], () => (askSecond(), isShown() && compare()));
  store.on(["other"], askSecond);
  askSecond();
  compare();

  const start = h("button", {
    onclick: () => {
      if (!other()) return (note.textContent = "There is no second input yet.");
      [found, parts] = [null, []];
      put(legend);
      note.textContent = words.thinking;
      live.question({ question: "Effects", about: session.about(), other: other(), axis: store.get("axis") });
    },
  }, "Compute");
  const axis = (value, label) => {
    const input = h("input", { type: "radio", name: "hw-axis", value, checked: store.get("axis") === value, onchange: () => store.set({ axis: value }) });
    return h("label.tick", input, label);
  };
  store.on(["repaint"], () => found && draw());
  return pane(
    "whatif",
    words.whatif,
    words.whatifAbout,
    picture,
    field,
    inputs,
    h("div.row", { role: "group", "aria-label": "what is put in" }, axis("head", "one head at a time"), axis("token", "one token of one layer at a time"), start, h("button", { onclick: () => live.stop() }, "Stop")),
    note,
    map.element,
    legend,
  );
}
