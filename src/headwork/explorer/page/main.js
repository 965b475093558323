// The page that the server shows: its token comes in the address, behind the #, and is taken out of it at once.
import { httpAsk } from "./ask.js";
import { mount } from "./mount.js";

const KEY = "headwork token";
const given = new URLSearchParams(location.hash.slice(1));
if (given.has("token")) {
  sessionStorage.setItem(KEY, given.get("token"));
  given.delete("token");
  history.replaceState(null, "", `${location.pathname}#${given}`);
}
mount(document.getElementById("page"), httpAsk(sessionStorage.getItem(KEY) ?? ""), { address: true });
