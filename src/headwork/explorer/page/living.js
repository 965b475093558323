// The page that needs no server: the model is in it, and the engine answers.
import { livingAsk } from "./engine/ask.js";
import { mount } from "./mount.js";

const data = JSON.parse(document.getElementById("living").textContent);
const bits = data.about.precision === "float16" ? "in half precision, " : "";
const note = `The model is in this page, ${bits}and your browser computes everything: nothing is sent anywhere.`;
mount(document.getElementById("page"), livingAsk(data), { address: true, note });
