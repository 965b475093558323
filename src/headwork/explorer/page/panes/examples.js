// The test data of the run, the worst mistakes first.
import { h, percent, put } from "../dom.js";
import { pixelsAsImage } from "../image.js";

export function examples({ described, store, newLive }) {
  const list = h("div.examples");
  const note = h("p.note");
  const live = newLive("examples", (part) => show(part), note);
  const box = h("details.fold", { ontoggle: () => box.open && !list.children.length && live.question({ question: "Examples", n: 24 }) }, h("summary", "Test examples, the worst mistakes first"), note, list);

  function show({ header, arrays }) {
    const wrong = header.rows.filter((row) => !row.right).length;
    note.textContent = `Of ${header.n_judged.toLocaleString("en")} test examples these ${header.rows.length} have the largest loss; ${wrong} of them are wrong.`;
    const size = arrays.pixels?.shape.slice(1);
    put(
      list,
      header.rows.map((row, i) => {
        const says = row.label === null ? `loss ${row.loss.toFixed(2)}` : row.right ? `${row.label}, ${percent(row.probability)}` : `${row.label}, taken for ${row.predicted} (${percent(row.probability)})`;
        const input = () => {
          if (!size) return described.has_tokenizer ? { text: row.text } : { example: row.index };
          const n = size[0] * size[1] * size[2];
          return { pixels: Array.from(arrays.pixels.data.subarray(i * n, (i + 1) * n)) };
        };
        const image = size && pixelsAsImage(input().pixels, size.slice(1), size[0]);
        return h("button", { class: row.right ? "example" : "example wrong", onclick: () => store.set({ input: input(), query: null }) }, image, size ? null : h("span.example-text", row.text), h("small", says));
      }),
    );
  }
  return box;
}
